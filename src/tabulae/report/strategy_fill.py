"""From a release's strategy to what its report shows: the blocks in words, and their matrices as pictures."""

from __future__ import annotations

from dataclasses import replace

from ..domain import Domain
from ..linalg import (
    Contrasts,
    Identity,
    LinearOperator,
    Product,
    weighted_rows,
)
from ..privacy import NoiseLaw
from ..release import Release
from ..strategy import Block, Strategy, method_words
from .pictures import picture_of
from .strategy_parts import (
    Part,
    largest_entry,
    parts_of,
)
from .strategy_view import BLOCKS_SHOWN
from .view import (
    BlockView,
    MatrixPicture,
    StrategyView,
)

_ONE_SIDED = (
    "standard errors and intervals are those of plain least squares, the intervals cut at zero and widened to be "
    "symmetric about the estimate"
)
_ESTIMATES = {
    "least-squares": "by least squares, so that all tables agree with each other",
    "non-negative": "by least squares among counts that are nowhere below zero, so that all tables agree; "
    + _ONE_SIDED,
    "pgm": "through a graphical model, so that no count is below zero and all tables agree; " + _ONE_SIDED,
}
_WITH_EXACT = {
    "least-squares": (
        "and from the exact counts: by least squares for what the exact counts leave open, where nothing but the noisy "
        "answers enters, and from the exact counts for the rest, so that all tables agree with each other and keep "
        "every exact sum to the last digit"
    ),
    "non-negative": (
        "and from the exact counts together: by least squares among counts that are nowhere below zero and keep every "
        "exact sum. Because of the limit at zero the exact counts enter everywhere, also into what they do not "
        "determine, so that each number is a function of both; " + _ONE_SIDED
    ),
}


def strategy_view(release: Release) -> StrategyView:
    """The strategy of a release of tables, its blocks taken apart by what they ask about together."""
    measurement, spec = release.measurements[0], release.spec
    strategy = measurement.strategy
    in_total = spec.targets is None and spec.method.objective == "total"  # what the certificate is about
    parts = [
        (part, law)
        for block, law in zip(strategy.blocks, measurement.laws, strict=True)
        for part in parts_of(block, release.domain)
    ]
    shares = block_shares(strategy, [part.block for part, _ in parts], spec.neighbours, spec.rows_per_unit)
    blocks = tuple(
        _block(part, law, release.domain, share) for (part, law), share in zip(parts, shares, strict=True)
    )
    return StrategyView(
        method_words(strategy.method),
        blocks,
        strategy.certificate if in_total else None,
        (_WITH_EXACT if spec.invariants else _ESTIMATES)[spec.method.estimate],
    )


def block_shares(
    strategy: Strategy, parts: list[Block], neighbours: str, stability: int
) -> tuple[float | None, ...]:
    """What each part would cost by itself, as a share of what all cost together.

    For sensitivities ``Delta_p`` of a part and ``Delta`` of all, in units of the noise: ``Delta_p^2 / Delta^2``
    under Gaussian noise (its share of rho), ``Delta_p / Delta`` under Laplace noise (of epsilon). Their sum is 1 or
    more. None where there is one part, or more than a page shows.

    >>> from tabulae import Domain, Workload, select
    >>> both = Workload.marginals(Domain({"a": 2, "b": 3}), ways=[1])
    >>> strategy = select(both, method="workload", noise="gaussian")
    >>> block_shares(strategy, list(strategy.blocks), "add-remove", 1)
    (0.5, 0.5)
    """
    if not 1 < len(parts) <= BLOCKS_SHOWN:
        return (None,) * len(parts)
    whole = strategy.sensitivity(neighbours, stability).power
    return tuple(
        float(replace(strategy, blocks=(part,)).sensitivity(neighbours, stability).power / whole)
        for part in parts
    )


def _block(part: Part, law: NoiseLaw, domain: Domain, share: float | None) -> BlockView:
    pictures, undrawn = _pictures(part, domain)
    block = part.block
    return BlockView(
        block.name,
        _measures(block, domain, part.asked),
        block.rows,
        _noise(block, law),
        tuple(pictures),
        tuple(undrawn),
        part.asked,
        part.compared,
        share,
        law.size * 2.0**-block.exponent / (_weight(block) or 1.0),
    )


def _pictures(part: Part, domain: Domain) -> tuple[list[MatrixPicture], list[str]]:
    """The matrices that the attributes are asked with, one each or one for all, and what is too large to be drawn."""
    query = part.block.query
    if isinstance(query, Contrasts):  # what is crossed with differences of values
        names = [
            attribute.name
            for attribute, within, classes in zip(domain.attributes, query.within, query.classes, strict=True)
            if within is None and classes.shape[0] > 1
        ]
        matrices = [(" × ".join(names), query.matrix)] if names else []
    elif isinstance(query, Product) and weighted_rows(query) is None:
        matrices = [(" × ".join(part.asked), query.left)] if part.asked else []
    else:
        factors = zip(domain.attributes, _finest(part.block), strict=True)
        matrices = [(attribute.name, factor) for attribute, factor in factors if attribute.name in part.asked]
    drawn = [(name, picture_of(name, matrix)) for name, matrix in matrices]
    return [found for _, found in drawn if found], [name for name, found in drawn if found is None]


def _finest(block: Block) -> list[LinearOperator]:
    """For each attribute the matrix with most rows among those that the block is made of."""
    sides = zip(*(factors for _, factors in block.terms), strict=True)
    return [max(side, key=lambda factor: factor.shape[0]) for side in sides]


def _measures(block: Block, domain: Domain, asked: tuple[str, ...]) -> str:
    if not asked:
        return "the total"
    factors = dict(zip((a.name for a in domain.attributes), _finest(block), strict=True))
    plain = all(isinstance(factors[name], Identity) for name in asked)
    return " by ".join(asked) if plain else "weighted counts over " + " by ".join(asked)


def _noise(block: Block, law: NoiseLaw) -> str:
    weight, grid = _weight(block), "" if block.exponent == 0 else f", in steps of 2^-{block.exponent}"
    counts = "counts" if abs(weight - 1) < 1e-3 else f"on counts weighted up to {weight:.4g}"
    return f"{law.words} {law.size * 2.0**-block.exponent:.4g} {counts}{grid}"


def _weight(block: Block) -> float:
    """The largest weight that a question gives to a count."""
    return largest_entry(block.query) * 2.0**-block.exponent
