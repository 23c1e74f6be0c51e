"""Coverage and width of the intervals of derived figures, over noise that is drawn again and again.

    python -m benchmarks.derived       writes benchmarks/results/derived.csv (some minutes)

For each kind of figure, 200 towns from tiny to large and many draws of noise: how many intervals of 95 % miss the true
figure, how many figures are not estimable, and how wide intervals are beside 1.96 standard errors of the delta method.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.recorded import record

import tabulae as tb
from tabulae.domain.figure import Figure
from tabulae.domain.figure_sql import figure_from_sql
from tabulae.privacy import PrivacyLoss
from tabulae.products.tables.figures import publish_figure

RESULTS = Path(__file__).parent / "results"
TOWNS, AGES, DRAWS, LEVEL = 200, 20, 40, 0.95
DOMAIN = tb.Domain({"town": TOWNS, "age": range(AGES), "sex": ["F", "M"]})
UNDER_5 = "COUNT(*) FILTER (WHERE age < 5)"
WOMEN, MEN = (f"AVG(age) FILTER (WHERE sex = '{sex}')" for sex in "FM")
FIGURES = {
    "percentage": f"100 * {UNDER_5} / COUNT(*)",
    "mean": "AVG(age)",
    "median": "MEDIAN(age)",
    "difference of means": f"{WOMEN} - {MEN}",
}
BUDGETS: dict[str, PrivacyLoss] = {
    "Gaussian, variance 50": tb.ZCDP("1/100"),
    "Gaussian, variance 5": tb.ZCDP("1/10"),
    "Laplace, scale 4": tb.PureDP("1/4"),
}


@dataclass
class Tally:
    """Intervals that miss, intervals, figures without one, and widths beside 1.96 standard errors."""

    missed: int = 0
    known: int = 0
    unknown: int = 0
    widths: tuple[float, ...] = ()


def people(seed: int, largest: float) -> np.ndarray:
    """People by town, age and sex: towns of about ``largest`` a cell down to a fiftieth of it."""
    draw = np.random.default_rng(seed)
    size = largest * np.geomspace(0.02, 1, TOWNS)[:, None, None]
    return draw.poisson(size * draw.uniform(0.2, 1.8, (TOWNS, AGES, 2))).ravel()


def truth(figure: Figure, x: np.ndarray) -> np.ndarray:
    """The figures of the counts themselves; NaN where nobody is counted."""
    cells = x.reshape(TOWNS, AGES, 2).astype(float)
    ages, by_age = np.arange(AGES), cells.sum(axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        if figure.name == "percentage":
            return 100 * by_age[:, :5].sum(axis=1) / by_age.sum(axis=1)
        if figure.name == "mean":
            return by_age @ ages / by_age.sum(axis=1)
        if figure.name == "median":
            first = (2 * by_age.cumsum(axis=1) >= by_age.sum(axis=1)[:, None]).argmax(axis=1)
            return np.where(by_age.sum(axis=1) > 0, first, np.nan)
        means = np.einsum("tas,a->ts", cells, ages) / cells.sum(axis=1)
        return means[:, 0] - means[:, 1]


def tally(figure: Figure, loss: PrivacyLoss, largest: float) -> Tally:
    """Measure, estimate and compare, once a draw."""
    noise = "laplace" if isinstance(loss, tb.PureDP) else "gaussian"
    strategy = tb.select(tb.Workload.marginals(DOMAIN, ways=[3]), noise=noise, method="identity")
    out = Tally()
    for seed in range(DRAWS):
        x = people(seed, largest)
        found = tb.estimate(tb.measure(x, strategy, loss, source=tb.noise.Insecure(seed)))
        made, true = publish_figure(found, figure, LEVEL), truth(figure, x)
        there = (made.status != "Q") & np.isfinite(true)
        outside = (true < made.ci_low - 1e-9) | (true > made.ci_high + 1e-9)
        out.missed += int(outside[there].sum())
        out.known += int(there.sum())
        out.unknown += int((made.status == "Q").sum())
        wide = (made.ci_high - made.ci_low)[there] / (2 * 1.959964 * np.maximum(made.std_error[there], 1e-12))
        out.widths += tuple(wide[made.std_error[there] > 0])
    return out


def main() -> None:
    """Run every case and write the table."""
    rows = []
    for noise, loss in BUDGETS.items():
        for largest in (1.0, 20.0, 400.0):
            for name, expression in FIGURES.items():
                figure = figure_from_sql(DOMAIN, name, f"SELECT town, {expression} FROM t GROUP BY town")
                found = tally(figure, loss, largest)
                width = "" if name == "median" or not found.widths else f"{np.median(found.widths):.2f}"
                covered = f"{1 - found.missed / found.known:.4f}" if found.known else ""
                rows.append((noise, largest, name, found.known, found.unknown, covered, width))
                print(*rows[-1], sep="  ")
    columns = ("noise", "largest cell", "figure", "intervals", "not estimable", "coverage", "relative width")
    record(RESULTS / "derived.csv", columns, rows, size="intervals")


if __name__ == "__main__":
    main()
