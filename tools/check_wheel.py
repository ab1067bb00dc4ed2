"""Checks of a wheel: of the file, what is in it and how large it is; once installed, that it works.

``check_wheel.py FILE.whl ...`` looks into the files: every compiled module and nothing of the laboratory,
``py.typed`` and ``.pxd`` files, no sources, less than 8 MB. Without a file it is a smoke test of the
installed wheel: every extension loads, and a pipeline gives the serial answer. Run it then with the
interpreter into which the wheel was installed, from any folder; only what the wheel itself requires is
used. ``--no-compiler`` first checks that there is no C or C++ compiler on the path.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import pkgutil
import shutil
import sys
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent

MOST_BYTES = 8_000_000
COMPILED = (".so", ".pyd")
SOURCES = (".pyx", ".cpp", ".c", ".o")
NEEDED = ("ordstream/py.typed", "ordstream/_core/ground/chunk.pxd", "ordstream/include/ordstream_kernel.h")
LAB = ("ordstream/lab/", "ordstream/_core/lab/")
#: Compiled of no source of ours: what the others have in common (setup.py).
SHARED = "ordstream/_core/_cyutility"


def wrong_in(wheel: Path, modules: set[str], most: int = MOST_BYTES) -> list[str]:
    """What is wrong with a wheel's content, a line each.

    Parameters
    ----------
    wheel : Path
    modules : set of str
        The compiled modules that it must have, as paths without suffix: ``ordstream/_core/flow/run``.
    most : int
        It must have fewer bytes.
    """
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    size = wheel.stat().st_size
    found = {
        name.partition(".")[0]
        for name in names
        if name.endswith(COMPILED) and not name.startswith("ordstream.libs/")
    }
    wrong = [] if size < most else [f"it has {size:,} bytes, {most:,} are too many"]
    wrong += [f"it lacks {name}" for name in NEEDED if name not in names]
    wrong += [f"it lacks the compiled module {name}" for name in sorted(modules - found)]
    wrong += [f"it carries the laboratory: {name}" for name in sorted(names) if name.startswith(LAB)]
    wrong += [f"it carries sources: {name}" for name in sorted(names) if name.endswith(SOURCES)]
    outside = [name for name in sorted(names) if not name.startswith("ordstream")]
    return wrong + [f"it carries a file of nobody's: {name}" for name in outside]


def compiled_modules(source: Path = SOURCE) -> set[str]:
    """The modules that a wheel of these sources has, as paths without suffix."""
    files = (
        file.relative_to(source).with_suffix("").as_posix()
        for file in (source / "ordstream" / "_core").rglob("*.pyx")
    )
    return {SHARED, *(name for name in files if not f"{name}/".startswith(LAB))}


def table_of(wheel: Path) -> list[tuple[str, int, int, int]]:
    """(kind, files, bytes unpacked, bytes in the wheel) of what is in it."""
    kinds = {
        "compiled modules": COMPILED,
        "Python": (".py",),
        "types": (".pyi", ".typed"),
        "for Cython and C": (".pxd", ".h", ".hpp"),
    }
    rows: dict[str, list[int]] = {}
    with zipfile.ZipFile(wheel) as opened:
        for info in opened.infolist():
            kind = next((kind for kind, ends in kinds.items() if info.filename.endswith(ends)), "metadata")
            row = rows.setdefault(kind, [0, 0, 0])
            row[:] = [row[0] + 1, row[1] + info.file_size, row[2] + info.compress_size]
    return [(kind, *rows[kind]) for kind in (*kinds, "metadata") if kind in rows]  # type: ignore[misc]


def check_wheels(wheels: list[Path]) -> None:
    """Print what is in each wheel; exit with what is wrong."""
    for wheel in wheels:
        for kind, files, unpacked, packed in table_of(wheel):
            print(f"{kind:<18} {files:>4} files {unpacked:>12,} bytes {packed:>12,} packed")
        if wrong := wrong_in(wheel, compiled_modules()):
            raise SystemExit("\n".join(f"{wheel.name}: {line}" for line in wrong))
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, as it should be")


def check_environment(*, no_compiler: bool) -> None:
    if no_compiler:
        found = [
            name for name in ("cc", "c++", "gcc", "g++", "clang", "clang++", "cl") if shutil.which(name)
        ]
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
    compiled = [
        m.name
        for m in pkgutil.walk_packages(core.__path__, core.__name__ + ".")
        if importlib.import_module(m.name).__file__.endswith(suffixes)
    ]
    if not compiled:
        raise SystemExit("the wheel has no compiled module")
    for needed, pattern in (("py.typed", "py.typed"), ("a .pxd file", "_core/**/*.pxd")):
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
    data = pa.table(
        {
            "user": [None if i % 97 == 0 else i * i % 61 for i in range(rows)],
            "item": [f"item {i * 7 % 13}" for i in range(rows)],
        },
        schema=schema,
    )
    pipeline = (
        od.Pipeline(schema)
        .filter(od.col("user").is_not_null())
        .key_by("user", "item")
        .count()
        .top_k(10, by="count")
    )
    expected = run_serial(pipeline, data).rows
    if len(expected) != 10:
        raise SystemExit(f"run_serial gave {len(expected)} rows, not 10")
    for workers in (0, 1, 2):
        got = [tuple(row.values()) for row in pipeline.run(data, workers=workers).table.to_pylist()]
        if got != expected:
            raise SystemExit(f"workers={workers}: {got} differs from the serial answer {expected}")
    return rows


def main() -> None:
    if wheels := [Path(word) for word in sys.argv[1:] if word.endswith(".whl")]:
        check_wheels(wheels)
        return
    check_environment(no_compiler="--no-compiler" in sys.argv[1:])
    modules = check_files()
    rows = check_answer()
    print(
        f"ordstream {importlib.metadata.version('ordstream')}: {modules} compiled modules load, "
        f"{rows} rows on 0, 1 and 2 workers equal the serial answer"
    )


if __name__ == "__main__":
    main()
