"""Load-aware shedding as plain objects: steps computed by hand, goals, messages, baselines."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from ordstream.balance.las import (
    AverageLatency,
    FullKnowledge,
    LoadAwareShedder,
    MaximumLatency,
    OperatorSide,
    StrawMan,
)
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import PlanError


def model(times: dict[str, Sequence[float]]) -> ExecutionTimes:
    made = ExecutionTimes(0.001, 0.01)  # wide: no collisions among a few keys
    for key, measured in times.items():
        for time in measured:
            made.update(key, time)
    return made


class TestOperatorSide:
    def test_matrices_are_sent_after_two_windows_if_they_are_stable(self) -> None:
        operator = OperatorSide(window=4, tolerance=0.0)
        sent = [operator.executed("a", 2.0) for _ in range(7)]
        assert sent == [None] * 7
        assert operator.state == "STABILIZING"
        assert operator.eta == math.inf
        matrices = operator.executed("a", 2.0)
        assert matrices is not None
        assert matrices.tuples == 8
        assert matrices.estimate("a") == 2.0
        assert operator.eta == 0.0
        assert operator.sent == 1
        assert operator.state == "START"
        assert operator.times.tuples == 0

    def test_a_change_between_the_snapshots_delays_them(self) -> None:
        # One key, rows r: S = 2 in r cells. After four more tuples of 4.0, W/F = 3: eta = r * 1 / (r * 2) =
        # 0.5.
        operator = OperatorSide(window=4, tolerance=0.4)
        for time in [2.0] * 4 + [4.0] * 4:
            assert operator.executed("a", time) is None
        assert operator.eta == pytest.approx(0.5)
        # Next snapshot is 3; then W/F = (8 + 16 + 16) / 12 = 10/3: eta = (1/3) / 3 = 1/9.
        sent = [operator.executed("a", 4.0) for _ in range(4)]
        assert operator.eta == pytest.approx(1 / 9)
        assert sent[:3] == [None] * 3
        assert sent[3] is not None

    def test_a_new_key_counts_as_change(self) -> None:
        operator = OperatorSide(window=2, tolerance=0.05, epsilon=0.001, delta=0.01)
        for key in ("a", "a", "b", "b"):
            operator.executed(key, 1.0)
        assert operator.eta == pytest.approx(1.0)  # as many new cells as old ones, each with ratio 1

    def test_all_times_zero_is_stable(self) -> None:
        operator = OperatorSide(window=1, tolerance=0.0)
        assert operator.executed("a", 0.0) is None
        assert operator.executed("a", 0.0) is not None

    @pytest.mark.parametrize("bad", [{"window": 0}, {"tolerance": -1.0}, {"epsilon": 0.0}, {"delta": 1.0}])
    def test_bad_arguments(self, bad: dict[str, float]) -> None:
        with pytest.raises(PlanError):
            OperatorSide(**bad)  # type: ignore[arg-type]

    def test_a_time_that_is_no_time(self) -> None:
        with pytest.raises(ValueError, match="negative or not finite"):
            OperatorSide().executed("a", math.nan)


class TestShedder:
    def test_steps_by_hand(self) -> None:
        shedder = LoadAwareShedder(
            AverageLatency(5.0), model({"cheap": [1.0], "dear": [10.0]}), sync_every=0
        )
        # C-hat 0 -> 10; q-hat of each: C-hat - elapsed.
        assert shedder.offer("dear", 0.0) == (False, 0.0, 10.0)  # carries C-hat: the model is new
        assert shedder.offer("dear", 1.0) == (False, 9.0, None)  # (0 + 9) / 2 <= 5; C-hat 20
        assert shedder.offer("cheap", 2.0) == (True, 18.0, None)  # (9 + 18) / 3 > 5
        assert shedder.cumulated == 20.0
        assert shedder.offer("cheap", 15.0) == (False, 5.0, None)  # (9 + 5) / 3 <= 5; C-hat 21
        assert shedder.cumulated == 21.0
        assert shedder.goal.admitted == 3
        assert shedder.goal.dropped == 1
        assert shedder.goal.mean_latency == pytest.approx(14 / 3)  # type: ignore[attr-defined]

    def test_idle_time_gives_no_credit(self) -> None:
        shedder = LoadAwareShedder(AverageLatency(5.0), model({"a": [10.0]}), sync_every=0)
        shedder.offer("a", 0.0)
        shedder.offer("a", 1000.0)  # idle since 10
        assert shedder.cumulated == 1010.0
        assert shedder.offer("a", 1000.0).latency == 10.0

    def test_a_dropped_tuple_changes_nothing(self) -> None:
        shedder = LoadAwareShedder(MaximumLatency(0.0), model({"a": [10.0]}))
        shedder.offer("a", 0.0)
        before = (shedder.cumulated, shedder.goal.mean_latency, shedder.goal.admitted)
        assert shedder.offer("a", 1.0).dropped
        assert (shedder.cumulated, shedder.goal.mean_latency, shedder.goal.admitted) == before

    def test_the_answer_corrects_the_estimate(self) -> None:
        shedder = LoadAwareShedder(AverageLatency(math.inf), model({"a": [10.0]}), sync_every=2)
        carried = shedder.offer("a", 0.0).carried
        assert carried == 10.0
        assert shedder.offer("a", 1.0).carried is None  # one is under way
        assert shedder.answer(carried, 14.0)  # it took 14, not 10
        assert shedder.cumulated == 24.0
        assert not shedder.answer(carried, 14.0)  # only once
        assert shedder.offer("a", 15.0).carried == 34.0  # two admitted since the last one
        assert shedder.offer("a", 15.0).carried is None

    def test_an_answer_to_older_matrices_is_ignored(self) -> None:
        shedder = LoadAwareShedder(AverageLatency(math.inf), model({"a": [10.0]}), sync_every=0)
        old = shedder.offer("a", 0.0).carried
        assert old is not None
        shedder.receive(model({"a": [20.0]}))
        assert not shedder.answer(old, 99.0)
        assert shedder.cumulated == 10.0
        new = shedder.offer("a", 0.0).carried
        assert new == 30.0
        assert not shedder.answer(old, 99.0)
        assert shedder.answer(new, 31.0)
        assert shedder.cumulated == 31.0

    def test_without_a_model_everything_is_admitted(self) -> None:
        shedder = LoadAwareShedder(MaximumLatency(0.0))
        assert not any(shedder.offer("a", 0.0).dropped for _ in range(100))
        assert shedder.blind == 100
        assert not shedder.informed
        shedder.receive(model({"a": [1.0]}))
        assert shedder.offer("a", 0.0) == (False, 0.0, 1.0)
        assert shedder.offer("a", 0.0).dropped

    def test_a_saved_model_survives_bytes(self) -> None:
        saved = model({"a": [3.0]}).to_bytes()
        shedder = LoadAwareShedder(MaximumLatency(0.0), ExecutionTimes.from_bytes(saved))
        assert shedder.informed
        assert shedder.offer("a", 0.0).carried == 3.0

    def test_an_empty_model_is_none(self) -> None:
        assert not LoadAwareShedder(MaximumLatency(0.0), ExecutionTimes()).informed

    def test_any_object_can_be_the_goal(self) -> None:
        class EverySecond:
            def __init__(self) -> None:
                self.seen = 0

            def drops(self, latency: float) -> bool:
                return self.seen % 2 == 1

            def admit(self, latency: float) -> None:
                self.seen += 1

            def drop(self) -> None:
                self.seen += 1

        shedder = LoadAwareShedder(EverySecond(), model({"a": [1.0]}))
        assert [shedder.offer("a", 0.0).dropped for _ in range(4)] == [False, True, False, True]

    def test_straw_man_takes_the_mean(self) -> None:
        shedder = StrawMan(AverageLatency(math.inf), model({"cheap": [1.0, 1.0, 1.0], "dear": [13.0]}))
        shedder.offer("dear", 0.0)
        assert shedder.cumulated == 4.0

    def test_full_knowledge_takes_the_truth(self) -> None:
        shedder = FullKnowledge(AverageLatency(2.0))
        offers = [shedder.offer("a", 0.0, time) for time in (3.0, 5.0, 1.0)]
        assert [o[:2] for o in offers] == [(False, 0.0), (False, 3.0), (True, 8.0)]
        with pytest.raises(ValueError, match="execution time"):
            shedder.offer("a", 100.0)


class TestGoals:
    def test_average_is_the_papers_rule_while_the_mean_keeps_to_tau(self) -> None:
        goal, latencies = AverageLatency(10.0), []
        for latency in (0.0, 40.0, 20.0, 21.0, 3.0, 12.0, 9.0, 50.0, 5.0, 13.0, 30.0):
            dropped = (sum(latencies) + latency) / (len(latencies) + 1) > 10.0
            assert goal.drops(latency) == dropped
            if not dropped:
                goal.admit(latency)
                latencies.append(latency)
        assert 0 < len(latencies) < 11

    def test_a_mean_above_tau_can_come_down(self) -> None:
        """(100 + q) / 2 > 10 whatever q is: who would wait at most half of tau is admitted."""
        goal = AverageLatency(10.0)
        goal.admit(100.0)
        assert [goal.drops(latency) for latency in (0.0, 4.0, 5.0, 5.1, 11.0)] == [False] * 3 + [True] * 2
        for _ in range(20):
            goal.admit(4.0)
        assert not goal.drops(11.0)

    def test_the_cap_wins_over_the_limit(self) -> None:
        shedder = LoadAwareShedder(MaximumLatency(0.0, most_dropped=0.25), model({"a": [10.0]}))
        dropped = [shedder.offer("a", 0.0).dropped for _ in range(12)]
        assert dropped == [False, False, False, True] * 3

    def test_a_cap_of_zero_and_an_infinite_limit_drop_nothing(self) -> None:
        for goal in (
            MaximumLatency(0.0, most_dropped=0.0),
            AverageLatency(math.inf),
            MaximumLatency(math.inf),
        ):
            shedder = LoadAwareShedder(goal, model({"a": [10.0]}))
            assert not any(shedder.offer("a", 0.0).dropped for _ in range(50))

    @pytest.mark.parametrize("tau", [-1.0, math.nan])
    def test_bad_limits(self, tau: float) -> None:
        for kind in (AverageLatency, MaximumLatency):
            with pytest.raises(PlanError, match="limit"):
                kind(tau)

    def test_bad_share(self) -> None:
        with pytest.raises(PlanError, match="share"):
            AverageLatency(1.0, most_dropped=1.5)

    def test_bad_sync(self) -> None:
        with pytest.raises(PlanError, match="sync_every"):
            LoadAwareShedder(AverageLatency(1.0), sync_every=-1)

    def test_repr(self) -> None:
        assert repr(AverageLatency(5)) == "AverageLatency(5)"
        assert repr(MaximumLatency(0.5, most_dropped=0.1)) == "MaximumLatency(0.5, most_dropped=0.1)"


def test_times_that_are_not_finite_are_refused() -> None:
    """One NaN made C-hat NaN, and nothing was dropped any more."""
    shedder, knowing = (
        LoadAwareShedder(MaximumLatency(1.0), model({"a": [10.0]})),
        FullKnowledge(MaximumLatency(1.0)),
    )
    for odd in (math.nan, math.inf):
        with pytest.raises(ValueError, match="the elapsed time is not finite"):
            shedder.offer("a", odd)
        with pytest.raises(ValueError, match="negative or not finite"):
            knowing.offer("a", 0.0, odd)
    assert [shedder.offer("a", 0.0).dropped for _ in range(3)] == [False, True, True]


def test_what_is_refused_changes_nothing() -> None:
    shedder = LoadAwareShedder(MaximumLatency(1.0), model({"a": [10.0]}))
    carried = shedder.offer("a", 0.0).carried
    assert carried == 10.0
    for odd in (math.nan, math.inf):
        with pytest.raises(ValueError, match="the elapsed time is not finite"):
            shedder.answer(carried, odd)
    assert shedder.cumulated == 10.0
    assert shedder.answer(carried, 12.0)
    assert shedder.cumulated == 12.0
    goal = MaximumLatency(1.0)
    knowing = FullKnowledge(goal)
    for time in (None, math.nan, -1.0):
        with pytest.raises(ValueError, match="execution time"):
            knowing.offer("a", 0.0, time)
    assert (goal.admitted, goal.dropped, knowing.cumulated) == (0, 0, 0.0)
