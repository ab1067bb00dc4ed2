"""Build of the compiled core: one table of extensions, one dict of directives, one loop.

Every ``ordstream/_core/**/*.pyx`` becomes one extension module of the same dotted name. Everything else
about the package stands in ``pyproject.toml``. Environment variables that change the build:

``ORDSTREAM_DEBUG=1``
    Bounds checks on, counters of chunks, references and threads compiled in.
``ORDSTREAM_SANITIZE=thread|address``
    Instrumented, ``-g -O1``; ``address`` brings ``undefined`` along.
``ORDSTREAM_NATIVE=1``
    ``-march=native``; never in a wheel, which must run on any processor of its family.
``ORDSTREAM_LAB=1``
    Also the laboratory (``ordstream/lab``, ``ordstream/_core/lab``: experiments, test doors, benchmark
    kernels, the simulator) in a build that is not in place. A build in place, as in a checkout, always has
    it; a wheel never does.
``ORDSTREAM_NO_CORE=1``
    No extension at all: ``make develop`` installs the package and its requirements so, then builds the core
    in place, where a compiler's messages are seen.
``ORDSTREAM_JOBS=n``
    Parallel compilers; default: the processors this process may use.

Variants are kept apart by their build folder (``python setup.py build --build-base build/debug ...``;
targets ``debug``, ``tsan`` and ``asan`` of the Makefile). A change of flags rebuilds everything in that
folder.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)  # setuptools wants sources relative to the project, whatever the caller's folder


def asked(switch: str) -> bool:
    return os.environ.get(switch, "0") not in ("", "0")


DEBUG = asked("ORDSTREAM_DEBUG")
NATIVE = asked("ORDSTREAM_NATIVE")
SANITIZE = os.environ.get("ORDSTREAM_SANITIZE", "")

INCLUDE_DIRS = ["ordstream/_core/ground", "ordstream/_core/state", "ordstream/include"]

# Modules that look into NumPy arrays; the headers of NumPy 2 serve NumPy 1 as well.
NUMPY_ARRAYS = ("map_batches",)

#: Packages that only a checkout has.
LAB = ("ordstream.lab", "ordstream._core.lab")

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
}

#: What Cython's modules have in common (functions, memoryviews, generators): written and compiled once.
SHARED = "ordstream._core._cyutility"

#: In the build's folder: what Cython printed when it last translated everything.
TRANSLATION_LOG = "cython.log"

SANITIZERS = {
    # No stand-alone fence is allowed in the core: ThreadSanitizer cannot see them; -Wtsan says where one is.
    "thread": ["-fsanitize=thread"],
    # setuptools passes -fwrapv, under which signed overflow is defined and therefore never reported.
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-wrapv"],
}


def compiler_flags() -> tuple[list[str], list[str]]:
    """Compile and link flags of this platform and variant."""
    if sys.platform == "win32":
        # The Interlocked and <atomic> headers of MSVC are complete at /std:c++17; /EHsc: C++ exceptions
        # only.
        return ["/std:c++17", "/O2", "/EHsc", "/Zc:__cplusplus"], []
    compile_flags, link_flags = ["-std=c++17", "-pthread"], ["-pthread"]
    if SANITIZE:
        if SANITIZE not in SANITIZERS:
            raise SystemExit(f"ORDSTREAM_SANITIZE must be one of {sorted(SANITIZERS)}, not {SANITIZE!r}")
        compile_flags += ["-g", "-O1", "-fno-omit-frame-pointer", *SANITIZERS[SANITIZE]]
        if SANITIZE == "thread" and "clang" not in os.environ.get("CXX", ""):
            compile_flags += ["-Werror=tsan"]
        link_flags += [SANITIZERS[SANITIZE][0]]
    else:
        # Python's own flags say -g: a quarter of the compiler's time, for what no user sees.
        compile_flags += ["-O3", *([] if DEBUG else ["-g0"])]
    if NATIVE:
        compile_flags += ["-march=native"]
    return compile_flags, link_flags


def extensions() -> list[Extension]:
    """One extension per ``.pyx`` file under ``ordstream/_core``, and what Cython's modules share."""
    if asked("ORDSTREAM_NO_CORE"):
        return []
    import numpy as np  # here: an installation without the core needs none to be built

    compile_flags, link_flags = compiler_flags()
    headers = sorted(
        path.as_posix()
        for folder in INCLUDE_DIRS
        for path in Path(folder).rglob("*")
        if path.suffix in (".h", ".hpp")
    )
    modules = [
        Extension(
            ".".join(source.with_suffix("").parts),
            [source.as_posix()],
            language="c++",
            include_dirs=[*INCLUDE_DIRS, np.get_include()] if source.stem in NUMPY_ARRAYS else INCLUDE_DIRS,
            # .pxd files are not listed: cythonize follows cimports, and rebuilds only what a change reaches.
            # Headers are listed: what a header includes in its turn is not followed.
            depends=headers,
            define_macros=[("ORDSTREAM_DEBUG", str(int(DEBUG)))],
            extra_compile_args=compile_flags,
            extra_link_args=link_flags,
        )
        for source in sorted(Path("ordstream/_core").rglob("*.pyx"))
    ]
    # translate() knows its source.
    flags = {"extra_compile_args": compile_flags, "extra_link_args": link_flags}
    return [*modules, Extension(SHARED, [], language="c++", **flags)]


def jobs() -> int:
    """How many compilers may run at once."""
    if wanted := os.environ.get("ORDSTREAM_JOBS"):
        return max(1, int(wanted))
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def write_shared(folder: Path, *, force: bool) -> str:
    """Have Cython write the source of the module SHARED under `folder`; return its path."""
    source = folder.joinpath(*SHARED.split(".")).with_suffix(".cpp")
    if force or not source.exists():
        source.parent.mkdir(parents=True, exist_ok=True)
        options = ["--cplus", f"--module-name={SHARED}", f"--generate-shared={source}"]
        subprocess.run([sys.executable, "-m", "cython", *options], check=True)
    return str(source)


def translate(modules: list[Extension], folder: Path, *, force: bool) -> list[Extension]:
    """Translate ``.pyx`` to C++ under `folder`; return the extensions over the C++ files, in order."""
    if not modules:
        return []
    from Cython.Build import cythonize  # here: metadata commands need no Cython
    from Cython.Compiler.Errors import CompileError

    sources = [module for module in modules if module.name != SHARED]
    # cythonize's own pool needs fork: a spawned child would run this file again.
    forks = multiprocessing.get_start_method() == "fork"
    try:
        translated = cythonize(
            sources,
            build_dir=str(folder),
            force=force,
            nthreads=min(jobs(), len(sources)) if forks and len(sources) > 1 else 0,
            compiler_directives=DIRECTIVES,
            shared_utility_qualified_name=SHARED,
            show_all_warnings=False,
        )
    except CompileError as error:
        raise SystemExit(f"Cython could not translate {error}; its messages are above") from None
    by_name = {module.name: module for module in translated}
    for shared in (module for module in modules if module.name == SHARED):
        shared.sources = [write_shared(folder, force=force)]
        by_name[SHARED] = shared
    return [by_name[module.name] for module in modules]


@contextlib.contextmanager
def recorded(log: Path) -> Iterator[None]:
    """What this process and its children print goes to `log`; if they fail, to the standard error too."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    failed = True
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            yield
        failed = False
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for standard, descriptor in enumerate(kept, 1):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        if failed:
            sys.stderr.write(log.read_text(errors="replace"))
            log.unlink()


def in_lab(name: str) -> bool:
    """Whether a package or module is of the laboratory."""
    return any(name == package or name.startswith(f"{package}.") for package in LAB)


class BuildPython(build_py):
    """``build_py`` that leaves the laboratory out of a wheel. An editable installation sees the
    checkout's.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        if not (asked("ORDSTREAM_LAB") or self.editable_mode):
            self.packages = [package for package in self.packages or [] if not in_lab(package)]


class BuildCore(build_ext):
    """``build_ext`` that translates first, compiles in parallel, and rebuilds all when the flags changed."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or jobs()
        self.for_users = not self.inplace  # setuptools takes `inplace` away while it builds
        if not (self.inplace or asked("ORDSTREAM_LAB")):
            self.extensions = [module for module in self.extensions if not in_lab(module.name)]

    def build_extensions(self) -> None:
        base = Path(self.get_finalized_command("build").build_base)
        base.mkdir(parents=True, exist_ok=True)
        import Cython

        stamp = base / f"flags-{sys.implementation.cache_tag}.txt"
        outside = [os.environ.get(name) for name in ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS")]
        flags = repr((DIRECTIVES, SHARED, compiler_flags(), DEBUG, Cython.__version__, sys.version, outside))
        if not stamp.exists() or stamp.read_text() != flags:
            # C++ files made anew are newer than every object made with the old flags: all is compiled again.
            shutil.rmtree(base / "cython", ignore_errors=True)
            stamp.write_text(flags)
        if self.for_users and not (DEBUG or SANITIZE) and sys.platform == "linux":
            # For users: Python's own flags bring -g along, and most of a module's bytes would be for a
            # debugger.
            for module in self.extensions:
                module.extra_compile_args = [*module.extra_compile_args, "-g0"]
                module.extra_link_args = [*module.extra_link_args, "-Wl,-s"]
        log = base / TRANSLATION_LOG
        if (base / "cython").exists() or len(self.extensions) < len(extensions()):
            translations = translate(self.extensions, base / "cython", force=bool(self.force))
        else:
            # All of it is translated: what Cython says serves `make lint` too.
            with recorded(log):
                translations = translate(self.extensions, base / "cython", force=True)
        for module, translated in zip(self.extensions, translations, strict=True):
            module.sources = translated.sources
            module.depends = sorted({*module.depends, *translated.depends})
        super().build_extensions()


class Translate(Command):
    """``python setup.py translate``: what Cython says of every source; for ``make lint``.

    It translates, unless a build has translated all of them as they are.
    """

    description = "print what Cython says of every .pyx; compile nothing"
    user_options: ClassVar = [("build-dir=", None, "folder for the C++ files")]

    def initialize_options(self) -> None:
        self.build_dir = "build/translate"

    def finalize_options(self) -> None:
        pass

    def run(self) -> None:
        log = Path(self.get_finalized_command("build").build_base) / TRANSLATION_LOG
        written = log.stat().st_mtime if log.exists() else 0.0
        sources = [*Path("ordstream").rglob("*.pyx"), *Path("ordstream").rglob("*.pxd"), Path("setup.py")]
        if all(source.stat().st_mtime < written for source in sources):
            sys.stdout.write(log.read_text(errors="replace"))
        else:
            translate(extensions(), Path(self.build_dir), force=True)


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildCore, "build_py": BuildPython, "translate": Translate},
)
