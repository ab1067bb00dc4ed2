"""Whatever the graph, the input and the options: each output of a run is that of `run_serial`, unsorted.

`tests/conformance/test_lanes.py` compares small graphs with a reference of another kind, and says what its
generator covers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property import drawn_options
from property.compare import exact_rows
from property.drawn_expressions import Expressions, named
from property.drawn_options import can_be_time
from property.drawn_values import batches, schemas, tables
from property.drawn_windows import agreed
from property.strategies import NAMESPACE, VOCABULARY, Chain, clocks, is_list_of_some_kind

import ordstream as od
from ordstream.errors import OperatorError, PlanError, SourceError
from ordstream.operators.clocks import ReorderedClock
from ordstream.plan.lanes import laid_out
from ordstream.plan.outputs import with_outputs
from ordstream.reference.serial_graph import SerialGraph
from ordstream.testing import SerialResult, run_serial

#: Operators that leave the columns as they are: what they make can be united.
SAME_COLUMNS = (
    *("filter", "filter_function", "filter_function", "deduplicate", "ends", "reorder", "with_columns"),
    "filter",
)
#: What looks at the clock that leaves a `reorder`, and what may stand in front of it.
BEHIND_REORDER = ("window", "rolling", "filter", "computed_time", "with_columns", "reorder", "join_interval")


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


def grown(draw: Any, chain: Chain, depth: int, usual: tuple[str, ...] = SAME_COLUMNS) -> list[Chain]:
    """The chain with more operators, perhaps branches: one end, or two."""
    for _ in range(draw(st.integers(0, 2))):
        words = usual if draw(st.integers(0, 2)) else VOCABULARY
        able = [n for n in words if n != "lists" or any(is_list_of_some_kind(t) for t in chain.schema.types)]
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
        side = Chain(draw, pipeline, [*chain.texts, name], chain.clocks, chain.latest, chain.rejected)
        ends += grown(draw, side, depth - 1, usual)
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
    one.rejected, one.latest = ends[0].rejected, ends[0].latest
    return [*grown(draw, one, 0), *others]


@st.composite
def graphs(draw: Any) -> Graph:
    """Everything that one comparison needs."""
    schema = draw(schemas())
    ascending = draw(clocks(schema))
    source = od.Pipeline(schema)
    rejected: list[Chain] = []
    ends = grown(draw, Chain(draw, source, ["p"], ascending, "", rejected), 2)
    return complete(draw, source, ends, rejected, ascending)


@st.composite
def reordered_graphs(draw: Any) -> Graph:
    """One with a `reorder` on a lane, windows that go by its clock, and rows beside it."""
    schema = draw(schemas().filter(lambda schema: named(schema, can_be_time)))
    ascending = draw(clocks(schema))
    source = od.Pipeline(schema)
    rejected: list[Chain] = []
    (front,) = grown(draw, Chain(draw, source, ["p"], ascending, "", rejected), 0)
    lane = Chain(draw, front.pipeline, front.texts, front.clocks, front.latest, rejected)
    if named(lane.schema, can_be_time):
        lane.reorder()
    if draw(st.booleans()):
        text = Expressions(draw, lane.schema).boolean(1)
        two = eval(f"p.branch({text})", NAMESPACE | {"p": lane.pipeline})
        lane.pipeline, lane.texts = od.union(*two), [f"od.union(*{''.join(lane.texts)}.branch({text}))"]
    ends = grown(draw, lane, draw(st.integers(0, 2)), BEHIND_REORDER)
    for end in ends:
        if draw(st.integers(0, 3)):
            getattr(end, draw(st.sampled_from(["window", "rolling"])))()
    if draw(st.booleans()):
        ends += grown(draw, front, 1)
    if draw(st.booleans()):
        ends = united(draw, draw(st.permutations(ends)))
    return complete(draw, source, ends[:4], rejected, ascending)


def complete(draw: Any, source: Any, ends: list[Chain], rejected: list[Chain], ascending: Any) -> Graph:
    """With outputs, data and options."""
    schema = source.schema
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


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@settings(suppress_health_check=SLOW)
@given(graphs())
def test_graphs(graph):
    compare(graph)


SEEN: Counter[str] = Counter()
EXAMPLES = max(60, settings().max_examples)  # so many that all is covered
#: What the graphs behind a `reorder` must have had among them.
COVERED = ("windows", "rolling", "second output", "behind a union", "several outputs", "marks",
           "rows beside", "failed", "suspended")  # fmt: skip


def check_behind_reorder(graph: Graph) -> None:
    outputs = {name: end.pipeline.plan for name, end in graph.outputs.items()}
    plan = laid_out(with_outputs(outputs)[0])
    timed = [one for one in plan.operators if goes_by_reorder(one)]
    if timed:
        SEEN["windows"] += any(one.op != "rolling" for one in timed)
        SEEN["rolling"] += any(one.op == "rolling" for one in timed)
        SEEN["second output"] += any(one.takes_rejections for one in plan.operators)
        SEEN["several outputs"] += len(outputs) > 1
        SEEN["behind a union"] += any(behind_a_union(plan, one) for one in timed)
    with patch.object(SerialGraph, "cut", noting_cuts(SerialGraph.cut)):
        whole = compare(graph)
    if whole is not None and whole.error is None and len(graph.batches) > 1:
        suspended(graph, whole)


def suspended(graph: Graph, whole: SerialResult) -> None:
    """A run that ends in the middle and goes on from its snapshot gives what one run gives."""
    options = drawn_options.settled(graph.options)
    outputs = {name: end.pipeline for name, end in graph.outputs.items()}
    at = len(graph.batches) // 2
    try:
        first = graph.source.run(graph.batches[:at], outputs=outputs, end="suspend", **options)
        rest = graph.source.run(graph.batches[at:], outputs=outputs, restore=first.snapshot, **options)
    except PlanError as refused:
        assert "state" in str(refused) or "end='suspend'" in str(refused)  # noqa: PT017
        return
    SEEN["suspended"] += 1
    for name, table in whole.outputs.items():
        found = [*first[name].to_batches(), *rest[name].to_batches()]
        assert exact_rows(found, first[name].schema) == exact_rows(
            table.select(first[name].column_names).to_batches(), first[name].schema
        ), name


def goes_by_reorder(operator: Any) -> bool:
    wanted = operator.clock_wanted()
    return wanted is not None and isinstance(wanted[0], ReorderedClock)


def behind_a_union(plan: Any, operator: Any) -> bool:
    position = plan.operators.index(operator)
    while plan.operators[position].clock_made() is None and position >= 0:
        if plan.operators[position].op == "union":
            return True
        position = plan.producers(position)[0]
    return False


def noting_cuts(cut: Any) -> Any:
    """What a mark cuts is counted."""

    def noted(self, position, time, places, out, beside):
        SEEN["marks"] += 1
        SEEN["rows beside"] += any(beside.values())
        cut(self, position, time, places, out, beside)

    return noted


def test_graphs_behind_reorder():
    """What is drawn depends on the modules that are loaded, from which Hypothesis takes constants: where so
    few graphs do not have everything, more are drawn.
    """
    SEEN.clear()
    for examples in (EXAMPLES, 4 * EXAMPLES):
        drawn = settings(suppress_health_check=SLOW, max_examples=examples, derandomize=examples == 60)
        drawn(given(reordered_graphs())(check_behind_reorder))()
        if all(SEEN[what] for what in COVERED):
            return
    raise AssertionError(SEEN)


def compare(graph: Graph) -> SerialResult | None:
    """The outputs, errors and counts of a run are those of `run_serial`, which are given; None: it refuses
    the graph.
    """
    options = drawn_options.settled(graph.options)
    outputs = {name: end.pipeline for name, end in graph.outputs.items()}
    try:
        expected = run_serial(
            graph.source, graph.batches, outputs=outputs, punctuate=options.get("punctuate")
        )
    except PlanError as refused:
        assert "there is one clock" in str(refused)  # noqa: PT017
        return None
    found, error, report = tables_of(graph.source, graph.batches, outputs=outputs, **options)
    for name, table in expected.outputs.items():
        assert exact_rows(found[name].to_batches(), table.schema) == exact_rows(
            table.to_batches(), table.schema
        ), name
    assert report.emitted_through == expected.emitted_through
    assert report.leaked_chunks == 0
    SEEN["failed"] += expected.error is not None
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
    return expected
