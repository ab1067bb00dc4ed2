"""What users call says each of its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import ordstream as od

#: The classes say these of all operators and runs (`Pipeline`, `RunOptions`).
OF_ALL = {"self", "cls", "name", "on_error", "options", "args", "kwargs"}
#: Made by other calls, and called by ordstream itself.
NOT_CALLED = re.compile(
    r"\.(bind|from_bytes|start_only|plan|ring|fit|learner)$|^Channel\.(keep|take|tell)$|^Outputs\.get$"
)


def functions(of: Any, called: str) -> Iterator[tuple[str, Any]]:
    for name in dir(of):
        found = inspect.getattr_static(of, name)
        found = getattr(found, "__func__", found)
        if not name.startswith("_") and inspect.isfunction(found):
            yield f"{called}.{name}", found


def public() -> dict[str, Any]:
    pipeline = od.Pipeline(pa.schema([("a", pa.int64())]))
    keyed, column = pipeline.key_by("a"), od.col("a")
    objects = [pipeline, keyed, keyed.window(od.rows(2)), column]
    objects += [column.str, column.dt, column.list, column.struct]
    found = dict(one for made in objects for one in functions(type(made), type(made).__name__))
    modules = [od]
    if od.spark is not None and _has_pyspark():
        modules.append(od.spark)
    for module in modules:
        for name in (name for name in dir(module) if not name.startswith("_")):
            one = getattr(module, name)
            if inspect.isfunction(one) and one.__module__.startswith("ordstream"):
                found[name] = one
            elif inspect.isclass(one) and one.__module__.startswith("ordstream"):
                found |= functions(one, name)
    return {name: one for name, one in found.items() if not NOT_CALLED.search(name)}


def _has_pyspark() -> bool:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return False
    return True


def said(docstring: str) -> set[str]:
    """Names of the section "Parameters", and whatever stands in backticks."""
    text = inspect.cleandoc(docstring)
    names = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", text))))
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}|\Z)", text, re.S | re.M)
    for line in section[1].splitlines() if section else ():
        if line and not line.startswith(" "):
            names |= {name.strip().lstrip("*") for name in line.split(" : ")[0].split(",")}
    return names


FUNCTIONS = public()


def test_there_are_functions():
    assert len(FUNCTIONS) > 150
    assert {"Pipeline.run", "KeyedPipeline.cum_max", "sum", "Column.clip"} <= set(FUNCTIONS)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_each_parameter_is_said(name):
    function = inspect.unwrap(FUNCTIONS[name])
    parameters = {one for one in inspect.signature(function).parameters if not one.startswith("_")}
    if parameters - OF_ALL:
        assert function.__doc__, "there is no docstring"
        assert parameters - OF_ALL - said(function.__doc__) == set()
