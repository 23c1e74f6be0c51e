"""Pictures of docs/methods/strategies.md from benchmarks/results/strategies.csv.

python -m benchmarks.strategies_figures
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.strategies import GROUPS, SHARES, Cells, proven, ratio, read
from benchmarks.strategies_page import NAMES

PICTURES = Path(__file__).parents[1] / "docs/methods"
WORKLOADS = {
    "all-range": "all ranges",
    "prefix": "prefixes",
    "width-32": "ranges of 32",
    "permuted": "shuffled cells",
}
SIZES = (64, 256, 1024, 4096)
LINES = {
    "gaussian": ("identity", "hierarchical", "wavelet", "hb", "greedy-h", "coa", "eigen", "opt0"),
    "laplace": ("identity", "hierarchical", "wavelet", "hb", "greedy-h", "low-rank", "opt0"),
}
COLOURS = {
    "identity": "0.55", "hierarchical": "#8c564b", "wavelet": "#9467bd", "hb": "#1f77b4", "greedy-h": "#17becf",
    "coa": "#bcbd22", "low-rank": "#bcbd22", "eigen": "#d62728", "opt0": "black",
}  # fmt: skip


def _pyplot():
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "tabulae", "svg.fonttype": "none", "font.size": 9})
    return plt


def draw_ratios(cells: Cells) -> None:
    """HDMM's Tables 4 and 5: error over the bound, by cells."""
    from matplotlib.lines import Line2D

    plt = _pyplot()
    figure, axes = plt.subplots(4, 2, figsize=(4.6, 8.2), sharex=True, layout="constrained")
    for row, (name, title) in zip(axes, WORKLOADS.items(), strict=True):
        for axis, (noise, methods) in zip(row, LINES.items(), strict=True):
            for method in methods:
                points = [(n, cells.get((f"{name}-{n}", noise, method))) for n in SIZES]
                known = [
                    (n, ratio(cells, cell))
                    for n, cell in points
                    if cell is not None and cell.rmse is not None
                ]
                xs, ys = zip(*known, strict=True) if known else ((), ())
                axis.plot(xs, ys, color=COLOURS[method], marker=".", lw=1.2, ms=4)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xticks(SIZES, [str(n) for n in SIZES])
            axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
            axis.yaxis.set_minor_formatter(lambda y, _: f"{y:g}" if y in (2, 3, 5) else "")
            axis.tick_params(labelsize=7, which="both")
            axis.set_title(f"{title}, {noise.capitalize()}", fontsize=8)
    figure.supylabel("error / proven bound", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("cells", fontsize=8)
    handles = [Line2D([], [], color=c, marker=".", label=_label(m)) for m, c in COLOURS.items() if m != "coa"]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=7, frameon=False)
    figure.savefig(PICTURES / "strategies-ratios.svg", metadata={"Date": None})
    plt.close(figure)


def _label(method: str) -> str:
    return "COA, LRM" if method == "low-rank" else NAMES[method]


def draw_reduced(cells: Cells) -> None:
    """The Eigen-Design paper's Figure 4: error against seconds."""
    from matplotlib.lines import Line2D

    plt = _pyplot()
    figure, axes = plt.subplots(2, 1, figsize=(4.4, 5.6), layout="constrained")
    names = {
        "ranges-8192": "all ranges, 8,192 cells",
        "marginals-2-8192": "two-way marginals, 16 x 16 x 8 x 4",
    }
    for axis, (name, title) in zip(axes, names.items(), strict=True):
        bound = proven(cells, name, "gaussian")
        for prefix, sizes, colour, unit in (
            ("eigen-separation", GROUPS, "#1f77b4", ""),
            ("principal-vectors", SHARES, "#d62728", " %"),
        ):
            found = [(size, cells.get((name, "gaussian", f"{prefix}-{size}"))) for size in sizes]
            known = [(s, c.cpu_s, c.rmse / bound) for s, c in found if c and c.rmse and bound]
            axis.plot([x for _, x, _ in known], [y for *_, y in known], color=colour, marker="o", ms=4, lw=1)
            for size, x, y in known:
                axis.annotate(
                    f"{size}{unit}",
                    (x, y),
                    textcoords="offset points",
                    xytext=(4, 4),
                    fontsize=7,
                    color=colour,
                )
        whole = cells.get((name, "gaussian", "program-1"))
        if whole is not None and whole.rmse and bound:
            axis.plot([whole.cpu_s], [whole.rmse / bound], "k*", ms=9)
        axis.set_xscale("log")
        axis.margins(0.1)
        axis.set_title(title, fontsize=8)
        axis.set_ylabel("error / SVD bound", fontsize=8)
        axis.tick_params(labelsize=7)
    axes[1].set_xlabel("CPU seconds of weighting", fontsize=8)
    handles = [
        Line2D([], [], color="#1f77b4", marker="o", label="separation, by group size"),
        Line2D([], [], color="#d62728", marker="o", label="principal vectors, by share"),
        Line2D([], [], color="k", marker="*", ls="", label="all weights"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=7, frameon=False)
    figure.savefig(PICTURES / "strategies-reduced.svg", metadata={"Date": None})
    plt.close(figure)


def main() -> int:
    """Draw both."""
    cells = read()
    draw_ratios(cells)
    draw_reduced(cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
