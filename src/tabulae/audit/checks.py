"""Checks by derivation: what a budget asks of the noise, and sensitivities and parameters, found a second way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ..errors import InvalidArgument
from ..measurement import Measurement
from ..privacy import ZCDP, ApproxDP, DiscreteGaussian, DiscreteLaplace, PrivacyLoss, PureDP, RoundedGaussian
from ..products.tables.plan import Plan
from .largest import Largest, norm_of


@dataclass(frozen=True)
class Check:
    """A check that was made.

    ``observed`` is the worst value seen and ``allowed`` the most that it may be, both as floats to read;
    ``passed`` was decided in exact arithmetic. ``observed`` is None where the code under audit raised.
    """

    name: str
    what: str
    observed: float | None
    allowed: float
    passed: bool
    detail: str = ""


def guarded(name: str, what: str, check: Callable[[], Check]) -> Check:
    """The check, or a failed one where the code under audit raises.

    Whatever it raises on records that fit the domain is a finding, so nothing is let through.
    """
    try:
        return check()
    except Exception as error:
        return Check(name, what, None, 0.0, passed=False, detail=f"{type(error).__name__}: {error}")


_DIGITS = 60
_WASTE = 1 - Fraction(1, 10**9)  # a variance this much smaller must break the promise, or noise is wasted


def law_of(loss: PrivacyLoss, noise: str) -> type:
    """The law that a budget and a kind of noise stand for.

    >>> law_of(ZCDP(1), "gaussian").__name__
    'DiscreteGaussian'
    """
    wanted = {
        ("pure", "laplace"): DiscreteLaplace,
        ("approx", "laplace"): DiscreteLaplace,
        ("approx", "gaussian"): RoundedGaussian,
        ("zcdp", "gaussian"): DiscreteGaussian,
    }.get((loss.definition, noise))
    if wanted is None:
        raise InvalidArgument(f"no theorem gives {loss.definition} from {noise} noise")
    return wanted


def units_drawn(measurement: Measurement) -> list[Fraction]:
    """Per block, the parameter drawn for one unit of relative scale, in counts: equal where all is well."""
    parts = measurement.strategy.domain.parts
    return [
        law.parameter / (block.scale * (parts * Fraction(2) ** block.exponent) ** law.power)
        for law, block in zip(measurement.laws, measurement.strategy.blocks, strict=True)
    ]


def spent(loss: PrivacyLoss, noise: str, power: Fraction, unit: Fraction) -> tuple[Fraction, Fraction]:
    """What a change of this weighted power costs under noise of this unit, and what it may cost.

    zCDP: rho = Delta^2 / (2 sigma^2). Laplace: epsilon = Delta / b. Approximate with Gaussian noise: the delta
    of the analytic Gaussian mechanism at the budget's epsilon.

    >>> from tabulae.privacy import ZCDP
    >>> spent(ZCDP("1/2"), "gaussian", Fraction(3), Fraction(3))
    (Fraction(1, 2), Fraction(1, 2))
    """
    if isinstance(loss, ZCDP):
        return power / (2 * unit), loss.amount
    if noise == "laplace" and isinstance(loss, PureDP | ApproxDP):
        return power / unit, loss.amount
    if isinstance(loss, ApproxDP):
        return gaussian_delta(loss.amount, unit / power), loss.delta
    raise InvalidArgument(f"no theorem gives {loss.definition} from {noise} noise")


def wasteful(loss: PrivacyLoss, noise: str, power: Fraction, unit: Fraction) -> bool:
    """Whether clearly less noise would have done for a change of exactly this power."""
    if noise == "gaussian" and isinstance(loss, ApproxDP):
        return gaussian_delta(loss.amount, unit * _WASTE / power) <= loss.delta
    cost, allowed = spent(loss, noise, power, unit)
    return cost < allowed


def gaussian_delta(epsilon: Fraction, variance: Fraction) -> Fraction:
    """The least delta of normal noise of this variance on a query of sensitivity 1, to 50 digits.

    ``Phi(1/(2s) - epsilon s) - e^epsilon Phi(-1/(2s) - epsilon s)``, by the error function.

    Reference: Balle and Wang (2018), Theorem 8.

    >>> round(float(gaussian_delta(Fraction(1), Fraction(1))), 6)
    0.126937
    """
    from mpmath.ctx_mp import MPContext

    mp: Any = MPContext()
    mp.dps = _DIGITS + len(str(int(epsilon)))
    e = mp.mpf(epsilon.numerator) / epsilon.denominator
    s = mp.sqrt(mp.mpf(variance.numerator) / variance.denominator)

    def below(x: Any) -> Any:
        return mp.erfc(-x / mp.sqrt(2)) / 2

    value = below(1 / (2 * s) - e * s) - mp.exp(e) * below(-1 / (2 * s) - e * s)
    return Fraction(int(mp.floor(value * mp.mpf(10) ** 50))) / 10**50


_ANOTHER_LAW = "another law than the budget's definition calls for"
_TOO_MUCH = "more noise than the budget asks for"
_SENSITIVITY = "the largest change found by writing columns out: over the declared sensitivity"
_LAW = "cost of the largest change under the laws drawn: over the budget"
_LEFT_OUT = "cost of the largest change of what is left out, under the laws drawn: over its share"
_BUDGET = "loss of what was measured: over the spec's budget"


def derived_checks(plan: Plan, done: Measurement, worst: Largest) -> Iterator[Check]:
    """Sensitivity, law and total budget of what was measured."""
    yield guarded("sensitivity", _SENSITIVITY, lambda: _sensitivity(plan, worst))
    yield guarded("law", _LAW, lambda: _law(plan, done, worst))
    if plan.spec.left_out is not None:
        yield guarded("left out", _LEFT_OUT, lambda: _left_out(plan, done))
    yield guarded("budget", _BUDGET, lambda: _budget(plan, done))


def of_unit(plan: Plan, worst: Largest) -> Fraction:
    """The power of the change by a unit with as many such records as may be counted, in records."""
    return Fraction(plan.spec.rows_counted) ** norm_of(plan.strategy) * worst.power


def _sensitivity(plan: Plan, worst: Largest) -> Check:
    declared = plan.strategy.sensitivity(*plan.spec.change)
    found = of_unit(plan, worst)
    exact = worst.exhaustive and declared.is_exact
    passed = found == declared.power if exact else found <= declared.power
    share = float(found / declared.power)
    return Check("sensitivity", _SENSITIVITY, share, 1.0, passed, _looked_at(worst, exact=exact))


def _looked_at(worst: Largest, *, exact: bool) -> str:
    kind = {1: "columns", 2: "pairs of columns"}.get(len(worst.cells), "changes of a unit's seats")
    words = f"{worst.seen:,} {kind}" + (", which stand for all" if worst.exhaustive else " of a search")
    return words + ("; equal, exactly" if exact else "; an upper bound is declared")


def _law(plan: Plan, done: Measurement, worst: Largest) -> Check:
    spec, budget = plan.spec, done.budget
    if spec.left_out is not None:
        budget = budget.scaled(1 - spec.left_out.share)
    power, wrong = of_unit(plan, worst), list[str]()
    exact = worst.exhaustive and plan.strategy.sensitivity(*spec.change).is_exact
    if any(type(law) is not law_of(budget, done.strategy.noise) for law in done.laws):
        wrong.append(_ANOTHER_LAW)
    units = units_drawn(done)
    if len(set(units)) > 1:
        wrong.append("blocks whose parameters are not in the proportion of their scales")
    cost, allowed = spent(budget, done.strategy.noise, power, min(units))
    if exact and wasteful(budget, done.strategy.noise, power, max(units)):
        wrong.append(_TOO_MUCH)
    detail = "; ".join(wrong) or f"{len(done.laws)} parameters, as fractions"
    return Check("law", _LAW, float(cost / allowed), 1.0, cost <= allowed and not wrong, detail)


def _left_out(plan: Plan, done: Measurement) -> Check:
    """Half of the share pays for a change of 1, and half for one of the most rows of a unit that count."""
    rule, told, noise = plan.spec.left_out, done.left_out, done.strategy.noise
    if rule is None or told is None or told.rule != rule:
        raise InvalidArgument("what is left out was not measured as the spec says")
    half, costs, wrong = done.budget.scaled(rule.share / 2), list[Fraction](), list[str]()
    if any(type(law) is not law_of(half, noise) for law in told.laws):
        wrong.append(_ANOTHER_LAW)
    for law, most in zip(told.laws, (1, rule.at_most), strict=True):
        power = Fraction(most) ** (2 if noise == "gaussian" else 1)
        cost, allowed = spent(half, noise, power, law.parameter)
        costs.append(cost / allowed)
        if wasteful(half, noise, power, law.parameter):
            wrong.append(_TOO_MUCH)
    detail = "; ".join(wrong) or f"share {rule.share}, at most {rule.at_most:,} rows of one {plan.spec.unit}"
    return Check("left out", _LEFT_OUT, float(max(costs)), 1.0, max(costs) <= 1 and not wrong, detail)


def _budget(plan: Plan, done: Measurement) -> Check:
    promised, used = plan.spec.loss, done.budget
    share = used.amount / promised.amount
    delta = used.parameters.get("delta", Fraction(0)) <= promised.parameters.get("delta", Fraction(0))
    passed = share <= 1 and delta and used.definition == promised.definition
    return Check("budget", _BUDGET, float(share), 1.0, passed, f"{used!r}")
