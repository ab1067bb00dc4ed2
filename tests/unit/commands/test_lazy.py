"""What the command line imports before a command is chosen: nothing heavy; and what it says of itself."""

from __future__ import annotations

import builtins
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ordstream
from ordstream.commands import cli, ctrl_c

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(ordstream.__file__).parents[1])}  # the build under test
# Each takes longer to import than the whole of `ordstream --help` may.
HEAVY = {
    "numpy",
    "pyarrow",
    "pyspark",
    "matplotlib",
    "ordstream.lab",
    "ordstream._core",
    "ordstream.tpcxbb",
    "ordstream.spark",
}
LOADED = "import sys; print(*sys.modules, file=sys.stderr)"
START = "import sys\nfrom ordstream.__main__ import main\nsys.exit(main())"
TOLD = "ordstream: the laboratory is part of a checkout, not of the wheel: git clone"


def loaded(*arguments: str) -> tuple[str, set[str]]:
    """(stdout, modules loaded at the end) of a command."""
    program = f"import atexit\natexit.register(lambda: exec({LOADED!r}))\n{START}"
    command = [sys.executable, "-c", program, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=ENVIRONMENT)
    return ended.stdout, set(ended.stderr.split())


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(option: str) -> None:
    out, modules = loaded(option)
    assert "ordstream.commands.cli" in modules
    assert not modules & HEAVY
    if option == "--version":
        assert out == f"ordstream {ordstream.__version__}\n"
    else:
        assert [
            line.split()[0] for line in out.splitlines() if line.startswith("    ") and line[4] != " "
        ] == [name for name, *_ in cli.COMMANDS]


def test_a_command_imports_no_other_one() -> None:
    _, modules = loaded("generate", "--help")
    assert "ordstream.commands.generate" in modules
    assert not modules & {"ordstream.commands.bench", "ordstream.commands.run", "ordstream.lab", "pyspark"}


def test_the_package_alone_imports_nothing() -> None:
    program = "import sys; before = set(sys.modules); import ordstream; print(*set(sys.modules) - before)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    assert ended.stdout.split() == ["ordstream"]


@pytest.mark.parametrize("missing", ["ordstream.lab.evaluation", "ordstream._core.lab"])
def test_bench_without_the_laboratory_says_so(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in an installed wheel: one line, exit status 2."""
    real = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.startswith("ordstream.lab"):
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.delitem(sys.modules, "ordstream.commands.bench", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    assert cli.main(["bench", "fig8"]) == 2
    monkeypatch.undo()
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(TOLD)


def test_bench_without_the_compiled_laboratory_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The experiments are imported when they are listed."""

    def experiments() -> object:
        raise ModuleNotFoundError("No module named 'ordstream._core.lab'", name="ordstream._core.lab")

    monkeypatch.setattr("ordstream.commands.bench.experiments", experiments)
    assert cli.main(["bench", "--help"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(TOLD)
    assert err.count("\n") == 1


def test_another_module_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.startswith("ordstream.lab"):
            raise ModuleNotFoundError("No module named 'scipy'", name="scipy")
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.delitem(sys.modules, "ordstream.commands.bench", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    assert cli.main(["bench", "fig8"]) == 2
    monkeypatch.undo()
    assert capsys.readouterr().err == "ordstream: No module named 'scipy'\n"


def test_while_a_command_is_imported_ctrl_c_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt raised inside an import may come out as anything."""
    seen = []

    class Home:
        @staticmethod
        def add_run(parser: object) -> None:
            seen.append(ctrl_c._answer)

    monkeypatch.setattr(ctrl_c, "_answer", ctrl_c.RAISES)
    monkeypatch.setattr(importlib, "import_module", lambda name: seen.append(ctrl_c._answer) or Home)
    cli.Command(module="run", function="add_run").fill()
    assert seen == [ctrl_c.LEAVES, ctrl_c.LEAVES]
    assert ctrl_c._answer is ctrl_c.RAISES


WITHOUT_SPARK = """
import importlib.util, sys
sys.modules["pyspark"] = sys.modules["duckdb"] = None
real = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in ("pyspark", "duckdb") else real(name)
from ordstream.commands.cli import main
sys.exit(main(sys.argv[1:]))
"""


def without_spark(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line as `pip install ordstream` leaves it: neither PySpark nor DuckDB."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, *arguments], capture_output=True, text=True, env=ENVIRONMENT
    )


def test_what_runs_without_spark(tmp_path: Path) -> None:
    folder = str(tmp_path / "rows")
    made = without_spark("generate", "--rows", "2000", "--out", folder)
    assert made.returncode == 0, made.stderr
    ran = without_spark("run", "q2", "--data", folder)
    assert ran.returncode == 0, ran.stderr
    assert "sessions" in ran.stdout
    listed = without_spark("bench", "--help")
    assert listed.returncode == 0, listed.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("demo",), "pip install 'ordstream[spark]'"),
        (("demo", "--stream"), "pip install 'ordstream[spark]'"),
        (("run", "q2", "--data", "nowhere", "--engine", "spark"), "pip install 'ordstream[spark]'"),
        (("run", "q2", "--data", "nowhere", "--engine", "sql"), "pip install duckdb"),
        (("run", "q2", "--data", "nowhere", "--verify"), "pip install duckdb"),
        (("epochs", "nowhere"), "pip install 'ordstream[spark]'"),
    ],
)
def test_what_needs_spark_says_so_at_once(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """Before rows are generated, or a folder is looked for: one line, exit status 2."""
    ended = without_spark(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert len(ended.stderr.splitlines()) == 1
    assert said in ended.stderr


HELP = """
import importlib.util, sys
sys.modules["pyspark"] = sys.modules["ordstream.lab"] = None
real = importlib.util.find_spec
gone = ("pyspark", "ordstream.lab")
importlib.util.find_spec = lambda name, *more: None if name in gone else real(name, *more)
import inspect, pydoc, ordstream
assert not {"spark", "lab"} & set(dir(ordstream)) and "balance" in dir(ordstream)
assert "Pipeline" in dict(inspect.getmembers(ordstream))
assert "od.col" in pydoc.render_doc(ordstream)
"""


def test_help_of_the_package_without_spark() -> None:
    """`dir` had names that a wheel has not, or that need PySpark: `help(od)` raised an ImportError."""
    ended = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, env=ENVIRONMENT)
    assert ended.returncode == 0, ended.stderr
