from typing import Any

from ordstream.expressions.bound import BoundExpr

class CodeOwner:
    def __init__(self, program: BoundExpr, layout: Any, type: int) -> None: ...
