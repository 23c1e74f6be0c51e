"""Derived figures of areas: rows with intervals, made and compared some areas at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..privacy import NoiseLaw
from ..spec import Spec
from ..spec.derived import Derived
from . import folder as f
from .area_figure_parts import (
    AreaSource,
    FigureForms,
    FormNumbers,
)
from .derived import FOLDER
from .spine_estimates import SpineRelease
from .spine_tables import (
    AREA_COLUMNS,
    AreaPublisher,
    Areas,
    SomeAreas,
    words_of,
)
from .table_files import (
    PublishedRows,
    TableWriter,
    plain,
)
from .tables import (
    ESTIMATED,
    EXACT,
    NOT_ESTIMABLE,
    label_columns,
)
from .write import resource_of

_NUMBERS = ("estimate", "std_error", "ci_low", "ci_high")
_HELD = 1 << 22  # about how many numbers are held at a time
_LOOSE = 1e-6  # relative: what two machines' sums may move the ends of an interval that is nearly unbounded


def figure_schema(derived: Derived) -> pa.Schema:
    """The columns of a figure of areas."""
    words = pa.dictionary(pa.int32(), pa.string())
    fields = [(name, words) for name in (*AREA_COLUMNS, *derived.figure.headings)]
    return pa.schema([*fields, *((name, pa.float64()) for name in _NUMBERS), ("obs_status", words)])


@dataclass(frozen=True, eq=False)
class AreaFigures:
    """Makes the rows of all figures of a release, from its least-squares estimate.

    Args:
        publisher: of its tables.
        laws: of the noise.
    """

    publisher: AreaPublisher
    laws: Sequence[NoiseLaw]

    def rows(self, figures: Sequence[Derived], areas: Sequence[Areas]) -> Iterator[tuple[str, pa.Table]]:
        """Pieces of figures with their names; each figure's in order: by type of area, area and group."""
        forms = {each.name: FigureForms.of(self.publisher.layout, each.figure) for each in figures}
        for kind in areas:
            asked = [each for each in figures if kind.kind in each.areas]
            if not asked:
                continue
            every = self.publisher.variances.covariances(kind.leaf, kind.codes.size)
            for part in kind.parts(self._step([forms[each.name] for each in asked])):
                covariance = np.stack([*islice(every, part.codes.size)])
                for each in asked:
                    yield each.name, self._piece(each, forms[each.name], part, covariance)

    def _step(self, asked: Sequence[FigureForms]) -> int:
        """How many areas are looked at together."""
        layout = self.publisher.layout
        cost = max(form.cost for forms in asked for form in forms.every)
        return max(1, _HELD // max(layout.algebra.kinds * layout.size**2, cost))

    def _piece(
        self, derived: Derived, forms: FigureForms, part: SomeAreas, covariance: np.ndarray
    ) -> pa.Table:
        possible, figure = part.possible(self.publisher.support), derived.figure
        margins = [each.margin for each in forms.every]
        counts = self.publisher.unbiased.margins(margins, part.owner, part.codes.size, part.leaves)
        found = [
            FormNumbers.of(
                each,
                of_margin,
                covariance,
                possible,
                self.laws,
                has_exact=self.publisher.has_exact,
            )
            for each, of_margin in zip(forms.every, counts, strict=True)
        ]
        split = len(found) - len(forms.quantiles)
        joint = found[0] if split else None
        source = AreaSource(forms, joint, tuple(found[split:]), (part.codes.size, figure.rows), self.laws)
        return _arrow(derived, part, *_numbers(source, self.publisher.level))


def _numbers(source: AreaSource, level: float) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The number columns of a figure, and its statuses by position among A, E and Q: shape (areas, m) each."""
    figure = source.forms.figure
    linear = figure.linear.table is not None
    count = linear + len(figure.ratios) + len(figure.quantiles)
    parts = source.parts(1 - (1 - level) / count)
    shift = float(figure.linear.constant) * (not linear)
    exact = np.all([part.exact for part in parts], axis=0)
    total = np.sum([part.estimate for part in parts], axis=0) + shift
    error = parts[0].std_error if count == 1 else source.joint_error(parts)
    low, high = (np.sum([getattr(part, end) for part in parts], axis=0) + shift for end in ("low", "high"))
    known = np.isfinite(total) & np.isfinite(low) & np.isfinite(high)
    columns = {
        "estimate": total,
        "std_error": np.where(exact, 0.0, error),
        "ci_low": np.where(exact, total, low),
        "ci_high": np.where(exact, total, high),
    }
    status = np.where(known, np.where(exact, 1, 0), 2)
    return {name: np.where(known, values, np.nan) for name, values in columns.items()}, status


def _arrow(derived: Derived, part: SomeAreas, numbers: dict[str, np.ndarray], status: np.ndarray) -> pa.Table:
    count, rows = status.shape
    kind, code = AREA_COLUMNS
    columns: dict[str, Any] = {
        kind: words_of(np.zeros(count * rows, np.int32), [part.kind]),
        code: words_of(np.repeat(np.arange(count, dtype=np.int32), rows), part.codes.tolist()),
    }
    for name, column in label_columns(derived.figure.headings).items():
        labels = np.tile(column.indices.to_numpy(), count)
        columns[name] = pa.DictionaryArray.from_arrays(labels, column.dictionary)
    for name, values in numbers.items():
        columns[name] = pa.array(values.ravel(), pa.float64(), from_pandas=True)
    columns["obs_status"] = words_of(status.ravel().astype(np.int32), [ESTIMATED, EXACT, NOT_ESTIMABLE])
    return pa.table(columns, schema=figure_schema(derived))


def figures_of(made: SpineRelease) -> Iterator[tuple[str, pa.Table]]:
    """The rows of all derived figures of a release of areas, in pieces."""
    geography, figures = made.geography, made.spec.derived
    asked = {kind for each in figures for kind in each.areas}
    areas = [Areas(name, *geography.areas(name)) for name in geography.area_types if name in asked]
    yield from AreaFigures(made.publisher, made.plan.all_laws).rows(figures, areas)


def write_area_figures(folder: Path, made: SpineRelease) -> None:
    """Write the files of derived figures.

    Privacy:
        Post-processing of published estimates (Dwork, Roth 2014, Proposition 2.1): nothing of the records enters.
    """
    if not made.spec.derived:
        return
    schemas = {each.name: figure_schema(each) for each in made.spec.derived}
    with TableWriter(folder / FOLDER, schemas) as writer:
        for name, rows in figures_of(made):
            writer.write(name, rows)
    f.sync_folder(folder / FOLDER)


def area_figure_faults(folder: Path, made: SpineRelease) -> Iterator[str]:
    """What is wrong with the stored figures, which are made anew: one sentence a fault."""
    files = {
        each.name: PublishedRows(
            folder / FOLDER, each.name, plain(figure_schema(each)), within=FOLDER, loose=_LOOSE
        )
        for each in made.spec.derived
    }
    for name, rows in figures_of(made) if files else ():
        files[name].compare(rows)
    for file in files.values():
        file.end()
        yield from file.faults


def figure_resource(derived: Derived) -> dict[str, Any]:
    """The entry of a figure in the descriptor."""
    headings = [*AREA_COLUMNS, *derived.figure.headings]
    resource = resource_of(FOLDER, derived.name, headings, derived.figure.sql)
    return resource | {"title": derived.title}


def figure_counts(spec: Spec) -> dict[str, int]:
    """How many rows each derived figure of a release of areas has."""
    geography = spec.geography
    assert geography is not None
    return {
        each.name: each.figure.rows * sum(geography.areas(kind)[0].size for kind in each.areas)
        for each in spec.derived
    }
