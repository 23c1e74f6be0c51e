"""An invented census: 15 million people by age, occupation, income and education, skewed and correlated.

The microdata of the published experiment (a census by age, occupation and income) may not be passed on, so the study
of relative errors counts people who never lived. What they share with real ones: occupations of very different sizes,
schooling that depends on the cohort, incomes that grow with schooling, the level of the job and age up to a point, a
peak of people without income, and a long tail of cells with few people or none. The joint law is a product of
conditional ones,

    P(age) P(education | age) P(occupation | age, education) P(income | age, occupation, education),

and the counts are one multinomial draw from it: whoever has the seed has the same people.

python -m benchmarks.census      what the counts look like
"""

from __future__ import annotations

import numpy as np

SHAPE = {"age": 8, "occupation": 16, "income": 16, "education": 16}
PEOPLE = 15_000_000

_AGES = np.array(
    [15.0, 14.0, 16.0, 15.0, 13.0, 12.0, 9.0, 6.0]
)  # ten years each, from 15 on; the last is open


def census(people: int = PEOPLE, seed: int = 2012) -> np.ndarray:
    """Counts (8, 16, 16, 16), int64, by age, occupation, income and education; they add up to ``people``."""
    counts = np.random.default_rng(seed).multinomial(people, law().ravel())
    return counts.reshape(tuple(SHAPE.values())).astype(np.int64)


def law() -> np.ndarray:
    """The probability of each cell, (8, 16, 16, 16)."""
    age, occupation, income, education = np.meshgrid(*(np.arange(n) for n in SHAPE.values()), indexing="ij")
    level = (5 * occupation + 3) % 16  # of the job, from labourer to professor; sizes do not follow it
    by_age = np.log(_AGES)[age]
    by_education = (
        -((education - 9.5 + 0.6 * age) ** 2) / 18 + 1.2 * (education == 8) + 0.9 * (education == 12)
    )  # schooling grew from cohort to cohort; certificates are earned at two stages
    by_occupation = -1.3 * np.log(1 + occupation) - ((education - level) / 5.0) ** 2
    centre = 1.5 + 0.35 * education + 0.2 * level - 0.45 * np.abs(age - 3.5)
    nothing = 2.0 * (income == 0) * (1 + (age == 0) + (age >= 6))
    by_income = -((income - centre) ** 2) / 7 + nothing
    return (
        _conditional(by_age[:, :1, :1, :1], (0,))
        * _conditional(by_education[:, :1, :1, :], (3,))
        * _conditional(by_occupation[:, :, :1, :], (1,))
        * _conditional(by_income, (2,))
    )


def _conditional(logits: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Probabilities proportional to exp(logits) that add up to 1 over some axes."""
    weights = np.exp(logits - logits.max(axis=axes, keepdims=True))
    return weights / weights.sum(axis=axes, keepdims=True)


if __name__ == "__main__":
    people = census()
    print(
        f"{people.sum():,} people in {people.size:,} cells, {np.count_nonzero(people == 0):,} of them empty"
    )
    for axis, name in enumerate(SHAPE):
        others = tuple(k for k in range(4) if k != axis)
        print(f"{name:11}", *(f"{count:>10,}" for count in people.sum(axis=others)))
    small = people.sum(axis=3)
    print(
        f"without education: {small.size:,} cells, {np.count_nonzero(small < 100):,} of them below 100 people"
    )
