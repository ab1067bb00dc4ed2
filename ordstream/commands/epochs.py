"""``ordstream epochs`` and ``ordstream rewind``: what a stream has committed, and going back in it."""

from __future__ import annotations

import argparse

from ordstream.commands import argument_types
from ordstream.commands.console import table

LAST = 20
NONE = -1  # in place of an epoch's number, which begins with 0


def add_epochs(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``epochs``."""
    _add_checkpoint(parser)
    parser.add_argument("--last", type=int, default=LAST, help="show so many (default: %(default)s)")
    parser.set_defaults(command=epochs)


def add_rewind(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``rewind``."""
    _add_checkpoint(parser)
    parser.add_argument(
        "--to", type=int, metavar="EPOCH", help="the last one then; -1: none (default: the last but one)"
    )
    parser.add_argument(
        "--folder",
        type=argument_types.named_folder,
        action="append",
        default=[],
        metavar="DIR",
        help="take a sink ParquetFolder back too; may be repeated",
    )
    parser.set_defaults(command=rewind)


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", type=argument_types.named_folder, help="of od.spark.stream")


def epochs(chosen: argparse.Namespace) -> int:
    """Show the newest epochs, oldest first; returns the exit status."""
    from ordstream.spark.streaming.epoch_log import EpochLog
    from ordstream.spark.streaming.whole_epochs import missing

    if chosen.last < 1:
        raise ValueError(f"--last must be 1 or more, not {chosen.last}")
    log = EpochLog(chosen.checkpoint)
    numbers = log.numbers()
    if not numbers:
        print(f"{log.folder}: no epoch is committed yet")
        return 0
    headers = [
        "epoch",
        "committed (UTC)",
        "rows",
        "serials",
        "late",
        "waiting",
        "outputs",
        "emitted through",
    ]
    headers += ["state rows", "state bytes", "nodes", "can be the last"]
    rows = []
    for one in log.all(max(numbers[-1] - chosen.last, NONE)):
        rows.append(
            [
                f"{one.number} (end)" if one.finished else str(one.number),
                one.time[:19].replace("T", " "),
                one.input["rows"],
                "{:,} to {:,}".format(*one.serials) if one.next_serial > one.serials[0] else None,
                one.late,
                sum(file["rows"] for file in one.waiting),
                sum(file["rows"] for file in one.output),
                "{:,}.{}".format(*one.emitted_through),
                one.state_rows,
                one.state_bytes,
                one.nodes,
                "yes" if missing(log.folder, one) is None else None,
            ]
        )
    print(table(headers, rows, right=True))
    return 0


def rewind(chosen: argparse.Namespace) -> int:
    """Go back; returns the exit status."""
    from ordstream.spark.streaming.epoch_log import EpochLog
    from ordstream.spark.streaming.rewind import rewind as go_back
    from ordstream.spark.streaming.sinks import ParquetFolder, take_back

    before = max(EpochLog(chosen.checkpoint).numbers(), default=NONE)
    last = go_back(chosen.checkpoint, chosen.to)
    where = "nothing is committed now" if last == NONE else f"epoch {last} is the last one now"
    print(f"{chosen.checkpoint}: {where}; before it was {'none' if before == NONE else before}")
    for folder in chosen.folder:
        take_back(ParquetFolder(folder), chosen.checkpoint)
        print(f"{folder}: was taken back too")
    print("before the next start, other sinks too: od.spark.sinks.take_back(sink, checkpoint)")
    return 0
