"""What the prototype experiments compute from a job's tuples; that they run is in
tests/spark/test_prototypes.py.
"""

from __future__ import annotations

import time
from contextlib import nullcontext

import grouping as grouping_bench
import numpy as np
import pytest

from ordstream.balance.baselines import FullKnowledge, RoundRobin
from ordstream.balance.posg import FrozenPosg
from ordstream.commands import cli
from ordstream.errors import OrdstreamError, PlanError
from ordstream.lab.evaluation import mentions, prototypes, spark_jobs
from ordstream.lab.evaluation.experiment import Options
from ordstream.lab.evaluation.spark_jobs import Arrival, Asked, Job, LookedUp, Worked
from ordstream.lab.simulation.queues import Routed, run_operator


def job() -> Job:
    """Node 0: two tuples of 1 s, 1 s apart; node 1: one of 4 s that waited 2 s."""
    return Job(
        2,
        np.array([0, 0, 1]),
        np.array([0.0, 2.0, 8.0]),
        np.array([0.0, 2.0, 10.0]),
        np.array([1.0, 3.0, 14.0]),
        20.0,
    )


def test_figures_of_a_job() -> None:
    found = job()
    assert found.rows.tolist() == [2, 1]
    assert found.busy.tolist() == [2, 4]
    assert found.stage_seconds == 4
    assert found.completion.tolist() == [1, 1, 6]
    assert found.tuple_imbalance == pytest.approx(100 / 3)
    assert found.work_imbalance == pytest.approx(100 / 3)
    assert found.tuple_deviation == 0.5


def test_what_a_tuple_takes_a_node() -> None:
    """Time at work, and hand-overs where the next tuple waits; idle time is none of it."""
    found = Job(
        2,
        np.array([1, 1, 1, 0]),
        np.array([0.0, 0.5, 9.0, 0.0]),
        np.array([0.0, 1.2, 9.0, 0.0]),
        np.array([1.0, 2.2, 10.0, 1.0]),
        9.0,
    )
    assert found.taken == pytest.approx(1.0 + 0.2)
    assert job().taken == pytest.approx(2.0)  # nobody ever waits for the node
    # All there at once: 3.5 s of node time for 3 s of work.
    full = Job(
        2, np.array([0, 0, 1]), np.zeros(3), np.array([0.0, 1.5, 0.0]), np.array([1.0, 2.5, 1.0]), 9.0
    )
    assert spark_jobs.spare_of([full, full], [np.ones(3)] * 2) == pytest.approx(0.5 / 3)


def test_jobs_side_by_side_have_slots_for_all_their_nodes(monkeypatch) -> None:
    """Rounds in the order asked; the nodes of a round meet each other and nobody else; a failure cancels
    the others.
    """
    rounds: list[tuple[str, int, list[int]]] = []

    def look_up(folder, nodes, asked, number, busy):
        if not rounds or rounds[-1][0] != folder:
            rounds.append((folder, nodes, []))
        rounds[-1][2].append(asked.nodes)
        assert number == len(rounds[-1][2]) - 1
        assert busy
        return asked

    def ready(spark, pipeline, asked):
        def run():
            if asked.gap < 0:
                raise OrdstreamError("failed")
            return asked.nodes, asked.gap

        return run

    monkeypatch.setattr(spark_jobs, "_look_up", look_up)
    monkeypatch.setattr(spark_jobs, "_ready", ready)
    asked = [Asked(None, nodes, "posg", gap) for gap, nodes in enumerate([4, 4, 4, 2, 1, 1, 8])]
    assert spark_jobs.shuffle_jobs(None, asked, 8, True) == [(one.nodes, one.gap) for one in asked]
    assert [(nodes, own) for _, nodes, own in rounds] == [(8, [4, 4]), (8, [4, 2, 1, 1]), (8, [8])]
    cancelled: list[bool] = []
    context = type("Context", (), {"cancelAllJobs": lambda self: cancelled.append(True)})()
    with pytest.raises(OrdstreamError, match="failed"):
        spark_jobs.shuffle_jobs(
            type("Spark", (), {"sparkContext": context}), [asked[0], Asked(None, 4, "posg", -1.0)], 8, True
        )
    assert cancelled == [True]


def test_finer_buckets_come_closer_to_the_optimum() -> None:
    training, routed, seed = prototypes.grid(Options(streams=1, tuples=8_000))
    coarse, fine = (prototypes.above_optimum(training, routed, seed, range(1, 6), mu) for mu in (2, 16))
    assert 0 <= fine < coarse
    others = prototypes.hashes_against(prototypes.deployed(training, 4, seed), routed, 4)
    assert len(others) == prototypes.HASHES
    assert (np.diff(others) >= 0).all()
    assert others[0] > 0.9
    assert others[-1] > 1.5


def test_usage_is_the_share_of_time_at_work() -> None:
    found = prototypes.usage(job())
    assert found.shape == (prototypes.INTERVALS, 2)
    # Node 0 works in the first and the third of its four seconds, node 1 all the time.
    np.testing.assert_allclose(found[:, 0].reshape(4, -1).mean(axis=1), [1, 0, 1, 0], atol=1e-9)
    np.testing.assert_allclose(found[:, 1], 1)


def test_mentions_have_the_paper_s_most_frequent_entity() -> None:
    entities, classes = mentions.mentions(1, 50_000)
    assert np.bincount(entities).max() / len(entities) == pytest.approx(mentions.TOP_SHARE, abs=0.005)
    shares = np.bincount(classes[: mentions.KNOWN]) / mentions.KNOWN
    np.testing.assert_allclose(shares, mentions.SHARES, atol=0.1)
    assert set(classes[mentions.KNOWN :]) == {2}


def test_mentions_where_any_entity_may_be_dear() -> None:
    entities, classes = mentions.mentions(1, 50_000, at_random=True)
    assert np.bincount(entities).max() / len(entities) == pytest.approx(mentions.TOP_SHARE, abs=0.005)
    np.testing.assert_allclose(np.bincount(classes) / len(classes), mentions.ANY_SHARES, atol=0.01)


def test_virtual_time_knows_what_finer_matrices_bring() -> None:
    """S_L of the frozen scheduler, dear entities frequent: better than Round-Robin on the mean, better
    still with more columns.
    """
    coarse, fine = (
        np.mean([prototypes.virtual_speed_up(n, 4_000, 4, epsilon=e) for n in range(10)])
        for e in (0.05, 0.001)
    )
    assert 1 < coarse < fine
    assert prototypes.virtual_speed_up(1, 2_000, 1) == 1


class VirtualJobs:
    """In place of the jobs in Spark: nodes by Round-Robin, by a map, or (for a Balancer) by full
    knowledge, in virtual time.
    """

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self.busy: set[bool] = set()

    def session(self, slots):
        return nullcontext()

    def overhead(self, spark, tuples, nodes, grouping, busy=False):
        return 0.0

    def shuffle(self, spark, tuples, nodes, grouping, gap, busy=False):
        return self.shuffles(spark, [Asked(tuples, nodes, grouping, gap)], nodes, busy)[0]

    def shuffles(self, spark, asked, slots, busy=False):
        assert all(one.nodes <= slots for one in asked)
        found = []
        for one in asked:
            cost = one.tuples["cost"].to_numpy()
            plain = isinstance(one.grouping, FrozenPosg)
            chosen = (RoundRobin(one.nodes) if plain else FullKnowledge(one.nodes)).route(cost)
            found.append(self.job(one.nodes, chosen, one.gap * np.arange(len(cost)), cost, busy))
        return found

    def keyed(self, spark, tuples, nodes, grouping, busy=False):
        cost = tuples["cost"].to_numpy()
        return self.job(nodes, grouping.route(tuples["key"].to_numpy()), np.zeros(len(cost)), cost, busy)

    def job(self, nodes, chosen, arrivals, cost, busy):
        self.nodes.append(nodes)
        self.busy.add(busy)
        found = run_operator(Routed(chosen), nodes, arrivals, cost)
        return Job(nodes, chosen.astype(np.int64), arrivals, found.start, found.end, 1.0)


@pytest.fixture
def virtual(monkeypatch):
    pytest.importorskip("pyspark")  # a Balancer is made
    jobs = VirtualJobs()
    own = {
        "session": jobs.session,
        "overhead": jobs.overhead,
        "shuffle_job": jobs.shuffle,
        "shuffle_jobs": jobs.shuffles,
    }
    for name, one in {**own, "keyed_job": jobs.keyed}.items():
        monkeypatch.setattr(spark_jobs, name, one)
    monkeypatch.setattr(prototypes, "SIMULATED", 2)
    return jobs


KS = {
    "dkg-fig10": {*range(2, 11)},
    "dkg-fig11": {4},
    "dkg-fig12": {1, 2, 4, 5, 6, 8, 10},
    "posg-fig11": {5},
    "posg-fig12": {1, 2, 4, 8},
}


@pytest.mark.parametrize("name", KS)
def test_what_an_experiment_makes_of_its_jobs(virtual, name) -> None:
    experiment = next(one for one in prototypes.EXPERIMENTS if one.name == name)
    result = experiment.run(Options(streams=2, tuples=4_000))
    assert set(virtual.nodes) == KS[name]
    assert all(len(row) == len(result.columns) for row in result.rows)
    holds = {claim.text: claim.holds for claim in result.claims}
    if name == "posg-fig12":  # knowing every tuple's time is better than not knowing
        assert all(holds.values()), holds
        assert [row[0] for row in result.rows] == [1, 2, 4, 8]
        for part in ("", " min", " max"):
            np.testing.assert_allclose(result.column(f"S_L{part}"), result.column(f"S_L simulated{part}"))
        np.testing.assert_allclose(result.column("spare ms"), 0, atol=1e-9)
        load = 100 / prototypes.PROVISIONING  # nothing but the tuples' own times was there to be found
        np.testing.assert_allclose(
            [result.column(f"{name} load %") for name in ("POSG", "Round-Robin")], load, rtol=1e-9
        )
        assert len(result.lines) == 4
    elif name == "posg-fig11":
        assert holds["once matrices are there POSG's completion time is below Round-Robin's"]
        assert result.column("tuples") == list(range(400, 4_001, 400))
    elif name == "dkg-fig12":
        assert holds["throughput follows the largest load"]
        assert all(f"(k={k})" in result.lines[0] for k in KS[name] - {1, 2})
    elif name == "dkg-fig10":
        assert "µ=16" in result.lines[0]


@pytest.mark.parametrize("name", ["dkg-fig11", "dkg-fig12", "posg-fig11", "posg-fig12"])
def test_tuples_that_compute_get_a_processor_per_node(virtual, monkeypatch, name) -> None:
    monkeypatch.setattr(prototypes, "allowed_cpus", lambda: 2)
    experiment = next(one for one in prototypes.EXPERIMENTS if one.name == name)
    assert experiment.run(Options(streams=1, tuples=2_000, busy=True)).claims
    assert set(virtual.nodes) <= {1, 2}
    assert virtual.busy == {True}
    monkeypatch.setattr(prototypes, "allowed_cpus", lambda: 1)
    virtual.nodes.clear()
    assert experiment.run(Options(streams=1, tuples=2_000, busy=True)).claims
    assert set(virtual.nodes) == {1}


def test_a_tuple_takes_its_time(monkeypatch) -> None:
    """Waiting takes time on the clock, computing takes the thread's own."""
    row = type("Row", (), {"i": 1, "key": 2, "seen": 3, "due": 0.5, "cost": 0.02})
    for made in (Worked, LookedUp):
        for busy in (False, True):
            own, clock = time.thread_time(), time.perf_counter()
            i, value, node, _, began, ended = made(busy)(row)
            own, clock = time.thread_time() - own, time.perf_counter() - clock
            assert (i, value, node) == (1, 3 if made is Worked else 2, 0)
            assert clock >= 0.02 * 0.99
            assert ended - began >= 0.02 * 0.9
            assert (own >= 0.02 * 0.99) == busy
    with pytest.raises(PlanError, match="take no time"):
        prototypes.fig10(Options(streams=1, busy=True))


def test_the_corpus_is_a_package_s_text_or_the_reason_why_not() -> None:
    missing = grouping_bench.words("no-such-package")
    assert isinstance(missing, str)
    assert missing.startswith("no text: ")
    found = grouping_bench.words(grouping_bench.CORPUS)
    if isinstance(found, str):
        assert found.startswith("no text: ")
        return
    name, numbers = found
    assert grouping_bench.CORPUS in name
    assert len(numbers) >= grouping_bench.FEW_WORDS
    assert len(np.unique(numbers)) == numbers.max() + 1


def test_nodes_agree_on_the_start(tmp_path) -> None:
    (tmp_path / "0-0").touch()  # node 0 of the job beside
    row = type("Row", (), {"i": 7, "key": 3, "cost": 0.5})
    arrival = Arrival(str(tmp_path), 2, 0.001, first=5, job=1)
    i, key, cost, due = arrival(row)
    assert (i, key, cost) == (7, 3, 0.5)
    assert due == pytest.approx(max(file.stat().st_mtime for file in tmp_path.iterdir()) + 0.002)


def test_options_of_real_experiments_are_for_them_only(capsys) -> None:
    assert cli.main(["bench", "dkg-fig4", "--time-scale", "3"]) == 2
    assert "--time-scale is for experiments that run in Spark; dkg-fig4 does not" in capsys.readouterr().err
    assert cli.main(["bench", "dkg-fig12", "--time-scale", "0"]) == 2
    assert cli.main(["bench", "dkg-fig4", "--busy-wait"]) == 2
    assert "--busy-wait is for experiments that run in Spark; dkg-fig4 does not" in capsys.readouterr().err
    assert cli.main(["bench", "dkg-fig10", "--busy-wait", "--tuples", "1000"]) == 2
    assert "--busy-wait is not for it" in capsys.readouterr().err
    assert {"dkg-fig10", "dkg-fig10-sim", "dkg-fig11", "dkg-fig12", "posg-fig11", "posg-fig12"} <= set(
        prototypes_and_others()
    )


def prototypes_and_others():
    from ordstream.lab.evaluation import experiments

    return experiments()
