from typing import Any

def left_marks(run: Any) -> list[tuple[int, int, int]]: ...  # of an ordstream._core.flow.run.Run
