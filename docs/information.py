"""Draws the picture of the information operator: ``python docs/information.py`` writes docs/assets/information.svg.

The numbers are those of the example in docs/concepts.md. The same matplotlib writes the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

OUT = Path(__file__).parent / "assets/information.svg"
INK, MUTED, RULE, ACCENT, WARM = "#23282f", "#5b626d", "#d9d6cf", "#1f5673", "#b4552d"
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "svg.fonttype": "none",
    "svg.hashsalt": "information",
    "text.color": INK,
    "text.parse_math": False,
}
HALVES = np.kron(np.eye(2), np.ones((1, 4)))
BLOCKS = (
    ("total", np.ones((1, 8)), 8.0, "variance 8"),
    ("halves", HALVES, 4.0, "variance 4"),
    ("cells", np.eye(8), 1.6, "variance 8/5"),
)
COUNTS = np.array([5.0, 3.0, 0.0, 2.0, 9.0, 4.0, 4.0, 1.0])
WIDE, HIGH = 6.2, 6.4


def information() -> NDArray[np.float64]:
    """P = sum_i A_i' A_i / s_i, (8, 8)."""
    return sum((A.T @ A / variance for _, A, variance, _ in BLOCKS), np.zeros((8, 8)))


def place(figure: Figure, left: float, top: float, wide: float, high: float) -> Axes:
    """Axes at a place in inches from the upper left corner."""
    return figure.add_axes((left / WIDE, 1 - (top + high) / HIGH, wide / WIDE, high / HIGH))


def draw(axes: Axes, matrix: NDArray[np.float64], colour: str, largest: float = 1.0) -> None:
    """A matrix as cells, darker where entries are larger."""
    rows, columns = matrix.shape
    colours = mpl.colors.LinearSegmentedColormap.from_list("one", ["#ffffff", colour])
    axes.pcolormesh(matrix[::-1], cmap=colours, vmin=0, vmax=largest, edgecolors=RULE, linewidth=0.6)
    axes.set(xlim=(0, columns), ylim=(0, rows), aspect="equal")
    axes.set_axis_off()


def words(figure: Figure, left: float, top: float, text: str, **look: object) -> None:
    """Text at a place in inches from the upper left corner."""
    figure.text(left / WIDE, 1 - top / HIGH, text, va="top", **look)


def picture() -> Figure:
    """The picture: questions above, their sum in the middle, its three readings below."""
    figure = Figure(figsize=(WIDE, HIGH))
    top = 0.1
    words(figure, 0.1, top, "Blocks of questions Aᵢ, noise Sᵢ", color=MUTED)
    cell, top = 0.19, 0.5
    for name, A, _, noise in BLOCKS:
        draw(place(figure, 0.15, top, 8 * cell, A.shape[0] * cell), A, ACCENT)
        words(
            figure, 1.85, top + A.shape[0] * cell / 2 - 0.17, f"{name}\n{noise}", linespacing=1.3, fontsize=10
        )
        top += A.shape[0] * cell + 0.26
    words(figure, 2.98, 1.45, "→", fontsize=22, color=WARM)
    words(figure, 3.55, 0.1, "Their information operator", color=MUTED)
    P = information()
    draw(place(figure, 3.6, 0.5, 2.3, 2.3), P, ACCENT)
    words(figure, 3.72, 2.95, "P = Σ Aᵢ′ Sᵢ⁻¹ Aᵢ", fontsize=15)
    readings = (
        ("privacy reads\nits diagonal", np.diag(np.diag(P)), WARM, "ρ = max Pⱼⱼ / 2\n= 1/2"),
        ("accuracy reads\nits inverse", np.abs(np.linalg.inv(P)), ACCENT, "Var = diag(W P⁻¹ W′)\nRMSE 1.603"),
        ("the estimate\nsolves with it", COUNTS[:, None], ACCENT, "x̂ = P⁻¹ Σ Aᵢ′ Sᵢ⁻¹ yᵢ\nall tables agree"),
    )
    for k, (title, matrix, colour, formula) in enumerate(readings):
        left = 0.15 + 2.05 * k
        words(figure, left, 3.6, title, linespacing=1.25, color=MUTED)
        wide = 1.45 * matrix.shape[1] / 8
        draw(place(figure, left, 4.2, wide, 1.45), matrix, colour, float(matrix.max()))
        words(figure, left, 5.8, formula, linespacing=1.4, fontsize=10)
    return figure


def main(out: Path = OUT) -> None:
    """Write the picture."""
    with mpl.rc_context(STYLE):
        picture().savefig(out, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")


if __name__ == "__main__":
    main()
