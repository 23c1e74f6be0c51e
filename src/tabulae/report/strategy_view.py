"""What was measured, as the page shows it: which attributes are asked together, and each attribute's matrices once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from .. import plots
from .view import (
    BlockView,
    MatrixPicture,
    StrategyView,
)

BLOCKS_SHOWN = 60
"""The page shows at most so many blocks, or parts of them."""

_PICTURES_SHOWN = 12
_MOST_ATTRIBUTES = 16  # columns of circles that a page is wide enough for


@dataclass(frozen=True)
class Drawn:
    """A matrix of one attribute, drawn, and how many blocks ask with it."""

    picture: MatrixPicture
    svg: Markup
    blocks: int


def strategy_context(strategy: StrategyView) -> dict[str, Any]:
    """What the template of the strategy shows beside the strategy itself."""
    shown = strategy.blocks[:BLOCKS_SHOWN]
    asked = tuple(dict.fromkeys(name for block in strategy.blocks for name in block.asked))
    pictures = _distinct(strategy.blocks)
    return {
        "blocks": shown,
        "asked": asked if len(asked) <= _MOST_ATTRIBUTES else (),
        "laplace": any("Laplace" in block.noise for block in strategy.blocks),
        "compared": any(block.compared for block in shown),
        "largest_share": max((block.share or 0.0 for block in shown), default=0.0),
        "shares_in_all": sum(block.share or 0.0 for block in strategy.blocks),
        "drawn": tuple(
            _draw(picture, count, f"m{i}") for i, (picture, count) in enumerate(pictures[:_PICTURES_SHOWN])
        ),
        "reduced": any(each.shape != each.pixels.shape for each, _ in pictures),
        "pictures": len(pictures),
        "undrawn": tuple(dict.fromkeys(name for block in strategy.blocks for name in block.undrawn)),
    }


def _distinct(blocks: tuple[BlockView, ...]) -> list[tuple[MatrixPicture, int]]:
    """Each matrix that some block asks an attribute with, and how many do."""
    found: dict[tuple[Any, ...], list[MatrixPicture]] = {}
    for picture in (picture for block in blocks for picture in block.pictures):
        key = (picture.attribute, picture.shape, picture.pixels.shape, picture.pixels.tobytes())
        found.setdefault(key, []).append(picture)
    return [(same[0], len(same)) for same in found.values()]


def _draw(picture: MatrixPicture, blocks: int, name: str) -> Drawn:
    rows, columns = picture.shape
    label = f"Strategy on {picture.attribute}: a matrix of {rows} queries by {columns} values."
    # matplotlib escapes text nodes and the figures escape their labels; tests feed both hostile names.
    svg = Markup(plots.matrix(picture.pixels, picture.attribute, label, name))  # noqa: S704
    return Drawn(picture, svg, blocks)
