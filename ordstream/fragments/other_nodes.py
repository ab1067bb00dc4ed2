"""Keys whose node is another one because a run goes on with more nodes than before, or with fewer: counted
apart from those that plans move (Mixed paper, Fig. 15).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ordstream.balance.grouping import Instances
from ordstream.balance.keys import Words
from ordstream.balance.mixed.table import Assignment
from ordstream.fragments.key_costs import row_bytes
from ordstream.ground.numbers import mask


class OtherNodes:
    """Of one fragment. One writer.

    Parameters
    ----------
    before : Assignment, optional
        By which rows went when the state was stored; None: not known, nothing is counted.
    """

    def __init__(self, before: Assignment | None = None) -> None:
        self._before = before
        self._words: list[Words] = []
        self._rows, self._bytes = 0, 0.0

    def restored(self, words: Words, nodes: Instances, rows: pa.RecordBatch) -> None:
        """Rows of state, the words of their keys, and the node of each now."""
        if self._before is None:
            return
        moved = np.not_equal(self._before.route_words(words), nodes)
        if moved.any():
            self._words.append(words[moved])
            self._rows += int(moved.sum())
            self._bytes += float(row_bytes(rows.filter(mask(moved))).sum())

    def figures(self) -> dict[str, int]:
        """Keys, rows and bytes of their state, for a report."""
        keys = len(np.unique(np.concatenate(self._words))) if self._words else 0
        return {"keys_by_ring": keys, "rows_by_ring": self._rows, "bytes_by_ring": round(self._bytes)}
