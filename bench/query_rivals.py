"""The jobs of bench/queries.py in other engines, as functions of the whole table of clicks:
bench/rivals/python_jobs.py does them.

Each is in the best formulation that was found. DuckDB: a self-join of the sessions' distinct items was
faster than building lists and unnesting them twice, and than one session number over all users. Polars:
sorted by user and numbered by one running sum, on the streaming engine, was faster than window expressions
per user and than the in-memory engine. The columns have no nulls.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

sys.path.append(str(Path(__file__).resolve().parent / "rivals"))

from jobs import COLUMNS, LIMIT, TIMEOUT
from python_jobs import SQL as SQL
from python_jobs import duckdb, library, prepare

ONE = ctypes.c_int64(1)
"""Threads of the loops."""

Answer = list[tuple[Any, ...]]


def columns_of(query: str, table: pa.Table) -> pa.Table:
    """A job's columns under their short names; nothing is copied."""
    names = COLUMNS[query]
    return table.select(list(names.values())).rename_columns(list(names))


def answer(engine: str, query: str, table: pa.Table) -> Answer:
    """Q2 or Q4 by an engine of bench/rivals/python_jobs.py, in whole numbers."""
    return [tuple(int(value) for value in row) for row in prepare(engine, query, columns_of(query, table))()]


def duckdb_answer(query: str, table: pa.Table, threads: int) -> Answer:
    """Q2 or Q4 by DuckDB."""
    return [tuple(int(value) for value in row) for row in duckdb(query, columns_of(query, table), threads)()]


def polars_answer(query: str, table: pa.Table) -> Answer:
    """Q2 or Q4 by Polars, on the threads of its pool (all cores)."""
    return answer("Polars", query, table)


def loop_answer(query: str, table: pa.Table) -> Answer:
    """Q2 or Q4 by a hand-written loop on one thread."""
    return answer("C++ loop, 1 thread", query, table)


def loop_q2(table: pa.Table) -> tuple[Answer, dict[str, Any]]:
    """Q2 by a hand-written loop on one thread: its rows, and the facts of the stream that it saw on the
    way.
    """
    rows, facts = np.zeros((LIMIT, 3), np.int64), np.zeros(2, np.int64)
    function = library("clicks_loops").loop_q2
    function.restype = ctypes.c_int64
    columns = [_pointer(column.chunk(0).to_numpy()) for column in columns_of("q2", table).columns]
    found = function(
        *columns,
        *map(ctypes.c_int64, (table.num_rows, TIMEOUT, LIMIT)),
        _pointer(rows),
        _pointer(facts),
        ONE,
    )
    best = [tuple(int(value) for value in row) for row in rows[:found]]
    return best, {"pairs": int(facts[0]), "distinct_pairs": int(facts[1]), "top_pair": best[0]}


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
