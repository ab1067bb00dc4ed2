"""What the command line shows: a progress bar of rows really processed, and aligned tables."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from ordstream.node.report import left_out_lines
from ordstream.node.shedding import ShedReport

REFRESH_SECONDS = 0.1
LINE_SECONDS = 1.0  # between two lines where stderr is no terminal


class Bar:
    """Shows on stderr how far a count is, from its own thread, while a block runs.

    A terminal gets a bar (with the package rich) or one line rewritten (without); a pipe or a file gets a
    line a second.

    Parameters
    ----------
    label : str
        What is going on.
    read : callable
        Returns the rows processed so far; called from the bar's thread.
    total : int, optional
        Rows to process, if known.
    exact : bool
        False: `total` is a guess; at a good end it is as many as there were.
    """

    def __init__(
        self, label: str, read: Callable[[], int], total: int | None = None, *, exact: bool = True
    ) -> None:
        self._label = label
        self._read = read
        self._total = total
        self._exact = exact
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console-bar", daemon=True)

    def __enter__(self) -> Self:
        """Start the bar."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show the last count and stop."""
        if not self._exact and error is None:
            self._total = self._read()
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        if sys.stderr.isatty():
            try:
                self._draw()
                return
            except ImportError:
                self._write_lines(REFRESH_SECONDS, "\r", "\n")
        else:
            self._write_lines(LINE_SECONDS, "", "")

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task(self._label, total=self._total, counts="")
            begin = time.monotonic()
            while True:
                last = self._stopped.wait(REFRESH_SECONDS)
                done = self._read()
                total = self._total_of(done)
                counts = self._counts(done, total, time.monotonic() - begin)
                progress.update(task, completed=done, total=total, counts=counts)
                if last:
                    return

    def _write_lines(self, seconds: float, before: str, end: str) -> None:
        begin, shown = time.monotonic(), -1
        last = False
        while not last:
            last = self._stopped.wait(seconds)
            done = self._read()
            if done == shown and not last:
                continue
            shown = done
            total = self._total_of(done)
            share = f" {100 * done // total:3d} %" if total else ""
            line = f"{before}{self._label}{share}  {self._counts(done, total, time.monotonic() - begin)}"
            sys.stderr.write(line + ("" if before else "\n"))
            sys.stderr.flush()
        sys.stderr.write(end)

    def _total_of(self, done: int) -> int | None:
        """What there is to process, when so much is done: a guess may have been too small."""
        total = self._total
        return total if total is None or self._exact else max(total, done)

    def _counts(self, done: int, total: int | None, seconds: float) -> str:
        of = f" of {total:,}" if total is not None else ""
        return f"{done:,}{of} rows, {done / max(seconds, 1e-9):,.0f} rows/s"


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], right: bool = False) -> str:
    """Return rows as text, numbers to the right, other columns to the left (all to the right: `right`)."""
    cells = [[_text(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    numeric = [right or all(not isinstance(row[i], str) for row in rows) for i in range(len(headers))]
    lines = [list(headers), *cells]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def report_text(report: dict[str, Any]) -> str:
    """Return a node's report (`Report.to_dict()`) as text: throughput, latencies, one line per operator."""
    lines = [
        f"{report['tuples']:,} tuples in {report['seconds']:.2f} s: "
        f"{report['tuples_per_second']:,.0f} tuples/s",
    ]
    if elastic := report.get("elastic"):
        lines.append(
            f"workers: {elastic['mean']:.1f} on average, {elastic['least']} to {elastic['most']}, "
            f"{elastic['last']} at the end, "
            f"{elastic['changes']} changes"
        )
    lines.append("")
    latency = report["latency"]
    names = (("processing", "processing latency"), ("end_to_end", "end-to-end latency"))
    quantiles = ("p50", "p95", "p99")
    rows = [[label, *(latency.get(name, {}).get(f"{q}_us") for q in quantiles)] for name, label in names]
    lines += [table(["microseconds", *quantiles], rows), ""]
    headers = [
        "operator",
        "kind",
        "tuples in",
        "tuples out",
        "ns per tuple",
        "selectivity",
        "share of worker time",
    ]
    keys = ("name", "kind", "tuples_in", "tuples_out", "cost_ns", "selectivity", "worker_share")
    operators = [[operator.get(key) for key in keys] for operator in report["operators"]]
    for operator in operators:
        operator[-1] = None if operator[-1] is None else round(100 * operator[-1], 1)
    headers[-1] = "% of worker time"
    lines.append(table(headers, operators))
    dropped = [
        *left_out_lines(report["operators"]),
        *(str(ShedReport(**shed)) for shed in report.get("shedding", ())),
    ]
    if dropped:
        lines += ["", *dropped]
    return "\n".join(lines)
