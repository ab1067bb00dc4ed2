"""Whatever the graph, the input and the options: each output of a run is that of `run_serial`, unsorted.

`tests/conformance/test_lanes.py` compares small graphs with a reference of another kind, and says what its
generator covers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property import drawn_options
from property.compare import exact_rows
from property.drawn_expressions import Expressions
from property.drawn_values import batches, schemas, tables
from property.drawn_windows import agreed
from property.strategies import NAMESPACE, VOCABULARY, Chain, clocks

import ordstream as od
from ordstream.errors import OperatorError, PlanError, SourceError
from ordstream.ground.types import is_list
from ordstream.plan.outputs import with_outputs
from ordstream.testing import run_serial

#: Operators that leave the columns as they are: what they make can be united.
SAME_COLUMNS = (
    *("filter", "filter_function", "filter_function", "deduplicate", "ends", "reorder", "with_columns"),
    "filter",
)


@dataclass
class Graph:
    """Outputs by name, and the text of each."""

    source: od.Pipeline
    outputs: dict[str, Chain]
    batches: list[pa.RecordBatch]
    options: dict[str, Any]

    def __repr__(self) -> str:
        texts = [f"{name} = {''.join(chain.texts)}" for name, chain in self.outputs.items()]
        data = pa.Table.from_batches(self.batches).to_pylist()[:24] if self.batches else []
        return "\n".join(["", *texts, f"# {self.source.source_schema}", f"# {data}", f"{self.options}"])


def grown(draw: Any, chain: Chain, depth: int) -> list[Chain]:
    """The chain with more operators, perhaps branches: one end, or two."""
    for _ in range(draw(st.integers(0, 2))):
        words = SAME_COLUMNS if draw(st.integers(0, 2)) else VOCABULARY
        able = [n for n in words if n != "lists" or any(is_list(t) for t in chain.schema.types)]
        getattr(chain, draw(st.sampled_from(able)))()
    if not depth or not draw(st.integers(0, 3)):
        return [chain]
    if draw(st.booleans()):
        text = Expressions(draw, chain.schema).boolean()
        policy = draw(st.sampled_from(["", ", on_error='skip'"]))
        two = eval(f"p.branch({text}{policy})", NAMESPACE | {"p": chain.pipeline})
        names = [f".branch({text}{policy})[{way}]" for way in (0, 1)]
    else:
        two, names = (chain.pipeline, chain.pipeline), ["", ""]
    ends: list[Chain] = []
    for pipeline, name in zip(two, names, strict=True):
        side = Chain(draw, pipeline, [*chain.texts, name], chain.clocks, chain.rejected)
        ends += grown(draw, side, depth - 1)
    if draw(st.integers(0, 3)):
        ends = united(draw, ends)
    return ends[:4]


def united(draw: Any, ends: list[Chain]) -> list[Chain]:
    """The ends that have the columns of the first one as one; in any order, and twice now and then."""
    fields = [(f.name, f.type) for f in ends[0].schema]
    fitting = [end for end in ends if [(f.name, f.type) for f in end.schema] == fields]
    others = [end for end in ends if end not in fitting]
    fitting = draw(st.permutations(fitting))
    if draw(st.integers(0, 5)) == 0:
        fitting = [*fitting, fitting[0]]
    text = ", ".join("".join(end.texts) for end in fitting)
    one = Chain(draw, od.union(*(end.pipeline for end in fitting)), [f"od.union({text})"])
    one.rejected = ends[0].rejected
    return [*grown(draw, one, 0), *others]


@st.composite
def graphs(draw: Any) -> Graph:
    """Everything that one comparison needs."""
    schema = draw(schemas())
    ascending = draw(clocks(schema))
    source = od.Pipeline(schema)
    rejected: list[Chain] = []
    ends = grown(draw, Chain(draw, source, ["p"], ascending, rejected), 2)
    outputs = {f"o{number}": end for number, end in enumerate([*ends, *rejected])}
    table = draw(tables(schema, clocks=ascending))
    given = draw(drawn_options.options(schema, ascending))
    plan, _ = with_outputs({name: end.pipeline.plan for name, end in outputs.items()})
    return Graph(source, outputs, draw(batches(table)), agreed(od.Pipeline.of(plan), given))


def tables_of(pipeline: Any, data: Any, **options: Any) -> tuple[dict[str, pa.Table], Any, Any]:
    """What a run gives up to its error, the error, and the report."""
    found: dict[str, list[pa.RecordBatch]] = {}
    error = None
    with pipeline.stream(data, tags=True, **options) as out:
        try:
            for name, batch in out:
                found.setdefault(name, []).append(batch)
        except (OperatorError, SourceError) as failure:
            error = failure
        schemas = out.schemas
    return (
        {n: pa.Table.from_batches(found.get(n, []), schema=s) for n, s in schemas.items()},
        error,
        out.report,
    )


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
)
@given(graphs())
def test_graphs(graph):
    options = drawn_options.settled(graph.options)
    outputs = {name: end.pipeline for name, end in graph.outputs.items()}
    try:
        expected = run_serial(
            graph.source, graph.batches, outputs=outputs, time_punctuation=options.get("punctuate")
        )
    except PlanError as refused:
        assert "there is one clock" in str(refused)  # noqa: PT017
        return
    found, error, report = tables_of(graph.source, graph.batches, outputs=outputs, **options)
    for name, table in expected.outputs.items():
        assert exact_rows(found[name].to_batches(), table.schema) == exact_rows(
            table.to_batches(), table.schema
        ), name
    assert report.emitted_through == expected.emitted_through
    assert report.leaked_chunks == 0
    assert (error is None) == (expected.error is None), (error, expected.error)
    if isinstance(expected.error, OperatorError):
        assert (error.operator, error.serial) == (expected.error.operator, expected.error.serial)
        assert type(error.__cause__) is type(expected.error.__cause__)
    elif error is not None:
        assert str(error) == str(expected.error)
    else:
        for what, of in (("skipped", expected.skipped), ("rejected", expected.rejected)):
            counted = {o.name: getattr(o, what) for o in report.operators if getattr(o, what)}
            assert counted == Counter(name for name, _ in of)
        assert {o.name: o.adjusted for o in report.operators if o.adjusted} == expected.adjusted
