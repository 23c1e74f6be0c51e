"""Read, verify and query a release: everything from the folder alone, at no privacy cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .._version import VERSION
from ..domain import Domain
from ..errors import ReleaseError, SpecError, UnknownTable
from ..notebook import CardRows, card
from ..spec import Spec, read_spec
from ..spec.problems import nearest
from . import folder as f
from .agreement import ledger_faults, same_version, text_faults
from .folder import DERIVED, is_derived
from .series import Link, chain_of, series_faults, standing_faults
from .write import LEVEL, Changes


class _Tables(Mapping[str, pa.Table]):
    """Published tables by name, read when they are asked for."""

    def __init__(self, folder: Path, names: list[str], within: str = "tables") -> None:
        self._folder, self._names, self._within = folder, names, within

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._names:
            what = "derived figure" if self._within == DERIVED else "table"
            raise UnknownTable(f"{self._folder} has no {what} {name!r}; {nearest(str(name), self._names)}")
        try:
            return pq.read_table(self._folder / self._within / f"{name}.parquet")
        except FileNotFoundError:
            raise ReleaseError(f"table {name!r} of {self._folder} is missing") from None
        except (OSError, pa.ArrowException) as error:
            raise ReleaseError(f"table {name!r} of {self._folder} cannot be read: {error}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True, eq=False)
class Release:
    """A published release: tables with intervals, the measurements behind them, and what was promised.

    Reads nothing but its folder. Queries are post-processing of public measurements (Dwork, Roth 2014,
    Proposition 2.1) and cost no budget. ``series`` holds the releases that it follows, each with what it spent.

    >>> import tabulae as tb
    >>> tb.Release.read("missing")
    Traceback (most recent call last):
    tabulae.errors.ReleaseError: missing is not a folder; a release is the folder that `tabulae run --out` writes
    """

    path: Path
    descriptor: Mapping[str, Any]

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Release:
        """Open a release folder.

        Raises :class:`~tabulae.errors.ReleaseError` where the folder is missing or not a complete release.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise ReleaseError(
                f"{folder} is not a folder; a release is the folder that `tabulae run --out` writes"
            )
        descriptor = f.read_json(folder, f.DESCRIPTOR)
        if not _describes(descriptor) or not (folder / f.SUMS).exists():
            raise ReleaseError(
                f"{folder} is not a complete release of tabulae: copy it again, whole, from where it was published"
            )
        return cls(folder, descriptor)

    def moved(self, path: Path) -> Release:
        """This release in the folder that its own was renamed to: a spec that was read is not read again."""
        found = replace(self, path=path)
        if "spec" in vars(self):
            vars(found)["spec"] = replace(self.spec, path=path / f.SPEC)
        return found

    def __repr__(self) -> str:
        return f"Release({str(self.path)!r}, {len(self.tables)} tables)"

    def _repr_html_(self) -> str:

        return release_card(self)

    @property
    def about(self) -> Mapping[str, Any]:
        """What tabulae recorded besides the tables: version, release id, level, expected errors."""
        return self.descriptor["tabulae"]

    @property
    def level(self) -> float:
        """The level of the published intervals."""
        return float(self.about["interval_level"])

    @cached_property
    def spec(self) -> Spec:
        """The spec as published."""
        try:
            return read_spec(self.path / f.SPEC)
        except SpecError as error:
            made = self.about["version"]
            other = "" if made == VERSION else f"\nIt was made by tabulae {made}: read it with that version"
            raise ReleaseError(f"the published spec does not read back: {error}{other}") from None

    @property
    def domain(self) -> Domain:
        """The public domain of the release."""
        return self.spec.domain

    @property
    def ledger(self) -> list[dict[str, Any]]:
        """This release's entries of the ledger."""
        return f.read_json(self.path, f.LEDGER)

    @property
    def series(self) -> tuple[Link, ...]:
        """The releases that this one follows, oldest first, and itself as the last.

        Raises:
            ReleaseError: the folder does not say it in the form that releases have.
        """
        try:
            return chain_of(self.spec, self.descriptor)
        except (KeyError, TypeError, ValueError) as error:
            raise ReleaseError(f"the series of {self.path} cannot be read: {error!r}") from None

    @cached_property
    def tables(self) -> Mapping[str, pa.Table]:
        """Published tables as pyarrow tables, by name; those of the invariants among them."""
        resources = (r for r in self.descriptor["resources"] if not is_derived(r))
        return _Tables(self.path, [resource["title"] for resource in resources])

    @cached_property
    def derived(self) -> Mapping[str, pa.Table]:
        """Derived figures as pyarrow tables, by name, with the columns that published tables have."""
        return _Tables(self.path, list(self.about.get("derived", ())), DERIVED)

    @cached_property
    def product(self) -> Any:
        """The verbs of this kind of release: :class:`tabulae.products.product.Product`."""
        return self.spec.product(self.spec)

    @property
    def measurements(self) -> Any:
        """The noisy measurements as they were drawn: a tuple of one, with its strategy and laws.

        Of a release of groups or areas, which may be large, an iterator of pieces that can be read once.

        Raises:
            ReleaseError: the files are not those of the spec, or contradict themselves.
        """
        return self.product.measurements(self)

    def query(self, sql: str, *, areas: Sequence[str] = (), codes: Sequence[str] = ()) -> pa.Table:
        """Answer a statement about counts with intervals, at no privacy cost.

        Arguments:
            sql: one statement of the form that ``[[derived]]`` accepts: arithmetic on ``COUNT(*)``, sums, means and
                quantiles of attributes, with FILTER, WHERE and GROUP BY over the release's attributes and recodes.
            areas: of a release of areas: the levels and entities to answer for; the first level where there are none.
                Whatever method the tables have, answers are the least-squares estimates, which have intervals.
            codes: of the areas that are wanted; all of those types where there are none.

        Returns columns as in the published tables: labels, estimate, std_error, ci_low, ci_high, obs_status; of a
        release of areas the first labels are the type and the code of the area.

        Raises:
            InvalidArgument: the statement cannot be expressed; the clause is shown.
            NotEstimable: the measurements cannot answer it; the attributes not measured together are named.
            ReleaseError: the files that the answer comes from are not as they were published.
            Unsupported: the release is of groups, each of which has the table that it could afford.
        """
        return self.product.query(self, sql, areas, codes)

    def changes_since(self, earlier: Release, table: str) -> Changes:
        """How the counts of a table changed since an earlier release, with intervals, at no privacy cost.

        Arguments:
            earlier: a release that this one follows, or one that counts the same kind of people.
            table: the name of a table that both publish.

        Returns the rows that both have: the estimates of both, the change, and the change in per cent.

        Raises:
            InvalidArgument: a release has no such table, or nothing in it can be compared.
            ReleaseError: a folder is not as it was published; they are one release, or in the wrong order.
            Unsupported: the releases are of areas or groups.
        """
        return self.product.changes(earlier, self, table)

    def _false_level(self) -> list[str]:
        if self.level == LEVEL:
            return []
        return [f"{f.DESCRIPTOR}: intervals are published at {LEVEL:.0%}, and it says {self.level:.9g}"]

    def _false_series(self) -> list[str]:
        faults = list(series_faults(self.spec, self.descriptor, self.ledger))
        return faults or list(standing_faults(self.spec, self.about))

    def verify(self) -> list[str]:
        """What is wrong with the folder: one sentence a fault, none if it is as it was published.

        Checks every file against SHA256SUMS, the series against the spec and the ledger's entries, every published
        number against the measurements, the exact counts against each other and against all sums of published numbers
        that they determine, CSV against Parquet files, and the ledger's entries against their hashes and the spec.
        """
        faults = f.check_sums(self.path) or self._false_level() or self._false_series()
        if faults:
            return faults
        stated = self.product.disclosures()
        return [*ledger_faults(self.ledger, self.spec, stated), *self.product.faults(self)]

    def text_faults(self) -> list[str]:
        """What is wrong with titles and texts; those that another version of tabulae worded are left out."""
        faults = list(text_faults(self.path, self.spec, self.descriptor))
        if faults or not same_version(self.descriptor):
            return faults
        return self.product.text_faults(self)


def _describes(descriptor: object) -> bool:
    """Whether a descriptor says what every release says of itself."""
    if not isinstance(descriptor, dict) or not isinstance(about := descriptor.get("tabulae"), dict):
        return False
    if not {"version", "release_id", "interval_level"} <= about.keys():
        return False
    if not all(
        isinstance(about.get(key, {}), dict) for key in ("derived", "expected", "conservative_intervals")
    ):
        return False
    resources = descriptor.get("resources")
    return isinstance(resources, list) and all(
        isinstance(each, dict) and all(isinstance(each.get(key), str) for key in ("path", "title"))
        for each in resources
    )


def release_card(release: Release) -> str:
    """The HTML of a release; no table and no code list is opened for it.

    Privacy:
        Shows what the folder publishes, and costs nothing.
    """
    about = release.about
    facts = [
        ("title", release.descriptor.get("title") or None),
        ("folder", str(release.path)),
        ("spent", _spent(release)),
        ("level of intervals", f"{release.level:.0%}"),
        ("derived figures", len(release.derived) or None),
        ("published", release.descriptor.get("created")),
        ("made with", f"tabulae {about['version']}"),
        ("release id", about["release_id"]),
    ]
    names = list(release.tables)
    if "expected" not in about:
        rows = ((name, about.get("rows", {}).get(name)) for name in names)
        return card("Release", facts, CardRows(("table", "rows"), rows, len(names)))
    headings = ("table", "rows", "RMSE", f"{release.level:.0%} margin")
    return card("Release", facts, CardRows(headings, _expected(release, names), len(names)))


def _spent(release: Release) -> str | None:
    """What the release cost, by its own entries of the ledger; None where they cannot be read."""
    try:
        charges = [entry for entry in release.ledger if entry.get("kind") == "charge"]
    except ReleaseError:
        return None
    losses = (", ".join(f"{name} {value}" for name, value in each["loss"].items()) for each in charges)
    return (
        "; ".join(f"{each['definition']}: {loss}" for each, loss in zip(charges, losses, strict=True)) or None
    )


def _expected(release: Release, names: list[str]) -> Iterator[tuple[object, ...]]:
    """Each table with its expected errors; an invariant's has none."""
    for name in names:
        row = release.about["expected"].get(name)
        yield (
            (name, None, "exact", "exact")
            if row is None
            else (name, row["queries"], row["rmse"], row["margin"])
        )
