"""What fragments ask a run for beside its output: the keys at which operators emitted, in the final flush
and at marks that came with the rows (`_core/flow/steps.pxd`), and the marks that leave
(`_core/flow/left_marks.pxd`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.flow.figures import left_marks

Step = tuple[int, npt.NDArray[np.int64], bytes]
"""First serial, where each key ends in the bytes, and these."""


class Steps:
    """The steps of a core run with steps, also when it is closed.

    Parameters
    ----------
    core : ordstream._core.flow.run.Run
    names : sequence of str
        Of its operators.
    lock : lock
        Under which the core is closed. Reentrant.
    """

    def __init__(self, core: Any, names: Sequence[str], lock: AbstractContextManager[Any]) -> None:
        self._core, self._names, self._lock = core, names, lock
        self._flush: dict[str, Step] = {}
        self._marks: list[tuple[str, int, npt.NDArray[np.int64], bytes]] = []
        self._left: list[tuple[int, int, int]] = []

    def flush(self) -> dict[str, Step]:
        """Operator name -> the steps of its final flush; complete for rows that were taken."""
        with self._lock:
            if self._core is None:
                return self._flush
            found = self._core.steps()
            return {self._names[i]: steps for i, steps in enumerate(found) if steps is not None}

    def marks(self) -> list[tuple[str, int, npt.NDArray[np.int64], bytes]]:
        """(operator name, *step) of marks, in any order: of all rows that were taken, and not given before.
        The reading thread only.
        """
        with self._lock:
            if self._core is not None:
                return self._core.mark_steps()  # type: ignore[no-any-return]
        found, self._marks = self._marks, []
        return found

    def left(self) -> list[tuple[int, int, int]]:
        """(serial, outputs of this serial in front, time) of marks that leave the node, in their order: of
        all rows that were taken or settled, and not given before. The reading thread only.
        """
        with self._lock:
            if self._core is not None:
                return left_marks(self._core)
        found, self._left = self._left, []
        return found

    def end(self) -> None:
        """The core is about to be closed."""
        if self._core is not None:
            self._flush, self._marks, self._left = self.flush(), self.marks(), self.left()
            self._core = None
