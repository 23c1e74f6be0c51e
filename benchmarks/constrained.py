"""How long non-negative least squares takes under exact margins, and the gap that it proves.

python -m benchmarks.constrained                     a line for each table
python -m benchmarks.constrained --random 70         small problems from seeds: exact sums, bounds, or both
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import tabulae as tb
from tabulae.domain import Constraint
from tabulae.estimation.cone import GAP

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


def random_gap(seed: int) -> float:
    """The gap of one problem: marginals of two or three attributes, and what is known of one or two of them."""
    draw = np.random.default_rng(seed)
    domain = tb.Domain({f"a{i}": int(n) for i, n in enumerate(draw.integers(2, 7, size=draw.integers(2, 4)))})
    x = draw.poisson(draw.choice([0.3, 2.0, 30.0]), domain.size)
    method = str(draw.choice(["residual", "kron", "identity", "workload", "opt0"]))
    strategy = tb.select(tb.Workload.marginals(domain, ways=[1, 2]), method=method)
    budget = tb.ZCDP(float(draw.choice([0.1, 1, 10])))
    measurement = tb.measure(x, strategy, budget, source=tb.noise.Insecure(seed))
    each = {name: tb.Identity(n) for name, n in zip(domain.names, domain.shape, strict=True)}
    kind, constraints = draw.integers(0, 4), []
    if kind in (0, 2):
        one = tb.Table("one", {"a0": each["a0"]})
        constraints.append(Constraint.equal(one, np.asarray(one.operator(domain) @ x)))
    if kind in (1, 2):
        two = tb.Table("two", {"a0": each["a0"], "a1": each["a1"]})
        true = np.asarray(two.operator(domain) @ x)
        high = true + draw.integers(0, 2)
        constraints.append(Constraint.bounds(two, at_least=np.maximum(true - 1, 0), at_most=high))
    if kind == 3:
        constraints.append(Constraint.equal(tb.Table("total", {}), [x.sum()]))
    return tb.estimate(measurement, constraints=constraints, method="non-negative").solution.gap  # type: ignore[attr-defined]


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--random", type=int)
    if (many := parser.parse_args().random) is not None:
        start = time.process_time()
        gaps = [random_gap(seed) for seed in range(many)]
        seconds = time.process_time() - start
        beyond = sum(gap > GAP for gap in gaps)
        print(f"{beyond} of {many} beyond {GAP:g}, the largest gap {max(gaps):.2g}, {seconds:.1f} s")
        return
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
