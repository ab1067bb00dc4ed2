"""All output of a run, with its report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from ordstream.node.merge_log import MergeLog
from ordstream.node.no_table import NoArray
from ordstream.node.report import Report
from ordstream.node.shedding import ShedOutcome, outcome
from ordstream.snapshots.snapshot import Snapshot

#: For those who take a result for a table.
_ROWS = "its rows are .table (pyarrow), .to_pandas(), or pl.DataFrame(result)"


class Result(NoArray):
    """All output of a run.

    Attributes
    ----------
    batches : list of pyarrow.RecordBatch
        In order.
    table : pyarrow.Table
        The same as one table of the pipeline's schema (with `tags=True` two more columns: _serial, _index).
    report : Report
        Figures of the run.
    shed : ShedOutcome
        What shed operators left behind: log, dropped rows, cost models.
    snapshot : Snapshot or None
        The last one that was taken; of a run with end="suspend", the one at its end.
    """

    #: Of several sources: what was chosen. None: there was one.
    merge_log: MergeLog | None = None

    def __init__(
        self,
        batches: list[pa.RecordBatch],
        schema: pa.Schema,
        report: Report | Callable[[], Report],
        shed: ShedOutcome | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.batches = batches
        self._report = report
        self.shed = outcome([])[0] if shed is None else shed
        self.snapshot = snapshot
        self._schema = schema

    @property
    def report(self) -> Report:
        """Figures of the run, made when they are first asked for."""
        if not isinstance(self._report, Report):
            self._report = self._report()
        return self._report

    @property
    def table(self) -> pa.Table:
        """All output as one table."""
        return pa.Table.from_batches(self.batches, schema=self._schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow PyCapsule interface, for `pa.table`, `pl.DataFrame`, DuckDB's queries and
        `pd.DataFrame.from_arrow` (pandas 3).

        The constructor `pd.DataFrame` takes no Arrow data, in any version: use `to_pandas`.
        """
        return self.table.__arrow_c_stream__(requested_schema)

    def to_pandas(self, **options: Any) -> Any:
        """All output as a pandas DataFrame; options as for `pyarrow.Table.to_pandas`."""
        return self.table.to_pandas(**options)

    def _rows_are(self) -> str:
        return _ROWS

    if not TYPE_CHECKING:  # for a type checker these are mistakes

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"a Result has no {name!r}; {_ROWS}", name=name, obj=self)

        def __getitem__(self, key: Any) -> NoReturn:
            raise TypeError(f"a Result has no items; {_ROWS}")

        def __len__(self) -> NoReturn:
            raise TypeError(f"a Result has no len(): its rows are counted by result.table.num_rows; {_ROWS}")

        def __bool__(self) -> bool:  # else Python would ask for the length
            return True

        # without it pandas.DataFrame does not ask for an array, and says nothing
        def __iter__(self) -> NoReturn:
            raise TypeError(f"a Result has no items; {_ROWS}")

    def __repr__(self) -> str:
        dropped = "".join(
            f", {count:,} {how}"
            for count, how in (
                (self.report.skipped, "skipped"),
                (sum(shed.shed for shed in self.report.shedding), "shed"),
            )
            if count
        )
        return (
            f"<ordstream.Result {self.report.rows_out:,} rows from {self.report.tuples:,} tuples{dropped}>"
        )
