"""DKG's experiments: the short ways are the long ones, every figure runs, and the paper's statements
that need few streams hold.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ordstream.balance.baselines import optimal_approximation, universal
from ordstream.balance.dkg import DKG
from ordstream.balance.keys import key_words
from ordstream.balance.metrics import imbalance, tuple_loads
from ordstream.lab.evaluation import dkg
from ordstream.lab.evaluation.experiment import Options, Result

FIGURES = {experiment.name: experiment for experiment in dkg.EXPERIMENTS}


@pytest.mark.parametrize("variant", ["dkg", "wosim", "pkg"])
def test_the_trainer_builds_what_learning_tuple_by_tuple_builds(variant: Any) -> None:
    given = dkg.stream(3, 1, 1.5)
    for m in (50, 80_000):
        trainer = dkg.Trainer(given, m)
        for k, theta, mu in [(2, 0.1, 2), (5, 0.02, 3), (5, 0.4, 1)]:
            parameters = DKG(theta=theta, mu=mu, m=m, variant=variant, seed=given.hash_seed)
            learner = parameters.learner(k)
            for part in np.array_split(given.labels[given.training], 7):
                learner.learn(part)
            assert (
                trainer.build(k, theta=theta, mu=mu, variant=variant).to_bytes()
                == learner.build().to_bytes()
            )


def key_cost_loads(keys: Any, routes: npt.ArrayLike, instances: int, cost: Any) -> npt.NDArray[np.float64]:
    """Load of each instance when a key that occurs f times there costs `cost(f)` there (DKG, section 5.2: f
    squared).

    Parameters
    ----------
    keys : column of keys (m)
    routes : int array (m)
    instances : int
        k.
    cost : callable
        Frequencies (float64 array) to loads (array of the same length).
    """
    placed = np.asarray(routes, dtype=np.int64)
    words, key = np.unique(key_words(keys), return_inverse=True)
    pairs, counts = np.unique(key.astype(np.int64) * instances + placed, return_counts=True)
    return tuple_loads(
        pairs % instances if len(words) else pairs, instances, cost(counts.astype(np.float64))
    )


def test_loads_by_key_cost_by_hand() -> None:
    """ "a" three times on 0, "b" twice on 0 and once on 1: 9 + 4 and 1 under a quadratic cost."""
    assert key_cost_loads(list("aaabbb"), [0, 0, 0, 0, 0, 1], 2, np.square).tolist() == [13.0, 1.0]
    assert key_cost_loads([], [], 2, np.square).tolist() == [0.0, 0.0]


def test_loads_by_item_are_loads_by_tuple() -> None:
    given = dkg.stream(3, 2, 1.0)
    keys = given.labels[given.validation]
    assert len(given.training) == 80_000
    assert len(keys) == 20_000
    assert 1 <= given.labels.min() <= given.labels.max() <= 1_000_000
    for key_map in (
        universal(5, 1),
        DKG().fit(given.labels[given.training], 5),
        optimal_approximation(keys, 5),
    ):
        routes = key_map.route(keys)
        assert given.loads(key_map).tolist() == tuple_loads(routes, 5).tolist()
        assert (
            given.loads(key_map, "quadratic").tolist() == key_cost_loads(keys, routes, 5, np.square).tolist()
        )


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """Every figure over few streams."""
    few = {"dkg-fig8": 1, "dkg-fig7": 2, "dkg-fig13": 2, "dkg-fig10-sim": 2}
    return {name: experiment.run(Options(few.get(name, 4), seed=5)) for name, experiment in FIGURES.items()}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_rows_charts_and_claims(name: str, results: dict[str, Result]) -> None:
    result = results[name]
    assert result.charts
    assert result.claims
    assert result.rows
    assert all(len(row) == len(result.columns) for row in result.rows)
    assert all(np.isfinite(value) for row in result.rows for value in row if not isinstance(value, str))
    for start in [i for i, column in enumerate(result.columns) if str(column).endswith("Best Case")]:
        assert [str(column).rsplit(" ", 2)[0] for column in result.columns[start : start + 3 : 2]] == [
            str(result.columns[start]).rsplit(" ", 2)[0]
        ] * 2
        for row in result.rows:
            low, mean, high = row[start : start + 3]
            assert low <= mean * (1 + 1e-12) + 1e-9
            assert mean <= high * (1 + 1e-12) + 1e-9


def test_table_1_names_and_means(results: dict[str, Result]) -> None:
    """O-apx and DKG within 0.7 of the paper's a on a few streams already; SIA exactly."""
    result = results["dkg-table1"]
    names = ["O-apx", "Universal Mean", "Universal Worst Case", "DKG Mean", "DKG Worst Case", "SIA"]
    assert [row[0] for row in result.rows] == names
    assert [" ".join(line.split()[:-2]) for line in result.lines] == names
    a = dict(zip(names, result.column("a"), strict=True))
    b = dict(zip(names, result.column("b"), strict=True))
    for name in ("O-apx", "DKG Mean"):
        assert abs(a[name] - 60.7) <= 1.0
        assert abs(b[name] + 100) <= 1.0
    assert (a["SIA"], b["SIA"]) == pytest.approx((100.0, -100.0))


def test_figures_2_and_3(results: dict[str, Result]) -> None:
    two, three = results["dkg-fig2"], results["dkg-fig3"]
    assert two.column("k") == list(range(1, 11))
    np.testing.assert_allclose(two.column("SIA Mean"), [100 * (k - 1) for k in range(1, 11)])
    np.testing.assert_allclose(three.column("SIA Mean"), [20_000 * np.sqrt(k - 1) / k for k in range(1, 11)])
    np.testing.assert_allclose(two.column("DKG Mean"), two.column("O-apx Mean"), atol=1.5)
    assert all(claim.holds for claim in three.claims)


def test_dkg_is_never_better_than_the_best_item_alone() -> None:
    """λ of O-apx is k p1 - 1 once one item exceeds the mean."""
    given = dkg.stream(1, 1, 2.0)
    keys = given.labels[given.validation]
    share = np.bincount(given.validation).max() / len(keys)
    for k in range(2, 11):
        assert imbalance(given.loads(optimal_approximation(keys, k))) == pytest.approx(100 * (k * share - 1))
