"""Parameters of a wrong type: the error names class and parameter."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import ordstream as od
from ordstream.balance.baselines import LeastOutstanding, Modulo, RoundRobin

NUMBERS = {
    od.Mixed: ("theta", "table", "beta", "degree", "window", "points", "seed"),
    od.DKG: ("theta", "epsilon", "mu", "m", "seed"),
    od.POSG: ("instances", "window", "mu", "epsilon", "delta", "resync", "seed"),
}
PARAMETERS = [(made, name) for made, names in NUMBERS.items() for name in names]


@pytest.mark.parametrize("value", ["x", b"x", [], {}, True, np.array([1, 2])])
@pytest.mark.parametrize(("made", "name"), PARAMETERS)
def test_what_is_no_number(made, name, value):
    """They failed as Python compares: "'<=' not supported between instances of 'int' and 'str'"."""
    with pytest.raises(od.PlanError, match=f"{made.__name__}: {name} must be a"):
        made(**{name: value})


@pytest.mark.parametrize(("made", "name"), PARAMETERS)
def test_none_and_not_a_number(made, name):
    default = {field.name: field.default for field in dataclasses.fields(made)}[name]
    if default is None or (made, name) == (od.Mixed, "table"):
        assert getattr(made(**{name: None}), name) is None
    else:
        with pytest.raises(od.PlanError, match=name):
            made(**{name: None})
    with pytest.raises(od.PlanError, match=name):
        made(**{name: float("nan")})


def test_numbers_of_numpy_pass():
    assert od.Mixed(theta=np.float32(0.5), points=np.int64(8)).points == 8
    assert od.Mixed(table=3e3) == od.Mixed(table=3000)


def test_others():
    pipeline = od.Pipeline({"a": "int64"}).map(lambda row: (row.a,), schema={"a": "int64"})
    with pytest.raises(od.PlanError, match="grouping_key must be the name of a column, or several, got 5"):
        pipeline.run([], processes=2, grouping="posg", grouping_key=5)
    for grouping, name in ((RoundRobin(2), "round_robin"), (LeastOutstanding(2), "least_outstanding")):
        with pytest.raises(od.PlanError, match=f"looks at no column.*: write grouping='{name}'"):
            pipeline.run([], processes=2, grouping=grouping)
    with pytest.raises(od.PlanError, match="name the columns that Modulo looks at: grouping_key="):
        pipeline.run([], processes=2, grouping=Modulo(2))
    with pytest.raises(od.PlanError, match="quantile: q must be a number from 0 to 1, got 'x'"):
        od.quantile("a", "x")
    with pytest.raises(od.PlanError, match="ranges: the bounds must be a sequence"):
        od.ranges(5)
