"""Whether the tests notice: take one line out of the core, build, run the tests that should see it, and say
which do not.

Usage, from anywhere, with the interpreter that has the project's requirements::

    python tools/mutants.py [--runs N] [--keep FOLDER] [NAME ...]

Works in a copy of the checkout, with its builds (the first build there takes as long as what the checkout
lacks). Without names: all mutants. A mutant is *killed* when each of its tests fails in each of N runs
(default 1). Before the mutants the same tests run on the unchanged copy and must pass. Exit status 0: all
killed, 1: one survived, 2: the tests fail without a mutant, or one cannot be made.

Not part of CI: every mutant builds a module of the core, half a minute or more each.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = (".git", ".venv", ".venv-peers", "dist", "data", ".hypothesis", "__pycache__", "bench-results")
MOST_S = 600


@dataclass(frozen=True)
class Mutant:
    """`old`, which occurs once in `file`, becomes `new`; `tests` then fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


WAKEUPS = "tests/stress/test_wakeups.py::"
RUNTIME = "ordstream/_core/flow/runtime.pyx"
SLICES = "ordstream/_core/flow/slices.pyx"
DELIVERY = "ordstream/_core/flow/delivery.pyx"
PARTS = "ordstream/_core/flow/parts.pyx"

MUTANTS = (
    Mutant(
        "push-notify",
        DELIVERY,
        "        op.run.work.notify_one()\n    if d.direct:",
        "        pass\n    if d.direct:",
        (WAKEUPS + "test_what_is_pushed_wakes_a_parked_worker",),
    ),
    Mutant(
        "second-look",
        RUNTIME,
        "                if anything_schedulable(rt) or finished(rt):\n",
        "                if finished(rt):\n",
        (WAKEUPS + "test_a_worker_looks_again_before_it_parks",),
    ),
    Mutant(
        "second-look-end",
        RUNTIME,
        "                if anything_schedulable(rt) or finished(rt):\n",
        "                if anything_schedulable(rt):\n",
        (WAKEUPS + "test_a_worker_that_is_about_to_park_sees_the_end",),
    ),
    Mutant(
        "reader-notify",
        DELIVERY,
        "        op.run.reader.notify_all()\n\n\ncdef Chunk* prepare_lanes(",
        "        pass\n\n\ncdef Chunk* prepare_lanes(",
        (WAKEUPS + "test_a_release_tells_the_reader",),
    ),
    Mutant(
        "direct-release",
        DELIVERY,
        "        operator_release(op.next, w)                          # at most as deep as the chain is "
        "long\n",
        "        pass\n",
        (WAKEUPS + "test_a_unit_with_nothing_to_process_is_released_at_once",),
    ),
    Mutant(
        "wake-another",
        RUNTIME,
        "    if load_relaxed(&rt.run.parked) > 0 and anything_schedulable(rt):\n        "
        "rt.run.work.notify_one()\n",
        "    pass\n",
        (WAKEUPS + "test_who_ends_a_slice_wakes_another_for_what_is_left",),
    ),
    Mutant(
        "end-wake",
        RUNTIME,
        "    rt.run.work.notify_all()\n    rt.gate.notify_all()\n",
        "    rt.gate.notify_all()\n",
        (WAKEUPS + "test_the_end_of_a_run_wakes_parked_workers",),
    ),
    Mutant(
        "end-gate",
        RUNTIME,
        "    rt.run.work.notify_all()\n    rt.gate.notify_all()\n",
        "    rt.run.work.notify_all()\n",
        (WAKEUPS + "test_the_end_of_a_run_opens_the_gate",),
    ),
    Mutant(
        "held-before-flush",
        PARTS,
        "        send_held(op, w, slice)                               # a flush may take long\n",
        "",
        (WAKEUPS + "test_units_are_not_held_while_a_bucket_is_flushed",),
    ),
    Mutant(
        "delegated-cap",
        SLICES,
        "CLAIM_MAX if k + 1 < n else budget, budget, slice)",
        "budget, budget, slice)",
        (WAKEUPS + "test_delegated_parts_do_not_keep_the_other_claims",),
    ),
    Mutant(
        "above-active",
        RUNTIME,
        "    if outside(rt, w):\n        unlock_scheduler(rt)\n        return -1\n",
        "",
        (WAKEUPS + "test_a_worker_above_the_number_stops",),
    ),
    Mutant(
        "publish-release",
        RUNTIME,
        "    operator_release(last, w)                                 # L40: a unit may have become "
        "ready meanwhile\n",
        "",
        (WAKEUPS + "test_who_publishes_releases_what_became_ready_meanwhile",),
    ),
)


def environment(folder: Path) -> dict[str, str]:
    own = {"PYTHONPATH": str(folder), "ORDSTREAM_EXPECT_BUILD": str(folder), "ORDSTREAM_CASES": "all"}
    return os.environ | own


def build(folder: Path) -> None:
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env=environment(folder),
        check=True,
        stdout=subprocess.DEVNULL,
    )


def failure(folder: Path, test: str) -> str | None:
    """None where the test passes, else its message."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", test]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            timeout=MOST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {MOST_S} s"
    if done.returncode == 0:
        return None
    if done.returncode != 1 or not re.search(r"^(FAILED|ERROR) ", done.stdout, re.MULTILINE):
        raise RuntimeError(f"{test} did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = re.findall(r"^E +(.*)", done.stdout, re.MULTILINE)
    return (
        found[-1]
        if len(found) == 1
        else next((line for line in found if not line.startswith("assert")), "failed")
    )


def tried(folder: Path, mutant: Mutant, runs: int) -> bool:
    """Whether the mutant is killed; says so."""
    path = folder / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise RuntimeError(f"{mutant.name}: its text occurs {text.count(mutant.old)} times in {mutant.file}")
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        build(folder)
        killed = True
        for test in mutant.tests:
            messages = [failure(folder, test) for _ in range(runs)]
            red = sum(message is not None for message in messages)
            killed = killed and red == runs
            message = next((message for message in messages if message), "")
            print(
                f"{mutant.name}: {test.partition('::')[2]} fails in {red} of {runs} runs: {message}",
                flush=True,
            )
        return killed
    finally:
        path.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=", ".join(mutant.name for mutant in MUTANTS)
    )
    parser.add_argument("--runs", type=int, default=1, help="runs of each test (default 1)")
    parser.add_argument(
        "--keep",
        type=Path,
        help="folder of the copy, made where it is absent and kept: the next time builds less",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - {mutant.name for mutant in MUTANTS}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in MUTANTS if not arguments.names or mutant.name in arguments.names]
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.keep or Path(temporary) / "copy").resolve()
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
        try:
            build(folder)
            for test in sorted({test for mutant in chosen for test in mutant.tests}):
                if (message := failure(folder, test)) is not None:
                    print(f"without a mutant, {test} fails: {message}", file=sys.stderr)
                    return 2
            survivors = [mutant.name for mutant in chosen if not tried(folder, mutant, arguments.runs)]
            build(folder)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            print(error, file=sys.stderr)
            return 2
    print(
        f"{len(chosen) - len(survivors)} of {len(chosen)} killed"
        + (f"; survived: {', '.join(survivors)}" if survivors else "")
    )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
