"""POSG over random streams: estimates within the matrices' bounds, frozen models pure, and the
invariants of both automata.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordstream._core.lab import posg_policies
from ordstream.balance.baselines import FullKnowledge, LeastOutstanding, RoundRobin
from ordstream.balance.posg import POSG, FrozenPosg, Matrices, SyncReply, SyncRequest
from ordstream.lab.simulation.queues import Outcome, Policy, run_operator

TIMES = st.integers(0, 64).map(float)
STREAM = st.lists(st.tuples(st.integers(0, 12), TIMES), min_size=1, max_size=200)
SEEDS = st.integers(0, 1000)


def small(k: int, seed: int = 0, window: int = 8, mu: float = 0.5, resync: int | None = None) -> POSG:
    return POSG(k, window=window, mu=mu, epsilon=0.6, delta=0.2, seed=seed, resync=resync)


def trained(parameters: POSG, stream: list[tuple[int, float]]) -> FrozenPosg:
    times = parameters.times()
    times.update_many([key for key, _ in stream], [time for _, time in stream])
    return FrozenPosg(parameters.instances, times, seed=parameters.seed)


@given(STREAM, st.lists(st.integers(0, 30), max_size=60), st.integers(1, 5), SEEDS)
def test_frozen_routing_is_pure_total_and_the_same_in_parts(
    stream: list[tuple[int, float]], keys: list[int], k: int, seed: int
) -> None:
    frozen = trained(small(k, seed), stream)
    routes = frozen.route(keys)
    assert routes.dtype == np.int32
    assert (
        frozen.route(keys).tolist()
        == routes.tolist()
        == FrozenPosg.from_bytes(frozen.to_bytes()).route(keys).tolist()
    )
    assert all(0 <= route < k for route in routes)
    for cut in (0, len(keys) // 3, len(keys)):
        assert frozen.route(keys[:cut]).tolist() == routes[:cut].tolist()
        router = frozen.router()
        assert router.route(keys[:cut]).tolist() + router.route(keys[cut:]).tolist() == routes.tolist()


@given(STREAM, st.integers(1, 5), SEEDS)
def test_estimates_are_those_of_the_matrices_and_within_the_times_seen(
    stream: list[tuple[int, float]], k: int, seed: int
) -> None:
    frozen = trained(small(k, seed), stream)
    keys = list(range(20))
    assert frozen.models is not None
    for instance, model in enumerate(frozen.models):
        estimates = frozen.estimate_many(keys, instance)
        assert estimates.tolist() == model.estimate_many(keys).tolist()
        assert min(time for _, time in stream) - 1e-9 <= estimates.min()
        assert estimates.max() <= max(time for _, time in stream) + 1e-9


@given(STREAM, st.integers(1, 5), SEEDS)
def test_routing_is_greedy_on_the_estimates(stream: list[tuple[int, float]], k: int, seed: int) -> None:
    """Each decision has the least C^ at its time, and C^ is the sum of the estimates: against a loop
    written from Listing III.2.
    """
    frozen = trained(small(k, seed), stream)
    keys = [key for key, _ in stream]
    estimates = frozen.estimate_many(keys).tolist()
    c_hat = [0.0] * k
    for route, estimate in zip(frozen.route(keys).tolist(), estimates, strict=True):
        assert c_hat[route] == min(c_hat)
        c_hat[route] += estimate
    router = frozen.router()
    router.route(keys)
    assert router.c_hat.tolist() == c_hat


@given(STREAM, st.integers(1, 8), st.floats(0, 2))
def test_instance_windows(stream: list[tuple[int, float]], window: int, mu: float) -> None:
    """Sends only at multiples of N, the first not before 2 N, each with all tuples since the last one;
    then F and W are zero.
    """
    instance = small(1, window=window, mu=mu).instance(0)
    since = 0
    for done, (key, time) in enumerate(stream, start=1):
        sent = instance.execute(key, time)
        since += 1
        if sent is not None:
            assert done % window == 0
            assert since >= 2 * window
            assert instance.relative_error <= mu
            assert sent.times.tuples == since
            assert instance.times.tuples == 0
            assert not instance.times.work.any()
            since = 0
        assert instance.times.frequency.sum(axis=1).tolist() == [since] * instance.times.rows
    assert instance.sent <= len(stream) // (2 * window)


@given(
    st.lists(st.tuples(st.sampled_from("tttmrso"), st.integers(0, 2), st.integers(0, 3)), max_size=120),
    st.integers(0, 12),
)
def test_scheduler_automaton_under_any_messages(steps: list[tuple[str, int, int]], resync: int) -> None:
    """Against Fig. 3 written down in Python: tuples, matrices, replies, stale ones and overtaken ones in
    any order.
    """
    k = 3
    parameters = small(k, resync=resync)
    scheduler = parameters.scheduler()
    model = parameters.times()
    model.update(1, 2.0)
    state, epoch, nexts, since = "ROUND ROBIN", 0, 0, 0
    held, delta = [0] * k, [None] * k
    c_hat = [0.0] * k
    for kind, instance, number in steps:
        if kind == "t":
            if state in ("WAIT ALL", "RUN") and resync and since >= resync:
                state, epoch, nexts, since, delta = "SEND ALL", epoch + 1, 0, 0, [None] * k
            chosen, request = scheduler.submit(1)
            if state in ("ROUND ROBIN", "SEND ALL"):
                assert chosen == nexts
            else:
                assert c_hat[chosen] == min(c_hat)
                since += 1
            if state != "ROUND ROBIN":
                c_hat[chosen] += 2.0
            assert (request is not None) is (state == "SEND ALL")
            if request is not None:
                assert (request.instance, request.epoch, request.c_hat) == (chosen, epoch, c_hat[chosen])
            nexts = (nexts + 1) % k
            if state == "SEND ALL" and nexts == 0:
                state = "WAIT ALL"
        elif kind in "mo":
            version = held[instance] + (1 if kind == "m" else 0)
            scheduler.receive(Matrices(instance, version, model))
            if kind == "m":
                held[instance] = version
                if all(held):
                    state, epoch, nexts, since, delta = "SEND ALL", epoch + 1, 0, 0, [None] * k
        else:
            answered = epoch - number if kind == "s" else epoch
            if answered == epoch and state == "SEND ALL" and instance >= nexts:
                continue  # an instance that was not asked yet cannot answer
            scheduler.receive(SyncReply(instance, answered, float(number)))
            if answered == epoch and state in ("SEND ALL", "WAIT ALL") and delta[instance] is None:
                delta[instance] = float(number)
                if None not in delta:
                    state = "RUN"
                    c_hat = [c + d for c, d in zip(c_hat, delta, strict=True)]
        assert (scheduler.state, scheduler.epoch) == (state, epoch)
        assert scheduler.c_hat.tolist() == c_hat


def simulated(
    parameters: POSG, keys: list[int], times: list[float], gap: float
) -> tuple[posg_policies.Posg, Outcome]:
    learners = [parameters.instance(index).learner for index in range(parameters.instances)]
    policy = posg_policies.Posg(parameters.scheduler().core, learners)
    return policy, run_operator(policy, parameters.instances, np.arange(len(keys)) * gap, times, keys)


@given(st.integers(1, 4), SEEDS, st.floats(0.8, 1.3), st.floats(0, 1))
def test_posg_in_virtual_time(k: int, seed: int, provisioning: float, mu: float) -> None:
    rng = np.random.default_rng(seed)
    m, window = 400, 8
    keys = rng.integers(0, 20, m)
    times = rng.integers(1, 9, 20).astype(float)[keys]
    parameters = small(k, seed, window, mu)
    policy, outcome = simulated(parameters, keys.tolist(), times.tolist(), provisioning * times.mean() / k)
    assert outcome.tuples(k).sum() == m
    # No matrices before 2 N tuples of an instance, RUN needs those of all k, and there are at most m / 2 N
    # of them.
    assert len(policy.matrices_at) <= m // (2 * window)
    assert all(at >= 2 * window for at, _ in policy.matrices_at)
    if policy.run_from >= 0:
        assert policy.run_from >= 2 * window * k
    # FIFO: an instance begins a tuple when it is there and the one before has ended.
    for instance in range(k):
        mine = outcome.instance == instance
        ends = np.concatenate([[-np.inf], outcome.end[mine][:-1]])
        assert (outcome.start[mine] == np.maximum(outcome.arrival[mine], ends)).all()


@given(SEEDS)
def test_one_instance_has_speed_up_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times = rng.integers(1, 9, 300).astype(float)
    keys = rng.integers(0, 20, 300)
    _, outcome = simulated(small(1, seed), keys.tolist(), times.tolist(), times.mean())
    plain = run_operator(posg_policies.RoundRobin(), 1, outcome.arrival, times)
    assert outcome.end.tolist() == plain.end.tolist()


@given(st.integers(1, 5), st.integers(1, 9), SEEDS)
def test_equal_times_make_all_the_same(k: int, time: int, seed: int) -> None:
    keys = np.random.default_rng(seed).integers(0, 20, 300)
    times = np.full(300, float(time))
    arrivals = np.arange(300) * time / k
    plain = run_operator(posg_policies.RoundRobin(), k, arrivals, times)
    known = run_operator(posg_policies.FullKnowledge(times.reshape(-1, 1)), k, arrivals, times)
    policy, _ = simulated(small(k, seed, mu=0.0, resync=0), keys.tolist(), times.tolist(), time / k)
    assert plain.end.tolist() == known.end.tolist()
    assert (
        RoundRobin(k).route(keys).tolist()
        == plain.instance.tolist()
        == FullKnowledge(k).route(times).tolist()
    )
    estimates = policy.scheduler.estimates(np.arange(20, dtype=np.uint64), 0)
    # Measured times are differences of virtual clock readings, which round; an item never seen has no
    # weight, so 0.
    assert all(estimate == 0.0 or estimate == pytest.approx(time) for estimate in estimates.tolist())


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.integers(1, 3))
def test_greedy_makespan_is_within_the_bounds_of_theorem_4_2(times: list[int], k: int) -> None:
    router = FullKnowledge(k)
    router.route(np.array(times, dtype=float))
    makespan = router.cumulated.max()
    best = min(
        max(
            sum(time for time, at in zip(times, places, strict=True) if at == instance)
            for instance in range(k)
        )
        for places in product(range(k), repeat=len(times))
    )
    assert makespan <= (2 - 1 / k) * best + 1e-9
    assert makespan <= sum(times) / k + (1 - 1 / k) * max(times) + 1e-9


@given(st.lists(st.one_of(st.integers(1, 5), st.tuples(st.integers(0, 2), st.integers(1, 3))), max_size=40))
def test_least_outstanding_never_sends_past_a_shorter_queue(steps: list[int | tuple[int, int]]) -> None:
    router = LeastOutstanding(3)
    queues = [0, 0, 0]
    for step in steps:
        if isinstance(step, int):
            for route in router.route([0] * step).tolist():
                assert queues[route] == min(queues)
                queues[route] += 1
        elif step[1] <= queues[step[0]]:
            router.executed(*step)
            queues[step[0]] -= step[1]
        assert router.outstanding.tolist() == queues


class ByMessages(Policy):
    """POSG in Python, out of what a user has: the faces of both sides and their messages."""

    def __init__(self, parameters: POSG, delay: float) -> None:
        self.scheduler = parameters.scheduler()
        self.sides = [parameters.instance(index) for index in range(parameters.instances)]
        self.delay = delay
        self.carried: dict[int, SyncRequest] = {}
        self.under_way: list[Matrices | SyncReply] = []
        self.began: dict[int, float] = {}

    def submit(self, i: int, word: int, now: float) -> int:
        instance, request = self.scheduler.submit(word)
        if request is not None:
            self.carried[i] = request
        return instance

    def executed(self, i: int, word: int, instance: int, start: float, end: float) -> int:
        side = self.sides[instance]
        clock = end - self.began.setdefault(instance, start)
        messages: list[Matrices | SyncReply] = []
        if i in self.carried:
            messages.append(side.reply(self.carried.pop(i), clock))
        if (matrices := side.execute(word, end - start)) is not None:
            messages.append(matrices)
        for message in messages:
            self.under_way.append(message)
            self.send(end + self.delay, len(self.under_way) - 1)
        return 0

    def received(self, tag: int, now: float) -> int:
        self.scheduler.receive(self.under_way[tag])
        return 0


@given(st.integers(1, 4), SEEDS, st.sampled_from([0.0, 0.5, 40.0]), st.integers(0, 30))
def test_the_compiled_policy_does_what_the_messages_do(k: int, seed: int, delay: float, resync: int) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 20, 300)
    times = rng.integers(1, 9, (300, k)).astype(float)
    parameters = small(k, seed, 5, 0.4, resync)
    arrivals = np.arange(300) * times.mean() / k
    by_messages = ByMessages(parameters, delay)
    learners = [parameters.instance(index).learner for index in range(k)]
    compiled = posg_policies.Posg(parameters.scheduler().core, learners, delay)
    expected = run_operator(by_messages, k, arrivals, times, keys)
    assert run_operator(compiled, k, arrivals, times, keys).instance.tolist() == expected.instance.tolist()
    assert compiled.messages == len(by_messages.under_way)
    assert compiled.scheduler.c_hat.tolist() == by_messages.scheduler.c_hat.tolist()
