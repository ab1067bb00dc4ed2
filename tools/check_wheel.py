"""Smoke test of an installed wheel: every extension loads, and a pipeline gives the serial answer.

Run it with the interpreter into which the wheel was installed, from any folder. Only what the wheel itself
requires is used. ``--no-compiler`` first checks that there is no C or C++ compiler on the path.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import pkgutil
import shutil
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent


def check_environment(*, no_compiler: bool) -> None:
    if no_compiler:
        found = [name for name in ("cc", "c++", "gcc", "g++", "clang", "clang++", "cl") if shutil.which(name)]
        if found:
            raise SystemExit(f"this environment has compilers on its path: {found}")
    import ordstream

    where = Path(ordstream.__file__).resolve().parent
    if where == SOURCE / "ordstream":
        raise SystemExit(f"{where} is the source tree, not an installed wheel")


def check_files() -> int:
    """Import every module of the core; check the files a type checker and a Cython user look for."""
    import ordstream
    import ordstream._core as core

    package = Path(ordstream.__file__).parent
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    compiled = [m.name for m in pkgutil.walk_packages(core.__path__, core.__name__ + ".")
                if importlib.import_module(m.name).__file__.endswith(suffixes)]
    if not compiled:
        raise SystemExit("the wheel has no compiled module")
    for needed, pattern in (("py.typed", "py.typed"), ("a .pxd file", "_core/*.pxd")):
        if not list(package.glob(pattern)):
            raise SystemExit(f"the wheel lacks {needed}")
    if leaked := [*package.rglob("*.pyx"), *package.rglob("*.cpp")]:
        raise SystemExit(f"the wheel carries sources: {leaked}")
    return len(compiled)


def check_answer() -> int:
    """Run one chain of all three kinds of operator on 0, 1 and 2 workers against `run_serial`."""
    import pyarrow as pa

    import ordstream as od
    from ordstream.reference.run_serial import run_serial

    schema = pa.schema([("user", pa.int64()), ("item", pa.string())])
    rows = 5_000
    data = pa.table({"user": [None if i % 97 == 0 else i * i % 61 for i in range(rows)],
                     "item": [f"item {i * 7 % 13}" for i in range(rows)]}, schema=schema)
    pipeline = (od.Pipeline(schema)
                .filter(od.col("user").is_not_null())
                .key_by("user", "item").count()
                .top_k(10, by="count"))
    expected = run_serial(pipeline, data).rows
    if len(expected) != 10:
        raise SystemExit(f"run_serial gave {len(expected)} rows, not 10")
    for workers in (0, 1, 2):
        got = [tuple(row.values()) for row in pipeline.run(data, workers=workers).table.to_pylist()]
        if got != expected:
            raise SystemExit(f"workers={workers}: {got} differs from the serial answer {expected}")
    return rows


def main() -> None:
    check_environment(no_compiler="--no-compiler" in sys.argv[1:])
    modules = check_files()
    rows = check_answer()
    print(f"ordstream {importlib.metadata.version('ordstream')}: {modules} compiled modules load, "
          f"{rows} rows on 0, 1 and 2 workers equal the serial answer")


if __name__ == "__main__":
    main()
