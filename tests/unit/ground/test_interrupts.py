"""Ctrl-C while child processes are started: kept from them, and from the thread that starts them until
it has done so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ordstream.ground.interrupts import kept_from_children

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks here")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(50):  # Python looks for signals between its instructions
        time.sleep(0.001)


@pytest.mark.parametrize("threads", [0, 1])
def test_an_interrupt_comes_afterwards(threads: int) -> None:
    """Also where another thread, in which the signal is not blocked, is there to take it."""
    end, reached = threading.Event(), []

    def start() -> None:
        with kept_from_children():
            interrupt()
            reached.append(True)

    for _ in range(threads):
        threading.Thread(target=end.wait).start()
    present = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        end.set()
    assert reached
    assert signal.getsignal(signal.SIGINT) is present
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_an_interrupt_is_not_lost_behind_an_error() -> None:
    def start() -> None:
        with kept_from_children():
            interrupt()
            raise OSError("no process")

    end = threading.Event()
    threading.Thread(target=end.wait).start()
    try:
        with pytest.raises(KeyboardInterrupt) as raised:
            start()
    finally:
        end.set()
    assert isinstance(raised.value.__context__, OSError)


def test_an_ignored_interrupt_stays_ignored() -> None:
    present = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with kept_from_children():
            interrupt()
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, present)


def test_a_child_does_not_see_it() -> None:
    program = (
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(0.05)\nprint('went on')"
    )
    with kept_from_children():
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("went on\n", "", 0)


def test_in_another_thread_only_its_mask_changes() -> None:
    seen: list[bool] = []

    def other() -> None:
        with kept_from_children():
            seen.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))

    present = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [True]
    assert signal.getsignal(signal.SIGINT) is present


FIRST = """
import multiprocessing, os, signal
from pathlib import Path
from ordstream.ground.interrupts import kept_from_children

def mask():
    status = Path("/proc/self/status").read_text()
    blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
    os._exit(blocked >> (signal.SIGINT - 1) & 1)

if __name__ == "__main__":
    with kept_from_children():
        process = multiprocessing.get_context("spawn").Process(target=mask)
        process.start()
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    process.join()
    print(process.exitcode)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
def test_the_first_process_that_is_spawned_is_kept_from_it_too(tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    script.write_text(FIRST)
    command = [sys.executable, str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended.stderr
