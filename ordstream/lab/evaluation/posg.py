"""POSG's simulation results: Theorem 4.3's example and Figures 4 to 10 (sections IV-B, V-A and V-B), and its
steady state.

Setting (section V-A): m = 32,768 tuples over n = 4,096 items, Zipf-1.0; w_n = 64 execution times from 1 to
w_max = 64 ms, each given to n / w_n items at random, anew for every stream; k = 5 instances; N = 1,024, µ =
0.05, ε = 0.05, δ = 0.1; arrivals at a fixed gap of provisioning * mean work / k. L is the mean completion
time of a stream's tuples, S_L = L of Round-Robin / L of POSG.

Two protocols. *warm*: the scheduler starts in RUN with matrices learnt on 2 N other tuples per instance of
the same distribution, C^ = 0. *cold*: from ROUND ROBIN without matrices, as section III has it; RUN then
begins near the middle of the stream, or never. The paper's Figures 4 to 9 show what a scheduler with
matrices does; so their claims are held against the warm one, and the cold one stands beside it in the CSV.
Figure 10 and the steady state are cold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.lab.posg_policies import RoundRobin
from ordstream.balance.sketches import ExecutionTimes
from ordstream.lab.evaluation.experiment import (
    Chart,
    Claim,
    Curve,
    Experiment,
    Options,
    Result,
    over_streams,
)
from ordstream.lab.evaluation.posg_streams import (
    BEFORE,
    WINDOW,
    Floats,
    Setting,
    Stream,
    changing,
    theorem_4_3,
)
from ordstream.lab.simulation import streams

N_ITEMS = 4_096
ALPHAS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
PROVISIONING = (0.95, 0.96, 0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03, 1.05, 1.07, 1.09, 1.12, 1.15)
W_MAX = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
W_N = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
KS = tuple(range(1, 11))
EPSILONS = (1.0, 0.5, 0.2, 0.1, 0.09, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


ALGORITHMS = ("POSG", "Round-Robin", "Full Knowledge", "POSG cold", "Least Outstanding")


def stream(seed: int, number: int, setting: Setting) -> Stream:
    """Stream `number` of a seed. The same random numbers serve every setting, so points of a figure
    differ by the setting.
    """
    rng = np.random.default_rng([seed, number])
    hash_seed = int(rng.integers(2**62))
    w = streams.execution_times(N_ITEMS, np.linspace(1.0, setting.w_max, setting.w_n), rng)
    items = streams.zipf(setting.m, N_ITEMS, setting.alpha, rng)
    learning = streams.zipf(2 * WINDOW * setting.k, N_ITEMS, setting.alpha, rng)
    times = w[items]
    arrivals = streams.even_arrivals(
        setting.m, streams.provisioned_gap(float(times.mean()), setting.k, setting.provisioning)
    )
    return Stream(setting, items, times, arrivals, learning, w[learning], hash_seed)


def measure(
    seed: int, number: int, settings: Sequence[Setting], algorithms: Sequence[str], first: int = 0
) -> Floats:
    """L of each algorithm for each setting, over the tuples from number `first` on: array (settings,
    algorithms).
    """
    found = []
    for setting in settings:
        given = stream(seed, number, setting)
        found.append([given.run(given.policy(algorithm)).mean_completion(first) for algorithm in algorithms])
    return np.array(found)


# --- tables and curves ----------------------------------------------------------------------------


class Found:
    """L of every stream, setting and algorithm of a figure: `values` (streams, settings, algorithms)."""

    def __init__(
        self, options: Options, settings: Sequence[Setting], algorithms: Sequence[str], first: int = 0
    ) -> None:
        self.algorithms = tuple(algorithms)
        self.values: Floats = np.array(
            over_streams(measure, options, tuple(settings), self.algorithms, first)
        )

    def of(self, algorithm: str) -> Floats:
        """L: array (streams, settings)."""
        return self.values[:, :, self.algorithms.index(algorithm)]

    def mean(self, algorithm: str) -> Floats:
        """Mean L over the streams, by setting."""
        return np.asarray(self.of(algorithm).mean(axis=0))

    def speed_up(self, algorithm: str = "POSG") -> Floats:
        """S_L: array (streams, settings)."""
        return np.asarray(self.of("Round-Robin") / self.of(algorithm))

    def table(self, x_name: str, xs: Sequence[Any]) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows: x; max, mean and min of L by algorithm; max, mean and min of the speed-ups."""
        named = {name: self.of(name) for name in self.algorithms}
        named |= {
            f"S_L{name[4:]}": self.speed_up(name) for name in self.algorithms if name.startswith("POSG")
        }
        columns = [x_name] + [f"{name} {part}" for name in named for part in ("max", "mean", "min")]
        rows = [
            [x] + [float(part(axis=0)[i]) for one in named.values() for part in (one.max, one.mean, one.min)]
            for i, x in enumerate(xs)
        ]
        return columns, rows


def curve(label: str, xs: Sequence[float], values: Floats) -> Curve:
    """Mean over the streams, the range shaded. `values`: (streams, len(xs))."""
    return Curve(label, xs, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def near(found: float, paper: float, by: float = 0.06) -> bool:
    """Whether a figure is the paper's. 0.06: by so much S_L of its one base setting differs between its
    Figures 4 and 6.
    """
    return abs(found - paper) <= by


def completion_chart(
    found: Found, x_label: str, xs: Sequence[float], algorithms: Sequence[str], log_x: bool = False
) -> Chart:
    return Chart(
        x_label,
        "average completion time L (ms)",
        [curve(name, xs, found.of(name)) for name in algorithms],
        log_x=log_x,
    )


def speed_up_chart(found: Found, x_label: str, xs: Sequence[float], log_x: bool = False) -> Chart:
    shown = [
        (label, name)
        for label, name in (("warm", "POSG"), ("cold", "POSG cold"))
        if name in found.algorithms
    ]
    curves = [curve(f"S_L, {label}", xs, found.speed_up(name)) for label, name in shown]
    return Chart(x_label, "speed-up S_L", curves, log_x=log_x)


# --- Theorem 4.3 ----------------------------------------------------------------------------------

EXAMPLE_COLUMNS, EXAMPLE_ROWS = 55, 10


def measure_example(seed: int, number: int) -> Floats:
    """One draw of hash functions, items with times 1..64 in random order: mean W/F in one row by time (64),
    and last the share of items whose least ratio over 10 rows is at least 48.
    """
    rng = np.random.default_rng([seed, number])
    w = streams.execution_times(N_ITEMS, np.arange(1.0, 65.0), rng)
    items = np.arange(N_ITEMS, dtype=np.int64)
    sketch = ExecutionTimes(rows=EXAMPLE_ROWS, columns=EXAMPLE_COLUMNS, seed=int(rng.integers(2**62)))
    sketch.update_many(items, w)
    ratios = sketch.ratios()
    by_row = np.array(
        [ratios[row, sketch.hashes.cells(items.view(np.uint64), row)] for row in range(EXAMPLE_ROWS)]
    )
    by_time = np.bincount(w.astype(np.int64) - 1, weights=by_row[0]) / (N_ITEMS // 64)
    return np.append(by_time, (by_row.min(axis=0) >= 48).mean())


def thm43(options: Options) -> Result:
    """Theorem 4.3's numerical example: k = 55 columns, n = 4,096 items, times 1..64."""
    draws = np.array(over_streams(measure_example, options))
    w_v = np.arange(1.0, 65.0)
    expected = theorem_4_3(w_v, float(64 * w_v.sum()), N_ITEMS, EXAMPLE_COLUMNS)
    found, tail = draws[:, :64], float(draws[:, 64].mean())
    rows = [[int(w), float(e),
             *(float(part[i]) for part in (found.max(axis=0), found.mean(axis=0), found.min(axis=0)))]
            for i, (w, e) in enumerate(zip(w_v, expected, strict=True))]  # fmt: skip
    error = found.std(axis=0, ddof=1) / math.sqrt(len(found)) if len(found) > 1 else np.full(64, math.inf)
    off = float((np.abs(found.mean(axis=0) - expected) / error).max())
    low, high = float(expected.min()), float(expected.max())
    claims = [
        Claim(
            "E{W_v/C_v} lies in [32.08, 32.92]", f"[{low:.3f}, {high:.3f}]", low >= 32.08 and high <= 32.92
        ),
        Claim(
            "the sketch has this expectation",
            f"its mean is at most {off:.1f} standard errors off",
            off <= 4.5,
        ),
        Claim(
            "1 <= W_v/C_v <= 64",
            f"means per draw in [{found.min():.2f}, {found.max():.2f}]",
            bool(1 <= found.min() <= found.max() <= 64),
        ),
        Claim("P{min over 10 rows >= 48} <= 0.024", f"{tail:.2g}", tail <= 0.024),
    ]
    curves = [
        Curve("Theorem 4.3", w_v, expected, style="-"),
        curve("W/F of the sketch", w_v.tolist(), found),
    ]
    chart = Chart("execution time w_v", "estimate W_v/C_v", curves)
    return Result(
        ["w_v", "Theorem 4.3", "W_v/C_v max", "W_v/C_v mean", "W_v/C_v min"], rows, [chart], claims
    )


# --- Figures 4 to 9 -------------------------------------------------------------------------------


def name_of(alpha: float) -> str:
    return f"Zipf-{alpha:.1f}" if alpha else "Uniform"


def fig4(options: Options) -> Result:
    """Figure 4: L by frequency distribution."""
    found = Found(options, [Setting(alpha=alpha) for alpha in ALPHAS], ALGORITHMS)
    columns, rows = found.table("distribution", [name_of(alpha) for alpha in ALPHAS])
    posg, known, plain = (found.mean(name) for name in ("POSG", "Full Knowledge", "Round-Robin"))
    speed_up = found.speed_up()
    gain = 100 * (speed_up.mean(axis=0) - 1)
    at = {alpha: i for i, alpha in enumerate(ALPHAS)}
    worst_posg, best_plain = (
        float(found.of("POSG")[:, at[1.5]].max()),
        float(found.of("Round-Robin")[:, at[1.5]].min()),
    )
    better = 100 * float((speed_up[:, at[1.5]] > 1).mean())
    light = float(gain[[at[0.0], at[0.5]]].mean())
    ratio = float(posg[at[2.5]] / known[at[2.5]])
    claims = [
        Claim(
            "with all distributions Full Knowledge outperforms POSG, and POSG Round-Robin (means)",
            f"POSG is {(posg / known).min():.2f} to {(posg / known).max():.2f} times Full Knowledge, "
            f"{(posg / plain).min():.2f} to {(posg / plain).max():.2f} times Round-Robin",
            bool((known <= posg).all() and (posg <= plain).all()),
        ),
        Claim(
            "the gain is limited on Uniform and Zipf-0.5 (6 % on average)", f"{light:.1f} %", 0 < light <= 10
        ),
        Claim(
            "the gain is sizeable on Zipf-1.0 (25 %)",
            f"{gain[at[1.0]]:.1f} %",
            near(float(gain[at[1.0]]), 25, 6),
        ),
        Claim(
            "Zipf-1.5: POSG's maximum is below Round-Robin's minimum",
            f"{worst_posg:.0f} against {best_plain:.0f} ms; POSG is the better one on {better:.0f} % of "
            "the streams, "
            f"S_L {speed_up[:, at[1.5]].mean():.2f}",
            worst_posg < best_plain,
        ),
        Claim("Zipf-2.5: POSG matches Full Knowledge", f"{ratio:.3f} times its mean", ratio <= 1.05),
        Claim(
            "all algorithms perform better with highly skewed distributions",
            ", ".join(
                f"{name} {one[0]:.0f} to {one[-1]:.0f} ms"
                for name, one in zip(ALGORITHMS, (posg, plain, known), strict=False)
            ),
            bool(posg[-1] < posg[0] and plain[-1] < plain[0] and known[-1] < known[0]),
        ),
    ]
    return Result(
        columns, rows, [completion_chart(found, "Zipf's α (0: uniform)", ALPHAS, ALGORITHMS)], claims
    )


BOTH = ("POSG", "Round-Robin", "POSG cold")


def fig5(options: Options) -> Result:
    """Figure 5: S_L over the percentage of over-provisioning."""
    found = Found(options, [Setting(provisioning=share) for share in PROVISIONING], BOTH)
    percent = [round(100 * share) for share in PROVISIONING]
    columns, rows = found.table("over-provisioning (%)", percent)
    speed_up = found.speed_up().mean(axis=0)
    at = dict(zip(percent, speed_up.tolist(), strict=True))
    under = [at[p] for p in percent if p <= 98]
    sized = [at[p] for p in percent if 100 <= p <= 109]
    peak = percent[int(speed_up.argmax())]
    claims = [
        Claim(
            "95 % to 98 %: little or no advantage",
            f"S_L {min(under):.2f} to {max(under):.2f}",
            max(under) <= 1.1,
        ),
        Claim(
            "100 % to 109 %: at least 1.15", f"S_L {min(sized):.2f} to {max(sized):.2f}", min(sized) >= 1.15
        ),
        Claim("the peak is at 102 %", f"at {peak} %", near(peak, 102, 1)),
        Claim("the peak is 1.26", f"S_L {at[peak]:.2f}", near(at[peak], 1.26)),
        Claim("115 %: 1.07", f"S_L {at[115]:.2f}", near(at[115], 1.07)),
    ]
    return Result(columns, rows, [speed_up_chart(found, "over-provisioning (%)", percent)], claims)


def fig6(options: Options) -> Result:
    """Figure 6: L over the largest execution time."""
    found = Found(options, [Setting(w_max=w_max) for w_max in W_MAX], BOTH)
    columns, rows = found.table("w_max (ms)", W_MAX)
    grows = all((np.diff(found.mean(name)) > 0).all() for name in ("POSG", "Round-Robin"))
    speed_up = found.speed_up().mean(axis=0)
    claims = [
        Claim(
            "L increases with w_max",
            f"POSG {found.mean('POSG')[0]:.0f} to {found.mean('POSG')[-1]:.0f} ms",
            grows,
        ),
        Claim("average S_L 1.19", f"{speed_up.mean():.2f}", near(float(speed_up.mean()), 1.19)),
        Claim(
            "the gain only slightly improves with w_max",
            f"S_L {speed_up[0]:.2f} at {W_MAX[0]:g} ms, {speed_up[-1]:.2f} at {W_MAX[-1]:g} ms",
            bool(np.ptp(speed_up) <= 0.1),
        ),
    ]
    return Result(columns, rows, [completion_chart(found, "w_max (ms)", W_MAX, BOTH, log_x=True)], claims)


def fig7(options: Options) -> Result:
    """Figure 7: L over the number of execution time values."""
    found = Found(options, [Setting(w_n=w_n) for w_n in W_N], BOTH)
    columns, rows = found.table("w_n", W_N)
    claims = []
    for name in ("POSG", "Round-Robin"):
        mean, deviation = found.mean(name), found.of(name).std(axis=0)
        later = mean[W_N.index(16) :]
        claims += [
            Claim(
                f"{name}: L decreases with w_n",
                f"{mean[0]:.0f} ms at 2, {mean[-1]:.0f} ms at {W_N[-1]}",
                bool(mean[-1] < mean[0]),
            ),
            Claim(
                f"{name}: its variance decreases with w_n",
                f"deviation {deviation[0]:.0f} ms at 2, {deviation[-1]:.0f} ms at {W_N[-1]}",
                bool(deviation[-1] < deviation[0]),
            ),
            Claim(
                f"{name}: only slight changes from w_n = 16 on",
                f"L within {100 * (later.max() / later.min() - 1):.0f} %",
                bool(later.max() / later.min() <= 1.15),
            ),
        ]
    gain = 100 * float(found.speed_up().mean() - 1)
    claims.append(Claim("average gain 19 %", f"{gain:.1f} %", near(gain, 19, 6)))
    return Result(columns, rows, [completion_chart(found, "w_n", W_N, BOTH, log_x=True)], claims)


def fig8(options: Options) -> Result:
    """Figure 8: S_L over the number of instances."""
    found = Found(options, [Setting(k=k) for k in KS], BOTH)
    columns, rows = found.table("k", KS)
    each = found.speed_up()
    speed_up = each.mean(axis=0)
    steps = 100 * (speed_up[1:] / speed_up[:-1] - 1)
    claims = [
        Claim(
            "k = 1: S_L is 1", f"{each[:, 0].min():g} to {each[:, 0].max():g}", bool((each[:, 0] == 1).all())
        ),
        Claim(
            "S_L grows slightly with k",
            f"{speed_up[1]:.2f} at k = 2, {speed_up[-1]:.2f} at k = 10",
            bool(speed_up[-1] > speed_up[1]),
        ),
        Claim("4 % from k = 2 to 3", f"{steps[1]:+.1f} %", near(float(steps[1]), 4, 2)),
        Claim("1 % from k = 9 to 10", f"{steps[-1]:+.1f} %", near(float(steps[-1]), 1, 2)),
    ]
    return Result(columns, rows, [speed_up_chart(found, "number of operator instances k", KS)], claims)


def fig9(options: Options) -> Result:
    """Figure 9: S_L over the precision ε."""
    found = Found(options, [Setting(epsilon=epsilon) for epsilon in EPSILONS], BOTH)
    columns, rows = found.table("ε", EPSILONS)
    each = found.speed_up()
    speed_up = each.mean(axis=0)
    decade = 100 * float((speed_up[-1] / speed_up[0]) ** (1 / 3) - 1)
    fine = each[:, [i for i, epsilon in enumerate(EPSILONS) if epsilon <= 0.09]]
    claims = [
        Claim(
            "ε ten times finer: 30 % on average", f"{decade:.0f} % from ε = 1 to 0.001", near(decade, 30, 10)
        ),
        Claim(
            "large ε do not perform well",
            f"S_L {speed_up[0]:.2f} at ε = 1, {speed_up[1]:.2f} at 0.5",
            bool(speed_up[1] <= 1.1),
        ),
        Claim(
            "from ε = 0.09 on the least S_L is above 1",
            f"least {fine.min():.2f}; above 1 on {100 * (fine > 1).mean():.1f} % of streams and ε",
            bool(fine.min() > 1),
        ),
    ]
    return Result(columns, rows, [speed_up_chart(found, "precision ε", EPSILONS, log_x=True)], claims)


# --- Figure 10 ------------------------------------------------------------------------------------

LONG = 150_000
CHANGE = 75_000
STEP = 2_000


@dataclass(frozen=True)
class Series:
    """One stream of Figure 10, a cold POSG and Round-Robin.

    Attributes
    ----------
    posg, plain : float64 array (3, points)
        Max, mean and min of the completion time over 2,000 tuples each.
    run_from : int
        Tuples routed when RUN began; m: never.
    differs_from : int
        The first tuple that ends at another time than with Round-Robin; m: none.
    updated : int
        Tuples routed when every instance had sent matrices since the change; m: never.
    speed_up : float
        S_L over the tuples from RUN to the change; NaN where there are none.
    """

    posg: Floats
    plain: Floats
    run_from: int
    differs_from: int
    updated: int
    speed_up: float


def measure_series(seed: int, number: int, m: int, change: int) -> Series:
    given = changing(stream(seed, number, Setting(m=m)), m, change)
    policy = given.posg(warm=False)
    posg, plain = (given.run(one).completion for one in (policy, RoundRobin()))
    run_from = policy.run_from if policy.run_from >= 0 else m
    differs = np.flatnonzero(posg != plain)
    firsts: dict[int, int] = {}
    for at, instance in policy.matrices_at:
        if at > change:
            firsts.setdefault(instance, at)
    running = slice(run_from, change)
    speed_up = float(plain[running].mean() / posg[running].mean()) if run_from < change else math.nan
    updated = max(firsts.values()) if len(firsts) == len(BEFORE) else m
    return Series(
        _windows(posg), _windows(plain), run_from, int(differs[0]) if len(differs) else m, updated, speed_up
    )


def _windows(completion: Floats) -> Floats:
    parts = completion[: len(completion) // STEP * STEP].reshape(-1, STEP)
    return np.array([parts.max(axis=1), parts.mean(axis=1), parts.min(axis=1)])


def _range(values: npt.NDArray[Any]) -> str:
    return f"{values.mean():,.0f} on average, {values.min():,.0f} to {values.max():,.0f}"


def fig10(options: Options) -> Result:
    """Figure 10: completion time as the stream unfolds; the instances' speeds change at tuple 75,000.
    Curves: the first stream.
    """
    series: list[Series] = over_streams(measure_series, options, LONG, CHANGE)
    shown = series[0]
    xs = [STEP * (i + 1) for i in range(shown.posg.shape[1])]
    rows = [
        [x, *(float(one[part, i]) for one in (shown.posg, shown.plain) for part in range(3))]
        for i, x in enumerate(xs)
    ]
    columns = [
        "m",
        *(f"{name} {part}" for name in ("POSG", "Round-Robin") for part in ("max", "mean", "min")),
    ]
    run_from = np.array([one.run_from for one in series])
    apart = run_from - np.array([one.differs_from for one in series])
    lag = np.array([one.updated for one in series]) - CHANGE
    speed_up = np.array([one.speed_up for one in series if math.isfinite(one.speed_up)])
    changed = (CHANGE + STEP) // STEP
    # POSG's mean completion time: the 10,000 tuples before the change, its worst 2,000 before all matrices
    # are new, the last 20,000.
    before = np.array([one.posg[1, changed - 6 : changed - 1].mean() for one in series])
    after = np.array(
        [one.posg[1, changed : max(changed + 1, -(-one.updated // STEP))].max() for one in series]
    )
    end = np.array([one.posg[1, -10:].mean() for one in series])
    claims = [
        Claim(
            "until RUN begins POSG and Round-Robin give the same results",
            f"first difference {_range(apart)} tuples before RUN: Round-Robin ends with the last "
            "matrices, RUN begins with the last reply",
            bool((apart >= 0).all() and (apart <= 0.25 * run_from).all()),
        ),
        Claim(
            "RUN begins at tuple 10,690", _range(run_from), bool(run_from.min() <= 10_690 <= run_from.max())
        ),
        Claim(
            "from RUN to the change POSG's L is lower",
            _speed_ups(speed_up),
            bool(len(speed_up) and speed_up.min() > 1),
        ),
        Claim(
            "after the change POSG degrades, until it has new matrices",
            f"mean over 10,000 tuples before {before.mean():.0f} ms, worst 2,000 after {after.mean():.0f} "
            "ms",
            bool(after.mean() > before.mean()),
        ),
        Claim(
            "the new matrices are there 9,912 tuples after the change",
            _range(lag),
            bool(lag.min() <= 9_912 <= lag.max()),
        ),
        Claim(
            "then it recovers",
            f"mean over the last 20,000 tuples {end.mean():.0f} ms, lower than that on "
            f"{100 * (end < after).mean():.0f} % of the streams",
            bool(end.mean() < after.mean()),
        ),
    ]
    curves = [
        Curve(name, xs, one[1], one[2], one[0], style="-")
        for name, one in (("POSG", shown.posg), ("Round-Robin", shown.plain))
    ]
    return Result(
        columns,
        rows,
        [Chart("tuples", "completion time over the previous 2,000 tuples (ms)", curves)],
        claims,
    )


def _speed_ups(found: Floats) -> str:
    return (
        f"S_L {found.mean():.2f} on average, {found.min():.2f} to {found.max():.2f}"
        if len(found)
        else "RUN does not begin before it"
    )


# --- steady state ---------------------------------------------------------------------------------

STEADY = ("POSG cold", "Round-Robin", "Full Knowledge")
STEADY_FROM = 60_000


def steady(options: Options) -> Result:
    """Not in the paper: L by distribution over a cold start's tuples from 60,000 on, m = 150,000."""
    found = Found(options, [Setting(alpha=alpha, m=LONG) for alpha in ALPHAS], STEADY, STEADY_FROM)
    columns, rows = found.table("distribution", [name_of(alpha) for alpha in ALPHAS])
    speed_up = found.speed_up("POSG cold")
    mean = speed_up.mean(axis=0)
    at = ALPHAS.index(1.0)
    claims = [
        Claim(
            "a cold start ends where the figures are: S_L on Zipf-1.0 is at least 1.15",
            f"{mean[at]:.2f}",
            bool(mean[at] >= 1.15),
        ),
        Claim(
            "POSG is no worse than Round-Robin on average with any distribution",
            ", ".join(f"{name_of(alpha)} {one:.2f}" for alpha, one in zip(ALPHAS, mean, strict=True)),
            bool((mean >= 0.995).all()),
        ),
    ]
    return Result(columns, rows, [completion_chart(found, "Zipf's α (0: uniform)", ALPHAS, STEADY)], claims)


EXPERIMENTS = [
    Experiment(
        "posg-thm43", "POSG Theorem 4.3: expected estimate, n=4,096, 55 columns, times 1..64", 2000, thm43
    ),
    Experiment("posg-fig4", "POSG Fig. 4: L by frequency distribution", 100, fig4),
    Experiment("posg-fig5", "POSG Fig. 5: S_L over over-provisioning", 100, fig5),
    Experiment("posg-fig6", "POSG Fig. 6: L over w_max", 100, fig6),
    Experiment("posg-fig7", "POSG Fig. 7: L over w_n", 100, fig7),
    Experiment("posg-fig8", "POSG Fig. 8: S_L over k", 100, fig8),
    Experiment("posg-fig9", "POSG Fig. 9: S_L over ε", 100, fig9),
    Experiment(
        "posg-fig10", "POSG Fig. 10: completion time as the stream unfolds, cold, m=150,000", 50, fig10
    ),
    Experiment("posg-steady", "POSG after a cold start: L of tuples 60,000 to 150,000", 30, steady),
]
