from typing import Any

from ordstream.program import Program

class CodeOwner:
    def __init__(self, program: Program, layout: Any, type: int) -> None: ...
