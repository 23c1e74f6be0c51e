"""Tables under exact margins: the variances of theory, and sums that agree to the last record."""

from fractions import Fraction

import numpy as np
from scipy import stats

from benchmarks import margins


def test_every_cell_of_the_campus_has_the_same_variance():
    exact = margins.campus()
    assert exact.rank == 740
    assert margins.cell_variances(exact) == {Fraction(13, 14) * Fraction(23, 24)}


def test_simulated_errors_have_it():
    """|Pi_N e|^2 over 40 runs is chi-square of 40 x 5980 degrees: a false alarm once in 10^6 seeds; this one is fixed.

    The same errors 1 % smaller or larger are told apart.
    """
    errors = margins.campus_errors(40, seed=5)
    degrees = 40 * (margins.CAMPUS.size - 740)
    total = float((errors**2).sum())
    for factor, accepted in ((1.0, True), (0.99, False), (1.01, False)):
        value = total * factor**2
        tail = min(stats.chi2.cdf(value, degrees), stats.chi2.sf(value, degrees))
        assert bool(tail > 5e-7) is accepted
    by_hour = errors.reshape(40, *margins.CAMPUS.shape).sum(axis=1)
    assert np.abs(by_hour).max() < 1e-9


def test_all_margins_of_a_cube_are_exact():
    found = {what: value for _, what, value, _ in margins.cube_rows(side=12)}
    assert found["margins that differ from the truth, of 432"] == 0
    assert found["independent invariants"] == 12**3 - 11**3
