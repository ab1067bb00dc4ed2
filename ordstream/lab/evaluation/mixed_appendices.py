"""Mixed's parameters: A_max and the growth of the table (appendix B, Figures 17 and 18), w and β
(appendix C, Figures 19 to 21).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ordstream.lab.evaluation.experiment import Chart, Claim, Curve, Options, Result, over_streams
from ordstream.lab.evaluation.mixed_streams import table_growth
from ordstream.lab.evaluation.mixed_sweep import BOTH, Sweep, base, falls, percent

BETAS = (1.0, 1.2, 1.4, 1.5, 1.6, 1.8, 2.0)


def table(options: Options) -> Result:
    """Appendix B (Figures 17 and 18): migration cost over A_max, and how MinMig's table grows."""
    given = base(options)
    bounds: list[int | None] = [0, *(given.keys * share // 1000 for share in (2, 5, 10, 20, 40, 80)), None]
    thetas = (0.02, 0.08)
    settings = [replace(given, a_max=bound, theta_max=theta) for theta in thetas for bound in bounds]
    sweep = Sweep(options, settings, ("Mixed", "MinTable", "MinMig"))
    n = len(bounds)
    adjustments = 400
    growth_thetas = (0.02, 0.08, 0.15)
    grown = [
        np.mean(over_streams(table_growth, options, replace(given, theta_max=theta), adjustments), axis=0)
        for theta in growth_thetas
    ]
    xs = [bound if bound is not None else 2 * int(bounds[-2] or 1) for bound in bounds]
    charts = [
        Chart(
            "A_max (last: unbounded)",
            "migration cost (% of state)",
            [
                sweep.curve(
                    f"{name} θ_max = {theta}", xs, range(j * n, j * n + n), name, "migration", style, 100.0
                )
                for j, theta in enumerate(thetas)
                for name, style in (("Mixed", "-o"), ("MinTable", "--"), ("MinMig", ":"))
            ],
        ),
        Chart(
            "adjustments",
            "entries of MinMig's table",
            [
                Curve(f"θ_max = {theta}", range(1, adjustments + 1), one, style="-")
                for theta, one in zip(growth_thetas, grown, strict=True)
            ],
        ),
    ]
    lines = {
        theta: sweep.line(range(j * n, j * n + n), "Mixed", "migration") for j, theta in enumerate(thetas)
    }
    same = all(
        np.array_equal(sweep.all(i, "Mixed")[:, [1, 2, 3, 4]], sweep.all(i, "MinMig")[:, [1, 2, 3, 4]])
        for i in (n - 1, 2 * n - 1)
    )
    ends = [sweep.mean(i, "Mixed", "migration") / sweep.mean(i, "MinTable", "migration") for i in (0, n)]
    over = avoidable = cleaned = 0
    for i, one in enumerate(settings):
        if one.a_max is not None:
            over += int((sweep.values(i, "Mixed", "table") > one.a_max).sum())
            avoidable += int(sweep.values(i, "Mixed", "avoidable").sum())
            cleaned += int((sweep.values(i, "Mixed", "trials") > 1).sum())
    bounded = [i for i in range(len(settings)) if bounds[i % n]]
    tables = [
        [float(sweep.mean(i, name, "table")) for name in ("MinTable", "Mixed", "MinMig")] for i in bounded
    ]
    limit = given.keys * (given.instances - 1) / given.instances
    last = np.array([one[-1] for one in grown])
    early = np.array([one[adjustments // 8] for one in grown])
    rows = sweep.rows([[-1 if one.a_max is None else one.a_max, one.theta_max] for one in settings])
    claims = [
        Claim(
            "A_max unbounded: Mixed is MinMig",
            "the same θ, migration and table in every rebalancing" if same else "differs",
            same,
        ),
        Claim(
            "A_max = 0: close to MinTable",
            ", ".join(f"{one:.2f}" for one in ends) + " times its migration cost",
            all(0.8 <= one <= 1.25 for one in ends),
        ),
        Claim(
            "monotone between (but for 5 %)",
            "; ".join(f"θ_max = {theta}: {percent(line)}" for theta, line in lines.items()),
            all(falls(line, 0.05) for line in lines.values()),
        ),
        Claim(
            "tables: MinTable's <= Mixed's <= MinMig's (means, A_max > 0)",
            "; ".join("/".join(f"{one:.0f}" for one in three) for three in tables),
            all(a <= b * 1.02 and b <= c * 1.02 for a, b, c in tables),
        ),
        Claim(
            "Mixed's table is within A_max wherever MinTable's would be",
            f"{avoidable} tables are not; {over} where MinTable's is not either; {cleaned} plans cleaned",
            avoidable == 0,
        ),
        Claim(
            "a smaller θ_max lets MinMig's table grow faster",
            f"{', '.join(f'{one:,.0f}' for one in early)} entries after {adjustments // 8 + 1} adjustments",
            falls(early),
        ),
        Claim(
            f"tables of MinMig converge to K (N_D - 1)/N_D = {limit:,.0f}",
            f"{', '.join(f'{one:,.0f}' for one in last)} entries after {adjustments} adjustments",
            bool((np.abs(last - limit) <= 0.1 * limit).all()),
            f"still growing, by {', '.join(f'{one[-1] - one[-adjustments // 8]:,.0f}' for one in grown)} "
            "in the last "
            f"{adjustments // 8} adjustments: the less moves per adjustment, the longer it takes",
        ),
    ]
    return Result(sweep.columns("a_max", "theta_max"), rows, charts, claims)


def window(options: Options) -> Result:
    """Appendix C (Figure 19): migration cost over w."""
    windows = (1, 5, 10, 15, 20)
    sweep = Sweep(options, [replace(base(options), window=w) for w in windows], BOTH)
    every = range(len(windows))
    own, clean = (sweep.line(every, name, "migration") for name in BOTH)
    chart = Chart(
        "window w",
        "migration cost (% of state)",
        [sweep.curve(name, windows, every, name, "migration", scale=100.0) for name in BOTH],
    )
    claims = [
        Claim(
            "Mixed's migration cost is below MinTable's",
            f"{percent(own)}; {percent(clean)}",
            bool((own < clean).all()),
        ),
        Claim("Mixed's falls with w", percent(own), falls(own)),
        sweep.balance_claim(),
    ]
    return Result(sweep.columns("window"), sweep.rows([[w] for w in windows]), [chart], claims)


def beta(options: Options) -> Result:
    """Appendix C (Figures 20 and 21): table and migration cost of MinMig over β, 10 adjustments, w = 5."""
    given = replace(base(options), window=5)
    sweep = Sweep(options, [replace(given, beta=one) for one in BETAS], ("MinMig",), 10)
    every = range(len(BETAS))
    sizes, cost = sweep.line(every, "MinMig", "table"), sweep.line(every, "MinMig", "migration")
    charts = [
        Chart("β", "entries of the table", [sweep.curve("MinMig", BETAS, every, "MinMig", "table")]),
        Chart(
            "β",
            "migration cost (% of state)",
            [sweep.curve("MinMig", BETAS, every, "MinMig", "migration", scale=100.0)],
        ),
    ]
    flat = sizes[BETAS.index(1.5) :]
    spread = float(np.ptp(flat) / flat.mean())
    claims = [
        Claim(
            "a larger β gives a smaller table", ", ".join(f"{one:.0f}" for one in sizes), falls(sizes, 0.1)
        ),
        Claim("from β = 1.5 on its size is stable", f"within {spread:.2f} of its mean", spread <= 0.25),
        Claim("a larger β moves more state", percent(cost), falls(-cost, 0.1)),
    ]
    return Result(sweep.columns("beta"), sweep.rows([[one] for one in BETAS]), charts, claims)
