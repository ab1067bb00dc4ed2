"""What all experiments share: many seeded streams on several processes, a CSV file, plots, and claims with
the figure found.

An experiment is a function from `Options` to a `Result`. Those of the balance papers compute: each stream by
itself, as a pure function of (seed, number of the stream), so the figures do not depend on how many
processes share the work. Those of the ordered paper measure time: runs of so many seconds on so many
workers, one after the other.
"""

from __future__ import annotations

import csv
import io
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.errors import PlanError
from ordstream.ground.interrupts import kept_from_children
from ordstream.ground.whole_file import write_whole

Values = Sequence[float] | npt.NDArray[Any]


@dataclass(frozen=True)
class Options:
    """How to run an experiment.

    Parameters
    ----------
    streams : int
        How many seeded streams to take minimum, mean and maximum over.
    seed : int
        Of all randomness.
    processes : int
        Processes that share the streams; 1: this one alone.
    seconds : float or None
        About how long one measured run takes; None: what the experiment was made for.
    runs : int
        Measured runs per setting; their mean counts.
    workers : tuple of int
        Numbers of workers to compare; empty: 1, 2, 4, ... up to this machine's cores.
    chunks : tuple of int or None
        Chunk sizes to compare (None: sized while running); empty: what the experiment was made for, mostly
        1, the paper's.
    clicks : int
        Rows of the click stream that the five queries read; longer runs read it again, later in time.
    tuples, keys : int, optional
        m and n, the length of each stream and its number of keys, for an experiment that is `sized` (m: or
        `real`); default: the experiment's own.
    time_scale : float
        What the tuples' times are multiplied by in an experiment that is `real`.
    busy : bool
        Such an experiment's tuples compute for their time in place of waiting; only for as many nodes as
        there are processors.
    """

    streams: int
    seed: int = 1
    processes: int = 1
    seconds: float | None = None
    runs: int = 3
    workers: tuple[int, ...] = ()
    chunks: tuple[int | None, ...] = ()
    clicks: int = 2_000_000
    tuples: int | None = None
    keys: int | None = None
    time_scale: float = 1.0
    busy: bool = False

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds <= 3600:
            raise PlanError(f"seconds must be above 0 and at most 3,600, not {self.seconds}")
        if min(self.runs, self.clicks, *self.workers, *(one for one in self.chunks if one is not None)) < 1:
            raise PlanError(
                f"runs, clicks, workers and chunk sizes must be at least 1, not {self.runs}, "
                f"{self.clicks}, {self.workers}, {self.chunks}"
            )
        if (self.tuples is not None and self.tuples < 1) or not 0 < self.time_scale < float("inf"):
            raise PlanError(
                f"tuples must be at least 1 and the time scale positive, not {self.tuples}, "
                f"{self.time_scale}"
            )
        if self.streams < 1 or self.processes < 1 or self.seed < 0:
            raise PlanError(
                f"streams and processes must be at least 1 and the seed not negative, not {self.streams}, "
                f"{self.processes}, {self.seed}"
            )
        for name, least in (("tuples", 1_000), ("keys", 128)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise PlanError(f"{name} must be at least {least}, not {value}")


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, the figure found, and whether it holds here.

    `known`: why it does not hold here, with the counter that shows it; empty where a failure would be news.
    """

    text: str
    found: str
    holds: bool
    known: str = ""

    def __str__(self) -> str:
        if self.holds:
            return f"holds: {self.text}: {self.found}"
        return (
            f"DOES NOT HOLD{' (known)' if self.known else ''}: {self.text}: "
            f"{self.found}{'; ' if self.known else ''}{self.known}"
        )


@dataclass(frozen=True)
class Curve:
    """One labelled curve (or row of bars) of a chart; `low` and `high` shade the range over streams."""

    label: str
    x: Values
    y: Values
    low: Values | None = None
    high: Values | None = None
    style: str = "-o"


@dataclass(frozen=True)
class Chart:
    """One set of axes.

    Attributes
    ----------
    kind : "line", "bar" or "heat"
        "heat": `cells` holds (y values, x values, matrix) in place of curves.
    """

    x_label: str
    y_label: str
    curves: list[Curve] = field(default_factory=list)
    title: str = ""
    kind: str = "line"
    log_x: bool = False
    log_y: bool = False
    cells: tuple[Values, Values, npt.NDArray[np.float64]] | None = None


@dataclass(frozen=True)
class Result:
    """What an experiment found.

    Attributes
    ----------
    columns, rows
        The CSV file.
    charts : list of Chart
        Drawn side by side into one picture.
    lines : list of str
        Printed as they are, before the claims: a table of the paper.
    claims : list of Claim
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    charts: list[Chart]
    claims: list[Claim]
    lines: list[str] = field(default_factory=list)

    def column(self, name: str) -> list[Any]:
        """One column of the rows."""
        at = list(self.columns).index(name)
        return [row[at] for row in self.rows]


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper.

    Attributes
    ----------
    name : str
        Of the command: "dkg-fig2".
    title : str
        What is shown, with its parameters.
    streams : int
        Default number of streams: under two minutes on two cores.
    run : callable
    timed : bool
        It measures time: takes seconds, runs, workers and chunk sizes, and no streams.
    sized : bool
        The numbers of tuples and keys can be chosen.
    real : bool
        It runs jobs in Spark and measures them; one stream, whose length and time scale are options.
    scale : float
        Default time scale.
    how : str
        What is said of its runs; empty: "mean of 3 runs", "10 streams".
    strict : bool
        A claim that fails and is not known to makes the command's exit status 1.
    """

    name: str
    title: str
    streams: int
    run: Callable[[Options], Result]
    timed: bool = False
    sized: bool = False
    real: bool = False
    scale: float = 1.0
    how: str = ""
    strict: bool = False


def over_streams(measure: Callable[..., Any], options: Options, *arguments: Any) -> list[Any]:
    """`measure(seed, number, *arguments)` for every stream number, in order.

    With several processes `measure` and what it returns must be picklable: a function of a module.
    """
    numbers = range(options.streams)
    if options.processes == 1 or options.streams == 1:
        return [measure(options.seed, number, *arguments) for number in numbers]
    # spawn: a forked child of a process with threads may deadlock.
    context = multiprocessing.get_context("spawn")
    share = max(1, min(20, options.streams // (4 * options.processes)))
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        try:
            with kept_from_children():
                futures = [
                    pool.submit(_share, measure, options.seed, numbers[start : start + share], arguments)
                    for start in range(0, options.streams, share)
                ]
            return [one for future in futures for one in future.result()]
        except BaseException:
            # A failure, or Ctrl-C: what has not begun never does, and nobody waits for the rest.
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise


def _share(measure: Callable[..., Any], seed: int, numbers: range, arguments: tuple[Any, ...]) -> list[Any]:
    return [measure(seed, number, *arguments) for number in numbers]


def csv_text(result: Result, about: Mapping[str, str] | None = None) -> str:
    """The rows of a result, one header line.

    Parameters
    ----------
    result : Result
    about : mapping, optional
        Columns behind the result's, the same in each row: what it was measured on and with
        (`machine.columns`).
    """
    given = {} if about is None else about
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*result.columns, *given])
    writer.writerows([*row, *given.values()] for row in result.rows)
    return text.getvalue()


def write_csv(path: Path, result: Result, about: Mapping[str, str] | None = None) -> None:
    """`csv_text` as a file, whole or not at all."""
    write_whole(path, csv_text(result, about))


def draw(name: str, title: str, result: Result, folder: Path) -> list[Path]:
    """Draw the charts of a result as PNG and SVG.

    Returns
    -------
    list of Path
        The files; empty when the result has no charts.

    Raises
    ------
    ImportError
        matplotlib (extra `cli`) is missing.
    OSError
        A file can't be written; those before it are there.
    """
    if not result.charts:
        return []
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Equal results give equal files: no date, no random ids.
    with rc_context({"svg.hashsalt": name}):
        across = min(3, len(result.charts))
        down = -(-len(result.charts) // across)
        figure = Figure(figsize=(6.4 * across, 4.2 * down), layout="constrained")
        figure.suptitle(title, fontsize=10)
        axes = figure.subplots(down, across, squeeze=False).ravel()
        for chart, axis in zip(result.charts, axes, strict=False):
            _draw_chart(chart, axis, figure)
        for axis in axes[len(result.charts) :]:
            axis.set_visible(False)
        files = [folder / f"{name}.png", folder / f"{name}.svg"]
        hows: tuple[dict[str, Any], ...] = ({"dpi": 120}, {"metadata": {"Date": None}})
        for file, how in zip(files, hows, strict=True):
            image = io.BytesIO()
            figure.savefig(image, format=file.suffix[1:], **how)
            write_whole(file, image.getvalue())
    return files


def _draw_chart(chart: Chart, axis: Any, figure: Any) -> None:
    axis.set_xlabel(chart.x_label)
    axis.set_ylabel(chart.y_label)
    axis.set_title(chart.title, fontsize=9)
    if chart.kind == "heat":
        if chart.cells is None:
            raise PlanError("a heat map needs cells")
        ys, xs, matrix = chart.cells
        image = axis.imshow(matrix, origin="lower", aspect="auto", cmap="viridis_r")
        axis.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
        axis.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
        figure.colorbar(image, ax=axis)
        return
    for number, curve in enumerate(chart.curves):
        if chart.kind == "bar":
            x = np.asarray(curve.x, dtype=np.float64)
            step = float(np.diff(x).min()) if len(x) > 1 else 1.0
            width = 0.8 * step / len(chart.curves)
            axis.bar(x + (number - (len(chart.curves) - 1) / 2) * width, curve.y, width, label=curve.label)
            continue
        (line,) = axis.plot(curve.x, curve.y, curve.style, label=curve.label, markersize=4)
        if curve.low is not None and curve.high is not None:
            axis.fill_between(
                curve.x, curve.low, curve.high, color=line.get_color(), alpha=0.15, linewidth=0
            )
    if chart.log_x:
        axis.set_xscale("log")
    if chart.log_y:
        axis.set_yscale("log")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
