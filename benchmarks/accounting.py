"""The accounting tables of SafeTab (Tables 1, 2 and 4), recomputed cell by cell.

    python -m benchmarks.accounting       writes benchmarks/results/accounting.csv

Every printed cell is labelled: reproduced (equal as printed), rounded (equal but for its last digit or
for rounding on the way), or wrong (with the right value beside it).
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from benchmarks.recorded import record

from tabulae.privacy import (
    RDP,
    ZCDP,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseComposition,
    PureDP,
    Use,
    budget_for_margin,
    generalised_parallel,
    sequential,
)

RESULTS = Path(__file__).parent / "results"
STABILITY, FIRST_STAGE, DELTA = 9, Fraction(1, 10), Fraction(1, 10**10)
SECOND_STAGE = 1 - FIRST_STAGE
ROUNDED = 0.01  # the print multiplies base losses that it rounded to two or three digits


@dataclass(frozen=True)
class Level:
    """A population group level: its target margin and its printed step-two and total losses."""

    name: str
    margin: int
    epsilons: tuple[str, str]
    rhos: tuple[str, str]

    @property
    def base_epsilon(self) -> Fraction:
        """Equation 38."""
        return Fraction(math.log(20)) / (self.margin + 1)

    @property
    def base_rho(self) -> Fraction:
        """Equation 37."""
        return Fraction(192, 100) / self.margin**2


LEVELS = (
    Level("nation, detailed", 6, ("3.84", "4.27"), ("0.481", "0.534")),
    Level("state, detailed", 6, ("3.84", "4.27"), ("0.481", "0.534")),
    Level("county, detailed", 11, ("2.24", "2.49"), ("0.143", "0.159")),
    Level("AIANNH, detailed", 11, ("2.24", "2.49"), ("0.143", "0.159")),
    Level("nation, regional", 50, ("0.531", "0.59"), ("0.007", "0.008")),
    Level("state, regional", 50, ("0.531", "0.59"), ("0.007", "0.008")),
    Level("county, regional", 50, ("0.531", "0.59"), ("0.007", "0.008")),
)


def total(base: Fraction) -> Fraction:
    """The budget of a level from the loss of one second-stage count: F.1 with 1/(1 - gamma)."""
    return STABILITY * base / SECOND_STAGE


def label(printed: str, value: float) -> str:
    """How the printed cell relates to the value recomputed from the same formulas."""
    digits = len(printed.partition(".")[2])
    if f"{value:.{digits}f}" == printed:
        return "reproduced"
    return "rounded in print" if abs(value / float(printed) - 1) < ROUNDED else "wrong in print"


def margins() -> list[dict[str, str]]:
    """Tables 1 and 4 hold the same numbers; beside each, the loss that truly attains its margin."""
    rows = []
    for level in LEVELS:
        for noise, word, base, cells in (
            ("laplace", "epsilon", level.base_epsilon, level.epsilons),
            ("gaussian", "rho", level.base_rho, level.rhos),
        ):
            needed = budget_for_margin(level.margin, noise).amount
            for step, printed, value, true in (
                ("step 2", cells[0], STABILITY * base, STABILITY * needed),
                ("total", cells[1], total(base), total(needed)),
            ):
                verdict = label(printed, float(value))
                cell = f"{level.name}, {word}, {step}"
                rows.append(
                    row(
                        "1 and 4",
                        cell,
                        printed,
                        float(value),
                        verdict,
                        f"attains the margin: {float(true):.5g}",
                    )
                )
    return rows


def row(table: str, cell: str, printed: str, value: float, verdict: str, right: str = "") -> dict[str, str]:
    """One line of the output."""
    return dict(zip(COLUMNS, (table, cell, printed, f"{value:.5g}", verdict, right), strict=True))


COLUMNS = ("table", "cell", "printed", "from the formulas", "verdict", "note")


def geometric_curve(amount: Fraction) -> RDP:
    """One count with geometric noise, by the right lemma."""
    return RDP.of(PureDP(amount))


def printed_curve(order: float, amount: float) -> float:
    """Equation 29 as printed: too small, and no bound."""
    inside = 2 * order * math.exp((order - 1) * amount) + 2 * (order - 1) * math.exp(-order * amount)
    return math.log(math.tanh(amount / 2) * inside / (amount * (2 * order - 1))) / (order - 1)


def printed_rdp() -> float:
    """Equations 39 and 40 with the printed lemma, over the paper's own grid of orders."""
    best = math.inf
    for step in range(1, 901):
        order, loss = 1 + step / 100, 0.0
        for level in LEVELS:
            each = float(total(level.base_epsilon)) / STABILITY
            two = printed_curve(order, 0.1 * each) + printed_curve(order, 0.9 * each)
            loss += STABILITY * max(two, printed_curve(order, each))
        slack = -math.log(float(DELTA)) + (order - 1) * math.log1p(-1 / order) - math.log(order)
        best = min(best, loss + slack / (order - 1))
    return best


def safetab_rdp() -> RDP:
    """Theorem 2 with the right lemma: per level, nine groups, each of the worse kind at every order."""
    levels = []
    for level in LEVELS:
        amount = total(level.base_epsilon) / STABILITY
        once = geometric_curve(amount)
        twice = geometric_curve(FIRST_STAGE * amount) + geometric_curve(SECOND_STAGE * amount)
        levels.append(generalised_parallel([once, twice] * STABILITY, STABILITY).loss)
    return sequential(levels).loss


def analytic_zcdp(rho: float) -> float:
    """Lemma 5, the closed form that Table 2 calls analytical."""
    return rho + 2 * math.sqrt(-rho * math.log(float(DELTA)))


def geometric_noise(stages: tuple[Fraction, ...]) -> NoiseComposition:
    """All counts that one person can touch, with the given split of each group's budget."""
    uses = [
        Use(DiscreteLaplace(STABILITY / (stage * total(level.base_epsilon))), count=STABILITY)
        for level in LEVELS
        for stage in stages
    ]
    return NoiseComposition(tuple(uses))


def gaussian_noise() -> NoiseComposition:
    """The same with discrete Gaussian noise."""
    uses = [
        Use(DiscreteGaussian(STABILITY / (2 * stage * total(level.base_rho))), count=STABILITY)
        for level in LEVELS
        for stage in (FIRST_STAGE, SECOND_STAGE)
    ]
    return NoiseComposition(tuple(uses))


def conversions() -> list[dict[str, str]]:
    """Table 2, with exact compositions beside it."""
    epsilon = sum((total(level.base_epsilon) for level in LEVELS), Fraction(0))
    rho = sum((total(level.base_rho) for level in LEVELS), Fraction(0))
    infimum, curve = ZCDP(rho).epsilon(DELTA), safetab_rdp().epsilon(DELTA)
    stages = (FIRST_STAGE, SECOND_STAGE)
    once, twice = (geometric_noise(split).epsilon(DELTA) for split in ((Fraction(1),), stages))
    printed = printed_rdp()
    return [
        row(
            "2",
            "geometric, pure",
            "15.3",
            float(epsilon),
            label("15.3", float(epsilon)),
            f"{float(epsilon):.4f}",
        ),
        row(
            "2",
            "geometric, RDP",
            "13.2",
            printed,
            label("13.2", printed),
            f"right lemma {curve:.3f}; exact {once:.3f} (totals only), {twice:.3f} (two stages)",
        ),
        row(
            "2",
            "discrete Gaussian, analytic",
            "12.8",
            analytic_zcdp(float(rho)),
            label("12.8", analytic_zcdp(float(rho))),
        ),
        row(
            "2",
            "discrete Gaussian, infimum",
            "12.2",
            infimum,
            label("12.2", infimum),
            f"exact {gaussian_noise().epsilon(DELTA):.3f}",
        ),
    ]


def main() -> int:
    """Recompute, write, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    rows = margins() + conversions()
    record(folder / "accounting.csv", COLUMNS, rows)
    for line in rows:
        print(
            "  ".join(
                f"{line[column]:<34}" if column == "cell" else f"{line[column]:<18}" for column in COLUMNS
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
