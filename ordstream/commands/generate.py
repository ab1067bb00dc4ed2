"""``ordstream generate``: TPCx-BB tables as Parquet files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ordstream.commands import argument_types
from ordstream.commands.console import Bar
from ordstream.tpcxbb.generator import expected_rows, generate_clicks, is_generated
from ordstream.tpcxbb.schema import FACT_DAYS, Sizes

MOST_ZIPF = 50  # beyond, one item has all and numbers overflow


def add_generate(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--rows", type=int, help="clicks to write, with the sales of the same time")
    size.add_argument("--scale", type=float, help="scale factor, 1 or more (6.8 million clicks at 1)")
    parser.add_argument(
        "--out", type=argument_types.folder_of_tables, required=True, metavar="DIR", help="folder to write"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random rows (default: %(default)s)")
    parser.add_argument(
        "--days",
        type=int,
        default=FACT_DAYS,
        help=(
            "compress the clock: spread the rows over so many days, from 2001-01-01 on (default: "
            "%(default)s)"
        ),
    )
    parser.add_argument(
        "--zipf",
        type=float,
        metavar="ALPHA",
        help=(
            "draw popular items and customers by Zipf's law with this exponent, in place of the "
            "benchmark's normal choice"
        ),
    )
    parser.set_defaults(command=generate)


def generate(chosen: argparse.Namespace) -> int:
    """Write the tables; returns the exit status."""
    if chosen.zipf is not None and not 0 < chosen.zipf <= MOST_ZIPF:
        raise ValueError(f"--zipf must be positive and at most {MOST_ZIPF}, not {chosen.zipf}")
    if chosen.seed < 0:
        raise ValueError(f"--seed must not be negative, not {chosen.seed}")
    if chosen.rows is not None:
        sizes = Sizes.for_rows(chosen.rows, chosen.days)
    else:
        sizes = Sizes.at_scale(chosen.scale, chosen.days)
    folder = generated(chosen.out, sizes, chosen.rows, chosen.seed, zipf=chosen.zipf, store_sales=True)
    print(f"{folder}: {', '.join(sorted(file.name for file in folder.glob('*.parquet')))}")
    return 0


def generated(
    out: Path,
    sizes: Sizes,
    rows: int | None,
    seed: int,
    *,
    zipf: float | None = None,
    store_sales: bool = False,
) -> Path:
    """Generate with a progress bar; where the folder has these rows already, say so."""
    if is_generated(out, sizes, rows, seed, skew=zipf, store_sales=store_sales):
        print(f"the rows are in {out} already", file=sys.stderr)
        return out
    written = 0

    def keep(done: int, _: int) -> None:
        nonlocal written
        written = done

    about = expected_rows(sizes, rows, store_sales)
    with Bar("generating", lambda: written, about, exact=not store_sales and rows is not None):
        return generate_clicks(
            out, rows, seed=seed, progress=keep, sizes=sizes, skew=zipf, store_sales=store_sales
        )
