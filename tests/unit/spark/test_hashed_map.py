"""A map of Spark's hash (`ordstream.spark.hashed_map`), from counts; tests/spark has the rest."""

import numpy as np
import pytest

import ordstream as od
from ordstream.balance.dkg import schedule

pytest.importorskip("pyspark")

from ordstream.spark.grouping import Choice
from ordstream.spark.hashed_map import LEAST_TRACKED, MOST_TRACKED, scheduled_by, tracked


def counted(seed, buckets):
    """Hashes with their frequencies, and what a query finds of them."""
    rng = np.random.default_rng(seed)
    hashes = rng.integers(-(2**63), 2**63 - 1, 300)
    frequency = np.minimum(rng.zipf(1.4, 300), 5_000)
    counts = np.zeros(buckets, dtype=np.int64)
    np.add.at(counts, hashes % buckets, frequency)
    return hashes, frequency, counts


def sent(found, hashes, frequency, nodes):
    """Rows per node, row by row."""
    heavy, buckets, loads = dict(found.by_map.heavy), found.by_map.buckets, np.zeros(nodes)
    for one, n in zip(hashes.tolist(), frequency.tolist(), strict=True):
        loads[heavy.get(one, buckets[one % len(buckets)])] += n
    return loads


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("variant", ["dkg", "wosim"])
def test_nodes_get_what_was_scheduled(seed, variant):
    nodes, parameters = 4, od.DKG(theta=0.05, mu=3, variant=variant)
    hashes, frequency, counts = counted(seed, nodes * (3 if variant == "dkg" else 1))
    found = scheduled_by(
        counts, list(zip(hashes.tolist(), frequency.tolist(), strict=True)), parameters, nodes
    )
    assert found.rows == frequency.sum()
    assert found.loads.tolist() == sent(found, hashes, frequency, nodes).tolist()
    by_hash = np.bincount(hashes % nodes, weights=frequency, minlength=nodes)
    assert found.by_hash.tolist() == by_hash.tolist()
    assert {one for one, _ in found.by_map.heavy} == set(
        hashes[frequency >= 0.05 * frequency.sum()].tolist()
    )
    if variant == "dkg":  # LPT of the heavy hitters and what the buckets hold without them
        rest = counts.copy()
        heavy = frequency >= 0.05 * frequency.sum()
        np.subtract.at(rest, hashes[heavy] % len(counts), frequency[heavy])
        assert found.loads.max() == schedule(np.concatenate([frequency[heavy], rest]), nodes)[1].max()


def test_buckets_of_which_nothing_is_known_go_to_nodes_in_turn():
    found = scheduled_by(np.zeros(8, dtype=np.int64), [], od.DKG(), 4)
    assert sorted(found.by_map.buckets) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert (found.rows, found.by_map.heavy) == (0, ())


def test_heavy_hitters_that_are_too_rare_for_spark_s_sketch_are_learnt_by_rows():
    """`approx_top_k` refuses to track more items."""
    assert tracked(od.DKG(theta=0.5)) == LEAST_TRACKED
    assert tracked(od.DKG(theta=0.5, epsilon=4e-6)) == MOST_TRACKED
    assert Choice("f", od.DKG(theta=0.5, epsilon=4e-6)).may_be_sparks(2)
    assert not Choice("f", od.DKG(theta=0.5, epsilon=3e-6)).may_be_sparks(2)


@pytest.mark.parametrize("many", [{"theta": 1e-4}, {"mu": 5_001}])
def test_a_map_of_more_than_an_expression_holds_is_looked_up_by_rows(many):
    """Thousands of heavy hitters were a StackOverflowError of Spark's."""
    assert not Choice("f", od.DKG(**many)).may_be_sparks(2)
    assert Choice("f", od.DKG(theta=1 / 500, mu=5_000.0)).may_be_sparks(2)


def test_buckets_are_counted_in_whole_numbers():
    """Given as 2.0 they were a TypeError of NumPy's inside `apply`."""
    parameters = od.DKG(mu=2.0)
    assert (parameters.mu, type(parameters.mu)) == (2, int)


def test_a_share_of_theta_is_a_heavy_hitter():
    found = scheduled_by(np.array([10, 90]), [(0, 10), (1, 89)], od.DKG(theta=0.1, mu=1), 2)
    assert {one for one, _ in found.by_map.heavy} == {0, 1}


def test_what_a_sketch_takes_for_more_than_its_bucket_has_leaves_nothing_of_it():
    found = scheduled_by(np.array([10, 90]), [(0, 12), (1, 95)], od.DKG(theta=0.1, mu=1), 2)
    assert sorted(found.loads.tolist()) == [12, 95]


@pytest.mark.parametrize(("cost", "fourth"), [("linear", 0), ("quadratic", 1), (np.square, 1)])
def test_costs_weigh_what_is_scheduled(cost, fourth):
    """By frequencies 6 | 4 + 3, then 3 to the first; by their squares 36 | 16 + 9 + 9."""
    parameters = od.DKG(theta=0.9, mu=3, cost=cost)
    found = scheduled_by(np.array([6, 4, 3, 3, 0, 0]), [], parameters, 2)
    assert found.by_map.buckets[:4] == (0, 1, 1, fourth)


def test_a_hash_with_exactly_the_share_theta_is_a_heavy_hitter():
    counts = np.array([100, 0, 0, 0])
    for count, heavy in ((7, 1), (6, 0)):
        found = scheduled_by(counts, [(4, count)], od.DKG(theta=0.07), 2)
        assert len(found.by_map.heavy) == heavy
