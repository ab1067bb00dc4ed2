"""One report of several nodes: what adds up is what one node would report, in whatever order they come."""

from __future__ import annotations

import itertools
import json
from dataclasses import fields, replace

import numpy as np
import pytest

from ordstream.commands import console
from ordstream.ground.ordertags import OrderTag
from ordstream.node.channel_report import ChannelReport
from ordstream.node.histogram import BOUND
from ordstream.node.merged_report import (
    from_dict,
    last_attempts,
    merged,
    merged_latency,
    merged_tasks,
)
from ordstream.node.report import Latency, OperatorReport, Report, Skipped, percentiles
from ordstream.node.shedding import ShedReport

COUNTERS = (
    "decisions", "aged", "throttled", "parks", "chunks", "time_punctuations", "snapshot_markers",
    "leaked_chunks",
)  # fmt: skip
NO_LATENCY = Latency(None, None, None, None, 0)


def operator(name="known", **figures):
    base = {field.name: 0 for field in fields(OperatorReport)} | {
        "name": name, "kind": "SL", "buckets": None, "bucket_skew": None, "state_bytes": None,
        "sampled_cost_ns": None, "first_skipped": None, "is_split": False,
    }  # fmt: skip
    return OperatorReport(**base | figures)


def report(*operators, **figures):
    base = {field.name: 0 for field in fields(Report)} | {
        "seconds": 2.0, "latency": dict.fromkeys(("processing", "end_to_end"), NO_LATENCY),
        "operators": operators,
        "scheduler": "ct", "partitioning": "hybrid", "reorder": "lock", "emitted_through": OrderTag(0),
        "marker_tuples_per_second": None, "shedding": (), "elastic": None, "channels": (),
        "options": {},
    }  # fmt: skip
    return Report(**base | figures)


class Node:
    """What happened to some rows in one node; a report of it, or of several of them as if they were one."""

    def __init__(self, rng):
        self.tuples = int(rng.integers(50, 500))
        self.kept = int(rng.integers(10, self.tuples))
        self.work = rng.integers(10, 1_000, 2)
        self.samples = rng.lognormal(11, 2, self.tuples // 4).astype(np.int64)
        self.timed = rng.integers(100, 900, int(rng.integers(0, 9)))
        self.sums = {name: int(rng.integers(1, 99)) for name in COUNTERS}
        self.slices, self.skipped, self.state, self.bytes = rng.integers(1, 99, 4).tolist()

    @staticmethod
    def report(nodes):
        tuples, kept = sum(n.tuples for n in nodes), sum(n.kept for n in nodes)
        work = sum(n.work for n in nodes).tolist()
        timed = np.concatenate([n.timed for n in nodes])
        first = operator(
            "first", tuples_in=tuples, tuples_out=kept, cost_ns=work[0] / tuples, selectivity=kept / tuples,
            worker_share=work[0] / sum(work), slices=sum(n.slices for n in nodes), chunks=len(nodes),
            skipped=sum(n.skipped for n in nodes),
            first_skipped=Skipped(min(n.skipped for n in nodes), "why"),
        )  # fmt: skip
        second = operator(
            "second", kind="PS", tuples_in=kept, tuples_out=kept, cost_ns=work[1] / kept, selectivity=1.0,
            worker_share=work[1] / sum(work), state_bytes=sum(n.state for n in nodes),
            sampled_rows=len(timed),
            sampled_cost_ns=float(timed.mean()) if len(timed) else None,
            sampled_max_ns=int(max(timed, default=0)), reorder_height=max(n.slices for n in nodes),
        )  # fmt: skip
        samples = np.concatenate([n.samples for n in nodes])
        return report(
            first, second, tuples=tuples, rows_out=kept, tuples_per_second=tuples / 2.0,
            latency={
                "processing": percentiles(samples.tolist(), None),
                "end_to_end": percentiles((3 * samples).tolist(), None),
            },
            peak_bytes=sum(n.bytes for n in nodes),
            **{name: sum(n.sums[name] for n in nodes) for name in COUNTERS},
        )  # fmt: skip


@pytest.fixture(scope="module")
def nodes():
    rng = np.random.default_rng(3)
    return [Node(rng) for _ in range(5)]


def same(a, b, *, quantiles=1e-12):
    """What adds up is equal, what is divided almost, what is read from a histogram within the bound."""
    for field in fields(Report):
        if field.name not in ("operators", "latency"):
            assert getattr(a, field.name) == getattr(b, field.name), field.name
    for one, other in zip(a.operators, b.operators, strict=True):
        for field in fields(OperatorReport):
            mine, theirs = getattr(one, field.name), getattr(other, field.name)
            if isinstance(mine, float):
                assert mine == pytest.approx(theirs, rel=1e-12), field.name
            else:
                assert mine == theirs, field.name
    for name in ("processing", "end_to_end"):
        one, other = a.latency[name], b.latency[name]
        assert (one.markers, one.sum_ns, one.histogram) == (other.markers, other.sum_ns, other.histogram)
        assert one.mean_us == pytest.approx(other.mean_us, rel=1e-12)
        for figure in ("p50_us", "p95_us", "p99_us"):
            assert getattr(one, figure) == pytest.approx(getattr(other, figure), rel=quantiles)


def test_the_reports_of_parts_are_that_of_the_whole(nodes):
    parts = merged([[Node.report([node]) for node in nodes]])
    same(parts, Node.report(nodes), quantiles=BOUND)
    samples = np.concatenate([node.samples for node in nodes]) / 1e3
    latency = parts.latency["processing"]
    for found, exact in zip(
        (latency.p50_us, latency.p95_us, latency.p99_us), np.percentile(samples, (50, 95, 99)), strict=True
    ):
        assert abs(found - exact) <= BOUND * exact
        assert found != exact  # it is read from the histogram
    assert latency.mean_us == pytest.approx(samples.mean(), rel=1e-12)


def test_in_whichever_order_and_however_put_together(nodes):
    a, b, c, d, e = [Node.report([node]) for node in nodes]
    whole = merged([[a, b, c, d, e]])
    for order in itertools.islice(itertools.permutations((a, b, c, d, e)), 0, 120, 17):
        same(merged([order]), whole)
    same(merged([[merged([[a, b]]), merged([[c, merged([[d, e]])]])]]), whole)
    same(merged([[merged([[e, a]]), b, merged([[d]]), c]]), whole)


def test_one_node_keeps_its_exact_figures(nodes):
    alone = Node.report(nodes[:1])
    same(merged([[alone]]), alone, quantiles=0)
    exact = alone.latency["processing"]
    assert merged_latency([NO_LATENCY, exact, NO_LATENCY]) is exact
    assert merged_latency([]) == NO_LATENCY


def test_stages_follow_each_other():
    skipped = Skipped(None, "ValueError: at the end")
    first = [
        report(operator("a", tuples_in=n, cost_ns=3.0), tuples=n, rows_out=n - 1, peak_bytes=n)
        for n in (10, 20)
    ]
    split = operator("ingress", is_split=True, tuples_in=99, cost_ns=50.0)
    last = [
        report(split, operator("b", kind="PS", tuples_in=n, cost_ns=1.0, skipped=1, first_skipped=skip,
               bucket_skew=skew), tuples=n, rows_out=2 * n, peak_bytes=5, seconds=n,
               emitted_through=OrderTag(n))
        for n, skip, skew in ((4, skipped, 1.5), (6, None, None))
    ]  # fmt: skip
    found = merged([first, last])
    assert (found.tuples, found.rows_out, found.seconds, found.tuples_per_second) == (30, 20, 6, 5.0)
    assert (found.peak_bytes, found.emitted_through) == (30, OrderTag(6))
    assert [(o.name, o.tuples_in, o.worker_share, o.skipped, o.bucket_skew) for o in found.operators] == [
        ("a", 30, 0.9, 0, None), ("b", 10, 0.1, 2, 1.5)
    ]  # fmt: skip
    assert found.operators[1].first_skipped == skipped
    told = merged([first, last], seconds=60.0, emitted_through=OrderTag(31, 2))
    assert (told.seconds, told.tuples_per_second, told.emitted_through) == (60.0, 0.5, OrderTag(31, 2))
    assert told.operators[1].first_skipped == replace(skipped, serial=31)


def test_a_split_is_shown_where_there_is_nothing_else():
    split = report(operator("ingress", is_split=True, tuples_in=3), tuples=3)
    assert [(o.name, o.tuples_in) for o in merged([[split, split]]).operators] == [("ingress", 6)]


def test_what_one_node_did_with_another_operator_is_not_lost():
    a, b = report(operator("a", tuples_in=1)), report(operator("a", tuples_in=2), operator("b", tuples_in=3))
    for order in ([a, b], [b, a]):
        assert [(o.name, o.tuples_in) for o in merged([order]).operators] == [("a", 3), ("b", 3)]


def test_every_field_has_its_meaning():
    """A new field of a report must get a line in the module's table."""
    from ordstream.node import merged_report

    for field in (*fields(Report), *fields(OperatorReport)):
        if field.name not in ("name", "is_split"):
            assert field.name in merged_report.__doc__, field.name


SHED = ShedReport(
    "shed", "b", "goal", "live", 10, 8, 2, 0.2, True, 1.0, 2.0, None, 0.1, 0.2, ((0.0, 2),), 0, 1, 2, 3, 1.0
)  # fmt: skip


def sent(found):
    """As a report travels: JSON, with what Spark adds."""
    return {"keys": 3} | json.loads(found.to_json())


def test_a_report_comes_back_from_json(nodes):
    channel = ChannelReport("caller", "fragment 1 process 1", 5, 60, 0.5, 0.25, 60, 9)
    original = replace(
        Node.report(nodes[:2]),
        emitted_through=OrderTag(7, 3),
        marker_tuples_per_second=5.5,
        channels=(channel, replace(channel, low=None)),
    )
    assert from_dict(sent(original)) == original
    assert from_dict(original.to_dict()) == original
    again = from_dict(sent(replace(original, shedding=(SHED,))))
    assert str(again.shedding[0]) == str(SHED)


def test_tasks_are_added_up_and_failed_attempts_left_out():
    def task(tuples, cost, name="known", samples=()):
        figures = operator(name, tuples_in=tuples, tuples_out=tuples // 2, cost_ns=cost)
        return sent(report(figures, tuples=tuples, latency={"processing": percentiles(list(samples), None)}))

    reports = {
        (3, 0, 0): task(1_000, 9.0, samples=[99_000]),  # replaced by the attempt after it
        (3, 0, 1): task(100, 1.0, samples=[5_000]),
        (3, 1, 0): task(300, 2.0),
        (5, 0, 0): task(200, 7.0, "pairs"),
    }
    assert list(last_attempts(reports)) == [(3, 0, 1), (3, 1, 0), (5, 0, 0)]
    found = merged_tasks(reports)
    assert (found["tuples"], found["tuples_per_second"], found["nodes"]) == (400, 200.0, 3)
    assert found["latency"]["processing"]["p50_us"] == 5.0
    first, second = found["operators"]
    assert (first["name"], first["tuples_in"], first["tuples_out"], first["cost_ns"]) == (
        "known",
        400,
        200,
        1.75,
    )
    assert (second["name"], first["worker_share"], second["worker_share"]) == (
        "pairs",
        700 / 2_100,
        1_400 / 2_100,
    )
    assert merged_tasks({(3, 0, 1): reports[3, 0, 1]}) is reports[3, 0, 1]
    assert [line for line in console.report_text(found).splitlines() if line.startswith("skipped")] == []


def test_tasks_say_what_was_dropped():
    def task(skipped, first):
        note = None if first is None else Skipped(first, f"ValueError: {first}")
        figures = {"tuples_in": 1_000, "tuples_out": 1_000 - skipped, "cost_ns": 1.0, "skipped": skipped}
        return sent(report(operator(**figures, first_skipped=note), tuples=1_000, seconds=1.0))

    found = merged_tasks({(1, 0, 0): task(3, 70), (1, 1, 0): task(0, None), (1, 2, 0): task(4, 20)})
    skipped, _, first = console.report_text(found).splitlines()[-1].partition("; ")
    assert skipped == "skipped 7 tuples in 'known' (on_error=\"skip\"), of 3,000 tuples"
    assert first == "first at serial 20: ValueError: 20"


def test_no_tasks():
    assert merged_tasks({}) is None
