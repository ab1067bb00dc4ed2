"""The papers' prototype experiments, run for real over Spark: DKG's Figures 10 to 12, POSG's 11 and 12.

The papers ran on Storm, with traces that can't be had. Here DKG's tuples are the cells of synthetic
trajectories on four grids (`streams.grid_cells`), and POSG's are mentions of entities in three classes of
25, 5 and 1 ms. Times are waits, multiplied by the time scale (`--time-scale`), so that k nodes overlap on
fewer processors; or the tuples compute (`--busy-wait`), and only those k are run for which there are
processors. What POSG's nodes were given is run through the simulator too, so that luck and machine can be
told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.balance.baselines import Modulo, optimal_approximation, universal
from ordstream.balance.dkg import DKG
from ordstream.balance.grouping import KeyMap
from ordstream.balance.metrics import imbalance, tuple_loads
from ordstream.balance.posg import POSG, FrozenPosg
from ordstream.errors import PlanError
from ordstream.ground.cpus import allowed_cpus
from ordstream.lab.evaluation import spark_jobs
from ordstream.lab.evaluation.experiment import Chart, Claim, Curve, Experiment, Options, Result
from ordstream.lab.evaluation.mentions import (
    CLASSES,
    mentions,
)
from ordstream.lab.evaluation.spark_jobs import Asked, Job
from ordstream.lab.simulation import streams
from ordstream.lab.simulation.queues import Routed, run_operator


def counts(options: Options, ks: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of nodes that are run: tuples that compute need a processor per node. Never empty."""
    most = allowed_cpus()
    return tuple(k for k in ks if k <= most) or (most,) if options.busy else ks


# --- DKG ------------------------------------------------------------------------------------------

GRID_KS = tuple(range(1, 11))
#: Those for which the paper names a factor, and 1 and 2.
SPEED_KS = (1, 2, 4, 5, 6, 8, 10)
#: µ from the paper's on: what finer buckets bring.
FINER_MU = (2, 4, 8, 16)
#: Hash functions that Modulo is one of, as it were.
HASHES = 200
CPU_K = 4
#: Seconds that a tuple of the position grids takes, at time scale 1.
GRID_COST = 0.0005
INTERVALS = 20


def grid(options: Options) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """Training tuples, the tuples to be routed, and a seed for hash functions."""
    rng = np.random.default_rng([options.seed, 0])
    m = options.tuples or 20_000
    cells = streams.cell_numbers(*streams.grid_cells(-(-2 * m // 4), rng))
    return cells[:-m], cells[-m:], int(rng.integers(2**62))


def deployed(training: npt.NDArray[np.int64], k: int, seed: int, mu: int = 2) -> KeyMap:
    return DKG(m=len(training), seed=seed, mu=mu).fit(training, k)


def above_optimum(
    training: npt.NDArray[np.int64], routed: npt.NDArray[np.int64], seed: int, ks: Sequence[int], mu: int
) -> float:
    """The most points that λ of DKG's map is above O-apx's, over k."""
    return max(
        imbalance(tuple_loads(deployed(training, k, seed, mu).route(routed), k))
        - imbalance(tuple_loads(optimal_approximation(routed, k).route(routed), k))
        for k in ks
    )


def hashes_against(key_map: Any, routed: npt.NDArray[np.int64], k: int) -> npt.NDArray[np.float64]:
    """Largest load under each of HASHES hash functions over that of a map: what its throughput would be
    a multiple of. Ascending.
    """
    mine = tuple_loads(key_map.route(routed), k).max()
    return np.sort([tuple_loads(universal(k, seed).route(routed), k).max() / mine for seed in range(HASHES)])


def fig10(options: Options) -> Result:
    """DKG Fig. 10: λ of tuples received over k, counted by the nodes of real jobs and computed from the
    maps.
    """
    if options.busy:
        raise PlanError("dkg-fig10 counts tuples that take no time; --busy-wait is not for it")
    training, routed, seed = grid(options)
    share = float(np.bincount(routed).max() / len(routed))
    rows = []
    with spark_jobs.session(max(GRID_KS)) as spark:
        tuples = spark_jobs.table_of(routed, 0.0)
        for k in GRID_KS:
            maps: dict[str, Any] = {"Modulo": Modulo(k), "DKG": deployed(training, k, seed)}
            computed = {name: imbalance(tuple_loads(one.route(routed), k)) for name, one in maps.items()}
            computed["O-apx"] = imbalance(tuple_loads(optimal_approximation(routed, k).route(routed), k))
            real = {
                name: spark_jobs.keyed_job(spark, tuples, k, one).tuple_imbalance if k > 1 else 0.0
                for name, one in maps.items()
            }
            rows.append(
                [
                    k,
                    computed["O-apx"],
                    computed["Modulo"],
                    real["Modulo"],
                    computed["DKG"],
                    real["DKG"],
                    max(0.0, 100 * (k * share - 1)),
                ]
            )
    columns = [
        "k",
        "O-apx",
        "Modulo (simulated)",
        "Modulo (prototype)",
        "DKG (simulated)",
        "DKG (prototype)",
        "k p1 - 1",
    ]
    by = dict(zip(columns, np.array(rows).T, strict=True))
    chart = Chart(
        "number of instances k", "imbalance λ (%)", [Curve(name, GRID_KS, by[name]) for name in columns[1:]]
    )
    apart = max(
        float(np.abs(by[f"{name} (simulated)"] - by[f"{name} (prototype)"]).max())
        for name in ("Modulo", "DKG")
    )
    gap = by["DKG (prototype)"] - by["O-apx"]
    better = [
        k
        for k, a, b in zip(GRID_KS, by["DKG (prototype)"], by["Modulo (prototype)"], strict=True)
        if 2 * a < b or b - a > 5
    ]
    claims = [
        Claim(
            "the prototype's λ closely match the simulation's",
            f"at most {apart:.2f} points apart",
            apart < 0.01,
        ),
        Claim(
            "DKG sticks very close to O-apx for all k",
            f"at most {gap.max():.1f} points above",
            bool(gap.max() <= 10),
        ),
        Claim(
            "DKG largely outperforms Modulo but for some k",
            f"for k in {', '.join(map(str, better))}",
            len(better) >= 6,
        ),
        Claim(
            "the most frequent cell is roughly 1/5 of the tuples", f"{share:.3f}", bool(0.15 < share < 0.25)
        ),
    ]
    # beyond, the most frequent cell alone is too much for an instance
    few = [k for k in GRID_KS if k * share <= 1]
    finer = ", ".join(f"{above_optimum(training, routed, seed, few, mu):.1f} (µ={mu})" for mu in FINER_MU)
    lines = [
        f"for k = {few[0]} to {few[-1]} DKG is at most so many points above O-apx: {finer}; with nothing "
        "left to foresee, learnt from the "
        f"very tuples that are routed: {above_optimum(routed, routed, seed, few, FINER_MU[0]):.1f} (µ=2)",
    ]
    return Result(columns, rows, [chart], claims, lines)


def usage(job: Job) -> npt.NDArray[np.float64]:
    """Share of time at work of each node in each of INTERVALS equal parts of the stage: array
    (INTERVALS, k).
    """
    starts = np.array(
        [job.began[job.node == k].min() if (job.node == k).any() else np.inf for k in range(job.nodes)]
    )
    edges = np.linspace(0, job.stage_seconds, INTERVALS + 1)
    found = np.zeros((INTERVALS, job.nodes))
    for k in range(job.nodes):
        began, ended = (times[job.node == k] - starts[k] for times in (job.began, job.ended))
        inside = np.minimum(ended[:, None], edges[None, 1:]) - np.maximum(began[:, None], edges[None, :-1])
        found[:, k] = np.maximum(inside, 0).sum(axis=0) / (edges[1] - edges[0])
    return found


def fig11_dkg(options: Options) -> Result:
    """DKG Fig. 11: how busy k = 4 nodes are over the time of the stage: minimum, mean and maximum, DKG
    and Modulo.
    """
    training, routed, seed = grid(options)
    k = counts(options, (2, CPU_K))[-1]
    found: dict[str, npt.NDArray[np.float64]] = {}
    with spark_jobs.session(k) as spark:
        tuples = spark_jobs.table_of(routed, GRID_COST * options.time_scale)
        for name, one in zip(("DKG", "Modulo"), _maps(training, k, seed), strict=True):
            found[name] = usage(spark_jobs.keyed_job(spark, tuples, k, one, options.busy))
    columns = ["part", *(f"{name} {part}" for name in found for part in ("min", "mean", "max"))]
    parts = {name: (one.min(axis=1), one.mean(axis=1), one.max(axis=1)) for name, one in found.items()}
    at = np.arange(1, INTERVALS + 1) * 100 // INTERVALS
    rows = [
        [int(at[i]), *(float(part[i]) for three in parts.values() for part in three)]
        for i in range(INTERVALS)
    ]
    chart = Chart(
        "share of the stage's time (%)",
        "share of time at work",
        [Curve(n, at, p[1], p[0], p[2]) for n, p in parts.items()],
    )
    mean = {name: float(one.mean()) for name, one in found.items()}
    least = {name: float(one.mean(axis=0).min()) for name, one in found.items()}
    claims = [
        Claim(
            "with DKG the instances are loaded evenly: mean usage close to the maximum",
            f"mean {mean['DKG']:.2f}, the least busy instance {least['DKG']:.2f}",
            mean["DKG"] > 0.8,
        ),
        Claim(
            "with Modulo some instances are underused",
            f"mean {mean['Modulo']:.2f}, the least busy instance {least['Modulo']:.2f}",
            least["Modulo"] < 0.7 * least["DKG"],
        ),
    ]
    return Result(columns, rows, [chart], claims)


def fig12_dkg(options: Options) -> Result:
    """DKG Fig. 12: tuples per second of the stage over k, DKG and Modulo."""
    training, routed, seed = grid(options)
    ks = counts(options, SPEED_KS)
    rows = []
    with spark_jobs.session(max(ks)) as spark:
        tuples = spark_jobs.table_of(routed, GRID_COST * options.time_scale)
        for k in ks:
            maps = _maps(training, k, seed)[: min(k, 2)]  # one node is the same job twice
            jobs = [spark_jobs.keyed_job(spark, tuples, k, one, options.busy) for one in maps]
            jobs = [jobs[0], jobs[-1]]
            rows.append(
                [
                    k,
                    *(len(routed) / job.stage_seconds for job in jobs),
                    *(job.tuple_imbalance for job in jobs),
                ]
            )
    columns = ["k", "DKG", "Modulo", "DKG λ", "Modulo λ"]
    by = dict(zip(columns, np.array(rows, dtype=np.float64).T, strict=True))
    chart = Chart(
        "number of instances k",
        "throughput (tuples/s)",
        [Curve(name, ks, by[name]) for name in ("DKG", "Modulo")],
    )
    ratio = by["DKG"] / by["Modulo"]
    expected = (100 + by["Modulo λ"]) / (100 + by["DKG λ"])
    text = ", ".join(f"{one:.2f} (k={k})" for k, one in zip(ks, ratio, strict=True))
    high = [float(one) for k, one in zip(ks, ratio, strict=True) if k > 2]
    lines = [hashes_text(training, routed, seed, [k for k in ks if k > 2])] if high else []
    claims = [
        Claim(
            "throughput follows the largest load",
            f"{text}; largest loads give " + ", ".join(f"{one:.2f}" for one in expected),
            bool((np.abs(ratio / expected - 1) < 0.15).all()),
        ),
    ]
    if high:
        claims.insert(
            0,
            Claim(
                "DKG delivers 2 times the throughput of Modulo for k in {4, 5, 6, 8, 10}",
                text,
                min(high) >= 1.9,
            ),
        )
    return Result(columns, rows, [chart], claims, lines)


def hashes_text(
    training: npt.NDArray[np.int64], routed: npt.NDArray[np.int64], seed: int, ks: Sequence[int]
) -> str:
    """What other hash functions than Modulo would give: whether DKG's factor is 2 is a matter of which
    cells meet in an instance.
    """
    texts = []
    for k in ks:
        others = hashes_against(deployed(training, k, seed), routed, k)
        texts.append(
            f"{others.mean():.2f}, {others[0]:.2f} to {others[-1]:.2f}, "
            f"{100 * (others >= 1.9).mean():.0f} % (k={k})"
        )
    top = "; ".join(f"{share:.3f}" for share in np.sort(np.bincount(routed))[:-6:-1] / len(routed))
    text = (
        f"{HASHES} hash functions in place of Modulo, largest load over DKG's: mean, range, how many reach "
        f"1.9: {', '.join(texts)}"
    )
    return f"{text}. Shares of the most frequent cells: {top}"


def _maps(training: npt.NDArray[np.int64], k: int, seed: int) -> tuple[Any, Any]:
    return deployed(training, k, seed), Modulo(k)


# --- POSG -----------------------------------------------------------------------------------------

POSG_KS = (1, 2, 4, 8)
SERIES_K = 5
#: Capacity over what is needed (POSG, section V-A: 100 %); a little more, since a node's own work per tuple
#: varies.
PROVISIONING = 1.05
WINDOW = 256
#: Streams that the simulator adds to the one that is run.
SIMULATED = 20


def gap_of(cost: npt.NDArray[np.float64], k: int, spare: float) -> float:
    """Seconds between two arrivals; `spare`: what a tuple takes a node beyond its own time."""
    return PROVISIONING * (float(cost.mean()) + spare) / k


def balancer(epsilon: float = 0.05) -> Any:
    """POSG over micro-batches: the matrices of each schedule the next."""
    from ordstream.spark import Balancer

    return Balancer(POSG(window=WINDOW, epsilon=epsilon), key="key", operator="look up")


def stream_jobs(
    spark: Any, entities: Any, cost: Any, k: int, grouping: Any, batch: int, gap: float, busy: bool = False
) -> list[Job]:
    """The micro-batches of a stream under a grouping; a `FrozenPosg` without a model is Round-Robin."""
    tuples = spark_jobs.table_of(entities, cost)
    return spark_jobs.in_batches(
        lambda part: spark_jobs.shuffle_job(spark, part, k, grouping, gap, busy), tuples, batch
    )


def completion(jobs: list[Job]) -> npt.NDArray[np.float64]:
    """Completion time of every tuple, ms."""
    return np.asarray(1e3 * np.concatenate([job.completion for job in jobs]))


def virtual_completion(
    nodes: npt.NDArray[np.int64], cost: npt.NDArray[np.float64], k: int, gap: float, spare: float = 0.0
) -> float:
    """Mean completion time of one micro-batch in virtual time, where tuple i goes to `nodes[i]`; in the
    unit of the costs.
    """
    return run_operator(Routed(nodes), k, gap * np.arange(len(nodes)), cost + spare).mean_completion()


def virtual_speed_up(seed: int, m: int, k: int, epsilon: float = 0.05, at_random: bool = False) -> float:
    """S_L of another stream in virtual time, by the same frozen scheduler: it learns from the first
    half, the second half counts.
    """
    entities, classes = mentions(seed, m, at_random)
    cost = np.array(CLASSES)[classes[entities]]
    half, gap = -(-m // 2), gap_of(cost, k, 0.0)
    times = POSG(window=WINDOW, epsilon=epsilon).times()
    times.update_many(entities[:half], cost[:half])
    later = cost[half:]
    plain = virtual_completion(np.arange(len(later)) % k, later, k, gap)
    return plain / virtual_completion(
        FrozenPosg(k, times).route(entities[half:]).astype(np.int64), later, k, gap
    )


def fig11_posg(options: Options) -> Result:
    """POSG Fig. 11: completion time as the stream unfolds, k = 5; in the middle the classes change their
    times.
    """
    m = options.tuples or 20_000
    entities, classes = mentions(options.seed, m)
    times = options.time_scale * np.array(CLASSES)
    # What took long takes 5 times less from the middle on, what was quick 5 times more: the mean changes
    # little.
    late = options.time_scale * np.array([CLASSES[1], CLASSES[0], CLASSES[2]])
    half = m // 2
    cost = np.concatenate([times[classes[entities[:half]]], late[classes[entities[half:]]]])
    batch = max(1, m // 10)
    k = counts(options, (2, SERIES_K))[-1]
    with spark_jobs.session(k) as spark:
        spare = spark_jobs.overhead(
            spark, spark_jobs.table_of(entities[:batch], cost[:batch]), k, balancer(), options.busy
        )
        ways, gap = {"POSG": balancer(), "Round-Robin": FrozenPosg(k, None)}, gap_of(cost, k, spare)
        found = {
            name: stream_jobs(spark, entities, cost, k, way, batch, gap, options.busy)
            for name, way in ways.items()
        }
    columns = ["tuples", *(f"{name} {part}" for name in found for part in ("min", "mean", "max"))]
    at = [min(m, (i + 1) * batch) for i in range(len(found["POSG"]))]
    parts = {name: [1e3 * job.completion for job in jobs] for name, jobs in found.items()}
    rows = [
        [at[i], *(float(f(jobs[i])) for jobs in parts.values() for f in (np.min, np.mean, np.max))]
        for i in range(len(at))
    ]
    by = dict(zip(columns, np.array(rows, dtype=np.float64).T, strict=True))
    curves = [Curve(name, at, by[f"{name} mean"], by[f"{name} min"], by[f"{name} max"]) for name in found]
    speed = by["Round-Robin mean"] / by["POSG mean"]
    changed = next(i for i, end in enumerate(at) if end > half)
    before, after = float(np.mean(speed[1:changed])), float(np.mean(speed[changed + 1 :]))
    claims = [
        Claim(
            "once matrices are there POSG's completion time is below Round-Robin's",
            f"S_L {before:.2f} before the change",
            before > 1,
        ),
        Claim(
            "with the change POSG degrades",
            f"S_L {speed[changed]:.2f} in its micro-batch",
            bool(speed[changed] < before),
        ),
        Claim(
            "with the next matrices it recovers",
            f"S_L {after:.2f} afterwards",
            after > 1 and after > speed[changed],
        ),
    ]
    return Result(columns, rows, [Chart("tuples", "completion time (ms)", curves)], claims)


@dataclass(frozen=True)
class Pair:
    """The second half of a stream under POSG and under Round-Robin: jobs that ran in one round, or one
    after the other.
    """

    cost: npt.NDArray[np.float64]
    gap: float
    posg: Job
    plain: Job

    def speed_up(self) -> float:
        """S_L."""
        return float(completion([self.plain]).mean() / completion([self.posg]).mean())

    def virtual_speed_up(self, k: int, spare: float) -> float:
        """S_L of the same nodes in virtual time."""
        plain, posg = (
            virtual_completion(job.node, self.cost, k, self.gap, spare) for job in (self.plain, self.posg)
        )
        return plain / posg


def pairs(
    spark: Any, seeds: Sequence[int], m: int, k: int, slots: int, options: Options
) -> tuple[float, list[Pair]]:
    """Run the streams of these seeds on k nodes; also what a tuple takes a node beyond its own time.

    The first half of each stream teaches its scheduler. All its tuples are there at once, so that it tells
    the nodes' capacity as well: the second half arrives as slowly as that asks for. One node has nothing to
    learn; a quarter of the tuples tells its capacity.
    """
    half = -(-m // 2)
    drawn = [mentions(seed, m) for seed in seeds]
    keys = [entities for entities, _ in drawn]
    costs = [options.time_scale * np.array(CLASSES)[classes[entities]] for entities, classes in drawn]
    ways = [balancer() for _ in seeds]
    end = half if k > 1 else -(-half // 4)
    first = [spark_jobs.table_of(key[:end], cost[:end]) for key, cost in zip(keys, costs, strict=True)]
    taught = [Asked(tuples, k, way, 0.0) for tuples, way in zip(first, ways, strict=True)]
    spare = spark_jobs.spare_of(
        spark_jobs.shuffle_jobs(spark, taught, slots, options.busy), [cost[:end] for cost in costs]
    )
    later, gaps = [cost[half:] for cost in costs], [gap_of(cost[half:], k, spare) for cost in costs]
    asked = []
    for key, cost, way, gap in zip(keys, later, ways, gaps, strict=True):
        tuples = spark_jobs.table_of(key[half:], cost)
        asked += [Asked(tuples, k, way, gap), Asked(tuples, k, FrozenPosg(k, None), gap)]
    jobs = spark_jobs.shuffle_jobs(spark, asked, slots, options.busy)
    return spare, [Pair(*four) for four in zip(later, gaps, jobs[::2], jobs[1::2], strict=True)]


def fig12_posg(options: Options) -> Result:
    """POSG Fig. 12: mean completion time over k, POSG and Round-Robin, tuples of 25, 5 and 1 ms."""
    m, ks = options.tuples or 20_000, counts(options, POSG_KS)
    seeds = range(options.seed, options.seed + options.streams)
    rows = []
    with spark_jobs.session(max(ks)) as spark:
        for k in ks:
            spare, found = pairs(spark, seeds, m, k, max(ks), options)
            speeds, virtual = (
                [one.speed_up() for one in found],
                [one.virtual_speed_up(k, spare) for one in found],
            )
            others = [virtual_speed_up(options.seed + options.streams + n, m, k) for n in range(SIMULATED)]
            sides = [[one.posg for one in found], [one.plain for one in found]]
            means = [float(np.mean([completion([job]).mean() for job in jobs])) for jobs in sides]
            loads = [
                float(np.mean([100 * job.taken / k / one.gap for job, one in zip(jobs, found, strict=True)]))
                for jobs in sides
            ]
            work = [float(np.mean([job.work_imbalance for job in jobs])) for jobs in sides]
            several = [f(some) for some in (speeds, virtual, others) for f in (np.mean, np.min, np.max)]
            rows.append([k, *means, *map(float, several), *loads, *work, 1e3 * spare])
    columns = ["k", "POSG", "Round-Robin", "S_L", "S_L min", "S_L max"]
    columns += [
        f"S_L {where}{part}" for where in ("simulated", "of other streams") for part in ("", " min", " max")
    ]
    columns += [f"{name} {what}" for what in ("load %", "λ of work") for name in ("POSG", "Round-Robin")] + [
        "spare ms"
    ]
    by = dict(zip(columns, np.array(rows, dtype=np.float64).T, strict=True))
    chart = Chart(
        "number of instances k",
        "mean completion time (ms)",
        [Curve(n, ks, by[n]) for n in ("POSG", "Round-Robin")],
    )

    def by_k(name: str, form: str = ".2f") -> str:
        return ", ".join(f"{one:{form}} (k={k})" for k, one in zip(ks, by[name], strict=True))

    def range_by_k(name: str) -> str:
        three = zip(ks, by[name], by[f"{name} min"], by[f"{name} max"], strict=True)
        return ", ".join(f"{mean:.2f}, {low:.2f} to {high:.2f} (k={k})" for k, mean, low, high in three)

    lines = [
        f"S_L of {len(seeds)} streams, mean, least to largest: {range_by_k('S_L')}",
        f"the same nodes in virtual time: {range_by_k('S_L simulated')}",
        f"{SIMULATED} other streams in virtual time: {range_by_k('S_L of other streams')}",
        f"load of the nodes as found, POSG: {by_k('POSG load %', '.1f')} %; Round-Robin: "
        f"{by_k('Round-Robin load %', '.1f')} %; "
        f"{100 / PROVISIONING:.1f} % was meant",
    ]
    speed = by["S_L"]
    several = speed[by["k"] > 1]
    claims = []
    if len(several):
        over = ", ".join(str(k) for k in ks if k > 1)
        claims = [
            Claim(
                "POSG provides lower completion times than Round-Robin for every k but 1",
                by_k("S_L"),
                bool((several > 1).all()),
            ),
            Claim(
                "mean speed-up 1.37", f"{several.mean():.2f} over k = {over}", bool(several.mean() >= 1.3)
            ),
        ]
    if ks[0] == 1:
        claims.append(
            Claim("at k = 1 there is nothing to gain", f"{speed[0]:.2f}", bool(0.8 < speed[0] < 1.25))
        )
    return Result(columns, rows, [chart], claims, lines)


EXPERIMENTS = [
    Experiment(
        "dkg-fig10",
        "DKG Fig. 10, in Spark: λ over k, position grids, Θ=0.1, ε=0.05, µ=2",
        1,
        fig10,
        real=True,
    ),
    Experiment(
        "dkg-fig11",
        "DKG Fig. 11, in Spark: time at work of k=4 nodes, position grids",
        1,
        fig11_dkg,
        real=True,
    ),
    Experiment(
        "dkg-fig12",
        "DKG Fig. 12, in Spark: throughput over k, position grids",
        1,
        fig12_dkg,
        real=True,
        scale=0.5,
    ),
    Experiment(
        "posg-fig11",
        "POSG Fig. 11, in Spark: completion time as the stream unfolds, k=5",
        1,
        fig11_posg,
        real=True,
    ),
    Experiment(
        "posg-fig12",
        "POSG Fig. 12, in Spark: completion time over k, tuples of 25, 5 and 1 ms",
        3,
        fig12_posg,
        real=True,
        scale=0.25,
    ),
]
