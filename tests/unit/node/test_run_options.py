"""The options of a run: types, text and defaults agree, and a type checker sees a wrong one."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import get_args

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.node import node, run_options
from ordstream.node.run_options import OPTIONS, RunOptions, StreamOptions
from ordstream.node.settings import EMITS, OF_FRAGMENTS, PARTITIONINGS, REORDERS, SCHEDULERS, Settings

FUNCTIONS = {
    "Pipeline.run": (od.Pipeline.run, RunOptions),
    "Pipeline.stream": (od.Pipeline.stream, StreamOptions),
    "node.run": (node.run, RunOptions),
    "node.stream": (node.stream, StreamOptions),
}
DESCRIBED = re.compile(r"^(\w+) : (.+), default (.+)$", re.MULTILINE)
WIDTH = 110
OF_PROCESSES = {"processes", "balance", "grouping", "grouping_key"}
UNKNOWN = r"unknown option 'worker'\. Did you mean 'workers'\? Options are .*\bworkers\b"


def names(options):
    return set(options.__annotations__)


def test_every_option_of_a_run_has_a_default_and_a_type():
    """`Settings` is the table of defaults; those of several processes are no settings of a node."""
    settings = {field.name for field in fields(Settings)}
    known = settings.difference(OF_FRAGMENTS) | OF_PROCESSES
    assert set(names(RunOptions)) | set(names(StreamOptions)) == known
    assert set(names(StreamOptions)) - set(names(RunOptions)) == {"partial", "partial_after"}
    assert set(names(RunOptions)) <= set(names(StreamOptions))


def test_choices_are_those_that_are_checked():
    for name, choices in (
        ("scheduler", SCHEDULERS),
        ("partitioning", PARTITIONINGS),
        ("reorder", REORDERS),
        ("emit", EMITS),
    ):
        literal, none = get_args(eval(RunOptions.__annotations__[name].__forward_arg__, vars(run_options)))
        assert none is type(None)
        assert get_args(literal) == choices, name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_shows_every_option_once_with_its_default(name):
    function, options = FUNCTIONS[name]
    text = inspect.getdoc(function)
    found = DESCRIBED.findall(text)
    assert sorted(option for option, _, _ in found) == sorted(names(options))
    defaults = {field.name: field.default for field in fields(Settings)} | dict.fromkeys(OF_PROCESSES)
    for option, _, default in found:
        value = eval(default, {})  # of our own text
        assert value == defaults[option], option
        assert type(value) is type(defaults[option]), option
    assert text.startswith(("Run on this machine", "Run a pipeline"))
    assert text.index("Parameters\n----------") < text.index("workers :") < text.index("Raises\n------")


def test_text_fits_a_screen():
    assert max(map(len, OPTIONS.splitlines())) < WIDTH


def test_unknown_option_still_names_the_closest():
    pipeline = od.Pipeline({"i": "int64"})
    data = pa.table({"i": [1]})
    for run in (pipeline.run, pipeline.stream):
        with pytest.raises(od.PlanError, match=UNKNOWN):
            run(data, worker=2)
    for option in ({"partial": True}, {"partial_after": 0.5}):
        for more in ({}, {"outputs": {"p": pipeline}}, {"processes": 2}):
            with pytest.raises(od.PlanError, match=f"{next(iter(option))} is an option of stream"):
                pipeline.run(data, **option, **more)
    for run in (node.run, node.stream):
        with pytest.raises(od.PlanError, match="processes is an option of Pipeline"):
            run(pipeline, data, processes=2)


@pytest.mark.parametrize("option", [{"given_marks": True}, {"steps": True}, {"absent": ("i",)}])
def test_what_only_fragments_give_is_unknown(option):
    """Each changed the result, or hid a column of a failing row, and `help` showed it."""
    pipeline = od.Pipeline({"i": "int64"})
    data = pa.table({"i": [1]})
    for run in (pipeline.run, pipeline.stream, node.run):
        for more in ({}, {"processes": 2}) if run is not node.run else ({},):
            with pytest.raises(od.PlanError, match=f"unknown option '{next(iter(option))}'"):
                run(*(pipeline,) * (run is node.run), data, **option, **more)


RIGHT = """
import ordstream as od
from ordstream.node import node

def all_right(p: od.Pipeline, data: object) -> None:
    p.run(data, workers=2, scheduler="lp", chunk_rows="auto", emit=None, processes=3)
    p.run(data, arrivals=[0, 5], progress=lambda issued, emitted: None, punctuate=od.every("ts", 60))
    with p.stream(data, workers="auto", partial_after=0.5, processes="auto") as out:
        list(out)
    node.run(p, data, tags=True)
    node.stream(p, data, partial=False)
    p.select(a=od.when(od.col("a") > 0).then(1).when(od.col("a") < 0, 2).otherwise(od.col("s").str.head(2)))
    print(od.testing.run_serial(p, data).table, od.spark.local_session())

def annotated(p: od.Pipeline, x: od.Expr, kind: od.WindowKind, n: od.Aggregation, data: object) -> od.Result:
    clock: od.Every = od.every("ts", "1m")
    several: od.Outputs = p.run(data, outputs={"p": p})
    streams: tuple[od.Stream, od.OutputStream] = (p.stream(data), p.stream(data, outputs={"p": p}))
    print(several["p"], streams, p.pipe(annotated, x, kind, n, data=data).table)
    return p.filter(x).window(kind, time="ts").aggregate(n.alias("n")).run(data, punctuate=clock)
"""
#: `run` and `stream` have two forms each, with outputs= and without: what is wrong is of neither.
WRONG = {
    "p.run(data, worker=2)": 'No overload variant of "run"',
    "p.stream(data, worker=2)": 'No overload variant of "stream"',
    "node.run(p, data, worker=2)": 'Unexpected keyword argument "worker"',
    "node.stream(p, data, worker=2)": 'Unexpected keyword argument "worker"',
    "p.run(data, workers='two')": 'No overload variant of "run"',
    "p.run(data, scheduler='fifo')": 'No overload variant of "run"',
    "p.run(data, slice_us='1 ms')": 'No overload variant of "run"',
    "p.run(data, partial=True)": 'No overload variant of "run"',
    "p.stream(data, processes='two')": 'No overload variant of "stream"',
    "od.sesion('30m')": 'Module has no attribute "sesion"',
    "od.spark.aply(p, data)": 'Module has no attribute "aply"',
    "od.col('a').shift(1)": '"Column" has no attribute "shift"',
    "od.col('a').str.trim()": '"Strings" has no attribute "trim"',
    "od.when(od.col('a')).otherwise(1)": '"Then" has no attribute "otherwise"',
}

# Only what the calls need is analysed: NumPy's stubs alone would take longer than all the rest.
CONFIG = """
[mypy]
strict = True
follow_imports = silent
show_error_context = False
[mypy-numpy.*,pyarrow.*,numba.*,llvmlite.*,pyspark.*,py4j.*]
follow_imports = skip
ignore_missing_imports = True
"""


def test_a_type_checker_refuses_a_wrong_option(tmp_path):
    """One run of mypy over right and wrong calls: each wrong line, and no other, has its error."""
    api = pytest.importorskip("mypy.api")
    calls = "".join(f"    {call}\n" for call in WRONG)
    source = f"{RIGHT}\ndef wrong(p: od.Pipeline, data: object) -> None:\n{calls}"
    file = tmp_path / "calls.py"
    file.write_text(source)
    first = source[: source.index("def wrong")].count("\n") + 2
    config = tmp_path / "mypy.ini"
    config.write_text(CONFIG)
    out, err, _ = api.run(["--config-file", str(config), "--cache-dir", str(tmp_path / "cache"), str(file)])
    assert not err
    told = {int(line.split(":")[1]): line for line in out.splitlines() if ": error:" in line}
    assert sorted(told) == list(range(first, first + len(WRONG))), out
    for number, message in enumerate(WRONG.values(), first):
        assert message in told[number]
