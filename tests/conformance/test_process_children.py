"""Functions that start processes of their own, inside node processes."""

from __future__ import annotations

import multiprocessing.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from process_functions import (
    SOURCE,
    build,
    forks_and_comes_back,
    forks_and_dies,
    leaves_a_process,
    rows,
    starts_processes,
)

import ordstream as od
from ordstream.reference.run_serial import run_serial

SMALL = rows(2_000)
FOLDER = str(Path(od.__file__).parents[1])


def runs(process):
    """Whether a process is there, and no zombie that nobody waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def child(tmp_path, monkeypatch):
    """The file where a function tells the number of the process that it started; ended in any case."""
    file = tmp_path / "child"
    monkeypatch.setenv("ORDSTREAM_TEST_BEAT", str(file))
    yield file
    if file.exists() and runs(file.read_text()):
        os.kill(int(file.read_text()), signal.SIGKILL)


def spread(function):
    return build(lambda p: p.map(function, schema=SOURCE)).run(SMALL, processes=2).table


def test_a_function_may_start_processes():
    """They were refused: "daemonic processes are not allowed to have children"."""
    pipeline = build(lambda p: p.map(starts_processes, schema=SOURCE))
    assert spread(starts_processes).equals(run_serial(pipeline, SMALL).table)


def test_what_a_function_has_started_ends_with_its_node(child):
    assert spread(leaves_a_process).num_rows
    until = time.monotonic() + 30
    while runs(child.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not runs(child.read_text())


def test_a_forked_process_that_comes_back_ends_and_says_so(capfd):
    """It told the caller what became of it over its parent's sockets: an exception that nothing had raised
    in the run, or rows in the middle of its parent's.
    """
    kept = build(lambda p: p)
    assert spread(forks_and_comes_back).equals(run_serial(kept, SMALL).table)
    told = capfd.readouterr().err
    assert told.count("was forked by a function of the pipeline and came back from it") >= 2


FORKED = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from process_functions import *

if __name__ == "__main__":
    stream = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count()).stream(
        (one for k in range(9) for one in rows(9).to_batches()), processes=2
    )
    next(stream)
    child = os.fork()
    if not child:
        time.sleep(600)
        os._exit(0)
    Path(sys.argv[2]).write_text(" ".join(map(str, [child, *(one.pid for one in stream._pool._processes)])))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nodes_of_a_killed_caller_end_beside_its_child(tmp_path, child):
    """The child kept the pipe and the sockets by which nodes hear of the caller's end."""
    script = tmp_path / "script.py"
    script.write_text(FORKED)
    told = tmp_path / "told"  # a file: multiprocessing's tracker keeps a pipe open while the child lives
    command = [sys.executable, str(script), str(Path(__file__).parents[1]), str(told)]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": FOLDER}, timeout=120, check=False)
    forked, *nodes = told.read_text().split()
    child.write_text(forked)
    until = time.monotonic() + 60
    while any(map(runs, nodes)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(runs, nodes))
    assert runs(forked)


def test_a_node_that_is_killed_is_seen_beside_a_child_of_its_function(child):
    """The child had the node's sockets, and the run waited for its end."""
    with pytest.raises(od.NodeLost, match="signal SIGKILL"):
        spread(forks_and_dies)
    assert runs(child.read_text())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_of_the_caller_that_exits_leaves_the_nodes_alone():
    """Python's exit there ended the caller's node processes: NodeLost, by SIGTERM."""
    pipeline = build()
    with pipeline.stream(SMALL, processes=2) as stream:
        found = next(stream).to_pylist()
        child = os.fork()
        if not child:
            status = 1
            try:
                multiprocessing.util._exit_function()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        for batch in stream:
            found += batch.to_pylist()
    assert found == run_serial(pipeline, SMALL).table.to_pylist()
