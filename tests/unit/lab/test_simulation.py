"""Virtual time: the FIFO recursion, the order of what happens at one instant, messages, and streams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordstream.errors import PlanError
from ordstream.lab.simulation import streams
from ordstream.lab.simulation.queues import Policy, Routed, run_operator


class Recorder(Policy):
    """Sends tuples where it was told, and writes down everything; instances report with a delay."""

    def __init__(self, routes: list[int], delay: float = 0.0) -> None:
        self.routes, self.delay = routes, delay
        self.heard: list[Any] = []

    def submit(self, i: int, word: int, now: float) -> int:
        self.heard.append(("submit", i, word, now))
        return self.routes[i]

    def executed(self, i: int, word: int, instance: int, start: float, end: float) -> int:
        self.heard.append(("executed", i, word, instance, start, end))
        self.send(end + self.delay, i)
        return 0

    def received(self, tag: int, now: float) -> int:
        self.heard.append(("received", tag, now))
        return 0


def test_by_hand() -> None:
    policy = Recorder([0, 0, 1, -1, 0], delay=1.0)
    outcome = run_operator(
        policy, 2, [0.0, 1.0, 1.0, 2.0, 4.0], [2.0, 2.0, 3.0, 9.0, 1.0], keys=[7, 8, 9, 10, 11]
    )
    assert policy.heard == [
        ("submit", 0, 7, 0.0),
        ("submit", 1, 8, 1.0),
        ("submit", 2, 9, 1.0),
        ("executed", 0, 7, 0, 0.0, 2.0),  # before the arrival of the same instant
        ("submit", 3, 10, 2.0),
        ("received", 0, 3.0),
        ("executed", 1, 8, 0, 2.0, 4.0),
        ("executed", 2, 9, 1, 1.0, 4.0),
        ("submit", 4, 11, 4.0),
        ("executed", 4, 11, 0, 4.0, 5.0),  # executions before the messages of the same instant
        ("received", 1, 5.0),
        ("received", 2, 5.0),
        ("received", 4, 6.0),
    ]
    np.testing.assert_array_equal(outcome.instance, [0, 0, 1, -1, 0])
    np.testing.assert_array_equal(outcome.start, [0, 2, 1, np.nan, 4])
    np.testing.assert_array_equal(outcome.completion, [2, 3, 3, np.nan, 1])
    np.testing.assert_array_equal(outcome.queuing, [0, 1, 0, np.nan, 0])
    assert outcome.admitted.tolist() == [True, True, True, False, True]
    assert outcome.tuples(2).tolist() == [3, 1]
    assert outcome.busy(3).tolist() == [5.0, 3.0, 0.0]
    assert outcome.mean_completion() == 9 / 4
    assert outcome.mean_completion(4) == 1.0
    assert np.isnan(outcome.mean_completion(5))


def test_times_may_differ_by_instance() -> None:
    times = [[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]
    outcome = run_operator(Routed([1, 0, 1]), 2, np.zeros(3), times)
    assert outcome.end.tolist() == [10.0, 2.0, 40.0]


STREAM = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(-1, 3)), max_size=60)


@given(STREAM)
def test_fifo_recursion_and_order_of_events(stream: list[tuple[int, int, int]]) -> None:
    """start = max(arrival, end before it on that instance); every execution is reported once, in order
    of time.
    """
    arrivals = np.cumsum([gap for gap, _, _ in stream], dtype=np.float64)
    times = [float(time) for _, time, _ in stream]
    policy = Recorder([instance for _, _, instance in stream], delay=2.0)
    outcome = run_operator(policy, 4, arrivals, times)
    last = [-np.inf] * 4
    for i, (_, _, instance) in enumerate(stream):
        if instance < 0:
            assert np.isnan(outcome.end[i])
            continue
        assert outcome.start[i] == max(arrivals[i], last[instance])
        last[instance] = outcome.end[i] = outcome.start[i] + times[i]
    rank = {"executed": 0, "received": 1, "submit": 2}
    told = [(event[-1], rank[event[0]]) for event in policy.heard]
    # A message sent with no delay, or an execution of no length, may happen in the instant of an arrival,
    # after it.
    assert [time for time, _ in told] == sorted(time for time, _ in told)
    admitted = [i for i, (_, _, instance) in enumerate(stream) if instance >= 0]
    assert sorted(event[1] for event in policy.heard if event[0] == "executed") == admitted
    assert sorted(event[1] for event in policy.heard if event[0] == "received") == admitted
    for j in range(4):
        order = [event[1] for event in policy.heard if event[0] == "executed" and event[3] == j]
        assert order == sorted(order)
    delivered = [event[1] for event in policy.heard if event[0] == "received"]
    assert delivered == [event[1] for event in policy.heard if event[0] == "executed"]


def test_messages_of_one_instant_come_in_the_order_sent() -> None:
    class Sender(Policy):
        def __init__(self) -> None:
            self.tags: list[int] = []

        def submit(self, i: int, word: int, now: float) -> int:
            for tag in range(200):
                self.send(now + (tag * 7 % 13), tag)
            return 0

        def received(self, tag: int, now: float) -> int:
            self.tags.append(tag)
            return 0

    sender = Sender()
    for _ in range(2):  # a second simulation starts afresh
        sender.tags.clear()
        run_operator(sender, 1, [5.0], [1.0])
        assert sender.tags == sorted(range(200), key=lambda tag: (tag * 7 % 13, tag))


def test_what_is_wrong_is_refused() -> None:
    for arguments in (
        {"instances": 0},
        {"arrivals": [1.0, 0.0]},
        {"arrivals": [0.0, np.inf]},
        {"arrivals": [[0.0, 1.0]]},
        {"times": [1.0]},
        {"times": [1.0, -1.0]},
        {"times": [1.0, np.nan]},
        {"times": [[1.0], [1.0]]},
        {"keys": [1]},
    ):
        given_ = {"instances": 2, "arrivals": [0.0, 1.0], "times": [1.0, 1.0], **arguments}
        with pytest.raises(PlanError):
            run_operator(Routed([0, 0]), **given_)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tuple 1 to instance 2"):
        run_operator(Routed([0, 2]), 2, [0.0, 1.0], [1.0, 1.0])
    with pytest.raises(NotImplementedError):
        run_operator(Policy(), 2, [0.0], [1.0])

    class Past(Routed):
        def executed(self, i: int, word: int, instance: int, start: float, end: float) -> int:
            return self.send(start, 0)

    with pytest.raises(ValueError, match="not before now"):
        run_operator(Past([0]), 1, [0.0], [1.0])
    assert len(run_operator(Routed([]), 1, [], []).end) == 0


# --- streams --------------------------------------------------------------------------------------


def test_zipf_has_its_probabilities() -> None:
    np.testing.assert_allclose(streams.zipf_probabilities(4, 1.0), np.array([12, 6, 4, 3]) / 25)
    np.testing.assert_allclose(streams.zipf_probabilities(5, 0.0), 0.2)
    # The most frequent item's empirical probability, DKG section 5.2: 0.1, 0.6, 0.8.
    for alpha, first in [(1.0, 0.10), (2.0, 0.61), (3.0, 0.83)]:
        items = streams.zipf(100_000, 10_000, alpha, np.random.default_rng(1))
        assert abs((items == 0).mean() - first) < 0.01
        assert 0 <= items.min() <= items.max() < 10_000


def test_streams_are_a_function_of_the_seed() -> None:
    def both(seed: int) -> list[list[float]]:
        rng = np.random.default_rng(seed)
        made = [
            streams.zipf(50, 10, 1.0, rng),
            streams.uniform(50, 10, rng),
            streams.normal(50, 10, 4.0, 3.0, rng),
            streams.relabelling(10, 1000, rng),
            streams.execution_times(10, [1, 2, 3], rng),
        ]
        return [array.tolist() for array in made]

    assert both(1) == both(1) != both(2)


def test_relabelling_is_injective_and_times_are_shared_out() -> None:
    rng = np.random.default_rng(3)
    labels = streams.relabelling(1000, 1000, rng)
    assert sorted(labels.tolist()) == list(range(1, 1001))
    assert (
        np.bincount(streams.execution_times(4096, range(1, 65), rng).astype(int))[1:].tolist() == [64] * 64
    )
    assert sorted(streams.execution_times(5, [1.0, 2.0], rng).tolist()) == [1, 1, 1, 2, 2]
    normal = streams.normal(2_000, 100, 50.0, 10.0, rng)
    assert 49 < normal.mean() < 51
    assert streams.even_arrivals(3, 2.5).tolist() == [0.0, 2.5, 5.0]
    assert streams.provisioned_gap(32.5, 5, 1.02) == pytest.approx(6.63)


def test_grid_cells_name_one_place_in_four_grids() -> None:
    granularity, row, column = streams.grid_cells(20_000, np.random.default_rng(1))
    assert granularity.tolist() == [0, 1, 2, 3] * 20_000
    for g, (rows, columns) in enumerate(streams.GRIDS):
        here = granularity == g
        assert 0 <= row[here].min() <= row[here].max() < rows
        assert 0 <= column[here].min() <= column[here].max() < columns
    # Each grid shows the same place: 100 columns of the finest, 50 to each half.
    fine = column[granularity == 3]
    coarse = column[granularity == 0]
    assert coarse.tolist() == (fine // 50).tolist()
    cells = streams.cell_numbers(granularity, row, column)
    triples = set(zip(granularity.tolist(), row.tolist(), column.tolist(), strict=True))
    assert len(set(cells.tolist())) == len(triples)
    assert 0 <= cells.min() <= cells.max() < sum(rows * columns for rows, columns in streams.GRIDS)
    assert abs(np.bincount(cells).max() / len(cells) - 0.2) < 0.02
    assert len(set(fine[20::28].tolist())) == 1  # a resting sensor
    assert 1 < np.abs(np.diff(fine[::28])).mean() < 15  # a player moves a little between two readings
    assert len(streams.grid_cells(0, np.random.default_rng(1))[0]) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rng: streams.grid_cells(-1, rng),
        lambda rng: streams.grid_cells(5, rng, players=0),
        lambda rng: streams.zipf_probabilities(0, 1.0),
        lambda rng: streams.zipf_probabilities(5, -1.0),
        lambda rng: streams.zipf(-1, 5, 1.0, rng),
        lambda rng: streams.uniform(5, 0, rng),
        lambda rng: streams.normal(5, 10, 4.0, 0.0, rng),
        lambda rng: streams.relabelling(10, 9, rng),
        lambda rng: streams.execution_times(10, [], rng),
        lambda rng: streams.even_arrivals(3, -1.0),
        lambda rng: streams.provisioned_gap(1.0, 0),
    ],
)
def test_streams_refuse_what_makes_no_sense(wrong: Any) -> None:
    with pytest.raises(PlanError):
        wrong(np.random.default_rng(1))
