"""Tables of docs/methods/strategies.md from benchmarks/results/strategies.csv: python -m benchmarks.strategies_page

A number is ours; the printed one follows in brackets where ours, rounded as printed, is another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.strategies import (
    BOUNDS,
    GROUPS,
    RELATIVE,
    SHARES,
    TREES,
    Cells,
    ours,
    proven,
    published,
    read,
    value_of,
)
from benchmarks.strategies_paper import PRINTED, Key
from benchmarks.strategies_workloads import MARGINAL_SHAPES, SHAPES

from benchmarks import hdmm

PAGE = Path(__file__).parents[1] / "docs/methods/strategies.md"
NAMES = {
    "identity": "Identity", "workload-alone": "noise on queries", "hierarchical": "H2", "wavelet": "Wavelet",
    "hb": "HB", "hb-l1": "HB, b of Laplace", "greedy-h": "GreedyH", "fourier": "Fourier", "datacube": "DataCube",
    "datacube-cover": "one cover", "low-rank": "LRM", "coa": "COA", "eigen": "Eigen-Design", "opt0": "OPT₀",
    "svd": "SVDB", "dual": "bound", "kron": "OPT⊗", "union-each": "OPT₊", "marginals": "OPT_M",
    "design-wavelet": "Wavelet as design",
    "design-fourier": "Fourier as design", "program-2": "Eigen-Design, all cells", "program-1": "Program 1, all",
}  # fmt: skip


def page_tables(cells: Cells) -> dict[str, str]:
    """Markdown tables by the name of their place on the page."""
    one, several = list(hdmm.ONE), list(hdmm.SEVERAL)
    return {
        "table 4": _errors(cells, one, "laplace", ("identity", *TREES, "low-rank", "opt0", "svd", "dual")),
        "table 5": _errors(
            cells,
            one,
            "gaussian",
            ("identity", *TREES[:3], "hb-l1", "greedy-h", "coa", "eigen", "opt0", "svd", "dual"),
        ),
        "table 6": _errors(cells, several, "laplace", _SEVERAL),
        "table 7": _errors(cells, several, "gaussian", _SEVERAL),
        "example 4": _example_4(cells),
        "figure 3 a": _multiples(
            cells,
            [f"{kind}-{shape}" for kind in ("ranges", "random-ranges") for shape in SHAPES],
            ("wavelet", "hierarchical"),
        ),
        "figure 3 c": _multiples(
            cells,
            [f"{kind}-{shape}" for kind in ("marginals-2", "random-marginals") for shape in MARGINAL_SHAPES],
            ("fourier", "datacube"),
        ),
        "table 2": _multiples(
            cells, RELATIVE, ("wavelet", "hierarchical", "fourier", "datacube"), with_printed=True
        ),
        "figure 4": _reduced(cells),
        "figure 5": _multiples(
            cells,
            ("ranges-2048", "permuted-2048", "marginals-2-8x16x16", "permuted-marginals-2"),
            ("design-wavelet", "design-fourier", "wavelet", "fourier"),
        ),
        "laplace": _weighted_bases(cells),
        "seconds": _seconds(cells),
    }


_SEVERAL = (
    "identity", "workload-alone", "datacube", "datacube-cover", "kron", "union-each", "marginals", "svd", "dual",
)  # fmt: skip


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """A Markdown table; the first columns are text, the others numbers."""
    rule = "|---" * texts + "|--:" * (len(head) - texts) + "|"
    return "\n".join(["| " + " | ".join(head) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)])


def number(value: float | None) -> str:
    """Four digits or two decimals, whichever says more."""
    if value is None:
        return ""
    return f"{value:.3g}" if value >= 1e5 else f"{value:,.2f}"


def _beside(value: float | None, printed: float | None) -> str:
    """Ours, and in brackets the printed number where it is another."""
    if value is None:
        return "" if printed is None else f"({number(printed)})"
    same = printed is None or abs(value - printed) <= max(0.0051, 1e-7 * printed)
    return number(value) if same else f"{number(value)} ({number(printed)})"


def _errors(cells: Cells, names: Sequence[str], noise: str, methods: Sequence[str]) -> str:
    rows = []
    for name in names:
        keys: list[Key] = [(name, noise, m) for m in methods]
        if not any(k in cells for k in keys):
            continue

        def shown(key: Key, name: str = name) -> str:
            if key[2] == "dual":
                return number(proven(cells, name, noise))
            value = value_of(cells[key]) if key in cells else None
            return _beside(value, None if key[2] == "hb" and noise == "gaussian" else PRINTED.get(key))

        rows.append([name, *map(shown, keys)])
    return _table(["workload", *(NAMES[m] for m in methods)], rows)


def _example_4(cells: Cells) -> str:
    methods = ("workload-alone", "identity", "wavelet", "program-2", "eigen", "svd", "dual")
    rows = []
    labels = NAMES | {"eigen": "Eigen-Design, cells merged"}
    for method in methods:
        key = ("example-4", "gaussian", method)
        value = value_of(cells[key]) if key in cells else None
        printed = PRINTED.get(key)
        share = "" if value is None or printed is None else f"{100 * (value / printed - 1):+.2f} %"
        rows.append([labels[method], number(printed), number(value), share])
    return _table(["strategy", "paper", "ours", "difference"], rows)


def _multiples(
    cells: Cells, names: Sequence[str], methods: Sequence[str], *, with_printed: bool = False
) -> str:
    """The error of "eigen", and how many times it others have; the bounds likewise, below 1."""
    methods = (*methods, *BOUNDS)
    rows = []
    for name in names:
        eigen = published(cells, name)
        if eigen is None or eigen.rmse is None:
            continue
        row = [name, number(eigen.rmse)]
        for method in methods:
            cell = cells.get((name, "gaussian", method))
            value = None if cell is None else value_of(cell)
            times = None if value is None else value / eigen.rmse
            printed = PRINTED.get((name, "gaussian", method)) if with_printed else None
            digits = 3 if method in BOUNDS else 2
            text = "" if times is None else f"{times:.{digits}f}"
            row.append(text if printed is None else f"{text} ({printed:.2f})")
        rows.append([*row, f"{eigen.cpu_s:.1f}"])
    labels = [NAMES[m] if m != "dual" else "best bound" for m in methods]
    return _table(["workload", "Eigen-Design", *labels, "CPU s"], rows)


def _reduced(cells: Cells) -> str:
    """Figure 4: error over the bound and CPU seconds, with groups and with shares."""
    names = ("ranges-8192", "marginals-2-8192")
    methods = [
        "program-1",
        *(f"eigen-separation-{g}" for g in GROUPS),
        *(f"principal-vectors-{p}" for p in SHARES),
        "hierarchical", "wavelet", "fourier", "datacube",
    ]  # fmt: skip
    rows = []
    for method in methods:
        row = [_reduced_name(method)]
        for name in names:
            cell = cells.get((name, "gaussian", method))
            bound = proven(cells, name, "gaussian")
            known = cell is not None and cell.rmse is not None and bound is not None
            row += [f"{cell.rmse / bound:.3f}", f"{cell.cpu_s:.2f}"] if known else ["", ""]  # type: ignore[union-attr, operator]
        rows.append(row)
    return _table(
        ["method", "all ranges: error / bound", "CPU s", "2-way marginals: error / bound", "CPU s"], rows
    )


def _reduced_name(method: str) -> str:
    kind, _, size = method.rpartition("-")
    if kind == "eigen-separation":
        return f"separation, groups of {size}"
    return f"principal vectors, {size} %" if kind == "principal-vectors" else NAMES[method]


def _weighted_bases(cells: Cells) -> str:
    """Section 3.5: a basis under Laplace noise as it is, and with the best weights."""
    rows = []
    for name, basis, said in (
        ("ranges-2048", "wavelet", "1.1"),
        ("random-ranges-2048", "wavelet", "1.5"),
        ("marginals-2-8x16x16", "fourier", "1.6"),
        ("marginals-2-2^11", "fourier", "1.6"),
    ):
        plain, best = (cells.get((name, "laplace", m)) for m in (basis, f"design-{basis}"))
        if plain is not None and best is not None and plain.rmse and best.rmse:
            rows.append(
                [name, basis, number(plain.rmse), number(best.rmse), f"{plain.rmse / best.rmse:.2f}", said]
            )
    return _table(["workload", "basis", "as it is", "weighted", "gain", "paper"], rows, 2)


def _seconds(cells: Cells) -> str:
    sizes = [64, 256, 1024, 4096]

    def shown(noise: str, method: str) -> Callable[[int], str]:
        def at(n: int) -> str:
            cell = cells.get((f"all-range-{n}", noise, method))
            return "" if cell is None or cell.rmse is None else f"{cell.cpu_s:.2f}"

        return at

    rows = [
        [NAMES[method], noise, *map(shown(noise, method), sizes)]
        for noise, methods in (
            ("gaussian", ("hierarchical", "wavelet", "hb", "greedy-h", "eigen", "coa", "opt0")),
            ("laplace", ("greedy-h", "low-rank", "opt0")),
        )
        for method in methods
    ]
    return _table(["method", "noise", *(f"n = {n:,}" for n in sizes)], rows, 2)


def write_page(cells: Cells) -> None:
    """Put the tables into the docs page, between the comments that mark their places."""
    text = PAGE.read_text()
    for place, table in page_tables(cells).items():
        opening, closing = f"<!-- {place} -->\n", f"<!-- end of {place} -->"
        before, rest = text.split(opening)
        _, after = rest.split(closing)
        text = f"{before}{opening}\n{table}\n\n{closing}{after}"
    PAGE.write_text(text)


__all__ = ["number", "ours", "page_tables", "write_page"]


if __name__ == "__main__":
    write_page(read())
