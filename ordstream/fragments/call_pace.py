"""How many rows a turn has where a function is called with many at once.

A call may cost something whatever it has: a model or a service is asked, a connection is made. By the mean
time of a row such a turn shrinks to one row, which costs as much as all that wait. So each call is timed,
and its time is taken apart, in what a call costs and what a row does: a line through the last calls. The
core does the same where it chooses the size of chunks (`_core/flow/call_cost.pxd`), of what a turn has.
"""

from __future__ import annotations

#: Rows of a turn may take so many times what its calls cost beside them.
CALLS = 4.0
#: What is left of a call's weight when the next one comes, and how far calls must differ, in parts, to tell.
FADED, APART = 0.75, 0.1
#: One call in so many has more rows than the one before, where more wait: equal calls tell nothing.
TRIED = 8
LEAST_S = 1e-9
#: Rows that run alone may cost such a part of all time beside their own; one in so many does at least, and
#: at most; and where nothing is known.
ALONE_PART, SELDOM, OFTEN, UNKNOWN = 0.1, 1_024, 4, 64
#: Part of a new measurement in the mean of those.
NEW = 0.125


class CallPace:
    """See the module. Of one function, in one node.

    Attributes
    ----------
    call_s, row_s : float
        Seconds: what a call costs beside its rows, and what a row takes, about.
    """

    def __init__(self) -> None:
        self.call_s = self.row_s = 0.0
        self._sums = [0.0] * 5  # of weights, rows, seconds, rows squared, and rows times seconds
        self._most = 1.0  # rows of a call, of late
        self._calls = 0
        self._known = False  # calls differed

    def took(self, rows: int, seconds: float) -> None:
        """A call with so many rows."""
        self._calls += 1
        self._most = max(float(rows), self._most * FADED)
        now = 1.0, rows, seconds, rows * rows, rows * seconds
        self._sums = [FADED * before + one for before, one in zip(self._sums, now, strict=True)]
        weight, *others = self._sums
        mean_rows, mean_s, squares, products = [one / weight for one in others]
        spread = squares - mean_rows * mean_rows
        if spread > (APART * mean_rows) ** 2:
            self._known = True
            slope = (products - mean_rows * mean_s) / spread
            self.call_s = mean_s - min(max(0.0, slope), mean_s / mean_rows) * mean_rows
        self.call_s = min(self.call_s, mean_s)
        self.row_s = max(LEAST_S, (mean_s - self.call_s) / mean_rows)

    @property
    def rows(self) -> int:
        """So many rows the next turn should have at least. Never more than twice those of late: a call that
        was held up looks like a dear one, and the next ones show that it was none.
        """
        if self._calls % TRIED == TRIED - 1:
            return int(2 * self._most)
        return int(min(2 * self._most, CALLS * self.call_s / max(LEAST_S, self.row_s)))

    @property
    def others(self) -> int:
        """Where some rows run alone: how many don't between two of these."""
        each = int(self.call_s / (ALONE_PART * max(LEAST_S, self.row_s)))
        return (max(OFTEN, min(SELDOM, each)) if self._known else UNKNOWN) - 1


class RowsAlone:
    """What a row of such a function that runs alone takes of its own, so that it is seen what its key costs:
    not what the call does, which rows that run together share.
    """

    def __init__(self) -> None:
        self._alone_s = 0.0
        self._rows = self._seconds = 0.0  # that ran together, the older the less

    def ran_together(self, rows: int, seconds: float) -> None:
        """A turn of so many rows."""
        self._rows, self._seconds = FADED * self._rows + rows, FADED * self._seconds + seconds

    def own(self, seconds: float) -> float:
        """Of the time of a row that ran alone: what it would take among others."""
        self._alone_s += (seconds - self._alone_s) * NEW if self._alone_s else seconds
        among_s = self._seconds / self._rows if self._rows else self._alone_s
        return max(0.0, seconds - max(0.0, self._alone_s - among_s))
