"""POSG worked by hand: matrices, eta, the two automata, lost, late and repeated messages, frozen models,
baselines.
"""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ordstream._core.lab import posg_policies
from ordstream.balance.baselines import FullKnowledge, LeastOutstanding, RoundRobin
from ordstream.balance.posg import (
    POSG,
    FrozenPosg,
    Matrices,
    PosgInstance,
    PosgScheduler,
    SyncReply,
    SyncRequest,
)
from ordstream.balance.serial_form import SketchBytesError
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import PlanError
from ordstream.lab.simulation.queues import run_operator

# Wide matrices: the few keys of these cases fall into cells of their own, which the first test checks.
WIDE = {"epsilon": 0.002, "delta": 0.1, "seed": 3}


def wide(k: int, **changes: Any) -> POSG:
    return POSG(k, **{"window": 4, **WIDE, **changes})


def learnt(parameters: POSG, times: dict[int, float], tuples: int = 1) -> ExecutionTimes:
    made = parameters.times()
    for key, time in times.items():
        made.update_many([key] * tuples, [time] * tuples)
    return made


def test_the_keys_of_these_cases_do_not_collide() -> None:
    made = wide(1).times()
    words = np.arange(1, 10, dtype=np.uint64)
    assert any(len(set(made.hashes.cells(words, row).tolist())) == 9 for row in range(made.rows))
    made.update_many(words, np.arange(1.0, 10.0))
    assert made.estimate_many(words).tolist() == list(range(1, 10))


# --- instance: Listing III.1, Fig. 2, equation 1 --------------------------------------------------


def test_defaults_are_the_papers() -> None:
    parameters = POSG(5)
    times = parameters.times()
    assert (parameters.window, parameters.mu, times.rows, times.columns) == (1024, 0.05, 4, 55)
    assert parameters.sync_interval == 5 * 1024
    assert POSG(5, resync=0).sync_interval == 0


def test_instance_sends_at_the_second_window_when_stable() -> None:
    """N = 4, two keys with constant times: a snapshot after 4 tuples, eta = 0 after 8, a send, all zero
    again.
    """
    instance = wide(1).instance(0)
    assert (instance.state, instance.relative_error) == ("START", math.inf)
    for _ in range(2):
        assert instance.execute(1, 2.0) is None
        assert instance.execute(2, 6.0) is None
    assert instance.state == "STABILIZING"
    for key, time in [(1, 2.0), (2, 6.0), (1, 2.0)]:
        assert instance.execute(key, time) is None
    sent = instance.execute(1, 2.0)
    assert sent is not None
    assert (sent.instance, sent.version, sent.times.tuples, sent.times.total_time) == (
        0,
        1,
        8,
        8 * 2.0 + 3 * 4.0,
    )
    assert sent.times.frequency.sum(axis=1).tolist() == [8] * 4
    assert (instance.state, instance.relative_error, instance.sent, instance.executed) == (
        "START",
        0.0,
        1,
        8,
    )
    assert not instance.times.frequency.any()
    assert not instance.times.work.any()
    assert instance.times.tuples == 0


def test_relative_error_by_hand() -> None:
    """One cell per row pair: key 1 took 4, 4 (S = 4), then 10, 10: W/F = 28/4 = 7, eta = 3/4; then six
    of 7: eta = 0.
    """
    instance = POSG(1, window=2, mu=0.05, epsilon=3, delta=0.5).instance(0)
    assert instance.execute_many([1, 1], [4.0, 4.0]) == []
    assert instance.execute_many([1, 1], [10.0, 10.0]) == []
    assert instance.relative_error == 0.75
    assert instance.state == "STABILIZING"
    [sent] = instance.execute_many([1, 1], [7.0, 7.0])
    assert instance.relative_error == 0.0
    assert (sent.times.tuples, sent.times.total_time) == (6, 42.0)


def test_eta_equal_to_mu_is_stable_and_an_empty_cell_counts_zero() -> None:
    """S: 8 in one cell of each row; then a new key brings 2 in another: |8 - 8| + |0 - 2| over 8 = 1/4,
    in every row.
    """
    for mu, sends in [(0.25, True), (0.2499, False)]:
        instance = wide(1, window=1, mu=mu).instance(0)
        assert instance.execute(1, 8.0) is None
        sent = instance.execute(2, 2.0)
        assert instance.relative_error == 0.25
        assert (sent is not None) is sends


def test_times_of_zero_are_stable_and_a_first_time_above_zero_is_not() -> None:
    instance = wide(1, window=1).instance(0)
    assert instance.execute(1, 0.0) is None
    assert instance.execute(1, 0.0) is not None
    assert instance.relative_error == 0.0
    assert instance.execute(1, 0.0) is None
    assert instance.execute(1, 5.0) is None
    assert instance.relative_error == math.inf


def test_a_column_is_the_same_as_a_tuple_at_a_time() -> None:
    rng = np.random.default_rng(1)
    keys, times = rng.integers(0, 50, 5_000), rng.integers(1, 9, 5_000).astype(float)
    one, many = (POSG(1, window=64, mu=0.1).instance(0) for _ in range(2))
    single = [
        sent
        for key, time in zip(keys.tolist(), times.tolist(), strict=True)
        if (sent := one.execute(key, time))
    ]
    assert many.execute_many(pa.array(keys), times) == single
    assert len(single) > 3
    assert [sent.version for sent in single] == list(range(1, len(single) + 1))


@pytest.mark.parametrize("time", [-1.0, math.nan, math.inf])
def test_a_bad_time_counts_nothing(time: float) -> None:
    instance = wide(1).instance(0)
    with pytest.raises(ValueError, match="row 1"):
        instance.execute_many([1, 2], [1.0, time])
    assert (instance.executed, instance.times.tuples) == (0, 0)


def test_reply_is_clock_minus_c_hat() -> None:
    instance = wide(2).instance(1)
    assert instance.reply(SyncRequest(7, 1, 3, 12.5), 20.0) == SyncReply(1, 3, 7.5)
    with pytest.raises(ValueError, match="request to instance 0"):
        instance.reply(SyncRequest(7, 0, 3, 12.5), 20.0)


# --- scheduler: Listing III.2, Fig. 3 -------------------------------------------------------------


def running(
    k: int, times: dict[int, float], c_hat: list[float] | None = None, **changes: Any
) -> PosgScheduler:
    parameters = wide(k, **changes)
    scheduler = parameters.scheduler()
    scheduler.deploy([learnt(parameters, times)] * k, c_hat)
    return scheduler


def test_round_robin_until_every_instance_sent_matrices() -> None:
    parameters = wide(3)
    scheduler = parameters.scheduler()
    model = learnt(parameters, {1: 5.0})
    assert scheduler.route([1] * 4).tolist() == [0, 1, 2, 0]
    scheduler.receive(Matrices(2, 1, model))
    scheduler.receive(Matrices(0, 1, model))
    scheduler.receive(Matrices(0, 2, model))
    assert (scheduler.state, scheduler.epoch) == ("ROUND ROBIN", 0)
    assert scheduler.route([1] * 2).tolist() == [1, 2]
    assert scheduler.take_requests() == []
    assert scheduler.c_hat.tolist() == [0, 0, 0]
    scheduler.receive(Matrices(1, 1, model))
    assert (scheduler.state, scheduler.epoch) == ("SEND ALL", 1)


def synchronising(k: int, times: dict[int, float]) -> PosgScheduler:
    parameters = wide(k)
    scheduler = parameters.scheduler()
    scheduler.route([1])
    for instance in range(k):
        scheduler.receive(Matrices(instance, 1, learnt(parameters, times)))
    return scheduler


def test_send_all_then_wait_all_then_run() -> None:
    """k = 2, w(1) = 5, w(2) = 3. SEND ALL: C^ = (5, 3). WAIT ALL: greedy. Replies +10 and +1 together
    correct C^.
    """
    scheduler = synchronising(2, {1: 5.0, 2: 3.0})
    assert scheduler.submit(1) == (0, SyncRequest(1, 0, 1, 5.0))
    assert scheduler.state == "SEND ALL"
    assert scheduler.submit(2) == (1, SyncRequest(2, 1, 1, 3.0))
    assert scheduler.state == "WAIT ALL"
    assert scheduler.submit(2) == (1, None)
    assert scheduler.c_hat.tolist() == [5.0, 6.0]
    scheduler.receive(SyncReply(0, 1, 10.0))
    assert (scheduler.state, scheduler.c_hat.tolist()) == ("WAIT ALL", [5.0, 6.0])
    assert scheduler.submit(1) == (0, None)
    scheduler.receive(SyncReply(1, 1, 1.0))
    assert (scheduler.state, scheduler.c_hat.tolist(), scheduler.synchronised) == ("RUN", [20.0, 7.0], 1)
    assert scheduler.route([2, 2, 2, 2, 2, 2]).tolist() == [1, 1, 1, 1, 1, 0]


def test_run_is_greedy_with_the_times_of_the_chosen_instance() -> None:
    """Non-uniform instances: key 1 takes 2 on instance 0 and 7 on instance 1. C^: 2,0 | 2,7 | 4,7 | 6,7
    | 8,7 | 8,14.
    """
    parameters = wide(2)
    scheduler = parameters.scheduler()
    scheduler.deploy([learnt(parameters, {1: 2.0}), learnt(parameters, {1: 7.0})])
    assert scheduler.route([1] * 6).tolist() == [0, 1, 0, 0, 0, 1]
    assert scheduler.c_hat.tolist() == [8.0, 14.0]


def test_deployed_matrices_are_older_than_any_that_an_instance_sends() -> None:
    """Fig. 3.F: the first pair of one instance moves the scheduler into SEND ALL, and is what it estimates
    by; the others keep what was deployed.
    """
    scheduler = running(2, {1: 5.0})
    scheduler.receive(Matrices(1, 1, learnt(wide(2), {1: 7.0})))
    assert (scheduler.state, scheduler.epoch) == ("SEND ALL", 1)
    assert [scheduler.estimate_many([1], one).tolist() for one in range(2)] == [[5.0], [7.0]]
    scheduler.receive(Matrices(1, 1, learnt(wide(2), {1: 9.0})))  # a second time: older than the one held
    assert scheduler.epoch == 1
    scheduler.receive(Matrices(0, 1, learnt(wide(2), {1: 6.0})))
    assert (scheduler.epoch, scheduler.estimate_many([1], 0).tolist()) == (2, [6.0])


def test_what_is_deployed_among_matrices_that_came_makes_up_for_those_missing() -> None:
    parameters = wide(2)
    scheduler = parameters.scheduler()
    scheduler.receive(Matrices(0, 1, learnt(parameters, {1: 3.0})))
    scheduler.deploy([learnt(parameters, {1: 5.0})] * 2)
    assert (scheduler.state, scheduler.estimate_many([1], 0).tolist()) == ("RUN", [5.0])
    scheduler.receive(Matrices(0, 1, learnt(parameters, {1: 3.0})))
    assert scheduler.state == "RUN"
    scheduler.receive(Matrices(0, 2, learnt(parameters, {1: 4.0})))
    assert (scheduler.state, scheduler.estimate_many([1], 0).tolist()) == ("SEND ALL", [4.0])


def test_submit_keeps_the_requests_of_tuples_that_route_took() -> None:
    scheduler = synchronising(2, {1: 5.0})
    assert scheduler.route([1]).tolist() == [0]
    assert scheduler.submit(1) == (1, SyncRequest(2, 1, 1, 5.0))
    assert scheduler.submit(1) == (0, None)
    assert scheduler.take_requests() == [SyncRequest(1, 0, 1, 5.0)]
    assert scheduler.take_requests() == []


def test_arg_min_is_of_c_hat_not_of_c_hat_plus_the_tuple() -> None:
    parameters = wide(2)
    scheduler = parameters.scheduler()
    scheduler.deploy([learnt(parameters, {1: 100.0}), learnt(parameters, {1: 1.0})], [0.0, 1.0])
    assert scheduler.route([1]).tolist() == [0]


def test_estimate_reads_the_row_with_the_smallest_count() -> None:
    """2 rows x 2 columns: the row with the smaller F decides, even when its ratio is the larger one."""
    parameters = POSG(1, epsilon=1.4, delta=0.25)
    made = parameters.times()
    rows = [made.hashes.cells(np.arange(64, dtype=np.uint64), row) for row in range(2)]
    # A key that shares only its cell of row 0 with key `there`: F is 4 in row 0 and 1 in row 1.
    here = 0
    there = next(x for x in range(64) if rows[0][x] == rows[0][here] and rows[1][x] != rows[1][here])
    made.update(here, 9.0)
    made.update_many([there] * 3, [1.0] * 3)
    scheduler = parameters.scheduler()
    scheduler.deploy([made])
    assert scheduler.estimate_many([here], 0).tolist() == [9.0]
    assert made.estimate(here) == 9.0


def test_an_empty_cell_counts_the_mean() -> None:
    scheduler = running(2, {1: 2.0, 2: 6.0})
    assert scheduler.estimate_many([1, 2, 9], 0).tolist() == [2.0, 6.0, 4.0]
    assert scheduler.route([9, 1, 1, 1]).tolist() == [0, 1, 1, 0]


def test_new_matrices_restart_the_synchronisation_and_old_replies_change_nothing() -> None:
    scheduler = synchronising(2, {1: 5.0})
    scheduler.route([1])
    model = learnt(wide(2), {1: 1.0})
    scheduler.receive(Matrices(0, 2, model))
    assert (scheduler.state, scheduler.epoch) == ("SEND ALL", 2)
    assert scheduler.submit(1) == (0, SyncRequest(2, 0, 2, 6.0))
    before = scheduler.c_hat.tolist()
    scheduler.receive(SyncReply(0, 1, 100.0))
    scheduler.receive(SyncReply(1, 1, 100.0))
    assert scheduler.state == "SEND ALL"
    assert scheduler.submit(1)[0] == 1
    scheduler.receive(SyncReply(0, 1, 100.0))
    assert scheduler.state == "WAIT ALL"
    scheduler.receive(SyncReply(1, 2, 1.0))
    assert scheduler.c_hat.tolist() == [before[0], 5.0]
    scheduler.receive(SyncReply(0, 2, 2.0))
    assert (scheduler.state, scheduler.c_hat.tolist()) == ("RUN", [8.0, 6.0])
    for epoch in (1, 2, 3):
        scheduler.receive(SyncReply(0, epoch, 50.0))
    assert (scheduler.state, scheduler.c_hat.tolist()) == ("RUN", [8.0, 6.0])


def test_a_second_reply_of_one_instance_counts_once() -> None:
    scheduler = synchronising(2, {1: 5.0})
    scheduler.route([1, 1])
    for _ in range(3):
        scheduler.receive(SyncReply(0, 1, 1.0))
    assert scheduler.state == "WAIT ALL"
    scheduler.receive(SyncReply(1, 1, 2.0))
    assert scheduler.c_hat.tolist() == [6.0, 7.0]


def test_matrices_that_were_overtaken_or_came_twice_are_ignored() -> None:
    parameters = wide(1)
    scheduler = parameters.scheduler()
    new, old = learnt(parameters, {1: 8.0}), learnt(parameters, {1: 1.0})
    scheduler.receive(Matrices(0, 2, new))
    assert scheduler.epoch == 1
    for version in (1, 2):
        scheduler.receive(Matrices(0, version, old))
    assert scheduler.epoch == 1
    assert scheduler.estimate_many([1], 0).tolist() == [8.0]


def test_a_lost_reply_is_made_good_by_the_next_synchronisation() -> None:
    """k = 2, N = 4: after N k = 8 greedy tuples without all replies the ninth is the first of a new SEND
    ALL.
    """
    scheduler = synchronising(2, {1: 1.0})
    scheduler.route([1, 1])
    scheduler.receive(SyncReply(0, 1, 0.0))
    assert scheduler.route([1] * 8).tolist() == [0, 1] * 4
    assert (scheduler.state, scheduler.epoch) == ("WAIT ALL", 1)
    scheduler.take_requests()
    scheduler.route([1])
    assert [request.epoch for request in scheduler.take_requests()] == [2]
    scheduler.receive(SyncReply(1, 1, 99.0))
    scheduler.route([1])
    scheduler.receive(SyncReply(1, 2, 3.0))
    scheduler.receive(SyncReply(0, 2, 2.0))
    assert (scheduler.state, scheduler.c_hat.tolist()) == ("RUN", [8.0, 9.0])


def test_run_is_left_every_resync_tuples_and_never_without() -> None:
    scheduler = running(2, {1: 1.0}, resync=3)
    scheduler.route([1] * 3)
    assert scheduler.state == "RUN"
    scheduler.route([1] * 2)
    assert [(r.position, r.instance, r.epoch) for r in scheduler.take_requests()] == [(3, 0, 1), (4, 1, 1)]
    assert scheduler.state == "WAIT ALL"
    never = running(2, {1: 1.0}, resync=0)
    never.route([1] * 10_000)
    assert (never.state, never.take_requests()) == ("RUN", [])


def test_equal_estimates_are_round_robin_even_zero_ones() -> None:
    for time in (0.0, 3.0):
        assert running(3, {1: time}, resync=0).route([1] * 7).tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_foreign_messages_are_refused() -> None:
    scheduler = wide(2).scheduler()
    with pytest.raises(ValueError, match="other rows, columns or hash functions"):
        scheduler.receive(Matrices(0, 1, POSG(2, seed=9).times()))
    with pytest.raises(ValueError, match="instance must be 0 to 1, not 2"):
        scheduler.receive(Matrices(2, 1, wide(2).times()))
    with pytest.raises(ValueError, match="finite"):
        scheduler.receive(SyncReply(0, 1, math.nan))
    with pytest.raises(PlanError, match="empty"):
        scheduler.deploy([wide(2).times()] * 2)
    with pytest.raises(PlanError, match="2 instances need as many"):
        scheduler.deploy([learnt(wide(2), {1: 1.0})])
    with pytest.raises(PlanError, match="c_hat must hold 2 finite numbers"):
        scheduler.deploy([learnt(wide(2), {1: 1.0})] * 2, [0.0, math.inf])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"instances": 0}, "1 to 2"),
        ({"instances": 2, "window": 0}, "window N"),
        ({"instances": 2, "mu": -0.1}, "mu"),
        ({"instances": 2, "mu": math.nan}, "mu"),
        ({"instances": 2, "epsilon": 0.0}, "epsilon"),
        ({"instances": 2, "delta": 1.0}, "delta"),
        ({"instances": 2, "resync": -1}, "resync"),
    ],
)
def test_parameters_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        POSG(**arguments)
    with pytest.raises(PlanError, match="index from 0 to 1, not 2"):
        PosgInstance(POSG(2), 2)


# --- frozen models --------------------------------------------------------------------------------


def test_a_frozen_model_is_untouched_by_what_the_scheduler_does_later() -> None:
    scheduler = running(2, {1: 1.0, 2: 4.0}, [0.0, 2.0])
    frozen = scheduler.freeze()
    routes = frozen.route([1, 1, 2, 1, 1]).tolist()
    assert routes == [0, 0, 1, 0, 0]
    scheduler.route([2] * 100)
    assert frozen.route([1, 1, 2, 1, 1]).tolist() == routes
    assert frozen.c_hat.tolist() == [0.0, 2.0]


def test_frozen_without_matrices_is_round_robin_from_the_seed() -> None:
    frozen = POSG(3).scheduler().freeze(seed=7)
    assert frozen.models is None
    assert frozen.route(["a", "b", "c", "d"]).tolist() == [1, 2, 0, 1]
    assert frozen.router(seed=2).route(["a"]).tolist() == [2]


def test_frozen_bytes_and_pickle_decide_the_same_in_another_process() -> None:
    rng = np.random.default_rng(2)
    parameters = POSG(4, seed=5)
    models = [parameters.times() for _ in range(4)]
    for model in models:
        model.update_many(rng.integers(0, 300, 500), rng.uniform(0, 9, 500))
    frozen = FrozenPosg(4, models, [3.0, 0.0, 1.0, 2.0], seed=6)
    keys = rng.integers(0, 400, 1_000)
    routes = frozen.route(keys)
    assert set(routes.tolist()) == {0, 1, 2, 3}
    assert pickle.loads(pickle.dumps(frozen)).route(keys).tolist() == routes.tolist()
    assert FrozenPosg.from_bytes(frozen.to_bytes()).models == models
    code = (
        "import sys, numpy as np; from ordstream.balance.posg import FrozenPosg\n"
        "keys = np.array(eval(sys.argv[2])); "
        "print(FrozenPosg.from_bytes(bytes.fromhex(sys.argv[1])).route(keys).tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, frozen.to_bytes().hex(), repr(keys.tolist())],
        capture_output=True,
        text=True,
        check=True,
    )
    assert eval(done.stdout) == routes.tolist()
    with pytest.raises(SketchBytesError):
        FrozenPosg.from_bytes(models[0].to_bytes())


def test_frozen_arguments_are_checked() -> None:
    with pytest.raises(PlanError, match="no use without models"):
        FrozenPosg(2, None, [0.0, 0.0])
    with pytest.raises(PlanError, match="empty"):
        FrozenPosg(2, POSG(2).times())
    with pytest.raises(PlanError, match="1 to 2"):
        FrozenPosg(0, None)
    with pytest.raises(PlanError, match="other rows"):
        FrozenPosg(2, [learnt(wide(2), {1: 1.0}), learnt(wide(2, seed=4), {1: 1.0})])


# --- baselines ------------------------------------------------------------------------------------


def test_round_robin_goes_on_where_it_ended() -> None:
    router = RoundRobin(3, first=1)
    assert router.route([9] * 4).tolist() == [1, 2, 0, 1]
    assert router.route(np.zeros(2)).tolist() == [2, 0]


def test_full_knowledge_by_hand() -> None:
    """The paper's section II: a = 10, b = 1, a = 10 on two instances: a to 0, b and the second a to 1."""
    router = FullKnowledge(2)
    assert router.route([10.0, 1.0, 10.0]).tolist() == [0, 1, 1]
    assert router.cumulated.tolist() == [10.0, 11.0]
    assert router.route([[5.0, 50.0], [5.0, 50.0]]).tolist() == [0, 1]
    assert router.cumulated.tolist() == [15.0, 61.0]
    for bad in ([[1.0, 2.0, 3.0]], [-1.0], [math.nan]):
        with pytest.raises(PlanError):
            router.route(bad)


def test_least_outstanding_by_hand() -> None:
    router = LeastOutstanding(3)
    assert router.route([0] * 4).tolist() == [0, 1, 2, 0]
    router.executed(2)
    assert router.route([0] * 3).tolist() == [2, 1, 2]
    assert router.outstanding.tolist() == [2, 2, 2]
    with pytest.raises(ValueError, match="2 are outstanding"):
        router.executed(0, 3)
    with pytest.raises(ValueError, match="instance must be"):
        router.executed(3)


# --- in virtual time ------------------------------------------------------------------------------


def test_the_papers_example_of_section_two() -> None:
    """a, b, a one second apart, 10 s and 1 s, k = 2: Round-Robin 29 s in all, greedy 21 s."""
    times = np.array([10.0, 1.0, 10.0])
    arrivals = np.array([0.0, 1.0, 2.0])
    assert run_operator(posg_policies.RoundRobin(), 2, arrivals, times).completion.sum() == 29.0
    assert (
        run_operator(posg_policies.FullKnowledge(times.reshape(-1, 1)), 2, arrivals, times).completion.sum()
        == 21.0
    )
    assert run_operator(posg_policies.LeastOutstanding(), 2, arrivals, times).completion.sum() == 21.0
    # Told one second late, it does not know yet that b has ended.
    assert run_operator(posg_policies.LeastOutstanding(1.0), 2, arrivals, times).completion.sum() == 29.0


def posg_policy(parameters: POSG, delay: float = 0.0) -> posg_policies.Posg:
    learners = [parameters.instance(index).learner for index in range(parameters.instances)]
    return posg_policies.Posg(parameters.scheduler().core, learners, delay)


def test_delta_is_the_wall_clock_since_the_first_tuple_minus_c_hat() -> None:
    """k = 1, N = 2, all times 3, arrivals 10, 20, ...: matrices after tuples 0-3 (executed at 43), tuple 4
    (at 50) asks with C^ = 3 and ends at 53; clock = 53 - 10 = 43, Delta = 40; tuple 5 comes in RUN: C^ = 43
    + 3.
    """
    policy = posg_policy(wide(1, window=2, resync=0))
    run_operator(policy, 1, np.arange(10.0, 70.0, 10.0), np.full(6, 3.0), np.ones(6, dtype=np.int64))
    assert policy.matrices_at == [(4, 0)]
    assert policy.run_from == 5
    assert policy.scheduler.state == "RUN"
    assert policy.scheduler.c_hat.tolist() == [46.0]
    assert policy.messages == 2


def test_a_delay_of_messages_delays_run() -> None:
    """As above; each message takes 12: matrices sent at 43 come at 55 > 50, so tuple 5 (at 60) asks; its
    reply comes at 75.
    """
    policy = posg_policy(wide(1, window=2, resync=0), delay=12.0)
    run_operator(policy, 1, np.arange(10.0, 90.0, 10.0), np.full(8, 3.0), np.ones(8, dtype=np.int64))
    assert policy.matrices_at[0] == (5, 0)
    assert policy.run_from == 7


def test_policies_check_what_they_are_run_with() -> None:
    with pytest.raises(ValueError, match="2 instances"):
        run_operator(posg_policy(wide(2)), 3, [0.0], [1.0])
    with pytest.raises(ValueError, match="needs as many"):
        posg_policies.Posg(wide(2).scheduler().core, [])
    for bad in (-1.0, math.nan):
        with pytest.raises(ValueError, match="delay"):
            posg_policy(wide(1), delay=bad)
        with pytest.raises(ValueError, match="delay"):
            posg_policies.LeastOutstanding(bad)
    with pytest.raises(ValueError, match="do not fit tuple 1"):
        run_operator(posg_policies.FullKnowledge(np.ones((1, 1))), 2, [0.0, 1.0], [1.0, 1.0])
