"""The picture and the tables of docs/methods/relative-error.md, from what benchmarks.relative_error measured.

python -m benchmarks.relative_page
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.relative_error import Result, at_half, read

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/methods/relative-error.md"
PICTURE = ROOT / "docs/methods/relative-error.svg"

RIVALS = ("wavelet", "hierarchical", "fourier", "datacube")
PAPER = {  # Table 2, relative error on the census at epsilon 0.5: best and worst rival over the eigen-design
    "1D ranges, permuted": (1.51, "wavelet", 2.43, "hierarchical"),
    "1-way range marginals": (1.36, "datacube", 4.93, "fourier"),
    "2-way range marginals": (1.81, "wavelet", 2.38, "datacube"),
    "1D CDF": (0.46, "wavelet", 0.54, "hierarchical"),
    "predicates": (1.42, "fourier", 3.55, "hierarchical"),
}
COLUMNS = {
    ("eigen", "total"): "eigen",
    ("eigen", "relative"): "eigen, scaled",
    ("opt0", "total"): "optimum",
    ("opt0", "relative"): "optimum, scaled",
    ("residual", "total"): "residual",
    ("residual", "relative"): "residual, scaled",
    **{(method, "any"): method for method in (*RIVALS, "identity")},
}

Cells = Mapping[tuple[str, str], Mapping[tuple[str, str], Result]]


def errors_table(cells: Cells) -> str:
    """Mean relative errors, in per cent."""
    lines = [
        "| data | workload | " + " | ".join(COLUMNS.values()) + " |",
        "|---|---|" + "--:|" * len(COLUMNS),
    ]
    for (data, workload), found in cells.items():
        least = min(r.mean_relative_error for r in found.values())
        shown = []
        for key in COLUMNS:
            value = found[key].mean_relative_error if key in found else None
            text = "" if value is None else f"{100 * value:.3g}"
            shown.append(f"**{text}**" if value is not None and value < least * 1.0005 else text)
        lines.append(f"| {data} | {workload} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def paper_table(results: Sequence[Result]) -> str:
    """Table 2's relative rows: what the best and the worst rival err relative to the eigen-design."""
    lines = ["| workload | paper | ours, s = 0.1 % | ours, s = 1 |", "|---|---|---|---|"]
    for workload, (best, by, worst, other) in PAPER.items():
        shown = [f"{best:.2f} ({by}), {worst:.2f} ({other})"]
        for sanity in ("0.1 %", "one"):
            found = at_half(results, sanity)["census", workload]
            eigen = found["eigen", "relative"].mean_relative_error
            rivals = {m: found[m, "any"].mean_relative_error / eigen for m in RIVALS if (m, "any") in found}
            ordered = sorted(rivals, key=lambda m: rivals[m])
            shown.append(", ".join(f"{rivals[m]:.2f} ({m})" for m in (ordered[0], ordered[-1])))
        lines.append(f"| {workload} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def write_tables(results: Sequence[Result]) -> None:
    """Put the tables between the comments that mark their places on the page."""
    text = PAGE.read_text()
    tables = {"errors": errors_table(at_half(results, "0.1 %")), "table 2": paper_table(results)}
    for place, table in tables.items():
        opening, closing = f"<!-- {place} -->\n", f"<!-- end of {place} -->"
        before, rest = text.split(opening)
        _, after = rest.split(closing)
        text = f"{before}{opening}\n{table}\n\n{closing}{after}"
    PAGE.write_text(text)


def draw(cells: Cells) -> None:
    """How many times the least error each strategy errs, by workload."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "tabulae", "svg.fonttype": "none", "font.size": 9})
    import matplotlib.pyplot as plt

    data = ("adult", "census")
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharex=True, sharey=True, constrained_layout=True)
    colours = {method: f"C{i}" for i, method in enumerate(("eigen", "opt0", "residual", *RIVALS, "identity"))}
    for axis, name in zip(axes, data, strict=True):
        workloads = [workload for d, workload in cells if d == name][::-1]
        for key, label in COLUMNS.items():
            points = [
                (cells[name, w][key].ratio_to_best, y)
                for y, w in enumerate(workloads)
                if key in cells[name, w]
            ]
            if points:
                filled = key[1] != "total"
                colour = colours[key[0]]
                axis.scatter(
                    *zip(*points, strict=True), marker="o", s=30, label=label, edgecolors=colour,
                    facecolors=colour if filled else "none",
                )  # fmt: skip
        axis.set_title(name)
        axis.set_yticks(range(len(workloads)), workloads)
        axis.set_xscale("log")
        axis.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
        axis.minorticks_off()
        axis.set_xlabel("mean relative error over the least")
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Draw the picture, and write the tables."""
    draw(at_half(read(), "0.1 %"))
    write_tables(read())


if __name__ == "__main__":
    main()
