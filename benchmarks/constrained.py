"""How long non-negative least squares takes under exact margins, and the gap that it proves.

python -m benchmarks.constrained
"""

from __future__ import annotations

import time

import numpy as np

import tabulae as tb
from tabulae.domain import Constraint

CASES = [
    ((14, 24, 20), [(0, 2), (1, 2)], 3.0, False),
    ((14, 24, 20), [(0, 2), (1, 2)], 3.0, True),
    ((14, 24, 20), [(0, 1), (0, 2), (1, 2)], 3.0, True),
    ((50, 50, 50), [(0, 1), (0, 2), (1, 2)], 3.0, True),
    ((100, 100, 100), [(), (0,)], 1.0, False),
    ((100, 100, 100), [(0, 1), (0, 2), (1, 2)], 3.0, False),
]


def counts(shape: tuple[int, ...], mean: float, *, skewed: bool) -> np.ndarray:
    """Poisson counts, of one mean or of means that are products of gamma variables."""
    draw = np.random.default_rng(1)
    rates = np.ones(shape)
    if skewed:
        for axis, size in enumerate(shape):
            rates = rates * draw.gamma(0.5, size=size).reshape(
                [-1 if a == axis else 1 for a in range(len(shape))]
            )
    return draw.poisson(mean * rates / rates.mean()).ravel()


def main() -> None:
    """Print one line a case."""
    for shape, margins, mean, skewed in CASES:
        domain = tb.Domain({f"a{i}": n for i, n in enumerate(shape)})
        x = counts(shape, mean, skewed=skewed)
        tables = [
            tb.Table(
                "*".join(f"a{i}" for i in margin) or "total", {f"a{i}": tb.Identity(shape[i]) for i in margin}
            )
            for margin in margins
        ]
        constraints = [Constraint.equal(t, np.asarray(t.operator(domain) @ x)) for t in tables]
        cells = tb.Table("cells", {f"a{i}": tb.Identity(n) for i, n in enumerate(shape)})
        strategy = tb.select(tb.Workload(domain, [cells]), method="identity")
        measurement = tb.measure(x, strategy, tb.ZCDP("1/2"), source=tb.noise.Insecure(1))
        start = time.process_time()
        solution = tb.estimate(measurement, constraints=constraints, method="non-negative").solution  # type: ignore[attr-defined]
        seconds = time.process_time() - start
        kind = "skewed" if skewed else "even"
        print(f"{shape} {kind} {margins}: {seconds:.2f} s, gap {solution.gap:.1e}", flush=True)


if __name__ == "__main__":
    main()
