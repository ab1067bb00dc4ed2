"""A driver that delivers to a sink is killed at every single step of it, started again, and the target
compared with what was committed: row for row, in order.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sink_epochs import SCHEMA, SIZES, commit, same, to_json, whole

PROGRAM = Path(__file__).with_name("sink_process.py")
SMALL = ([40], [], [0], [1, 0, 70])


class Driver:
    """The program, and the checkpoint that it delivers from."""

    def __init__(self, folder, sizes=SMALL):
        self.folder, self.sizes = folder, sizes
        self.checkpoint = folder / "checkpoint"
        (self.checkpoint / "epochs.json").parent.mkdir()
        (self.checkpoint / "epochs.json").write_text(to_json(commit(self.checkpoint, sizes)))
        self.program = subprocess.Popen(
            [sys.executable, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def deliver(self, sink, target, fault=0):
        """One run; with a fault it must have been killed there. Gives the names of the steps."""
        steps = self.folder / "steps"
        job = {
            "sink": sink,
            "target": target,
            "checkpoint": str(self.checkpoint),
            "fault": fault,
            "steps": str(steps),
        }
        self.program.stdin.write(json.dumps(job) + "\n")
        self.program.stdin.flush()
        status = int(self.program.stdout.readline())
        names = steps.read_text().splitlines()
        assert status == (-9 if fault else 0)
        assert (names[-1:] == ["killed"]) == bool(fault)
        return names

    @property
    def expected(self):
        return whole(self.sizes)

    def end(self):
        self.program.stdin.close()
        assert self.program.wait(60) == 0
        self.program.stdout.close()


@pytest.fixture
def driver(tmp_path):
    made = Driver(tmp_path)
    yield made
    made.end()


def in_folder(folder):
    """What is in the folder now, by name; half files are not looked at."""
    files = sorted(folder.glob("epoch-*.parquet"))
    return pa.concat_tables([pq.read_table(file) for file in files]) if files else SCHEMA.empty_table()


@pytest.mark.parametrize("kind", ["folder", "copies"])
def test_a_folder_after_a_kill_at_every_step(driver, tmp_path, kind):
    steps = driver.deliver(kind, str(tmp_path / "all"))
    assert same(in_folder(tmp_path / "all"), driver.expected)
    assert {"after link", "after sync_folder", "delivered"} <= set(steps)
    for fault in range(1, len(steps) + 1):
        target = tmp_path / f"killed {fault}"
        driver.deliver(kind, str(target), fault)
        seen = in_folder(target)
        assert same(seen, driver.expected.slice(0, len(seen))), steps[fault - 1]
        driver.deliver(kind, str(target))
        assert same(in_folder(target), driver.expected), steps[fault - 1]
        assert not list(target.glob(".ordstream-*"))


def test_a_function_after_a_kill_at_every_step(driver, tmp_path):
    """Every epoch at least once, in order, with one key; twice only where the kill lay between the
    function's return and its note.
    """
    steps = driver.deliver("function", str(tmp_path / "all"))
    expected = [line.split(", ", 2) for line in (tmp_path / "all").read_text().splitlines()]
    assert [json.loads(line)[0] for line in (tmp_path / "all").read_text().splitlines()] == [0, 3]
    twice = set()
    for fault in range(1, len(steps) + 1):
        target = tmp_path / f"killed {fault}"
        (driver.checkpoint / "sinks" / "function.json").unlink(missing_ok=True)
        driver.deliver("function", str(target), fault)
        driver.deliver("function", str(target))
        calls = [line.split(", ", 2) for line in target.read_text().splitlines()]
        assert [call for n, call in enumerate(calls) if n == 0 or call != calls[n - 1]] == expected
        if len(calls) > len(expected):
            assert len(calls) == len(expected) + 1
            twice.add(steps[fault - 1])
        assert not list((driver.checkpoint / "sinks").glob(".*"))
    assert twice
    assert not {"delivered", "before function"} & twice


def in_table(dsn, table):
    """(rows in the order of their tags, rows in whole epochs that the bookkeeping knows)."""
    import psycopg

    with psycopg.connect(dsn) as connection:
        found = connection.execute(f'SELECT * FROM "{table}" ORDER BY _serial, _index').fetchall()
        noted = connection.execute(
            "SELECT coalesce(sum(rows), 0) FROM ordstream_epochs WHERE target = %s", (table,)
        ).fetchone()
    columns = list(zip(*found, strict=True)) or [[]] * len(SCHEMA)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    ), noted[0]


def test_postgres_after_a_kill_at_every_step(driver, postgres_dsn):
    steps = driver.deliver("postgres", [postgres_dsn, "all_steps"])
    assert same(in_table(postgres_dsn, "all_steps")[0], driver.expected)
    assert {"after _copy", "after _write", "after lines", "delivered"} <= set(steps)
    first = steps.index("after _take") + 1  # before it there is no table to look at
    for fault in range(1, len(steps) + 1):
        table = f"killed_{fault}"
        driver.deliver("postgres", [postgres_dsn, table], fault)
        if fault > first + 1:
            seen, noted = in_table(postgres_dsn, table)
            assert len(seen) == noted
            assert same(seen, driver.expected.slice(0, len(seen))), steps[fault - 1]
        driver.deliver("postgres", [postgres_dsn, table])
        seen, noted = in_table(postgres_dsn, table)
        assert same(seen, driver.expected), steps[fault - 1]
        assert noted == len(seen)


def test_two_transactions_show_duplicates(driver, postgres_dsn):
    """The negative control of the test above: a sink that commits the rows first."""
    import psycopg

    def made(table):  # without the primary key, which would refuse the second copy
        columns = "bigint, word text, price float, at timestamptz, cents numeric(9,2), items bigint[], "
        columns += "_serial bigint, _index bigint"
        with psycopg.connect(postgres_dsn) as connection:
            connection.execute(f'CREATE TABLE {table} ("user" {columns})')
        return [postgres_dsn, table]

    steps = driver.deliver("two transactions", made("control"))
    assert same(in_table(postgres_dsn, "control")[0], driver.expected)
    fault = len(steps) - steps[::-1].index("after _write")  # rows are committed, their number is not
    driver.deliver("two transactions", made("control_killed"), fault)
    driver.deliver("two transactions", [postgres_dsn, "control_killed"])
    seen, _ = in_table(postgres_dsn, "control_killed")
    assert len(seen) == len(driver.expected) + sum(SMALL[-1])
    assert not same(seen, driver.expected)
    assert len(set(zip(seen["_serial"].to_pylist(), seen["_index"].to_pylist(), strict=True))) == len(
        driver.expected
    )


def test_the_epochs_of_the_tests_have_all_kinds():
    """No file, a file without rows, one row, several files, more rows than a batch of the copy."""
    from ordstream.spark.streaming.sinks.epoch_rows import ROWS

    assert all(sizes in SIZES for sizes in ([], [0], [1]))
    assert max(max(sizes, default=0) for sizes in SIZES) > ROWS
