"""One peer doing one job in a process of its own: prints a line of JSON with wall and CPU seconds per run
and the peak memory.

    python measure.py MODULE ENGINE JOB CLICKS EXPECTED WARM RUNS

MODULE is a file of this folder (or bench/) with `prepare(engine, job, table)`: it returns a function without
arguments that does the job once. Turning the Arrow columns into the peer's own form is not measured;
building its plan, running it and having the whole answer in memory is. Every answer is checked.
"""

from __future__ import annotations

import gc
import importlib
import json
import resource
import sys
import time
from typing import Any

import jobs
from memory import peak_mb


def cpu_seconds() -> float:
    """Of this process and the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Measure what the command line says."""
    module_name, engine, job, clicks, expected, warm, runs = sys.argv[1:]
    module = importlib.import_module(module_name)
    cpu = getattr(module, "cpu_seconds", cpu_seconds)
    table = jobs.loaded(job, clicks)
    run = module.prepare(engine, job, table)
    found: dict[str, Any] = {"wall_s": [], "cpu_s": [], "table_mb": peak_mb()}
    for number in range(int(warm) + int(runs)):
        gc.collect()
        used, start = cpu(), time.perf_counter()
        answer = run()
        wall, used = time.perf_counter() - start, cpu() - used
        if number == 0:
            jobs.check(job, answer, table, expected)
        if number >= int(warm):
            found["wall_s"].append(wall)
            found["cpu_s"].append(used)
        del answer
    found["peak_mb"] = getattr(module, "peak_mb", peak_mb)()
    found["version"] = module.version(engine)
    if hasattr(module, "latency"):
        found["latency"] = module.latency()
    print(json.dumps(found))
    if hasattr(module, "close"):
        module.close()


if __name__ == "__main__":
    main()
