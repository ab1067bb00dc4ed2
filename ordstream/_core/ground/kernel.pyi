from typing import Any

from ordstream._core.ground.chunk import LayoutOwner

MOST_LANES: int

class KernelOwner:
    input_layout: LayoutOwner
    output_layout: LayoutOwner
    state_layout: LayoutOwner | None
    state_keys: Any
    references: Any
    def work_on(self, *lanes: int) -> None: ...
    @property
    def kind(self) -> int: ...
    @property
    def on_error(self) -> int: ...
    @property
    def max_workers(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def first_skip(self) -> tuple[int, bool, int, str] | None: ...
