from collections.abc import Callable
from typing import Any

def watch_exports(core: Any, told: Callable[[str], None]) -> None: ...
