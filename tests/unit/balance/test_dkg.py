"""DKG and the groupings beside it: the listings by hand, costs, variants, merging, bytes, and what is
refused.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ordstream._core.balance import hashing, key_route
from ordstream.balance.baselines import PKG, Modulo, optimal_approximation, single_instance, universal
from ordstream.balance.dkg import DKG, DKGLearner, cost_function, schedule
from ordstream.balance.grouping import Grouping, KeyMap, SplitKeyMap, check_sent
from ordstream.balance.keys import key_word
from ordstream.balance.metrics import deviation, imbalance, regression, tuple_loads
from ordstream.balance.serial_form import SketchBytesError
from ordstream.errors import PlanError


def bucket(learner: DKGLearner, key: Any) -> int:
    return int(learner.hashes.cells(np.array([key_word(key)], dtype=np.uint64))[0])


# --- scheduling -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loads", "k", "placed", "sums"),
    [
        ([5, 4, 3, 3, 3], 2, [0, 1, 1, 0, 1], [8, 10]),  # LPT's classic loss: the optimum is 9, 9
        ([1, 5, 1], 2, [1, 0, 1], [5, 2]),
        ([2, 2, 2, 2], 3, [0, 1, 2, 0], [4, 2, 2]),  # ties: lower position, lowest instance
        ([0, 0, 0], 2, [0, 0, 0], [0, 0]),
        ([], 2, [], [0, 0]),
        ([7], 1, [0], [7]),
    ],
)
def test_schedule_by_hand(loads: list[float], k: int, placed: list[int], sums: list[float]) -> None:
    found, total = schedule(loads, k)
    assert (found.tolist(), total.tolist()) == (placed, sums)


@pytest.mark.parametrize(
    ("loads", "k"), [([1.0], 0), ([-1.0], 1), ([np.nan], 1), ([np.inf], 1), ([[1.0]], 1)]
)
def test_schedule_refuses(loads: Any, k: int) -> None:
    with pytest.raises(PlanError):
        schedule(loads, k)


# --- Listings 3.1 and 3.2 -------------------------------------------------------------------------


def test_learn_and_build_by_hand() -> None:
    """Bucket counts and the summary of Listing 3.1; lines 14 to 17 of Listing 3.2 done by hand on them."""
    learner = DKG(theta=0.2, mu=2, seed=4).learner(2)
    stream = ["hot"] * 50 + ["warm"] * 30 + [f"cold-{i}" for i in range(20)]
    learner.learn(stream)
    counts = [0] * 4
    for key in stream:
        counts[bucket(learner, key)] += 1
    assert learner.bucket_counts.tolist() == counts
    assert learner.summary.capacity == 10  # ceil(1/ε), ε = Θ/2
    found = learner.summary.heavy_hitters(0.2)
    assert [key for key, _, _ in found] == ["hot", "warm"]

    estimate = {key: count for key, count, _ in found}
    for key, count in estimate.items():
        counts[bucket(learner, key)] -= count
    counts = [max(0, count) for count in counts]
    items = [("hot", estimate["hot"]), ("warm", estimate["warm"])] + list(enumerate(counts))
    loads, expected = [0, 0], {}
    for name, load in sorted(items, key=lambda item: -item[1]):
        instance = loads.index(min(loads))
        expected[name] = instance
        loads[instance] += load

    key_map = learner.build()
    assert key_map.heavy == [("hot", expected["hot"]), ("warm", expected["warm"])]
    assert key_map.buckets.tolist() == [expected[b] for b in range(4)]
    for key in [*stream, "never seen"]:
        wanted = expected[key] if key in expected else expected[bucket(learner, key)]
        assert key_map.instance_of(key) == wanted
    assert key_map.route(pa.array(stream)).tolist() == [key_map.instance_of(key) for key in stream]


def test_defaults_are_the_papers() -> None:
    parameters = DKG()
    assert (parameters.theta, parameters.counter_error, parameters.mu, parameters.m) == (
        0.1,
        0.05,
        2,
        80_000,
    )
    learner = parameters.learner(5)
    assert (len(learner.bucket_counts), learner.summary.capacity) == (10, 20)


def test_a_learner_takes_m_tuples() -> None:
    learner = DKG(m=5).learner(2)
    assert learner.learn([1, 2, 3]) == 3
    assert not learner.full
    assert learner.learn(pa.array([4, 5, 6, 7])) == 2
    assert (learner.learnt, learner.full, learner.learn([8])) == (5, True, 0)
    assert int(learner.bucket_counts.sum()) == 5
    assert {key for key, _, _ in learner.summary.counters()} == {1, 2, 3, 4, 5}
    pairs = DKG(m=2).learner(2)
    assert pairs.learn((np.array([1, 2, 3]), pa.array(["a", "b", "c"]))) == 2
    assert {key for key, _, _ in pairs.summary.counters()} == {(1, "a"), (2, "b")}


def test_weights_count_in_place_of_tuples() -> None:
    """Learning from costs: a rare, dear key is a heavy hitter."""
    learner = DKG(theta=0.3, m=10_000).learner(2)
    learner.learn([f"cheap-{i}" for i in range(50)] + ["dear"], np.array([1] * 50 + [100]))
    assert learner.learnt == 150
    assert int(learner.bucket_counts.sum()) == 150
    assert [key for key, _ in learner.build().heavy] == ["dear"]
    limited = DKG(m=5).learner(1)
    assert limited.learn([1, 2, 3, 4], np.array([2, 2, 3, 1])) == 3
    assert limited.learnt == 7
    with pytest.raises(ValueError, match="negative"):
        limited.learn([1], np.array([-1]))
    with pytest.raises(ValueError, match="weights"):
        limited.learn([1, 2], np.array([1]))
    with pytest.raises(TypeError, match="Write measured costs in a finer unit"):
        limited.learn([1, 2], np.array([0.002, 0.5]))  # they were cut to 0
    with pytest.raises(OverflowError):
        DKG(m=2**62).learner(1).learn([1, 2, 3], np.array([2**62] * 3))


def test_heavy_hitters_may_have_to_be_guaranteed() -> None:
    """After 3 counters were taken over in turn, an estimate can reach Θm where the true count is 1."""
    stream = ["a", "b", "c", "d"] * 5
    assert len(DKG(theta=0.34, epsilon=0.335).fit(stream, 2).heavy) > 0
    assert DKG(theta=0.34, epsilon=0.335, guaranteed=True).fit(stream, 2).heavy == []


def test_nothing_learnt_spreads_the_buckets() -> None:
    for variant in ("dkg", "wosim", "pkg"):
        key_map = DKG(mu=2, variant=variant).fit([], 3)  # type: ignore[arg-type]
        assert key_map.heavy == []
        assert set(key_map.route(list(range(1000))).tolist()) == {0, 1, 2}


def test_quadratic_and_user_given_cost() -> None:
    """Squares: 6 alone against 4 and 3 (36 against 25); linear: 6 against 7."""
    stream = ["six"] * 6 + ["four"] * 4 + ["three"] * 3 + ["two"] * 2

    def placed(cost: Any) -> dict[Any, int]:
        return dict(DKG(theta=0.1, cost=cost).fit(stream, 2).heavy)

    assert placed("linear") == {"six": 0, "four": 1, "three": 1, "two": 0}
    assert placed("quadratic") == {"six": 0, "four": 1, "three": 1, "two": 1}
    assert placed(lambda f: f**2) == placed("quadratic")
    assert cost_function("quadratic")(np.array([1.0, 3.0])).tolist() == [1.0, 9.0]
    with pytest.raises(PlanError, match="cubic"):
        DKG(cost="cubic")  # type: ignore[arg-type]


def test_wosim_sends_sparse_keys_by_the_hash_function() -> None:
    stream = ["hot"] * 60 + [f"cold-{i}" for i in range(40)]
    learner = DKG(variant="wosim", theta=0.2).learner(4)
    learner.learn(stream)
    key_map = learner.build()
    assert len(key_map.buckets) == 4
    assert key_map.heavy == [("hot", 0)]
    for key in stream[60:]:
        assert key_map.instance_of(key) == bucket(learner, key)


def test_dkg_pkg_splits_heavy_hitters_only() -> None:
    stream = ["hot"] * 60 + [f"cold-{i}" for i in range(40)]
    key_map = DKG(variant="pkg", theta=0.2).fit(stream, 2)
    assert isinstance(key_map, SplitKeyMap)
    assert key_map.splits_keys
    assert [pair[0] for pair in key_map.pairs] == ["hot"]
    assert sorted(key_map.pairs[0][1:]) == [0, 1]  # halves of 30 against 40 sparse tuples: one on each
    received = [0, 0]
    cold = dict(zip(stream[60:], key_map.fresh().route(stream[60:]).tolist(), strict=True))
    _, first, second = key_map.pairs[0]
    for key, instance in zip(stream, key_map.route(stream).tolist(), strict=True):
        wanted = cold[key] if key != "hot" else second if received[second] < received[first] else first
        assert instance == wanted
        received[instance] += 1
    assert key_map.received.tolist() == received
    assert key_map.fresh().received.tolist() == [0, 0]
    with pytest.raises(TypeError):
        key_map.instance_of("hot")


@pytest.mark.parametrize(
    "wrong",
    [
        {"theta": 0.0},
        {"theta": 1.1},
        {"epsilon": 0.1},
        {"epsilon": 0.0},
        {"mu": 0},
        {"mu": 1.5},
        {"mu": 1e300},
        {"theta": 1e-300},
        {"epsilon": 1e-9},
        {"m": -1},
        {"variant": "other"},
    ],
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        DKG(**wrong)


def test_more_buckets_than_there_may_be_are_refused() -> None:
    """OverflowError, or "columns must be 1 to 2^31 - 1", from the core."""
    with pytest.raises(PlanError, match="mu=6e\\+07 buckets for each of 2 instances are more than"):
        DKG(mu=60_000_000).learner(2)


@pytest.mark.parametrize("cost", [lambda f: 3, lambda f: "x", lambda f: -f, lambda f: f * np.nan, np.sum])
@pytest.mark.parametrize("variant", ["dkg", "wosim", "pkg"])
def test_a_cost_that_gives_no_loads_is_told(cost: Any, variant: Any) -> None:
    """It was: zero-dimensional arrays cannot be concatenated."""
    with pytest.raises(PlanError, match="cost takes an array of frequencies and gives as many finite"):
        DKG(cost=cost, variant=variant).fit([1, 2, 2] * 9, 2)


@pytest.mark.parametrize(
    "build",
    [
        lambda k: DKG().learner(k),
        Modulo,
        universal,
        single_instance,
        PKG,
        lambda k: optimal_approximation([1], k),
    ],
)
def test_no_instances_are_refused(build: Any) -> None:
    with pytest.raises(PlanError, match="instances"):
        build(0)


# --- parallel learning ----------------------------------------------------------------------------


def test_merged_learners_stand_for_the_whole_stream() -> None:
    rng = np.random.default_rng(5)
    stream = np.minimum(rng.zipf(1.8, 20_000), 5_000)
    parameters = DKG(theta=0.05, mu=3)
    whole = parameters.learner(4)
    whole.learn(stream)
    merged = parameters.learner(4)
    for part in np.array_split(stream, 5):
        one = parameters.learner(4)
        one.learn(part)
        merged.merge(DKGLearner.from_bytes(one.to_bytes(), parameters))
    assert merged.bucket_counts.tolist() == whole.bucket_counts.tolist()
    assert merged.learnt == whole.learnt == 20_000
    # Every heavy hitter is found by both; their counts lie within the summary's error.
    true = np.bincount(stream)
    heavy = {key for key in range(len(true)) if true[key] >= 0.05 * len(stream)}
    assert heavy <= {key for key, _ in merged.build().heavy}
    for learner in (whole, merged):
        loads = tuple_loads(learner.build().route(stream), 4)
        assert (
            imbalance(loads)
            <= imbalance(tuple_loads(optimal_approximation(stream, 4).route(stream), 4)) + 5.0
        )


def test_only_equal_learners_merge() -> None:
    for other in (DKG(seed=1).learner(2), DKG(mu=3).learner(2), DKG().learner(3)):
        with pytest.raises(ValueError, match="same parameters"):
            DKG().learner(2).merge(other)


# --- baselines ------------------------------------------------------------------------------------


def test_modulo_and_sia_by_hand() -> None:
    assert Modulo(3).route(np.array([0, 1, 2, 3, 10, 2**40])).tolist() == [0, 1, 2, 0, 1, 2**40 % 3]
    assert Modulo(3).route(["a"]).tolist() == [key_word("a") % 3]
    assert single_instance(3).route(["a", 5, None]).tolist() == [0, 0, 0]


def test_universal_is_the_hash_function() -> None:
    functions = hashing.TwoUniversal(1, 7, seed=9)
    keys = np.arange(500)
    assert universal(7, 9).route(keys).tolist() == functions.cells(keys.astype(np.uint64)).tolist()


def test_o_apx_schedules_exact_frequencies() -> None:
    keys = ["a"] * 5 + ["b"] * 4 + ["c"] * 3 + ["d"] * 3 + ["e"] * 3
    key_map = optimal_approximation(keys, 2)
    assert sorted(tuple_loads(key_map.route(keys), 2).tolist()) == [8.0, 10.0]
    assert tuple_loads(optimal_approximation(keys, 2, "quadratic").route(keys), 2).sum() == 18
    assert 0 <= key_map.instance_of("unseen") < 2
    with pytest.raises(ValueError, match="words"):
        key_map.to_bytes()


def test_pkg_takes_the_less_loaded_of_two_choices() -> None:
    """Each key meets at most two instances; with the choices known, every decision is the definition's."""
    k, keys = 5, np.random.default_rng(1).integers(0, 30, 2_000)
    choices: dict[int, tuple[int, int]] = {}
    for key in range(30):
        word = np.array([key], dtype=np.uint64)
        first = int(key_route.route_two_choices(word, np.zeros(k, dtype=np.int64), 7)[0])
        others = np.zeros(k, dtype=np.int64)
        others[first] = 1
        choices[key] = (first, int(key_route.route_two_choices(word, others, 7)[0]))
    assert any(a == b for a, b in choices.values())
    received = [0] * k
    grouping = PKG(k, seed=7)
    for key, instance in zip(keys.tolist(), grouping.route(keys).tolist(), strict=True):
        first, second = choices[key]
        assert instance == (second if received[second] < received[first] else first)
        received[instance] += 1
    assert grouping.received.tolist() == received


GROUPINGS: dict[str, Any] = {
    "dkg": lambda k, keys: DKG(theta=0.2).fit(keys, k),
    "wosim": lambda k, keys: DKG(theta=0.2, variant="wosim").fit(keys, k),
    "dkg_pkg": lambda k, keys: DKG(theta=0.2, variant="pkg").fit(keys, k),
    "modulo": lambda k, keys: Modulo(k),
    "universal": lambda k, keys: universal(k),
    "sia": lambda k, keys: single_instance(k),
    "o-apx": lambda k, keys: optimal_approximation(keys, k),
    "pkg": lambda k, keys: PKG(k),
}


@pytest.mark.parametrize("name", GROUPINGS)
@pytest.mark.parametrize("k", [1, 2, 7])
def test_every_grouping_is_total_and_in_range(name: str, k: int) -> None:
    keys = [1, 2, 2, 2, "a", b"a", None, (1, "a"), 2.5, -1, 2**64 - 1]
    grouping = GROUPINGS[name](k, keys)
    assert isinstance(grouping, Grouping)
    assert grouping.instances == k
    routes = grouping.route(keys)
    assert routes.dtype == np.int32
    assert len(routes) == len(keys)
    assert 0 <= routes.min() <= routes.max() < k
    assert len(grouping.route([])) == 0
    loads = tuple_loads(routes, k)
    assert loads.sum() == len(keys)
    if k == 1:
        assert imbalance(loads) == 0.0
    if name == "sia":
        assert imbalance(loads) == pytest.approx(100.0 * (k - 1))


# --- bytes ----------------------------------------------------------------------------------------


def test_maps_survive_bytes_and_processes() -> None:
    stream = ["hot"] * 60 + [f"cold-{i}" for i in range(40)] + [(1, "x"), None, 5]
    for variant, kind in (("dkg", KeyMap), ("wosim", KeyMap), ("pkg", SplitKeyMap)):
        key_map = DKG(theta=0.2, variant=variant).fit(stream, 3)  # type: ignore[arg-type]
        again = kind.from_bytes(key_map.to_bytes())
        pickled = pickle.loads(pickle.dumps(key_map))
        expected = key_map.route(stream).tolist()
        assert again.route(stream).tolist() == pickled.route(stream).tolist() == expected
        assert again.heavy == key_map.heavy
        assert again.to_bytes() == key_map.to_bytes()  # counts of a split map have moved alike
    key_map = DKG(theta=0.2).fit(stream, 3)
    code = (
        "from ordstream.balance.grouping import KeyMap;"
        f"given = bytes.fromhex('{key_map.to_bytes().hex()}')\n"
        f"print(KeyMap.from_bytes(given).route({stream[:-3]!r}).tolist())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str(key_map.route(stream[:-3]).tolist())


def test_foreign_bytes_are_refused() -> None:
    key_map = DKG().fit(["a"] * 10, 2)
    split = DKG(variant="pkg").fit(["a"] * 10, 2)
    learner = DKG().learner(2)
    learner.learn([1, 2, 3])
    for read, data in [
        (KeyMap.from_bytes, split.to_bytes()),
        (SplitKeyMap.from_bytes, key_map.to_bytes()),
        (KeyMap.from_bytes, key_map.to_bytes()[:-1]),
        (KeyMap.from_bytes, b"\x00" * 100),
        (lambda data: DKGLearner.from_bytes(data, DKG()), key_map.to_bytes()),
        (lambda data: DKGLearner.from_bytes(data, DKG(seed=1)), learner.to_bytes()),
        (lambda data: DKGLearner.from_bytes(data, DKG(mu=3)), learner.to_bytes()),
        (lambda data: DKGLearner.from_bytes(data, DKG(theta=0.2)), learner.to_bytes()),
    ]:
        with pytest.raises(SketchBytesError):
            read(data)


def test_a_map_must_fit_its_instances() -> None:
    functions = hashing.TwoUniversal(1, 2)
    for buckets, heavy in [
        ([0, 2], []),
        ([0], []),
        ([0, 1], [("a", 2)]),
        ([0, 1], [("a", 0), ("a", 1)]),
        ([0, -1], []),
    ]:
        with pytest.raises(ValueError, match=r"instance|bucket|twice"):
            KeyMap(2, functions, buckets, heavy)


# --- metrics --------------------------------------------------------------------------------------


def test_metrics_by_hand() -> None:
    assert tuple_loads([0, 0, 1], 3).tolist() == [2.0, 1.0, 0.0]
    assert tuple_loads([0, 0, 1], 2, [1.5, 2.0, 3.0]).tolist() == [3.5, 3.0]
    assert imbalance([2, 1, 0]) == pytest.approx(100.0)
    assert imbalance([5, 5]) == imbalance([0, 0]) == 0.0
    assert deviation([2, 4]) == 1.0  # population: divided by k
    assert regression([2, 3, 4], [100.0, 200.0, 300.0]) == pytest.approx((100.0, -100.0))
    with pytest.raises(PlanError):
        tuple_loads([0, 3], 3)


def test_no_routes_are_no_load():
    assert tuple_loads([], 3).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("key", [2**64, -(2**63) - 1, 10**5000], ids=["2^64", "-2^63-1", "10^5000"])
def test_an_integer_of_more_than_64_bits_is_no_key(key):
    with pytest.raises(OverflowError, match=rf"between .* 2\^64 - 1; this one has {key.bit_length()} bits"):
        DKG().fit([key], 4)
    DKG().fit([2**64 - 1, -(2**63)], 4)


def test_a_key_with_exactly_the_share_theta_is_a_heavy_hitter() -> None:
    """Section 3.1: f >= Theta m. In floats 0.07 * 100 is 7.000000000000001."""
    for theta, count in ((0.07, 7), (0.29, 29), (0.57, 57), (0.58, 58)):
        keys = [-1] * count + list(range(100 - count))
        learner = DKG(theta=theta, epsilon=0.01).learner(2)
        learner.learn(keys)
        assert [key for key, _ in learner.build().heavy] == [-1]
        learner = DKG(theta=theta, epsilon=0.01).learner(2)
        learner.learn([-1] * (count - 1) + list(range(101 - count)))
        assert learner.build().heavy == []


def test_a_map_of_words_says_that_it_has_no_bytes() -> None:
    given = optimal_approximation([1, 1, 2, 3], 2)
    assert not given.has_bytes
    assert universal(2, seed=1).has_bytes
    with pytest.raises(PlanError, match=r"has no bytes, and can't be sent.*Use od\.DKG"):
        check_sent(given)
    check_sent(universal(2, seed=1))
    check_sent("dkg")
