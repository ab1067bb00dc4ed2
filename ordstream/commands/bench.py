"""``ordstream bench``: a table or figure of a paper, run again; CSV, plot, and a line per claim with the
figure found.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from ordstream.commands import argument_types
from ordstream.commands.apart import apart
from ordstream.errors import PlanError
from ordstream.ground.cpus import allowed_cpus

NO_LABORATORY = (
    "the laboratory is part of a checkout, not of the wheel: "
    "git clone the repository, make develop, .venv/bin/ordstream bench"
)


def told(error: ImportError) -> ImportError:
    """The error for a failed import: one that says where the laboratory is, if that is what is missing."""
    missing = (error.name or "").startswith(("ordstream.lab", "ordstream._core"))
    return ImportError(NO_LABORATORY, name=error.name) if missing else error


try:
    from ordstream.lab.evaluation import experiments
    from ordstream.lab.evaluation.experiment import Experiment, Options, csv_text, draw, write_csv
    from ordstream.lab.evaluation.machine import columns
except ImportError as error:
    raise told(error) from None

#: Options that only one kind of experiment takes.
TIMED_ONLY = ("seconds", "runs", "workers", "chunk", "clicks")
COUNTED_ONLY = ("streams", "processes", "tuples", "keys")


def add_bench(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    try:
        known = experiments()
    except ImportError as error:  # its Python part is there, its compiled part is not
        raise told(error) from None
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(
        line
        for heading, timed in (
            ("they measure time on this machine:", True),
            ("they compute over seeded streams:", False),
        )
        for line in [
            f"experiments, {heading}",
            *(f"  {name:<14} {one.title}" for name, one in known.items() if one.timed == timed),
        ]
    )
    parser.add_argument("experiment", choices=known, metavar="EXPERIMENT", help="see below")
    parser.add_argument("--seed", type=int, default=1, help="of everything random (default: %(default)s)")
    parser.add_argument(
        "--time-scale",
        type=float,
        metavar="X",
        help="what the tuples' times are multiplied by, for those in Spark",
    )
    parser.add_argument(
        "--busy-wait",
        action="store_true",
        help="those in Spark: tuples compute, they don't wait; at most a node per core",
    )
    parser.add_argument(
        "--out",
        type=argument_types.folder,
        default=Path("bench-results"),
        metavar="DIR",
        help="folder for CSV and plots (default: %(default)s)",
    )
    parser.add_argument("--no-plot", action="store_true", help="write the CSV only")
    timed = parser.add_argument_group("experiments that measure time")
    timed.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help="of one measured run, about (default: 1 or 2; the paper: 120 to 600)",
    )
    timed.add_argument(
        "--runs", type=int, metavar="N", help="measured runs per setting, their mean counts (default: 3)"
    )
    timed.add_argument(
        "--workers",
        type=_numbers,
        metavar="N,N",
        help="numbers of workers (default: 1, 2, 4, ... up to the cores)",
    )
    timed.add_argument(
        "--chunk",
        type=_chunks,
        metavar="N,N",
        help="chunk sizes, or auto: sized while running (default: 1, the paper's, for its figures)",
    )
    timed.add_argument(
        "--clicks", type=int, metavar="N", help="generated clicks that the queries read (default: 2,000,000)"
    )
    counted = parser.add_argument_group("experiments over seeded streams")
    counted.add_argument(
        "--streams", type=int, metavar="N", help="seeded streams to average over (default: see the code)"
    )
    counted.add_argument(
        "--tuples",
        type=int,
        metavar="M",
        help="length of each stream (mixed-...: of an interval); las-..., Spark",
    )
    counted.add_argument(
        "--keys",
        type=int,
        metavar="N",
        help="keys of each stream, for las-... and mixed-... (default: see the title)",
    )
    counted.add_argument(
        "--processes", type=int, metavar="N", help="that share the streams (default: all cores)"
    )
    parser.set_defaults(command=bench)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"whole numbers with commas between them are needed, not {text!r}"
        ) from None


def _chunks(text: str) -> tuple[int | None, ...]:
    try:
        return tuple(None if part == "auto" else int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"chunk sizes (or auto) with commas between them are needed, not {text!r}"
        ) from None


def options_of(experiment: Experiment, chosen: argparse.Namespace) -> Options:
    """The options of an experiment from the command line.

    Raises
    ------
    PlanError
        An option is out of range, or this kind of experiment does not take it.
    """
    for name in COUNTED_ONLY if experiment.timed else TIMED_ONLY:
        if getattr(chosen, name) is not None:
            what = "measures time" if experiment.timed else "computes over seeded streams"
            raise PlanError(f"{experiment.name} {what}, it takes no --{name}")
    for name, given in (("time-scale", chosen.time_scale is not None), ("busy-wait", chosen.busy_wait)):
        if given and not experiment.real:
            raise PlanError(f"--{name} is for experiments that run in Spark; {experiment.name} does not")
    if not experiment.sized and (
        (chosen.tuples is not None and not experiment.real) or chosen.keys is not None
    ):
        theirs = "--tuples and --keys are for las-... and mixed-..., not for it"
        raise PlanError(f"{experiment.name} has its own numbers of tuples and keys; {theirs}")
    for name, least in (("streams", 1), ("processes", 1), ("seed", 0)):
        value = getattr(chosen, name)
        if value is not None and value < least:
            raise PlanError(f"--{name} must be {least} or more, not {value}")
    if not experiment.timed:
        return Options(
            streams=experiment.streams if chosen.streams is None else chosen.streams,
            seed=chosen.seed,
            processes=allowed_cpus() if chosen.processes is None else chosen.processes,
            tuples=chosen.tuples,
            keys=chosen.keys,
            time_scale=experiment.scale if chosen.time_scale is None else chosen.time_scale,
            busy=chosen.busy_wait,
        )
    given = {
        "seconds": chosen.seconds,
        "runs": chosen.runs,
        "workers": chosen.workers,
        "chunks": chosen.chunk,
        "clicks": chosen.clicks,
    }
    return Options(
        streams=1, seed=chosen.seed, **{name: value for name, value in given.items() if value is not None}
    )


def bench(chosen: argparse.Namespace) -> int:
    """Run one experiment; returns the exit status.

    A claim that does not hold is a finding, not a failure; but in a strict experiment one that is not known
    to fail gives status 1.
    """
    experiment = experiments()[chosen.experiment]
    options = options_of(experiment, chosen)
    how = experiment.how or (
        f"mean of {options.runs} runs" if experiment.timed else f"{options.streams} streams"
    )
    if experiment.real:
        how = (
            f"in Spark, times multiplied by {options.time_scale:g}, "
            f"{'computing' if options.busy else 'waiting'}"
        )
    sizes = [
        f"{value:,} {name}"
        for name, value in (("tuples", options.tuples), ("keys", options.keys))
        if value is not None
    ]
    print(
        "; ".join([f"{experiment.name}: {experiment.title}", *sizes, f"{how}, seed {options.seed}"]),
        flush=True,
    )
    chosen.out.mkdir(parents=True, exist_ok=True)  # a folder that can't be made is told before the work
    begin = time.monotonic()
    result = apart(lambda: experiment.run(options)) if experiment.real else experiment.run(options)
    took = time.monotonic() - begin
    for line in result.lines:
        print(line)
    for claim in result.claims:
        print(claim)
    sys.stdout.flush()  # what was computed is not lost with a file
    files = [chosen.out / f"{experiment.name}.csv"]
    found = columns(command_line(experiment, chosen))
    try:
        write_csv(files[0], result, found)
    except OSError as error:
        print(csv_text(result, found), end="")
        raise OSError(f"{error}; the rows are on stdout") from error
    note = ""
    if not chosen.no_plot:
        try:
            files += draw(experiment.name, experiment.title, result, chosen.out)
        except ImportError:
            note = "no plot: it needs matplotlib, which comes with ordstream's extra `cli`"
        except OSError as error:
            raise OSError(f"{error}; the rows are in {files[0]}") from error
    print(f"{took:.1f} s; {', '.join(map(str, files))}")
    if note:
        print(note)
    return int(experiment.strict and any(not claim.holds and not claim.known for claim in result.claims))


def command_line(experiment: Experiment, chosen: argparse.Namespace) -> str:
    """What was asked for, without folders."""
    words = ["ordstream bench", experiment.name, f"--seed {chosen.seed}"]
    for name in (*TIMED_ONLY, *COUNTED_ONLY):
        value = getattr(chosen, name)
        if isinstance(value, tuple):
            words.append(f"--{name} {','.join('auto' if one is None else str(one) for one in value)}")
        elif value is not None:
            words.append(f"--{name} {value}")
    if chosen.time_scale is not None:
        words.append(f"--time-scale {chosen.time_scale:g}")
    if chosen.busy_wait:
        words.append("--busy-wait")
    return " ".join(words)
