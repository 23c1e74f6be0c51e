"""Two releases beside each other: whether they may be compared, and the changes of a table over the rows both have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from ...domain import Domain, Table
from ...errors import InvalidArgument, ReleaseError, Unsupported
from ...estimation import Estimate
from ...estimation.changes import CountsOfRelease, changes
from ...estimation.figures import FigureNumbers
from ...linalg import LinearOperator, Total
from ...release.folder import check_sums
from ...release.read import Release
from ...release.write import ESTIMATED, EXACT, NOT_ESTIMABLE, PARTS, Changes
from ...spec.series import mark_of


def comparable(earlier: Release, later: Release) -> list[str]:
    """What to know of two releases that are compared, in sentences.

    Raises:
        ReleaseError: they cannot be compared: altered files, one release twice, the wrong order, or other kinds.
    """
    for release in (earlier, later):
        if faults := check_sums(release.path):
            told = "\n".join(f"  {fault}" for fault in faults)
            raise ReleaseError(f"{release.path} is not as it was published, and is not compared:\n{told}")
    names = [str(release.about["release_id"]) for release in (earlier, later)]
    if names[0] == names[1]:
        raise ReleaseError(
            f"{earlier.path} and {later.path} are the same release: name an earlier one and a later one"
        )
    if names[1] in {link.release_id for link in earlier.series}:
        raise ReleaseError(
            f"{earlier.path} follows {later.path}: name the earlier release first, and the later one second"
        )
    if earlier.spec.kind != later.spec.kind or earlier.level != later.level:
        raise ReleaseError(
            f"{earlier.path} and {later.path} are releases of different kinds, or have intervals of different levels: "
            "they publish no table in common that can be compared"
        )
    return [*_series_notes(earlier, later), *_unit_notes(earlier, later), *_value_notes(earlier, later)]


def _series_notes(earlier: Release, later: Release) -> Iterator[str]:
    own, chain = earlier.series[-1], later.series
    link = next((each for each in chain if each.release_id == own.release_id), None)
    if link is not None:
        if link.sha256sums != mark_of(earlier.path).sha256sums:
            raise ReleaseError(
                f"{earlier.path} is not the release that {later.path} follows: its SHA256SUMS differs; name the folder "
                "that was published"
            )
        if any(each.kind == "correction" for each in chain[chain.index(link) + 1 :]):
            yield (
                "The later release corrects an earlier one: a change is what was corrected together with the noise of "
                "both, and where its interval holds 0 noise alone explains it."
            )
        return
    if {each.release_id for each in earlier.series} & {each.release_id for each in chain}:
        yield "Neither release follows the other, but both follow the same one: their series forks."
        return
    yield (
        "The releases are not of one series: nothing that they publish says that both count the same kind of people. "
        "Intervals hold for what each of them counted."
    )
    if earlier.descriptor["created"] > later.descriptor["created"]:
        yield "The release named first was made after the other: name them the other way round to look forward."


def _unit_notes(earlier: Release, later: Release) -> Iterator[str]:
    was, now = earlier.spec, later.spec
    if was.unit != now.unit:
        yield f"The promise is to one {was.unit} in the earlier release, and to one {now.unit} in the later one."
    rules = [None if each.unit_id is None else each.rows_per_unit for each in (was, now)]
    if rules[0] != rules[1]:
        told = ["all rows" if each is None else f"at most {each} rows of each {now.unit}" for each in rules]
        yield (
            f"The earlier release counts {told[0]}, and the later one {told[1]}: a part of each change may be that."
        )


def _value_notes(earlier: Release, later: Release) -> Iterator[str]:
    """Values that are bounded or rounded otherwise: their sums move without any record that does."""
    was, now = ({each.name: each for each in release.spec.domain.measured} for release in (earlier, later))
    for name in was.keys() & now.keys():
        told = [
            "from {} to {} in {:,} steps".format(*value.ends, value.steps) for value in (was[name], now[name])
        ]
        if told[0] != told[1] and not was[name].is_seat:
            yield (
                f"{name} counts {told[0]} in the earlier release, and {told[1]} in the later one: a part of "
                "each change of its sums may be that."
            )


_STATUS = np.array([ESTIMATED, EXACT, NOT_ESTIMABLE])
_NUMBERS = ("estimate", "std_error", "ci_low", "ci_high")
_SHOWN = 8  # labels that a note names
_MOST_ENTRIES = 1 << 25  # of a matrix that is written out to be compared


def table_changes(
    earlier: Release, later: Release, estimates: tuple[Estimate, Estimate], name: str, notes: Sequence[str]
) -> Changes:
    """The changes of one table.

    Arguments:
        estimates: of the earlier and of the later release.
        name: of a table that both publish.
        notes: what is known to differ between the releases.

    Raises:
        UnknownTable: a release has no such table.
        InvalidArgument: the two have other columns, or no row in common.
        Unsupported: what their rows count cannot be compared.

    Privacy:
        Post-processing of two public releases: costs nothing.
    """
    stored = [release.tables[name] for release in (earlier, later)]
    tables = [_table_of(release, name) for release in (earlier, later)]
    of_units = [_counts_units(release, each) for release, each in zip((earlier, later), tables, strict=True)]
    if of_units[0] != of_units[1]:
        raise InvalidArgument(
            f"table {name!r} counts units in one release and their records in the other: nothing of it can be compared"
        )
    labels = [each.column_names[: each.column_names.index(_NUMBERS[0])] for each in stored]
    if sorted(labels[0]) != sorted(labels[1]):
        raise InvalidArgument(
            f"table {name!r} has the columns {_listed(labels[0])} in the earlier release, and {_listed(labels[1])} in "
            "the later one: only rows with the same labels can be compared"
        )
    keys = [list(zip(*(each[label].to_pylist() for label in labels[1]), strict=True)) for each in stored]
    keys = [found or [()] for found in keys]  # a table without labels has one row
    if any(len(set(found)) < len(found) for found in keys):
        raise Unsupported(f"table {name!r} has several rows of one label: its rows cannot be told apart")
    place = {key: i for i, key in enumerate(keys[0])}
    common = [(place[key], i) for i, key in enumerate(keys[1]) if key in place]
    rows = np.array(common, dtype=np.int64).reshape(-1, 2)
    alike = _alike((tables[0], earlier.domain), (tables[1], later.domain), rows)
    told = [*notes, *_label_notes(labels[1], keys), *_other_notes(labels[1], keys[1], rows[~alike, 1])]
    told += [*_domain_notes(earlier.domain, later.domain, tables)]
    rows = rows[alike]
    if not len(rows):
        raise InvalidArgument(f"table {name!r}: no row of it counts the same in both releases")
    missing = np.any(
        [each["estimate"].is_null().to_numpy()[at] for each, at in zip(stored, rows.T, strict=True)], 0
    )
    if missing.any():
        rows = rows[~missing]
        told.append(f"{int(missing.sum()):,} of the rows are left out: a release masks their counts.")
    if not len(rows):
        raise InvalidArgument(f"table {name!r}: every row of it is masked in one of the releases")
    sides = [
        _counts(estimate, table, kept, each)
        for estimate, table, kept, each in zip(estimates, tables, stored, rows.T, strict=True)
    ]
    if any(each.one_sided for each in sides):
        told.append(
            "Estimates of these releases may not be negative: they are biased where counts are small. The intervals "
            "are those of the unbiased estimates, lengthened to hold the published ones."
        )
    found = changes(sides[0], sides[1], later.level)
    columns = {label: stored[1][label].take(pa.array(rows[:, 1])) for label in labels[1]}
    for part, kept, each in zip(PARTS[:2], stored, rows.T, strict=True):
        columns |= _columns(part, {n: kept[n].take(pa.array(each)) for n in (*_NUMBERS, "obs_status")})
    for part, numbers in zip(PARTS[2:], found, strict=True):
        columns |= _columns(part, _arrow(numbers))
    wider = found.change.conservative + found.percent.conservative
    return Changes(name, later.level, pa.table(columns), wider, tuple(told))


def _table_of(release: Release, name: str) -> Table:
    spec = release.spec
    tables = {t.name: t for t in [*spec.published.tables, *(given.table for given in spec.invariants)]}
    return tables[name]


def _counts_units(release: Release, table: Table) -> bool:
    seats = release.domain.seats
    return seats is not None and seats.name not in table.attributes


def _counts(estimate: Estimate, table: Table, stored: pa.Table, rows: np.ndarray) -> CountsOfRelease:
    published, error = (stored[column].to_numpy()[rows] for column in _NUMBERS[:2])
    exact = np.array(stored["obs_status"].to_pylist())[rows] == EXACT
    return CountsOfRelease(estimate, table, rows, published, np.where(exact, 0.0, error), exact)


def _columns(part: str, columns: Mapping[str, object]) -> dict[str, object]:
    names = {"estimate": part, "obs_status": f"{part}_status"}
    return {names.get(name, f"{part}_{name}"): column for name, column in columns.items()}


def _arrow(numbers: FigureNumbers) -> dict[str, pa.Array]:
    told = {name: pa.array(getattr(numbers, name), pa.float64(), from_pandas=True) for name in _NUMBERS}
    return {**told, "obs_status": pa.array(_STATUS[numbers.status], pa.string())}


def _alike(before: tuple[Table, Domain], now: tuple[Table, Domain], rows: np.ndarray) -> np.ndarray:
    """Which pairs of rows (m, 2) count the same combinations of categories, as far as both releases have these."""
    (was, old), (table, new) = before, now
    terms = [each.over(domain).terms for each, domain in (before, now)]
    crossed = [{domain.names[i] for i in each.crossed(domain)} for each, domain in (before, now)]
    if crossed[0] != crossed[1]:
        one, other = (", ".join(sorted(each)) or "nothing" for each in crossed)
        raise InvalidArgument(
            f"table {table.name!r} asks for {one} in the earlier release, and for {other} in the later one: it does "
            "not count the same"
        )
    same = all(old[name].labels == new[name].labels for name in crossed[0])
    if same and dict(_named(was, old)) == dict(_named(table, new)) and old.names == new.names:
        return rows[:, 0] == rows[:, 1]
    if any(len(each) != 1 or each[0].coefficient != 1 for each in terms):
        raise Unsupported(
            f"table {table.name!r} is made of conditions that overlap, over other categories in each release: what its "
            "rows count cannot be compared"
        )
    shapes = [each.row_counts(domain) for each, domain in (before, now)]
    places = [
        dict(zip(shape, np.unravel_index(rows[:, i], [*shape.values(), 1]), strict=False))
        for i, shape in enumerate(shapes)
    ]
    alike = np.ones(len(rows), dtype=bool)
    for name in crossed[0]:
        asked = [(terms[i][0].factors[name], domain[name].labels) for i, domain in enumerate((old, new))]
        alike &= _same_rows(table.name, asked, places[0][name], places[1][name])
    return alike


def _named(table: Table, domain: Domain) -> Iterator[tuple[frozenset[tuple[str, LinearOperator]], int]]:
    """The terms of a table by what they ask, without the totals."""
    for term in table.over(domain).terms:
        asked = {(name, f) for name, f in term.factors.items() if not isinstance(f, Total)}
        yield frozenset(asked), term.coefficient


def _same_rows(
    name: str, asked: Sequence[tuple[LinearOperator, Sequence[str]]], was: np.ndarray, now: np.ndarray
) -> np.ndarray:
    """Whether rows of two matrices are the same over the categories that both have."""
    (before, old), (after, new) = asked
    if old == new and before == after:
        return was == now
    if max(before.shape[0] * before.shape[1], after.shape[0] * after.shape[1]) > _MOST_ENTRIES:
        raise Unsupported(f"table {name!r} is too large to be compared where categories differ")
    place = {label: i for i, label in enumerate(old)}
    shared = [(place[label], j) for j, label in enumerate(new) if label in place]
    at = np.array(shared, dtype=np.int64).reshape(-1, 2)
    pairs, which = np.unique(np.stack([was, now], axis=1), axis=0, return_inverse=True)
    one, other = before.dense()[:, at[:, 0]], after.dense()[:, at[:, 1]]
    return (one[pairs[:, 0]] == other[pairs[:, 1]]).all(axis=1)[which.ravel()]


def _label_notes(labels: Sequence[str], keys: Sequence[Sequence[tuple[str, ...]]]) -> Iterator[str]:
    """Labels that one release has and the other has not, column by column."""
    for i, label in enumerate(labels):
        was, now = (dict.fromkeys(key[i] for key in found) for found in keys)
        yield from _only(f"{label}:", was, now)


def _only(what: str, was: Mapping[str, None], now: Mapping[str, None]) -> Iterator[str]:
    for which, ours, others in (("earlier", was, now), ("later", now, was)):
        if alone := [each for each in ours if each not in others]:
            yield f"{what} {_listed(alone)} in the {which} release only."


def _other_notes(labels: Sequence[str], keys: Sequence[tuple[str, ...]], rows: np.ndarray) -> Iterator[str]:
    if len(rows):
        named = [" ".join(keys[row]) for row in rows]
        yield f"Left out, because the two releases count something else under one label: {_listed(named)}."


def _domain_notes(was: Domain, now: Domain, tables: Sequence[Table]) -> Iterator[str]:
    """Attributes that the table adds up, and whose categories differ: their records are in one of the totals only."""
    shown = {
        domain.names[i]
        for table, domain in zip(tables, (was, now), strict=True)
        for i in table.crossed(domain)
    }
    for name in now.names:
        if name in was.names and name not in shown:
            old, new = (dict.fromkeys(domain[name].labels) for domain in (was, now))
            yield from _only(f"Of {name}, which is added up:", old, new)


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - _SHOWN:,} more" if len(words) > _SHOWN else ""
    return ", ".join(map(str, words[:_SHOWN])) + more
