"""DKG's simulation results (sections 5.2, 5.3 and 6): Table 1, Figures 2 to 10, 13 and 14.

Setting (section 5.1): 100,000 tuples over n = 10,000 items; each stream gives the items other labels, out of
1..100 n, and draws another hash function; the first m = 80,000 tuples train, the last 20,000 are routed and
measured. ε = Θ/2.

A static map sends all tuples with one label to one instance, so loads are computed per item and not per
tuple; and for one stream the bucket counts of every k and µ come from the items' frequencies, one
Space-Saving pass serves all maps with the same Θ. Both are what `DKGLearner.learn` and `route` give tuple by
tuple (tests/unit/lab/test_evaluation_dkg.py).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ordstream.balance.baselines import PKG, Modulo, optimal_approximation, universal
from ordstream.balance.dkg import DKG
from ordstream.balance.metrics import deviation, imbalance, regression, tuple_loads
from ordstream.lab.evaluation.dkg_streams import (
    KS,
    MU,
    THETA,
    VALIDATION,
    M,
    Spread,
    Trainer,
    curves,
    measure_over_k,
    spreads,
    stream,
    wide,
)
from ordstream.lab.evaluation.experiment import (
    Chart,
    Claim,
    Curve,
    Experiment,
    Options,
    Result,
    over_streams,
)
from ordstream.lab.simulation import streams

PAPER_KS = tuple(range(2, 11))  # Table 1's regressions
THETAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
MUS = tuple(range(1, 11))
ALPHAS = (1.0, 2.0, 3.0)
#: Training set sizes of Figure 9.
SIZES = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 80_000)
#: Probability of the most frequent item (section 5.2), where Figure 7 breaks.
BREAKS = {1.0: 0.1, 2.0: 0.6, 3.0: 0.8}


# --- over k: Table 1, Figures 2 to 5 --------------------------------------------------------------

OVER_K = ("O-apx", "Universal", "DKG", "SIA")


#: Table 1 of the paper: algorithm -> (a, b, allowed difference of a). Worst cases grow with the number of
#: streams, 10,000 there.
TABLE_1 = {
    "O-apx": (60.7, -100.0, 0.7),
    "Universal Mean": (60.7, -60.7, 1.0),
    "Universal Worst Case": (87.3, -73.0, 3.0),
    "DKG Mean": (60.7, -100.0, 0.7),
    "DKG Worst Case": (62.0, -100.0, 3.0),
    "SIA": (100.0, -100.0, 1.0),
}


def table_1_values(by_name: dict[str, Spread]) -> dict[str, npt.NDArray[np.float64]]:
    return {
        "O-apx": by_name["O-apx"].mean,
        "Universal Mean": by_name["Universal"].mean,
        "Universal Worst Case": by_name["Universal"].high,
        "DKG Mean": by_name["DKG"].mean,
        "DKG Worst Case": by_name["DKG"].high,
        "SIA": by_name["SIA"].mean,
    }


def table1(options: Options) -> Result:
    """Table 1: regression lines of λ over k = 2..10."""
    by_name = spreads(over_streams(measure_over_k, options, 2.0, "linear"), OVER_K, 0)
    first = KS.index(PAPER_KS[0])
    rows, claims = [], []
    for name, values in table_1_values(by_name).items():
        a, b = regression(PAPER_KS, values[first:])
        paper_a, paper_b, allowed = TABLE_1[name]
        rows.append([name, a, b, paper_a, paper_b])
        claims.append(
            Claim(
                f"{name}: a = {paper_a:g} ± {allowed:g} (b = {paper_b:g}) in the paper",
                f"a = {a:.1f}, b = {b:.1f}",
                abs(a - paper_a) <= allowed,
            )
        )
    lines = [f"{name:<21} {a:7.1f} {b:7.1f}" for name, a, b, _, _ in rows]
    xs = np.array(PAPER_KS)
    chart = Chart(
        "k",
        "imbalance λ (%)",
        [Curve(f"{name}: {a:.1f} k {b:+.1f}", xs, a * xs + b, style="-") for name, a, b, _, _ in rows],
    )
    return Result(["Algorithm", "a", "b", "paper a", "paper b"], rows, [chart], claims, lines)


def fig2(options: Options) -> Result:
    """Figure 2: λ over k, Zipf-2."""
    by_name = spreads(over_streams(measure_over_k, options, 2.0, "linear"), OVER_K, 0)
    columns, rows = wide("k", KS, by_name)
    chart = Chart("number of instances k", "imbalance λ (%)", curves(KS, by_name, ("Universal", "DKG")))
    o_apx, dkg, uni, sia = by_name["O-apx"].mean, by_name["DKG"], by_name["Universal"], by_name["SIA"].mean
    mean_gap = float(np.abs(dkg.mean - o_apx).max())
    worst_gap = float((dkg.high - o_apx).max())
    uni_gap = float((uni.mean - dkg.mean)[1:].min())
    slope = [regression(PAPER_KS, line[1:])[0] for line in (uni.high, sia, o_apx)]
    claims = [
        Claim(
            "DKG mean matches O-apx", f"largest difference over k: {mean_gap:.2f} points", mean_gap <= 1.0
        ),
        Claim(
            "the gap between DKG worst case and O-apx is little",
            f"at most {worst_gap:.1f} points",
            worst_gap <= 25.0,
        ),
        Claim(
            "noteworthy gap between DKG and Universal mean",
            f"at least {uni_gap:.1f} points for k >= 2",
            uni_gap >= 10.0,
        ),
        Claim(
            "Universal worst case grows more like SIA than like O-apx",
            f"slopes {slope[0]:.1f}, {slope[1]:.1f}, {slope[2]:.1f}",
            abs(slope[0] - slope[1]) < abs(slope[0] - slope[2]),
        ),
        Claim("SIA wastes 900 % at k = 10", f"{sia[-1]:.0f} %", bool(np.isclose(sia[-1], 900.0))),
    ]
    return Result(columns, rows, [chart], claims)


def fig3(options: Options) -> Result:
    """Figure 3: σ over k, Zipf-2."""
    by_name = spreads(over_streams(measure_over_k, options, 2.0, "linear"), OVER_K, 1)
    columns, rows = wide("k", KS, by_name)
    chart = Chart(
        "number of instances k", "standard deviation σ (tuples)", curves(KS, by_name, ("Universal", "DKG"))
    )
    o_apx, sia = by_name["O-apx"].mean[1:], by_name["SIA"].mean[1:]  # from k = 2
    peak = PAPER_KS[int(np.argmax(o_apx))]
    falls = bool((np.diff(o_apx[2:]) < 0).all())
    rises = bool((np.diff(o_apx[:3]) > 0).all())
    gap = sia - o_apx
    claims = [
        Claim(
            "σ of O-apx grows from k = 2 to k = 4, then decreases",
            f"largest at k = {peak}",
            peak == 4 and falls and rises,
        ),
        Claim("σ of SIA decreases with k", f"{sia[0]:.0f} to {sia[-1]:.0f}", bool((np.diff(sia) < 0).all())),
        Claim(
            "the gap between SIA and O-apx shrinks with k",
            f"{gap[0]:.0f} to {gap[-1]:.0f}",
            bool((np.diff(gap) < 0).all()),
        ),
    ]
    return Result(columns, rows, [chart], claims)


def measure_sigma(seed: int, number: int, ks: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """σ of DKG and Universal for each k, Zipf-2: array (len(ks), 2)."""
    given = stream(seed, number, 2.0)
    trainer = Trainer(given)
    maps = [(trainer.build(k), universal(k, given.hash_seed)) for k in ks]
    return np.array([[deviation(given.loads(key_map)) for key_map in pair] for pair in maps])


def fig4(options: Options) -> Result:
    """Figure 4: distribution of σ over the streams, rounded to multiples of 200, Zipf-2."""
    ks = (2, 5)
    found = np.array(over_streams(measure_sigma, options, ks))
    rounded = (np.rint(found / 200) * 200).astype(np.int64)
    values = np.arange(0, rounded.max() + 200, 200)
    names = [f"{name} k={k}" for k in ks for name in ("DKG", "Universal")]
    counts = {
        name: np.array([int((rounded[:, i // 2, i % 2] == value).sum()) for value in values])
        for i, name in enumerate(names)
    }
    rows = [[int(value)] + [int(counts[name][i]) for name in names] for i, value in enumerate(values)]
    charts = [
        Chart(
            "standard deviation σ (tuples)",
            "streams",
            [Curve(f"{name} k={k}", values, counts[f"{name} k={k}"]) for name in ("DKG", "Universal")],
            f"k = {k}",
            "bar",
        )
        for k in ks
    ]
    claims = []
    for i, k in enumerate(ks):
        dkg, uni = found[:, i, 0], found[:, i, 1]
        claims.append(
            Claim(
                f"k={k}: Universal does no better than the worst result of DKG (rounded)",
                f"best Universal {uni.min():.0f}, worst DKG {dkg.max():.0f}",
                bool(np.rint(uni.min() / 200) >= np.rint(dkg.max() / 200)),
            )
        )
        claims.append(
            Claim(
                f"k={k}: DKG's σ lies in a small interval, Universal's in a large one",
                f"{dkg.min():.0f} to {dkg.max():.0f} against {uni.min():.0f} to {uni.max():.0f}",
                bool(np.ptp(dkg) < 0.5 * np.ptp(uni)),
            )
        )
    return Result(["σ", *names], rows, charts, claims)


def fig5(options: Options) -> Result:
    """Figure 5: σ over k, Zipf-1, quadratic cost."""
    by_name = spreads(over_streams(measure_over_k, options, 1.0, "quadratic"), OVER_K, 1)
    columns, rows = wide("k", KS, by_name)
    chart = Chart(
        "number of instances k", "standard deviation σ (load)", curves(KS, by_name, ("Universal", "DKG"))
    )
    # k = 1 is left out: no load deviates there.
    o_apx, sia = by_name["O-apx"].mean[1:], by_name["SIA"].mean[1:]
    dkg, dkg_worst = by_name["DKG"].mean[1:], by_name["DKG"].high[1:]
    universal_mean, universal_worst = by_name["Universal"].mean[1:], by_name["Universal"].high[1:]
    early, late = (dkg / o_apx)[:3], (dkg / o_apx)[3:]
    gap, better, near = dkg_worst / dkg, universal_mean / dkg_worst, universal_worst / sia
    claims = [
        Claim(
            "DKG mean does not stick to O-apx for k < 5",
            f"{early.min():.2f} to {early.max():.2f} times O-apx; at most {late.max():.2f} from k = 5",
            bool(early.max() > 1.05),
        ),
        Claim(
            "sizeable gap between DKG mean and worst case",
            f"worst / mean up to {gap.max():.2f}",
            bool(gap.max() > 1.05),
        ),
        Claim(
            "Universal mean does only slightly better than DKG worst case",
            f"{better.min():.2f} to {better.max():.2f} times it",
            bool(0.75 <= better.mean() <= 1.0),
        ),
        Claim(
            "Universal worst case is pretty close to SIA",
            f"at least {near.min():.2f} times it",
            bool(near.min() > 0.75),
        ),
    ]
    return Result(columns, rows, [chart], claims)


# --- over µ, Θ and m: Figures 6 to 9 --------------------------------------------------------------


def measure_parameters(
    seed: int, number: int, alphas: tuple[float, ...], k: int, settings: tuple[tuple[float, int, int], ...]
) -> npt.NDArray[np.float64]:
    """(λ, σ) of DKG for each (Θ, µ, m) and each alpha: array (len(settings), len(alphas), 2)."""
    found = np.empty((len(settings), len(alphas), 2))
    for j, alpha in enumerate(alphas):
        given = stream(seed, number, alpha)
        trainers: dict[int, Trainer] = {}
        for i, (theta, mu, m) in enumerate(settings):
            trainer = trainers.setdefault(m, Trainer(given, m))
            loads = given.loads(trainer.build(k, theta=theta, mu=mu))
            found[i, j] = imbalance(loads), deviation(loads)
    return found


ZIPFS = tuple(f"Zipf-{alpha:g}" for alpha in ALPHAS)


def fig6(options: Options) -> Result:
    """Figure 6: λ over µ, Θ = 1, k = 2."""
    settings = tuple((1.0, mu, M) for mu in MUS)
    by_name = spreads(over_streams(measure_parameters, options, ALPHAS, 2, settings), ZIPFS, 0)
    columns, rows = wide("µ", MUS, by_name)
    chart = Chart("µ", "imbalance λ (%)", curves(MUS, by_name, ZIPFS))
    claims = []
    for name, one in by_name.items():
        gains = -np.diff(one.mean)
        claims.append(
            Claim(
                f"{name}: going from µ = 1 to 2 decreases the mean most",
                f"{one.mean[0]:.1f} to {one.mean[1]:.1f} ({one.mean[-1]:.1f} at µ = {MUS[-1]}); next "
                f"largest gain {gains[1:].max():.1f}",
                bool(gains[0] > gains[1:].max()),
            )
        )
        claims.append(
            Claim(
                f"{name}: the worst case is less affected by µ than the mean",
                f"worst {one.high[0]:.1f} to {one.high[1]:.1f} ({one.high[-1]:.1f})",
                bool(one.high[1] / one.high[0] > one.mean[1] / one.mean[0]),
            )
        )
    return Result(columns, rows, [chart], claims)


def fig7(options: Options) -> Result:
    """Figure 7: λ over Θ, µ = 1, k = 2."""
    settings = tuple((theta, 1, M) for theta in THETAS)
    by_name = spreads(over_streams(measure_parameters, options, ALPHAS, 2, settings), ZIPFS, 0)
    columns, rows = wide("Θ", THETAS, by_name)
    chart = Chart("Θ", "imbalance λ (%)", curves(THETAS, by_name, ZIPFS))
    claims = []
    for alpha, name in zip(ALPHAS, ZIPFS, strict=True):
        at = THETAS.index(BREAKS[alpha])
        for part, line in (("mean", by_name[name].mean), ("worst case", by_name[name].high)):
            drops = np.diff(line)  # value above minus value at Θ
            claims.append(
                Claim(
                    f"{name}: the {part} drops once Θ reaches {BREAKS[alpha]:g}",
                    f"{line[at + 1]:.1f} to {line[at]:.1f}; {line[0]:.1f} at Θ = {THETAS[0]:g}",
                    bool(np.argmax(drops) == at),
                )
            )
        if alpha >= 2:
            one = by_name[name]
            gap = float(one.high[at] - one.mean[at])
            claims.append(
                Claim(
                    f"{name}: mean and worst case are very close there",
                    f"{gap:.2f} points apart",
                    gap <= 5.0,
                )
            )
    return Result(columns, rows, [chart], claims)


def fig8(options: Options) -> Result:
    """Figure 8: σ over Θ and µ, k = 5."""
    settings = tuple((theta, mu, M) for theta in THETAS for mu in MUS)
    by_name = spreads(over_streams(measure_parameters, options, ALPHAS, 5, settings), ZIPFS, 1)
    columns = [
        "Θ",
        "µ",
        *(f"{name} {part}" for name in ZIPFS for part in ("Best Case", "Mean", "Worst Case")),
    ]
    rows = [
        [theta, mu]
        + [
            float(part[i])
            for name in ZIPFS
            for part in (by_name[name].low, by_name[name].mean, by_name[name].high)
        ]
        for i, (theta, mu, _) in enumerate(settings)
    ]
    shape = (len(THETAS), len(MUS))
    charts, claims = [], []
    for part in ("mean", "high"):
        for name in ZIPFS:
            cells = getattr(by_name[name], part).reshape(shape)
            what = "mean" if part == "mean" else "worst case"
            charts.append(
                Chart("µ", "Θ", title=f"{name}, {what} σ", kind="heat", cells=(THETAS, MUS, cells))
            )
    flat = by_name["Zipf-1"].mean.reshape(shape)
    by_mu, by_theta = float(np.ptp(flat, axis=1).mean()), float(np.ptp(flat[1:], axis=0).mean())
    claims.append(
        Claim(
            "Zipf-1: µ drives σ, Θ (from 0.1) has a negligible impact",
            f"mean σ moves by {by_mu:.0f} over µ, by {by_theta:.0f} over Θ",
            by_theta < 0.5 * by_mu,
        )
    )
    for alpha, name in list(zip(ALPHAS, ZIPFS, strict=True))[1:]:
        at = THETAS.index(BREAKS[alpha])
        for what, cells in (
            ("mean", by_name[name].mean.reshape(shape)),
            ("worst case", by_name[name].high.reshape(shape)),
        ):
            reached = cells[: at + 1, 1:]  # Θ at or below the item's probability, µ >= 2
            gain = float(reached.max() / reached.min() - 1)
            lost = float(cells[at + 1 :].mean() / reached.mean() - 1)
            claims.append(
                Claim(
                    f"{name}: once Θ reaches {BREAKS[alpha]:g}, there is not much to gain ({what} σ)",
                    f"{100 * gain:.1f} % between best and worst setting with µ >= 2; above it σ is "
                    f"{100 * lost:.0f} % higher",
                    gain < 0.1,
                )
            )
    return Result(columns, rows, charts, claims)


#: Figure 9: training tuples within which the paper says that DKG has learnt.
LEARNT = {3.0: 100, 2.0: 1_000, 1.0: 10_000}


def fig9(options: Options) -> Result:
    """Figure 9: σ over the size m of the training set, k = 2."""
    settings = tuple((THETA, MU, m) for m in SIZES)
    by_name = spreads(over_streams(measure_parameters, options, ALPHAS, 2, settings), ZIPFS, 1)
    columns, rows = wide("m", SIZES, by_name)
    chart = Chart(
        "training tuples m", "standard deviation σ (tuples)", curves(SIZES, by_name, ZIPFS), log_x=True
    )
    claims = []
    for alpha, name in zip(ALPHAS, ZIPFS, strict=True):
        mean, at = by_name[name].mean, SIZES.index(LEARNT[alpha])
        # Converged: within 1 % of the mean load of what 80,000 tuples give.
        near = np.abs(mean - mean[-1]) <= 0.01 * VALIDATION / 2
        first = SIZES[int(np.flatnonzero(~near)[-1]) + 1] if not near.all() else SIZES[0]
        claims.append(
            Claim(
                f"{name}: {LEARNT[alpha]:,} training tuples are enough",
                f"mean σ {mean[at]:.0f} there, {mean[-1]:.0f} after 80,000; within 1 % of the mean load "
                f"from {first:,} on",
                first <= LEARNT[alpha],
            )
        )
    return Result(columns, rows, [chart], claims)


# --- Figures 13 and 14 ----------------------------------------------------------------------------

FIG13_ALPHAS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0)


def measure_wosim(seed: int, number: int, alphas: tuple[float, ...]) -> npt.NDArray[np.float64]:
    """λ of DKG and DKG WOSIM for each alpha, k = 10: array (len(alphas), 2, 1)."""
    found = []
    for alpha in alphas:
        given = stream(seed, number, alpha)
        trainer = Trainer(given)
        found.append(
            [[imbalance(given.loads(trainer.build(10, variant=variant)))] for variant in ("dkg", "wosim")]
        )
    return np.array(found)


def fig13(options: Options) -> Result:
    """Figure 13: λ over α of DKG and DKG WOSIM, k = 10."""
    names = ("DKG", "DKG WOSIM")
    by_name = spreads(over_streams(measure_wosim, options, FIG13_ALPHAS), names, 0)
    columns, rows = wide("α", FIG13_ALPHAS, by_name)
    chart = Chart("α", "imbalance λ (%)", curves(FIG13_ALPHAS, by_name, names))
    claims = []
    for part in ("mean", "high"):
        gap = getattr(by_name["DKG WOSIM"], part) - getattr(by_name["DKG"], part)
        what = "mean" if part == "mean" else "worst case"
        claims.append(
            Claim(
                f"DKG {what} outperforms WOSIM for every α",
                f"by {gap.min():.1f} (α = {FIG13_ALPHAS[int(gap.argmin())]:g}) to {gap.max():.1f} points",
                bool((gap > 0).all()),
            )
        )
    return Result(columns, rows, [chart], claims)


def measure_splitting(seed: int, number: int) -> npt.NDArray[np.float64]:
    """λ of DKG, PKG and DKG PKG for each k, Zipf-2: array (len(KS), 3, 1)."""
    given = stream(seed, number, 2.0)
    trainer = Trainer(given)
    validation = given.labels[given.validation]
    found = []
    for k in KS:
        splitting = (PKG(k, given.hash_seed), trainer.build(k, variant="pkg"))
        loads = [
            given.loads(trainer.build(k)),
            *(tuple_loads(one.route(validation), k) for one in splitting),
        ]
        found.append([[imbalance(one)] for one in loads])
    return np.array(found)


def fig14(options: Options) -> Result:
    """Figure 14: λ over k of DKG, PKG and DKG PKG, Zipf-2."""
    names = ("DKG", "PKG", "DKG PKG")
    by_name = spreads(over_streams(measure_splitting, options), names, 0)
    columns, rows = wide("k", KS, by_name)
    chart = Chart("number of instances k", "imbalance λ (%)", curves(KS, by_name, names))
    dkg, pkg, both = (by_name[name] for name in names)
    claims = [
        Claim(
            "DKG PKG has the best mean for every k >= 2",
            f"below PKG by at least {(pkg.mean - both.mean)[1:].min():.1f}, below DKG by at least "
            f"{(dkg.mean - both.mean)[1:].min():.1f}",
            bool((both.mean < np.minimum(dkg.mean, pkg.mean))[1:].all()),
        )
    ]
    for name, one in (("DKG", dkg), ("DKG PKG", both)):
        gap = (pkg.high - one.high)[1:]
        claims.append(
            Claim(
                f"{name}'s worst case is better than PKG's for every k >= 2",
                f"by {gap.min():.1f} (k = {KS[1 + int(gap.argmin())]}) to {gap.max():.1f} points",
                bool((gap > 0).all()),
            )
        )
    return Result(columns, rows, [chart], claims)


# --- Figure 10 ------------------------------------------------------------------------------------

READINGS = 100_000


def measure_grid(seed: int, number: int) -> npt.NDArray[np.float64]:
    """λ of O-apx, Modulo and DKG for each k, and k p1 - 1 in per cent, over synthetic trajectories:
    array (len(KS), 4, 1).
    """
    rng = np.random.default_rng([seed, number])
    cells = streams.cell_numbers(*streams.grid_cells(READINGS, rng))
    training, validation = np.split(cells, 2)
    hash_seed = int(rng.integers(2**62))
    share = np.bincount(validation).max() / len(validation)
    found = []
    for k in KS:
        maps = (
            optimal_approximation(validation, k),
            Modulo(k),
            DKG(m=len(training), seed=hash_seed).fit(training, k),
        )
        loads = [tuple_loads(one.route(validation), k) for one in maps]
        found.append([[imbalance(one)] for one in loads] + [[max(0.0, 100 * (k * share - 1))]])
    return np.array(found)


def fig10(options: Options) -> Result:
    """Figure 10, its simulated curves: λ over k for the position grids (first half of the match trains,
    second half is routed).
    """
    names = ("O-apx", "Modulo", "DKG", "k p1 - 1")
    by_name = spreads(over_streams(measure_grid, options), names, 0)
    columns, rows = wide("k", KS, by_name)
    chart = Chart("number of instances k", "imbalance λ (%)", curves(KS, by_name, ("Modulo", "DKG")))
    o_apx, modulo, dkg, bound = (by_name[name] for name in names)
    gap = float((dkg.mean - o_apx.mean).max())
    better = [k for k, a, b in zip(KS, dkg.mean, modulo.mean, strict=True) if 2 * a < b or b - a > 5]
    beyond = np.abs(o_apx.mean - bound.mean)[5:]
    claims = [
        Claim(
            "O-apx achieves 0 % for k <= 5",
            f"at most {o_apx.mean[:5].max():.2f} %",
            bool(o_apx.mean[:5].max() <= 1.0),
        ),
        Claim(
            "from k = 6 on O-apx has (k p1 - 1), p1 about 1/5",
            f"{o_apx.mean[5]:.1f} % at k = 6, {o_apx.mean[-1]:.1f} % at k = 10; at most "
            f"{beyond.max():.2f} points apart",
            bool(beyond.max() <= 1.0),
        ),
        Claim("DKG sticks very close to O-apx for all k", f"at most {gap:.1f} points above", gap <= 10.0),
        Claim(
            "DKG largely outperforms Modulo but for some k",
            f"for k in {', '.join(map(str, better)) or 'none'}",
            len(better) >= 6,
        ),
    ]
    return Result(columns, rows, [chart], claims)


EXPERIMENTS = [
    Experiment("dkg-table1", "DKG Table 1: regression of λ over k, Zipf-2, Θ=0.1, µ=2", 3000, table1),
    Experiment("dkg-fig2", "DKG Fig. 2: λ over k, Zipf-2, Θ=0.1, µ=2", 3000, fig2),
    Experiment("dkg-fig3", "DKG Fig. 3: σ over k, Zipf-2, Θ=0.1, µ=2", 3000, fig3),
    Experiment("dkg-fig4", "DKG Fig. 4: distribution of σ, Zipf-2, Θ=0.1, µ=2", 5000, fig4),
    Experiment("dkg-fig5", "DKG Fig. 5: σ over k, Zipf-1, quadratic cost, Θ=0.1, µ=2", 2000, fig5),
    Experiment("dkg-fig6", "DKG Fig. 6: λ over µ, Θ=1, k=2", 2000, fig6),
    Experiment("dkg-fig7", "DKG Fig. 7: λ over Θ, µ=1, k=2", 500, fig7),
    Experiment("dkg-fig8", "DKG Fig. 8: σ over Θ and µ, k=5", 200, fig8),
    Experiment("dkg-fig9", "DKG Fig. 9: σ over the training set's size m, Θ=0.1, µ=2, k=2", 1000, fig9),
    Experiment(
        "dkg-fig10-sim",
        "DKG Fig. 10, simulated only: λ over k, position grids, Θ=0.1, ε=0.05, µ=2",
        100,
        fig10,
    ),
    Experiment("dkg-fig13", "DKG Fig. 13: λ over α of DKG and DKG WOSIM, Θ=0.1, µ=2, k=10", 500, fig13),
    Experiment(
        "dkg-fig14", "DKG Fig. 14: λ over k of DKG, PKG and DKG PKG, Zipf-2, Θ=0.1, µ=2", 3000, fig14
    ),
]
