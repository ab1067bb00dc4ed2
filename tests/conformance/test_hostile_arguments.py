"""Arguments of any other kind than is meant: an error of ours that says what is wrong, or a right answer.

Methods and their parameters are found by looking, so a new one is tested without a word here; where no right
call of it is known, `RIGHT` lacks a value. ORDSTREAM_LONG=1: more values, also two at a time, and each
pipeline that comes of it runs beside `run_serial`.
"""

from __future__ import annotations

import datetime
import decimal
import inspect
import io
import itertools
import math
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.operators.pairs import ListFunction
from ordstream.operators.partition import EqualRanges, Ranges
from ordstream.pipeline.windowed import Windowed
from ordstream.testing import run_serial

pytestmark = pytest.mark.filterwarnings("ignore:count.name=")

LONG = os.environ.get("ORDSTREAM_LONG") == "1"

DATA = pa.table(
    {
        "k": pa.array([1, 2, 1, None]),
        "ts": pa.array([1, 2, 3, 9], pa.timestamp("us")),
        "v": pa.array([3, -1, 4, 9]),
        "tz": pa.array([1, 2, 3, 9], pa.timestamp("ms", "Europe/Berlin")),
        "took": pa.array([1, None, 3, 9], pa.duration("us")),
        "f": pa.array([0.5, math.nan, None, -0.0]),
        "s": pa.array(["a", "", None, "é"]),
        "b": pa.array([True, False, None, True]),
        "l": pa.array([[1, 2], [], None, [3]], pa.list_(pa.int64())),
        "ls": pa.array([["a"], [], None, ["b", "c"]], pa.list_(pa.string())),
        "st": pa.array([{"x": 1}, None, {"x": None}, {"x": 2}], pa.struct([("x", pa.int64())])),
        "a b.c": pa.array([1, 2, 3, 4]),
    }
)
P = od.Pipeline(DATA.schema)
PASSED = P.filter(od.col("v") > 0)
REJECTS = P.map(lambda row: (row.v,), schema={"v": int}, on_error="dead_letter", name="m")
TABLE = pa.table({"k": [1, 2], "label": ["one", "two"]})

VALUES: list[Any] = [
    None, True, 0, -1, 2**63, math.nan, 1.5, "", "5", "\udc80", "no such column", b"k", [], [[]], ["k"], {},
    {"k": None}, {"k"}, object(), int, len, np.array(3), np.array([1, 2]), pd.Series(["k"]), pd.NA, pd.NaT,
    np.timedelta64(1, "s"), decimal.Decimal("NaN"), datetime.date(2020, 1, 1), od.col("k"), od.col("none") >
    1,
    od.sum("v"), P, pa.array([1]), io.BytesIO(b"k"),
]  # fmt: skip
MORE: list[Any] = [
    False, 1, 3, 2**64, -(2**63), 10**40, math.inf, -0.0, 0.5, " ", "nul\0", "x" * 10_000, "1m", "-1m",
    "1mo",
    [None], ["k", "k"], ("k", "v"), [1, 2], {None: "k"}, {"k": "v"}, {"k": int}, (name for name in ()), str,
    lambda: None, np.int64(3), np.float64("nan"), np.float32(0.5), np.bool_(True), np.str_("k"),
    np.array([]),
    np.datetime64("NaT"), np.timedelta64(1, "M"), np.timedelta64(5), pd.Timestamp("2020-01-01", tz="UTC"),
    pd.Timedelta("1s"), pd.DataFrame({"k": [1]}), decimal.Decimal("1E+500"), 1j, range(3), slice(1), ...,
    datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.timedelta.max, datetime.timedelta.min,
    od.lit(None), od.lit(True), od.when(od.col("b")), od.col("k").alias("w"), od.count(), od.tumbling("1m"),
    od.rows(3), od.every("ts", "1s"), od.explode("l"), P.select("k"), P.key_by("k"), od.Pipeline({"z": int}),
    pa.scalar(3), pa.schema([]), TABLE, pa.int64(), pa.field("k", pa.int64()),
    *DATA.schema.names, "start", "count", "_serial", "__ordstream_tag", "%Q", "(",
]  # fmt: skip

#: A right value: of the parameter of a function, or of any parameter of the name.
RIGHT: dict[str, Any] = {
    "aggregate(aggregations)": {"t": od.sum("v")}, "scan(aggregations)": {"t": od.sum("v")},
    "select(named)": {"w": od.col("v") + 1}, "with_columns(named)": {"w": od.col("v") + 1},
    "drop(columns)": ["b"], "forward_fill(columns)": ["v"], "assert_ordered(columns)": ["ts"],
    "key_by(columns)": ["k"], "deduplicate(by)": "k", "top_k(key)": "k", "keyed top_k(key)": None,
    "flat_map(fn)": lambda row: [(True,)], "flat_map(schema)": {"x": bool}, "map_batches(fn)": lambda batch:
    batch,
    "map(fn)": lambda row: (True,), "process(fn)": lambda row, state, emit: emit(True), "inspect(fn)": len,
    "regression(x)": "v", "regression(y)": "a b.c", "pairs(column)": "l", "explode(column)": "l",
    "every(column)": "ts", "col(name)": "v", "join_asof(time)": "ts", "join_interval(time)": "ts",
    "tumbling(length)": "1s",
    "str.pad_start(length)": 2, "str.pad_end(length)": 2, "str.slice(offset)": 0, "list.get(index)": 0,
    "union(pipelines)": [P, PASSED], "lookup(table)": np.array([1.0, 2.0]), "struct.field(name)": "x",
    "predicate": od.col("v") > 0, "fn": lambda row: True, "column": "v", "columns": "v", "names": {"v": "w"},
    "time": "ts", "slack": "1s", "kind": od.rows(2), "k": 2, "by": "v", "n": 2, "fraction": 0.5, "x": 1, "y":
    "v",
    "function": lambda pipeline: pipeline, "schema": {"x": bool}, "timeout": "1s", "max_latency": "50ms",
    "cost_key": "k", "other": 1, "on": "k", "within": ("0s", "1s"), "table": TABLE, "low": 1, "high": 2,
    "type_": "int64", "value": 1, "name": "w", "exponent": 2, "values": [1, 2], "text": "a", "pattern":
    "(a)",
    "old": "a", "new": "b", "time_zone": "UTC", "format": "%Y", "every": "1s", "separator": ",", "length":
    "5s",
    "q": 0.5, "interval": "1d", "period": "1m", "bounds": [1], "condition": od.col("b"), "otherwise": 2,
    "encode": bytes, "decode": bytes, "init": dict,
    "join_asof(other)": PASSED, "join_interval(other)": PASSED,
}  # fmt: skip

#: What no parameter of an annotation takes: nothing is guessed.
NEVER: dict[str, list[Any]] = {
    "int": [True, math.nan, 1.5, "5", ["k"]],
    "bool": [0, 1, 2, "no", None],
    "str": [True, 5, b"k", math.nan],
    "Duration": [True, math.nan, 1.5, "5"],
}

#: Methods that run something, or make of a plan what `Pipeline` does.
OTHERS = {"run", "stream", "of", "pipe", "explain"}


class Call(NamedTuple):
    """A function, and how its name begins in errors."""

    name: str
    function: Callable[..., Any]
    parameters: list[inspect.Parameter]

    def right(self, parameter: inspect.Parameter) -> Any:
        names = (f"{self.name}({parameter.name})", f"{self.said}({parameter.name})", parameter.name)
        return next(RIGHT[name] for name in names if name in RIGHT)

    @property
    def said(self) -> str:
        return self.name.rpartition(" ")[2]

    def called(self, given: dict[str, Any]) -> Any:
        """With right arguments but `given`."""
        positional, named = [], {}
        for one in self.parameters:
            many = one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
            own = {f"{self.name}({one.name})", f"{self.said}({one.name})"} & RIGHT.keys()
            if one.name not in given and (many or one.default is not one.empty) and not own:
                continue
            value = given[one.name] if one.name in given else self.right(one)
            if one.kind is one.VAR_POSITIONAL:
                positional = [value] if one.name in given else value
            elif one.kind is one.VAR_KEYWORD:
                named |= {"w": value} if one.name in given else value
            else:
                named[one.name] = value
        if positional:  # what stands in front of these has no name
            front = [p.name for p in self.parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
            positional = [*(named.pop(name) for name in front if name in named), *positional]
        return self.function(*positional, **named)


def methods(of: Any, front: str, but: set[str] = frozenset()) -> Iterator[Call]:  # type: ignore[assignment]
    for name in dir(type(of)):
        if not name.startswith("_") and name not in but and callable(getattr(type(of), name)):
            function = getattr(of, name)
            yield Call(front + name, function, list(inspect.signature(function).parameters.values()))


def functions() -> Iterator[Call]:
    for name in od.__all__:
        function = getattr(od, name)
        if inspect.isfunction(function):
            yield Call(name, function, list(inspect.signature(function).parameters.values()))


def fitting(get: Callable[[od.Expr], Any], front: str) -> Iterator[Call]:
    """The methods of expressions, each of a column that it is for."""
    of_columns = [list(methods(get(od.col(name)), front)) for name in DATA.schema.names]
    for calls in zip(*of_columns, strict=True):
        yield next((call for call in calls if not right_call(call)), calls[0])


def used(made: Any) -> Any:
    """What is made goes where it is for: there it may still be refused."""
    if isinstance(made, tuple):
        return [used(one) for one in made]
    if isinstance(made, od.Expr):
        return P.with_columns(made.alias("w") if not hasattr(made, "expr") else made)
    if isinstance(made, od.Aggregation):
        return P.key_by("k").aggregate(made.alias("w"))
    if isinstance(made, od.WindowKind):
        time = None if made.kind == "rows" else "ts"
        return P.key_by("k").window(made, time=time).aggregate(w=od.sum("v"))
    if isinstance(made, od.Every):
        state, timer = {"due": pa.timestamp("us")}, {"timer": "due", "on_timer": lambda *_: None}
        return P.key_by("k").process(lambda *_: None, schema={"x": int}, state=state, clock=made, **timer)
    if isinstance(made, ListFunction):
        return P.flat_map(made)
    if isinstance(made, EqualRanges | Ranges):
        return P.key_by("k", partition=made).count("w")
    if isinstance(made, od.KeyedPipeline):
        return made.count("w")
    if isinstance(made, Windowed):
        return made.aggregate(w=od.sum("v"))
    return made


def right_call(call: Call) -> str:
    """Why a call with right arguments is refused; "": it is not."""
    try:
        used(call.called({}))
    except StopIteration:
        return "RIGHT has no value for one of its parameters"
    except od.OrdstreamError as error:
        return str(error)
    return ""


GROUPS: dict[str, list[Call]] = {
    "pipeline": [
        *methods(P, "", {*OTHERS, "side_output"}),
        *(call for call in methods(REJECTS, "", OTHERS) if call.name == "side_output"),
    ],
    "keyed": list(methods(P.key_by("k"), "keyed ", OTHERS)),
    "windowed": list(methods(P.key_by("k").window(od.tumbling("1s"), time="ts"), "windowed ")),
    "functions": list(functions()),
    "expressions": [
        *fitting(lambda column: column, ""), *fitting(lambda column: column.str, "str."),
        *fitting(lambda column: column.dt, "dt."), *fitting(lambda column: column.list, "list."),
        *fitting(lambda column: column.struct, "struct."),
    ],
}  # fmt: skip


def answer(call: Call, given: dict[str, Any]) -> str:
    """What is wrong with the answer to these arguments; "": nothing."""
    try:
        made = used(call.called(given))
    except od.OrdstreamError as error:
        return "" if len(str(error)) > 10 else f"says {str(error)!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    for pipeline in made if LONG and isinstance(made, list) else [made] if LONG else []:
        if isinstance(pipeline, od.Pipeline) and pipeline.source_schema == DATA.schema:
            found = beside_serial(pipeline)
            if found:
                return found
    return ""


def beside_serial(pipeline: od.Pipeline) -> str:
    """What differs in a run."""
    try:
        serial = run_serial(pipeline, DATA)
        table = pipeline.run(DATA).table
    except od.OperatorError as error:
        return "" if serial.error is not None else f"runs into {error}"
    except od.PlanError:  # what only a run can refuse, such as a second output that nobody takes
        return ""
    except Exception as error:
        return f"runs into {type(error).__name__}: {error}"
    if serial.error is not None:
        return f"runs, where run_serial says {serial.error}"
    return "" if repr(table.to_pylist()) == repr(serial.table.to_pylist()) else "differs from run_serial"


def cases(call: Call) -> Iterator[dict[str, Any]]:
    values = VALUES + MORE if LONG else VALUES
    for parameter in call.parameters:
        yield from ({parameter.name: value} for value in values)
    if LONG:
        few = values[::6]
        for one, other in itertools.combinations(call.parameters, 2):
            for left, right in itertools.product(few, few):
                yield {one.name: left, other.name: right}


@pytest.mark.parametrize("group", GROUPS)
def test_right_arguments_are_known(group):
    assert {call.name: wrong for call in GROUPS[group] if (wrong := right_call(call))} == {}


@pytest.mark.parametrize("group", GROUPS)
def test_wrong_arguments_are_told(group):
    wrong = [
        f"{call.name}({', '.join(f'{name}={value!r:.60}' for name, value in given.items())}): {found}"
        for call in GROUPS[group]
        for given in cases(call)
        if (found := answer(call, given))
    ]
    assert wrong == []


@pytest.mark.parametrize("group", GROUPS)
def test_nothing_is_guessed(group):
    """True is no 1, "5" no 5, and "no" not true."""
    taken = [
        f"{call.name}({parameter.name}={value!r})"
        for call in GROUPS[group]
        for parameter in call.parameters
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        for value in NEVER.get(str(parameter.annotation).removesuffix(" | None"), ())
        if not (value is None and parameter.default is None) and not refused(call, {parameter.name: value})
    ]
    assert taken == []


def refused(call: Call, given: dict[str, Any]) -> bool:
    try:
        used(call.called(given))
    except od.OrdstreamError:
        return True
    return False
