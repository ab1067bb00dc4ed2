"""Mixed's algorithms over generated streams: Figures 7 to 12 of section 5.

Setting: `mixed_streams`. Figures 13 to 16 are in `mixed_virtual`, those of the appendices in
`mixed_appendices`. Costs of planning are CPU seconds of the planning thread and, as what does not depend on
the machine, placements, evictions and pairs weighed. `--keys` scales the domain down and ends sweeps over K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.balance.baselines import PKG
from ordstream.balance.mixed import Compact, Mixed, StateWindow, Statistics, discretised, mixed
from ordstream.balance.mixed.compact import KEY_BYTES, RECORD
from ordstream.balance.mixed.ring import ConsistentHash
from ordstream.lab.evaluation import mixed_appendices
from ordstream.lab.evaluation.experiment import (
    Chart,
    Claim,
    Curve,
    Experiment,
    Options,
    Result,
    over_streams,
)
from ordstream.lab.evaluation.mixed_streams import (
    INTERVALS,
    MEASURES,
    Setting,
    Snapshots,
    brute_force_beside,
    frequencies,
    timed_plan,
)
from ordstream.lab.evaluation.mixed_sweep import BOTH, Sweep, base, falls, key_counts, percent, two_charts
from ordstream.lab.evaluation.mixed_virtual import EXPERIMENTS as VIRTUAL

INSTANCES = (5, 10, 15, 20, 30, 40)
THETAS = (0.02, 0.05, 0.08, 0.15, 0.3, 0.5, 1.0)
WINDOWS = (1, 5)
FLUCTUATIONS = (0.1, 0.5, 1.0, 1.5, 2.0)
DEGREES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
#: "Well below": this share of MinTable's migration cost. The paper's figures show about a third.
WELL_BELOW = 0.7


# --- Figure 7 -------------------------------------------------------------------------------------


def measure_hash(
    seed: int, number: int, settings: tuple[Setting, ...], intervals: int
) -> npt.NDArray[np.float64]:
    """Loads over their mean, ascending, averaged over intervals; then PKG's largest: per setting, padded
    to the most instances.
    """
    most = max(one.instances for one in settings)
    found = np.full((len(settings), most + 1), np.nan)
    for i, setting in enumerate(settings):
        rng = np.random.default_rng([seed, number, i])
        loads = []
        for _ in range(intervals):
            hashed = ConsistentHash(setting.instances, seed=int(rng.integers(2**31))).route(
                np.arange(setting.keys)
            )
            load = np.bincount(hashed, frequencies(setting, rng), setting.instances)
            loads.append(np.sort(load / load.mean()))
        found[i, : setting.instances] = np.mean(loads, axis=0)
        cost = frequencies(replace(setting, tuples=1_000_000), rng).astype(np.int64)
        pkg = PKG(setting.instances, seed=number)
        pkg.route(rng.permutation(np.repeat(np.arange(setting.keys), cost)))
        found[i, most] = pkg.received.max() / pkg.received.mean()
    return found


def fig7(options: Options) -> Result:
    """Figure 7: distribution of load over instances under hashing alone, over N_D and over K; and PKG
    beside it.
    """
    given = base(options)
    counts = key_counts(options)
    settings = [replace(given, instances=n) for n in INSTANCES] + [replace(given, keys=k) for k in counts]
    found = np.mean(over_streams(measure_hash, options, tuple(settings), 50), axis=0)
    loads = [found[i, : one.instances] for i, one in enumerate(settings)]
    pkg = found[:, -1]
    rows: list[list[Any]] = []
    for one, load, split in zip(settings, loads, pkg, strict=True):
        for rank, value in enumerate(load):
            rows.append(
                [one.instances, one.keys, 100 * (rank + 1) / one.instances, float(value), float(split)]
            )
    n = len(INSTANCES)
    charts = []
    for title, at in (("over N_D", range(n)), ("over K", range(n, len(settings)))):
        curves = [
            Curve(f"{settings[i].instances} instances" if i < n else f"K = {settings[i].keys:,}",
                  loads[i], [100 * (rank + 1) / len(loads[i]) for rank in range(len(loads[i]))])
            for i in at
        ]  # fmt: skip
        charts.append(Chart("load / mean", "instances (%)", curves, title))
    largest = np.array([load[-1] for load in loads])
    ratio = float(loads[n - 1][-1] / loads[n - 1][0])
    hottest = float(streams_share(given) * INSTANCES[-1])
    few = [i for i in range(n) if INSTANCES[i] <= 20]
    claims = [
        Claim(
            "skewness grows with N_D", ", ".join(f"{one:.2f}" for one in largest[:n]), falls(-largest[:n])
        ),
        Claim("skewness falls with K", ", ".join(f"{one:.2f}" for one in largest[n:]), falls(largest[n:])),
        Claim(
            "at 40 instances the largest load is almost 2.5 times the least",
            f"{ratio:.1f} times",
            2.0 <= ratio <= 3.0,
            f"the most frequent key alone is {hottest:.2f} mean loads there" if hottest > 1.5 else "",
        ),
        Claim(
            "PKG: at most 1.02 times the mean up to 20 instances",
            f"{pkg[few].max():.4f}",
            bool(pkg[few].max() <= 1.02),
        ),
    ]
    return Result(["instances", "keys", "percentile", "load", "PKG largest"], rows, charts, claims)


def streams_share(setting: Setting) -> float:
    """Share of the most frequent key."""
    expected = np.arange(1, setting.keys + 1, dtype=np.float64) ** -setting.skew
    return float(1 / expected.sum())


# --- Figures 8 to 10: Mixed and MinTable over N_D, θ_max, K ---------------------------------------


def over_windows(
    given: Setting, name: str, xs: Sequence[Any]
) -> tuple[list[Setting], dict[int, list[int]], list[list[Any]]]:
    """Settings with each w and x; where those of a w are; labels."""
    settings = [replace(given, **{name: x, "window": w}) for w in WINDOWS for x in xs]
    at = {w: [j * len(xs) + i for i in range(len(xs))] for j, w in enumerate(WINDOWS)}
    return settings, at, [[getattr(one, name), one.window] for one in settings]


def window_claim(sweep: Sweep, at: dict[int, list[int]]) -> Claim:
    one, five = (sweep.line(at[w], "Mixed", "migration") for w in WINDOWS)
    return Claim(
        "Mixed moves less with w = 5 than with w = 1",
        f"{percent(one)}; {percent(five)}",
        bool((five < one).all()),
    )


def below_claim(sweep: Sweep, at: dict[int, list[int]], chosen: Sequence[int], where: str) -> Claim:
    ratio = np.array([sweep.line([at[w][i] for i in chosen], "Mixed", "migration") for w in WINDOWS])
    ratio /= np.array([sweep.line([at[w][i] for i in chosen], "MinTable", "migration") for w in WINDOWS])
    found = "; ".join(
        f"w = {w}: {', '.join(f'{one:.2f}' for one in line)} times"
        for w, line in zip(WINDOWS, ratio, strict=True)
    )
    return Claim(
        f"Mixed's migration cost is well below MinTable's {where}", found, bool((ratio <= WELL_BELOW).all()),
        full_table(sweep, [at[w][i] for j, w in enumerate(WINDOWS) for n, i in enumerate(chosen)
                           if ratio[j, n] > WELL_BELOW]),
    )  # fmt: skip


def full_table(sweep: Sweep, at: Sequence[int]) -> str:
    """Why Mixed moves more than it would in these settings: its table is full in all of them; empty
    where that is not so.
    """
    trials = sweep.line(at, "Mixed", "trials")
    if not len(at) or (trials <= 1.5).any():
        return ""
    tables, least = (sweep.line(at, name, "table") for name in BOTH)
    return (
        f"the table is full there (A_max = {sweep.settings[at[0]].a_max:,}, "
        f"{', '.join(f'{one:,.0f}' for one in tables)} entries, MinTable's "
        f"{', '.join(f'{one:,.0f}' for one in least)}; {', '.join(f'{one:.1f}' for one in trials)} trials "
        "a plan), so that Mixed cleans"
    )


def seconds_claim(sweep: Sweep, at: Sequence[int], where: str) -> Claim:
    largest = max(float(sweep.values(i, name, "cpu").max(initial=0.0)) for i in at for name in BOTH)
    return Claim(f"a plan takes under 1 s {where}", f"at most {largest:.3f} s of CPU time", largest < 1)


def fig8(options: Options) -> Result:
    """Figure 8: cost of a plan and migration cost over N_D."""
    settings, at, labels = over_windows(base(options), "instances", INSTANCES)
    sweep = Sweep(options, settings, BOTH)
    charts = two_charts(sweep, "instances N_D", INSTANCES, {f"w = {w}": at[w] for w in WINDOWS})
    last = at[1][-1]
    ratio = sweep.mean(last, "Mixed", "migration") / sweep.mean(last, "MinTable", "migration")
    table, bound = float(sweep.values(last, "Mixed", "table").max()), settings[last].a_max or 0
    claims = [
        sweep.balance_claim(),
        below_claim(sweep, at, [i for i, n in enumerate(INSTANCES) if n >= 10], "at 10 and more instances"),
        window_claim(sweep, at),
        seconds_claim(sweep, range(len(settings)), f"at K = {settings[0].keys:,}"),
        Claim(
            "at 40 instances Mixed's cost almost reaches MinTable's, the table being too small",
            f"{ratio:.2f} times",
            ratio >= 0.9,
            f"the table never reaches A_max = {bound:,}: at most {table:,.0f} entries, "
            f"{sweep.mean(last, 'Mixed', 'trials'):.2f} trials a plan; mixed-table shows it where it does"
            if table < bound
            else "",
        ),
    ]
    return Result(sweep.columns("instances", "window"), sweep.rows(labels), charts, claims)


def fig9(options: Options) -> Result:
    """Figure 9: cost of a plan and migration cost over θ_max; θ_max = 0 beside it, a few intervals only."""
    given = base(options)
    settings, at, labels = over_windows(given, "theta_max", THETAS)
    strict = replace(given, theta_max=0.0)
    sweep = Sweep(options, [*settings, strict], BOTH, [INTERVALS] * len(settings) + [5])
    charts = two_charts(sweep, "θ_max", THETAS, {f"w = {w}": at[w] for w in WINDOWS}, log_x=True)
    lines = {(name, w): sweep.line(at[w], name, "migration") for name in BOTH for w in WINDOWS}
    three = float(
        np.mean([lines["MinTable", w][i] / lines["Mixed", w][i] for w in WINDOWS for i in range(3)])
    )
    work = sweep.line(at[1], "Mixed", "placements")
    nought = len(settings)
    zero = sweep.values(nought, "Mixed", "theta")
    steps = INTERVALS * options.streams
    per_interval = {
        (name, w): np.array([sweep.values(i, name, "migration").sum() / steps for i in at[w]])
        for name in BOTH
        for w in WINDOWS
    }
    claims = [
        Claim(
            "both move less per interval as θ_max grows",
            "; ".join(f"{name} w = {w}: {percent(line)}" for (name, w), line in per_interval.items()),
            all(falls(line, 0.05) for line in per_interval.values()),
        ),
        Claim(
            "MinTable moves three times as much as Mixed (θ_max <= 0.08)", f"{three:.1f} times", three >= 2
        ),
        Claim(
            "planning is quicker with larger θ_max",
            f"{', '.join(f'{one:.1f}' for one in work)} placements a plan",
            falls(work),
        ),
        window_claim(sweep, at),
        seconds_claim(sweep, [*at[1][:1], *at[5][:1], nought], "at θ_max = 0.02 and 0"),
        Claim(
            "θ_max = 0: every plan ends within 0.05 % of the mean (whole keys allow no more)",
            f"at most {100 * zero.max(initial=0.0):.3f} %",
            bool(zero.max(initial=0.0) <= 5e-4),
        ),
    ]
    fits = Sweep.balance_claim(_without_last(sweep))
    return Result(
        sweep.columns("theta_max", "window"), sweep.rows([*labels, [0.0, 1]]), charts, [fits, *claims]
    )


def _without_last(sweep: Sweep) -> Sweep:
    made = Sweep.__new__(Sweep)
    made.settings, made.names, made.streams = sweep.settings[:-1], sweep.names, sweep.streams
    return made


def fig10(options: Options) -> Result:
    """Figure 10: cost of a plan and migration cost over K."""
    counts = key_counts(options)
    settings, at, labels = over_windows(base(options), "keys", counts)
    intervals = [INTERVALS if one.keys <= 10_000 else 20 if one.keys <= 100_000 else 8 for one in settings]
    sweep = Sweep(options, settings, BOTH, intervals)
    charts = two_charts(sweep, "keys K", counts, {f"w = {w}": at[w] for w in WINDOWS}, log_x=True)
    cpu = sweep.line(at[1], "Mixed", "cpu")
    lines = {name: [sweep.line(at[w], name, "migration") for w in WINDOWS] for name in BOTH}
    stable = lines["Mixed"][0]
    dearer = [i for i in range(len(counts)) if any(line[1][i] >= line[0][i] for line in lines.values())]
    claims = [
        sweep.balance_claim(),
        below_claim(sweep, at, range(len(counts)), "for every K"),
        Claim(
            "both move less with w = 5 than with w = 1",
            "; ".join(f"{name} {percent(one)}; {percent(five)}" for name, (one, five) in lines.items()),
            not dearer,
            full_table(sweep, [at[5][i] for i in dearer]),
        ),
        Claim(
            "Mixed's migration cost is stable over K",
            percent(stable),
            bool(stable.max() <= 2 * stable.min()),
        ),
        Claim(
            "Mixed plans longer with more keys",
            ", ".join(f"{1e3 * one:.1f}" for one in cpu) + " ms",
            falls(-cpu, 0.3),
        ),
        seconds_claim(
            sweep, [i for i, one in enumerate(settings) if one.keys <= 10_000], "up to K = 10,000"
        ),
    ]
    return Result(sweep.columns("keys", "window"), sweep.rows(labels), charts, claims)


# --- Figure 11 ------------------------------------------------------------------------------------

COMPACT = (
    "records",
    "bytes",
    "build",
    "plan",
    "expand",
    "mean error",
    "largest error",
    "theta",
    "estimated theta",
    "deviation",
)


def measure_compact(
    seed: int, number: int, setting: Setting, rebalances: int
) -> tuple[list[float], npt.NDArray[np.float64]]:
    """CPU seconds of a direct plan and its θ; for each R the values of `COMPACT`; means over rebalances."""
    rng = np.random.default_rng([seed, number])
    given = Snapshots(setting, rng)
    window = StateWindow(setting.window)
    for _ in range(setting.window - 1):
        window.add(given.following())
    placed = given.hashed
    direct: list[list[float]] = []
    found: list[list[list[float]]] = []
    for rebalance in range(rebalances + 1):
        cost = given.following()
        statistics = Statistics(cost, window.add(cost), given.hashed, setting.instances, placed)
        plan, cpu = timed_plan(mixed, statistics, setting.parameters)
        if rebalance:
            direct.append([cpu, plan.theta])
            found.append([compact_values(statistics, setting.parameters, degree) for degree in DEGREES])
        placed = plan.destination
    return np.mean(direct, axis=0).tolist(), np.mean(found, axis=0)


def compact_values(statistics: Statistics, parameters: Mixed, degree: int) -> list[float]:
    def build_compact(given: Any, _: Any) -> Any:
        return Compact(given, degree)

    made, build = timed_plan(build_compact, statistics, parameters)
    compact: Any = made
    plan, cpu = timed_plan(mixed, compact.records, parameters)
    psi = statistics.gamma(parameters.beta)
    by_key, expand = timed_plan(lambda given, _: compact.expand(plan, psi), statistics, parameters)
    error = compact.estimation_error(by_key.destination)
    running = 0.0
    for d in range(statistics.instances):
        of_d = statistics.cost[statistics.placed == d]
        order = np.argsort(-of_d, kind="stable")
        running = max(
            running, float(np.abs(np.cumsum((of_d - discretised(of_d, degree))[order])).max(initial=0.0))
        )
    return [
        float(len(compact)), float(compact.nbytes), build, cpu, expand, float(error.mean()),
        float(error.max()), by_key.theta, plan.theta, running,
    ]  # fmt: skip


def fig11(options: Options) -> Result:
    """Figure 11: the compact form over R, K = 1 million, 40 instances, w = 5."""
    setting = replace(
        base(options), keys=1_000_000 if options.keys is None else options.keys, instances=40, window=5
    )
    found = over_streams(measure_compact, options, setting, 1)
    direct, direct_theta = np.mean([one[0] for one in found], axis=0)
    values = np.mean([one[1] for one in found], axis=0)
    by_name = dict(zip(COMPACT, values.T, strict=True))
    worst = np.max([one[1][:, COMPACT.index("deviation")] for one in found], axis=0)
    rows: list[list[Any]] = [
        [
            "keys",
            setting.keys,
            KEY_BYTES * setting.keys,
            0.0,
            float(direct),
            0.0,
            0.0,
            0.0,
            float(direct_theta),
        ]
    ]
    rows[0] += [float(direct_theta), 0.0]
    rows += [[degree, *line] for degree, line in zip(DEGREES, values.tolist(), strict=True)]
    whole = by_name["build"] + by_name["plan"] + by_name["expand"]
    at8, at256 = DEGREES.index(8), DEGREES.index(256)
    charts = [
        Chart("R", "CPU seconds", [Curve("plan on records", DEGREES, by_name["plan"]),
              Curve("with building and expanding", DEGREES, whole, style="--s"),
              Curve("plan on keys", DEGREES, np.full(len(DEGREES), direct), style=":")], log_x=True,
              log_y=True),
        Chart("R", "mean error of an instance's load (%)",
              [Curve("estimation error", DEGREES, 100 * by_name["mean error"])], log_x=True),
        Chart("R", "records", [Curve("records", DEGREES, by_name["records"])], log_x=True, log_y=True),
    ]  # fmt: skip
    lines = [
        f"K = {setting.keys:,}, {setting.instances} instances: a plan on keys {direct:.3f} s of CPU time, "
        f"{KEY_BYTES * setting.keys / 1e6:.1f} MB to the controller ({KEY_BYTES} bytes a key), θ "
        f"{direct_theta:.4f}",
        *(
            f"R = {degree:>3}: {by_name['records'][i]:>9,.0f} records, {by_name['bytes'][i] / 1e6:6.2f} MB "
            f"({RECORD.itemsize} bytes a record); building {by_name['build'][i]:.3f} s, plan "
            f"{by_name['plan'][i]:.3f} s, "
            f"keys picked {by_name['expand'][i]:.3f} s; true θ afterwards {by_name['theta'][i]:.4f}"
            for i, degree in enumerate(DEGREES)
        ),
    ]
    times = float(direct / by_name["plan"][at8])
    claims = [
        Claim(
            "fewer records with larger R",
            ", ".join(f"{one:,.0f}" for one in by_name["records"]),
            falls(by_name["records"]),
        ),
        Claim(
            "a plan on records is ten times faster at R = 8 (planning alone)",
            f"{times:.1f} times",
            times >= 10,
            "the plan on keys is vectorised and sorts only the instances that are too full; there is a "
            "record for each "
            f"{setting.keys / by_name['records'][at8]:.0f} keys at R = 8"
            if times > 1
            else "",
        ),
        Claim(
            "so it is with building the records and picking the keys",
            f"{whole[at8]:.2f} s against {direct:.2f} s",
            bool(whole[at8] * 10 <= direct),
            f"the plan on keys is vectorised: only {by_name['plan'][at8]:.3f} s of the {whole[at8]:.2f} s "
            "are planning, "
            f"{by_name['build'][at8]:.2f} s build {by_name['records'][at8]:,.0f} records of "
            f"{setting.keys:,} keys. "
            f"What records save is {KEY_BYTES * setting.keys / by_name['bytes'][at8]:.0f} times the bytes "
            "to the controller",
        ),
        Claim(
            "mean estimation error <= 0.5 % at R = 8",
            percent(by_name["mean error"][at8]),
            bool(by_name["mean error"][at8] <= 0.005),
        ),
        Claim(
            "mean estimation error <= 1.5 % at R = 256",
            percent(by_name["mean error"][at256]),
            bool(by_name["mean error"][at256] <= 0.015),
        ),
        Claim(
            "the running deviation never exceeds R",
            ", ".join(f"{one:.1f}" for one in worst),
            bool((worst <= np.array(DEGREES) + 1e-9).all()),
        ),
    ]
    return Result(["R", *COMPACT], rows, charts, claims, lines)


# --- Figure 12 ------------------------------------------------------------------------------------

RIVALS = ("Mixed", "MinTable", "Readj")


def fig12(options: Options) -> Result:
    """Figure 12: Mixed, MinTable and Readj over the fluctuation f; brute force from Mixed's states."""
    given = base(options)
    settings = [replace(given, fluctuation=f) for f in FLUCTUATIONS]
    sweep = Sweep(options, settings, RIVALS, 12)
    # Brute force makes N_A + 1 plans, so it runs where tables are smaller: 2,000 keys, a table that binds.
    small = replace(given, keys=min(2_000, given.keys), a_max=100, theta_max=given.theta_max)
    beside = [
        over_streams(brute_force_beside, options, replace(small, fluctuation=f), 30, 5) for f in FLUCTUATIONS
    ]
    pairs = [
        np.array([pair for stream in one for pair in stream]).reshape(-1, 2, len(MEASURES)) for one in beside
    ]
    charts = two_charts(sweep, "fluctuation f", FLUCTUATIONS, {"": range(len(settings))})
    column = {name: i for i, name in enumerate(MEASURES)}
    own, best = (np.array([one[:, j, column["migration"]].mean() for one in pairs]) for j in (0, 1))
    charts[1].curves.append(Curve(f"Mixed, K = {small.keys:,}", FLUCTUATIONS, 100 * own, style=":o"))
    charts[1].curves.append(Curve(f"Mixed_BF, K = {small.keys:,}", FLUCTUATIONS, 100 * best, style=":s"))
    rows = sweep.rows([[f, given.keys] for f in FLUCTUATIONS])
    for f, one in zip(FLUCTUATIONS, pairs, strict=True):
        for j, name in enumerate(("Mixed", "Mixed_BF")):
            means = one[:, j].mean(axis=0).tolist()
            rows.append(
                [f, small.keys, f"{name} beside", len(one), *means, float(one[:, j, column["cpu"]].max())]
            )
    high = [i for i, f in enumerate(FLUCTUATIONS) if f >= 1]
    every = range(len(settings))
    slower = sweep.line(high, "Readj", "cpu") / sweep.line(high, "Mixed", "cpu")
    dearer = sweep.line(high, "Readj", "migration") / sweep.line(high, "Mixed", "migration")
    weighed = sweep.line(every, "Readj", "pairs")
    growth = {name: float(np.ptp(sweep.line(every, name, "migration"))) for name in ("Readj", "Mixed")}
    joined = np.concatenate(pairs)
    # Brute force may have found a table that fits, or balance, where Mixed found none: then its cost may be
    # higher.
    fits = [(joined[:, j, column["table"]] <= 100) & (joined[:, j, column["balanced"]] > 0) for j in (0, 1)]
    infeasible = int((fits[0] & ~fits[1]).sum())
    both = fits[0] & fits[1]
    worse = int((joined[both, 1, column["migration"]] > joined[both, 0, column["migration"]] + 1e-12).sum())
    unbalanced = [int((sweep.values(i, "Readj", "balanced") == 0).sum()) for i in every]
    trials = joined[:, :, column["trials"]].mean(axis=0)
    claims = [
        sweep.balance_claim(),
        Claim(
            "Readj is slower at f >= 1",
            ", ".join(f"{one:.0f}" for one in slower) + " times Mixed's CPU time",
            bool((slower > 2).all()),
        ),
        Claim(
            "Readj weighs more pairs as f grows",
            ", ".join(f"{one:,.0f}" for one in weighed),
            falls(-weighed, 0.1),
        ),
        Claim(
            "Readj is costlier at f >= 1",
            ", ".join(f"{one:.2f}" for one in dearer) + " times Mixed's",
            bool((dearer > 1).all()),
        ),
        Claim(
            "Mixed's migration cost grows slower with f than Readj's",
            f"by {percent(growth['Mixed'])} of the state against {percent(growth['Readj'])}",
            growth["Mixed"] < growth["Readj"],
        ),
        Claim(
            "brute force is never worse than Mixed from the same state",
            f"dearer in {worse}, not feasible where Mixed is in {infeasible} of {len(joined)}",
            worse == 0 and infeasible == 0,
        ),
        Claim(
            "brute force makes several times as many plans and saves little (less than a fifth of the "
            "migration)",
            f"{trials[1]:.0f} plans each against {trials[0]:.1f}, Mixed's migration "
            f"{np.mean(own / best):.2f} times its",
            bool(trials[1] > 3 * trials[0] and np.mean(own / best) < 1.25),
        ),
    ]
    lines = [
        f"Readj ended above θ_max in {', '.join(map(str, unbalanced))} rebalancings of f = "
        f"{', '.join(map(str, FLUCTUATIONS))}"
    ]
    return Result(sweep.columns("fluctuation", "keys"), rows, charts, claims, lines)


def _experiment(name: str, title: str, streams: int, run: Any) -> Experiment:
    return Experiment(name, title, streams, run, sized=True, strict=True)


EXPERIMENTS = [
    _experiment("mixed-fig7", "Mixed Fig. 7: load under hashing over N_D and K, z=0.85", 2, fig7),
    _experiment("mixed-fig8", "Mixed Fig. 8: cost of a plan and migration over N_D, K=10,000", 5, fig8),
    _experiment("mixed-fig9", "Mixed Fig. 9: cost of a plan and migration over θ_max, K=10,000", 5, fig9),
    _experiment("mixed-fig10", "Mixed Fig. 10: cost of a plan and migration over K, N_D=15", 2, fig10),
    _experiment("mixed-fig11", "Mixed Fig. 11: compact records over R, K=1,000,000, N_D=40, w=5", 2, fig11),
    _experiment(
        "mixed-fig12", "Mixed Fig. 12: Mixed, MinTable, Readj, brute force over f, θ_max=0.08", 4, fig12
    ),
    *VIRTUAL,
    _experiment(
        "mixed-table",
        "Mixed, appendix B: migration over A_max, growth of MinMig's table",
        4,
        mixed_appendices.table,
    ),
    _experiment("mixed-window", "Mixed, appendix C: migration over w", 5, mixed_appendices.window),
    _experiment(
        "mixed-beta",
        "Mixed, appendix C: MinMig's table and migration over β, w=5",
        20,
        mixed_appendices.beta,
    ),
]
#: Figures of the appendices: number -> the experiment that has it.
APPENDICES = {17: "mixed-table", 18: "mixed-table", 19: "mixed-window", 20: "mixed-beta", 21: "mixed-beta"}
EXPERIMENTS += [
    replace(one, name=f"mixed-fig{number}", title=f"Mixed Fig. {number}: is in {one.name}, which this runs")
    for number, name in APPENDICES.items()
    for one in EXPERIMENTS
    if one.name == name
]
