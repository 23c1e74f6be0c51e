"""The numbers of the built-in population: its categories, and how often each occurs where."""

from __future__ import annotations

import numpy as np

#: What the columns of the population hold, in the order of their codes.
COUNTIES = tuple(f"{2 * i + 1:03d}" for i in range(12))
SEXES = ("F", "M")
RACES = ("1", "2", "3", "4", "5", "6")
ETHNICITIES = ("hispanic", "not hispanic")
RELATIONSHIPS = (
    "householder",
    "spouse",
    "partner",
    "child",
    "other relative",
    "nonrelative",
    "group quarters",
)
QUARTERS = ("household", "student", "nursing", "military", "correctional", "other")
OLDEST = 99

HOUSEHOLDER, SPOUSE, PARTNER, CHILD, RELATIVE, NONRELATIVE, IN_QUARTERS = range(7)
STUDENT, NURSING, MILITARY, CORRECTIONAL, OTHER = range(1, 6)

# One row a county: share of households, how old its householders are (0 young .. 1 old), and the mix of
# races of its householders. Orders of magnitude are those of an American state; no county is a real one.
COUNTY_SHARES = np.array(
    [0.372, 0.204, 0.138, 0.091, 0.068, 0.049, 0.033, 0.021, 0.0125, 0.0066, 0.0033, 0.0016]
)
COUNTY_AGES = np.array([0.35, 0.45, 0.50, 0.20, 0.55, 0.60, 0.65, 0.70, 0.60, 0.75, 0.80, 0.55])
COUNTY_RACES = np.array(
    [
        [0.560, 0.215, 0.006, 0.095, 0.0020, 0.122],
        [0.705, 0.098, 0.004, 0.110, 0.0010, 0.082],
        [0.818, 0.062, 0.004, 0.042, 0.0008, 0.073],
        [0.744, 0.071, 0.005, 0.103, 0.0012, 0.076],
        [0.902, 0.024, 0.004, 0.013, 0.0004, 0.057],
        [0.463, 0.452, 0.003, 0.014, 0.0004, 0.068],
        [0.931, 0.011, 0.008, 0.006, 0.0003, 0.044],
        [0.872, 0.009, 0.006, 0.007, 0.0150, 0.091],
        [0.417, 0.006, 0.502, 0.005, 0.0005, 0.070],
        [0.958, 0.004, 0.007, 0.004, 0.0002, 0.027],
        [0.966, 0.003, 0.006, 0.003, 0.0001, 0.022],
        [0.972, 0.002, 0.010, 0.002, 0.0000, 0.014],
    ]
)
# Chance that a householder is Hispanic: a county's level times a race's factor.
COUNTY_HISPANIC = np.array([0.17, 0.10, 0.08, 0.09, 0.05, 0.04, 0.11, 0.26, 0.06, 0.02, 0.015, 0.03])
RACE_HISPANIC = np.array([0.80, 0.25, 0.70, 0.06, 0.60, 3.20])

# Chance by householder's age (18-24, 25-34, 35-44, 45-54, 55-64, 65-74, 75 and over).
HOUSEHOLDER_BANDS = np.array([25, 35, 45, 55, 65, 75])
HOUSEHOLDERS_YOUNG = np.array([0.10, 0.24, 0.21, 0.17, 0.14, 0.10, 0.06])
HOUSEHOLDERS_OLD = np.array([0.02, 0.08, 0.12, 0.17, 0.23, 0.22, 0.19])
MARRIED = np.array([0.08, 0.38, 0.54, 0.55, 0.56, 0.56, 0.38])
PARTNERED = np.array([0.16, 0.14, 0.08, 0.06, 0.05, 0.03, 0.01])
# Number of children at home, 0 to 6: a row by the householder's age, for those who live with a partner.
CHILDREN = np.array(
    [
        [0.62, 0.25, 0.10, 0.02, 0.007, 0.002, 0.001],
        [0.35, 0.26, 0.24, 0.10, 0.035, 0.010, 0.005],
        [0.14, 0.20, 0.37, 0.19, 0.070, 0.020, 0.010],
        [0.28, 0.28, 0.29, 0.11, 0.030, 0.007, 0.003],
        [0.68, 0.21, 0.09, 0.015, 0.004, 0.0007, 0.0003],
        [0.90, 0.08, 0.017, 0.002, 0.0007, 0.0002, 0.0001],
        [0.94, 0.055, 0.004, 0.0007, 0.0002, 0.0001, 0.0],
    ]
)
RELATIVES = np.array([0.905, 0.065, 0.020, 0.007, 0.003])
NONRELATIVES_YOUNG = np.array([0.62, 0.22, 0.10, 0.06])
NONRELATIVES = np.array([0.955, 0.033, 0.008, 0.004])

# Group quarters: 2.8 % of people; how many of each kind (columns) live in each county (rows); the ages,
# the share of women and how strongly each race is over-represented there.
QUARTERS_SHARE = 0.028
QUARTERS_PLACES = np.array(
    [
        [0.080, 0.070, 0.000, 0.012, 0.030],
        [0.020, 0.045, 0.000, 0.110, 0.012],
        [0.012, 0.032, 0.000, 0.000, 0.008],
        [0.240, 0.018, 0.000, 0.000, 0.005],
        [0.006, 0.021, 0.000, 0.000, 0.003],
        [0.000, 0.012, 0.000, 0.085, 0.003],
        [0.000, 0.010, 0.052, 0.000, 0.002],
        [0.004, 0.008, 0.000, 0.000, 0.003],
        [0.000, 0.003, 0.000, 0.020, 0.002],
        [0.000, 0.003, 0.000, 0.000, 0.001],
        [0.000, 0.002, 0.000, 0.000, 0.000],
        [0.000, 0.000, 0.000, 0.000, 0.000],
    ]
)
QUARTERS_AGES = {
    STUDENT: (18, 25),
    NURSING: (62, 99),
    MILITARY: (18, 42),
    CORRECTIONAL: (18, 70),
    OTHER: (1, 90),
}
QUARTERS_WOMEN = np.array([0.0, 0.54, 0.68, 0.16, 0.09, 0.42])
QUARTERS_RACES = np.array(
    [
        [1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        [0.9, 1.0, 0.8, 2.6, 1.5, 1.3],
        [1.2, 0.8, 0.7, 0.5, 0.5, 0.4],
        [0.9, 1.5, 1.2, 0.9, 6.0, 1.4],
        [0.6, 3.6, 2.8, 0.2, 1.2, 1.8],
        [0.8, 1.7, 1.8, 0.6, 1.0, 1.2],
    ]
)
