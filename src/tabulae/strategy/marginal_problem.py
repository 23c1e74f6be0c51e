"""The loss of measuring marginals, its slopes, and descent on it: what OPT_M is made of.

With precision v_a for the marginal over a (inverse variance at unit noise; ``theta_a^2`` under Laplace noise) and
f_S the workload's components (:mod:`.marginal_algebra`), the loss is

    cost(v) * sum_S f_S / kappa_S(v),    cost = sum_a v_a  (L2)   or   (sum_a sqrt(v_a))^2  (L1).

Weights are v under L2 and ``theta = sqrt(v)`` under L1, so that ``cost = (sum of weights)^(2/p)``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.optimize
import scipy.sparse

from .marginal_algebra import (
    characteristic,
    subset_sum,
    superset_sum,
)

_NEGLIGIBLE = 1e-9  # relative rise of the loss that dropping sets may cost
_LISTED = 2**22  # entries of the incidence of needed sets and pool up to which it is listed


class MarginalProblem:
    """Loss and gradient over a pool of sets: ``kappa = K v`` for the sets that the workload has a component in."""

    def __init__(self, sizes: Sequence[int], components: np.ndarray) -> None:
        self.share = characteristic(sizes) / np.prod(np.asarray(sizes, dtype=float))  # c_a / N
        self.f = components / components.max()
        self.needed = np.flatnonzero(self.f > 0)
        self.scale = float(components.max()) / float(np.prod(np.asarray(sizes, dtype=float)))

    def kappa(self, v: np.ndarray) -> np.ndarray:
        """Eigenvalues over N, of the needed sets."""
        return superset_sum(v * self.share)[self.needed]

    def error(self, v: np.ndarray) -> float:
        """sum f / kappa, infinite where the workload is not determined."""
        with np.errstate(divide="ignore"):
            return float((self.f[self.needed] / self.kappa(v)).sum())

    def slopes(self, v: np.ndarray) -> np.ndarray:
        """``-d error / d v_a`` for every set, (2^d,)."""
        y = np.zeros(self.f.size)
        y[self.needed] = self.f[self.needed] / self.kappa(v) ** 2
        return subset_sum(y) * self.share

    def incidence(self, pool: np.ndarray) -> scipy.sparse.csr_array | None:
        """K (needed sets x pool); None where it is better not listed."""
        if self.needed.size * pool.size > _LISTED:
            return None
        within = (self.needed[:, None] & ~pool[None, :]) == 0
        return scipy.sparse.csr_array(np.where(within, self.share[pool], 0.0))

    def descend(
        self, weights: np.ndarray, p: int, iterations: int = 500, precision: float = 1e-10
    ) -> np.ndarray:
        """L-BFGS-B from positive weights (2^d,), which alone may change; v = weights^(2/p)."""
        pool = np.flatnonzero(weights > 0)
        K = self.incidence(pool)
        transposed = None if K is None else K.T.tocsr()
        power, start = 2 / p, weights[pool]
        whole = np.zeros(self.f.size)
        f = self.f[self.needed]

        def log_loss(x: np.ndarray) -> tuple[float, np.ndarray]:
            scaled = np.maximum(x, 0.0) * start
            v = scaled**power
            if K is None:
                whole[pool] = v
                kappa = self.kappa(whole)
            else:
                kappa = K @ v
            total = scaled.sum()
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                q = f / kappa
                error = q.sum()
                if not np.isfinite(error) or total <= 0:
                    return 1e300, np.zeros_like(x)
                slopes = self.slopes(whole)[pool] if transposed is None else transposed @ (q / kappa)
            gradient = power / total - power * scaled ** (power - 1) * slopes / error
            return float(power * np.log(total) + np.log(error)), gradient * start

        options = {
            "maxiter": iterations,
            "maxfun": 2 * iterations,
            "maxcor": 10,
            "ftol": precision,
            "gtol": 1e-9,
        }
        bounds = [(0.0, None)] * pool.size
        found = scipy.optimize.minimize(
            log_loss, np.ones(pool.size), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        out = np.zeros(self.f.size)
        out[pool] = np.maximum(found.x, 0.0) * start
        return out

    def loss(self, weights: np.ndarray, p: int) -> float:
        """The loss of weights, in units of ``scale``."""
        return float(weights.sum() ** (2 / p)) * self.error(weights ** (2 / p))

    def pruned(self, weights: np.ndarray, p: int) -> np.ndarray:
        """Without the weights that the loss is no better for."""
        loss = self.loss(weights, p)
        for share in (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-13, 1e-16):
            fewer = np.where(weights >= share * weights.max(), weights, 0.0)
            if self.loss(fewer, p) <= loss * (1 + _NEGLIGIBLE):
                return fewer
        return weights
