"""Published tables: from estimates to labels, numbers and intervals, and whether a folder still says the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...domain import Domain, Invariants, Table, Workload
from ...errors import ReleaseError
from ...estimation import Estimate
from ...estimation.figures import Sampling
from ...estimation.intervals import Interval, non_negative_rows
from ...measurement import MeasuredLeftOut, Measurement
from ...privacy import LeftOut, decimal
from ...release import folder as f
from ...release.write import (
    CREDIBLE,
    ESTIMATED,
    EXACT,
    STATUS_MEANING,
    PublishedTable,
    data_package,
    named_apart,
    parquet_bytes,
    plain_csv,
    resource_of,
    write_documents,
)
from ...spec import ReliabilitySection, Spec
from ...spec.shape import NO_ERROR, RELIABILITY
from ...strategy import Strategy, products
from ..product import Charged
from .store import MeasuredRows, measured_rows


def write_contents(
    folder: Path,
    spec: Spec,
    tables: list[PublishedTable],
    expected: Mapping[str, Mapping[str, Any]],
    charged: Charged,
    level: float,
    exact: Mapping[str, Any] | None = None,
    left_out: MeasuredLeftOut | None = None,
) -> None:
    """Write everything but the measurement and the report: tables, codes, spec, ledger entries, descriptor.

    ``tables`` are those of the workload and of the invariants; ``exact`` says what the invariants give away, and
    ``left_out`` how many rows are in none of them.
    """
    write_documents(folder, spec, charged.entries)
    for table in tables:
        rows = table.classed(spec.reliability).arrow()
        f.write_bytes(folder / "tables" / f"{table.name}.parquet", parquet_bytes(rows))
        f.write_bytes(folder / "tables" / f"{table.name}.csv", plain_csv(rows))
    about = {
        "release_id": charged.release_id,
        "interval_level": level,
        "obs_status": STATUS_MEANING,
        "expected": {t.name: dict(expected[t.name]) for t in tables if t.name in expected},
        "conservative_intervals": {t.name: t.conservative for t in tables},
        **({} if exact is None else {"exact": dict(exact)}),
        **({"earlier": [each.document for each in spec.earlier]} if spec.earlier else {}),
        **({} if left_out is None else {"left_out": left_out_document(left_out, level)}),
    }
    f.write_json(
        folder / f.DESCRIPTOR, data_package(spec, table_resources(spec, tables), about, charged.time)
    )


def left_out_document(told: MeasuredLeftOut, level: float) -> dict[str, Any]:
    """How many units have more rows than are counted, and how many rows are left out, with intervals.

    None of these is negative, so that intervals end at zero.
    """
    found: dict[str, Any] = {"share": str(told.rule.share), "at_most": told.rule.at_most}
    for name, value, law in zip(told.rule.COUNTS, told.values, told.laws, strict=True):
        margin = law.margin(level)
        found[name] = {
            "estimate": value,
            "std_error": math.sqrt(law.variance_of_law),
            "ci_low": max(0, value - margin),
            "ci_high": max(0, value + margin),
        }
    return found


def left_out_words(spec: Spec, told: Mapping[str, Any], level: float) -> str:
    """The same in sentences."""
    (units, of_units), (rows, of_rows) = (
        (f"{max(0, each['estimate']):,}", f"{level:.0%}: {each['ci_low']:,} to {each['ci_high']:,}")
        for each in (told[name] for name in LeftOut.COUNTS)
    )
    more = f"{spec.rows_per_unit} record{'s' if spec.rows_per_unit > 1 else ''}"
    return (
        f"About {units} units ({spec.unit}) have more than {more} ({of_units}), and about {rows} of their records are "
        f"left out ({of_rows}), at most {told['at_most']:,} of each counted. These are noisy counts, for which "
        f"{told['share']} of the budget was spent."
    )


def table_resources(spec: Spec, tables: Sequence[PublishedTable]) -> list[dict[str, Any]]:
    """The entries of a release's tables in the descriptor; an exact one says why it is."""
    reasons = {given.table.name: given.reason for given in spec.invariants}
    classes = spec.reliability if spec.reliability.column else None
    described = {name: f"Published exactly, without noise: {reason}" for name, reason in reasons.items()}
    described |= {name: f"{unit.capitalize()}: {value_words(spec)}" for name, unit in spec.units.items()}
    return named_apart(
        [
            resource_of(
                "tables",
                t.name,
                list(t.columns),
                described.get(t.name),
                classes,
                credible=t.credible is not None,
            )
            for t in tables
        ]
    )


def value_words(spec: Spec) -> str:
    """What numbers the values of a spec are taken for."""
    told = []
    for value in spec.domain.measured:
        if value.is_seat:
            continue
        low, high = value.ends
        clamp = spec.columns[value.name].clamp
        clamped = ", of which those beyond count as the nearest end" if clamp else ""
        told.append(
            f"{value.name} from {low} to {high} in steps of {decimal(Fraction(high - low, value.steps))}{clamped}"
        )
    return "; ".join(told)


def publish(
    estimate: Estimate,
    workload: Workload,
    level: float,
    sampling: Mapping[str, Sampling] | None = None,
) -> list[PublishedTable]:
    """Estimates, standard errors and intervals for every table of a workload.

    ``sampling`` has the tables whose errors and intervals hold sampling, too; its error is taken for normal.
    """
    given = sampling or {}
    made = [_publish(estimate, workload, table, level) for table in workload.tables]
    for at, (table, published) in enumerate(zip(workload.tables, made, strict=True)):
        if table.name in given:
            variance = given[table.name].variance(published.estimate, partial(_answers, estimate))
            never = non_negative_rows(table.operator(workload.domain))
            made[at] = _with_sampling(published, np.sqrt(variance), never, level)
    return made


def _answers(estimate: Estimate, table: Table) -> np.ndarray:
    return estimate.answer(Workload(estimate.domain, [table]))[table.name]


def _with_sampling(
    table: PublishedTable, spread: np.ndarray, never: np.ndarray, level: float
) -> PublishedTable:
    """Variances add up, and so do squares of what intervals have on either side; some rows are ``never`` negative."""
    ends = table.interval.low, table.interval.high
    low, high = beside(table.estimate, ends, NormalDist().inv_cdf((1 + level) / 2) * spread)
    return replace(
        table,
        std_error=np.hypot(table.std_error, spread),
        interval=Interval(low, high, least=np.where(never, 0.0, -np.inf)),
        status=np.where(spread > 0, ESTIMATED, table.status),
    )


def beside(
    estimate: np.ndarray, ends: tuple[np.ndarray, np.ndarray], wide: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of an interval of two independent errors: the squares of its halves, and of the other one, add."""
    low, high = ends
    return estimate - np.hypot(estimate - low, wide), estimate + np.hypot(high - estimate, wide)


def publish_exact(measurement: Measurement) -> list[PublishedTable]:
    """The invariants of a measurement as tables of their own: whole numbers without error."""
    strategy = measurement.strategy
    return [
        _exact(table, values, strategy.domain)
        for table, values in zip(strategy.invariants, measurement.exact, strict=True)
    ]


def _exact(table: Table, values: np.ndarray, domain: Domain) -> PublishedTable:
    none, counts = np.zeros(len(values)), values.astype(np.float64)
    status = np.full(len(values), EXACT)
    return PublishedTable(
        table.name, table.columns(domain), counts, none, Interval(counts, counts), status, conservative=0
    )


def _publish(estimate: Estimate, workload: Workload, table: Table, level: float) -> PublishedTable:
    alone = Workload(workload.domain, [table])
    answer = estimate.answer(alone)[table.name]
    deviation = np.sqrt(estimate.variance(alone)[table.name])
    interval, ways = estimate.interval_of(table, level)
    # A query that counts no cell at all is known without noise, zero; so is one that the invariants determine.
    empty = empty_rows(table, workload.domain)
    exact = empty | estimate.exact_of(table)
    answer = np.where(empty, 0.0, answer)
    return PublishedTable(
        table.name,
        table.columns(workload.domain),
        answer,
        np.where(exact, 0.0, deviation),
        interval.known(exact, answer),
        np.where(exact, EXACT, ESTIMATED),
        int((ways[~exact] == "conservative").sum()),
        credible=estimate.credible_of(table, level),
    )


def empty_rows(table: Table, domain: Domain) -> np.ndarray:
    """Rows whose matrix is zero: combinations that the query's own conditions exclude."""
    terms = products(table.operator(domain))
    counted = np.zeros(table.rows(domain), dtype=bool)
    for _, factors in terms:
        row = np.ones(1, dtype=bool)
        for factor in factors:
            row = np.multiply.outer(row, np.asarray(factor.T.column_norms(1) != 0)).ravel()
        counted |= row
    return ~counted


_FINEST = 52
_LARGEST, _MOST = 2.0**53, 2.0**62


def meets(exact: Invariants, table: Table, estimates: np.ndarray, values: Sequence[np.ndarray]) -> bool:
    """Whether every sum of a table's estimates that the invariants fix has its exact value.

    The estimates must be multiples of one ``2^-k``, all less than ``2^53`` of them, as floating point holds exactly;
    written as whole numbers, settling them must change none. Rows may overlap: their sum is no count of people.

    >>> from tabulae.linalg import Identity
    >>> from tabulae.domain import Domain
    >>> exact = Invariants(Domain({"x": 3}), [Table("total", {})])
    >>> table = Table("x", {"x": Identity(3)})
    >>> [meets(exact, table, np.array([1.5, last, 2.25]), [np.array([6])]) for last in (2.25, 2.26, 3.25)]
    [True, False, False]
    """
    step = _step(estimates)
    if step is None:
        return False
    scaled = np.ldexp(estimates, step).astype(np.int64)
    return bool(np.array_equal(exact.settle(table, scaled, values, step), scaled))


def _step(estimates: np.ndarray) -> int | None:
    """The least k with all of ``2^k estimates`` whole and below 2^53, their sum in 64 bits; None if there is none."""
    if not np.isfinite(estimates).all():
        return None
    for k in range(_FINEST + 1):
        scaled = np.ldexp(estimates, k)
        if np.abs(scaled).max(initial=0) >= _LARGEST or np.abs(scaled).sum() >= _MOST:
            return None
        if np.array_equal(scaled, np.rint(scaled)):
            return k
    return None


def together(strategy: Strategy, asked: Sequence[str]) -> str:
    """Which of the attributes asked for a strategy measures together, and which never.

    >>> import tabulae as tb
    >>> ways = tb.Workload.marginals(tb.Domain({"sex": 2, "age": 3}), ways=[1])
    >>> together(tb.select(ways, method="marginals"), ["sex", "age"])
    'Not measured together: sex with age.'
    """
    groups = []
    for block in strategy.blocks:
        for _, factors in block.terms:
            told = [
                a.name
                for a, q in zip(strategy.domain.attributes, factors, strict=True)
                if q.column_classes().max() > 0
            ]
            groups.append(frozenset(told))
    missing = [name for name in asked if not any(name in g for g in groups)]
    if missing:
        return f"Never measured in detail: {', '.join(missing)}."
    pairs = [
        f"{a} with {b}"
        for i, a in enumerate(asked)
        for b in asked[i + 1 :]
        if not any({a, b} <= g for g in groups)
    ]
    if pairs:
        return f"Not measured together: {'; '.join(pairs)}."
    return f"Measured together, but not in the detail asked for: {', '.join(asked)}."


_ROUNDING = 1e-5  # share of a standard error by which two machines' sums may differ
_WORDS = {
    "law": "the noise is not of the law that the promise of {spec} asks for",
    "budget": "the budget is not that of {spec}",
    "neighbours": "the neighbours are not those of {spec}",
    "release_id": "the release id is not that of {descriptor}",
    "left_out": "the rows left out are not measured as the promise of {spec} asks",
}


def measurement_faults(folder: Path, spec: Spec, measurement: Measurement, release_id: str) -> Iterator[str]:
    """What is wrong with how the tables were measured: their noise is that which the spec's promise asks for.

    Privacy:
        Calibration: each block's law is the one of what the tables may cost at the exact sensitivity of the integer
        strategy that is published (:meth:`tabulae.Strategy.laws`), and what is told of rows left out has the laws of
        the rest (:class:`tabulae.privacy.LeftOut`): together the spec's loss.
    """
    told = measurement.left_out
    holds = {
        "law": tuple(measurement.laws) == tuple(spec.table_laws(measurement.strategy)),
        "budget": measurement.budget == spec.loss,
        "neighbours": measurement.neighbours == spec.neighbours,
        "release_id": measurement.release_id == release_id,
        "left_out": (told and told.rule, told.laws if told else ()) == (spec.left_out, spec.left_out_laws()),
    }
    for what, held in holds.items():
        if not held:
            told = _WORDS[what].format(spec=f.SPEC, descriptor=f.DESCRIPTOR)
            yield f"{f.STRATEGY if what == 'law' else f.MEASUREMENT}: {told}"
    if not all(holds.values()):
        return
    files = f.read_json(folder, f.MEASUREMENT)["files"]
    for made, name in zip(measured_rows(measurement), files, strict=True):
        if not _same_rows(folder, name, made):
            yield f"{name}: its columns are not those of the measurement"


def _same_rows(folder: Path, name: str, made: MeasuredRows) -> bool:
    start = 0
    try:
        with pq.ParquetFile(folder / name) as file:
            for group in range(file.num_row_groups):
                stored = file.read_row_group(group)
                if not _same_part(stored, made.part(start, start + stored.num_rows)):
                    return False
                start += stored.num_rows
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{name} of {folder} cannot be read: {error}") from None
    return start == len(made.values)


def _same_part(stored: pa.Table, made: pa.Table) -> bool:
    if stored.schema.names != made.schema.names or stored.num_rows != made.num_rows:
        return False
    words = stored["query_name"].cast(pa.string()).unique().to_pylist()
    if words != made["query_name"].cast(pa.string()).unique().to_pylist():
        return False
    whole = ("cell", "value", "scale_exponent")
    if not all(np.array_equal(stored[each].to_numpy(), made[each].to_numpy()) for each in whole):
        return False
    return np.allclose(stored["variance"].to_numpy(), made["variance"].to_numpy(), rtol=1e-9, atol=0)


def descriptor_faults(
    spec: Spec,
    descriptor: Mapping[str, Any],
    tables: Sequence[PublishedTable],
    left_out: MeasuredLeftOut | None,
) -> Iterator[str]:
    """What is wrong with how the descriptor describes the tables, and what is not in them."""
    own = [each for each in descriptor["resources"] if str(each.get("path", "")).startswith("tables/")]
    named = [{key: value for key, value in each.items() if key != "name"} for each in own]
    made = [
        {key: value for key, value in each.items() if key != "name"} for each in table_resources(spec, tables)
    ]
    if named != made:
        yield f"{f.DESCRIPTOR}: its tables are not described as {f.SPEC} has them"
    wider = {table.name: table.conservative for table in tables}
    if descriptor["tabulae"].get("conservative_intervals") != wider:
        yield f"{f.DESCRIPTOR}: the number of conservative intervals does not follow from the measurements"
    if descriptor["tabulae"].get("earlier", []) != [each.document for each in spec.earlier]:
        yield f"{f.DESCRIPTOR}: the counts published before are not those of {f.SPEC}"
    made_of = left_out and left_out_document(left_out, descriptor["tabulae"]["interval_level"])
    if not _alike(made_of, descriptor["tabulae"].get("left_out")):
        yield f"{f.DESCRIPTOR}: how many rows are left out does not follow from the measurements"


def _alike(made: Any, stored: Any) -> bool:
    """Whether two documents are the same, but for the last digits of numbers that are not whole."""
    if isinstance(made, dict) and isinstance(stored, dict) and made.keys() == stored.keys():
        return all(_alike(made[key], stored[key]) for key in made)
    if isinstance(made, float) and isinstance(stored, float):
        return math.isclose(made, stored, rel_tol=1e-9)
    return type(made) is type(stored) and made == stored


def false_numbers(
    fresh: PublishedTable, stored: pa.Table, precision: float, section: ReliabilitySection
) -> Iterator[str]:
    """Columns of a stored table that differ from what the measurements say; exact rows may not differ at all."""
    made = fresh.classed(section).arrow()
    if stored.schema.names != made.schema.names or stored.num_rows != made.num_rows:
        yield f"tables/{fresh.name}: does not have the rows and columns that {f.SPEC} asks for"
        return
    drawn = CREDIBLE if fresh.credible is not None else ()
    for name in (*fresh.columns, *drawn, "obs_status"):
        if stored[name].to_pylist() != made[name].to_pylist():
            yield f"tables/{fresh.name}: {name} does not follow from the measurements"
    loose = max(precision, _ROUNDING) * fresh.std_error
    masked = np.zeros(stored.num_rows, dtype=bool)
    if section.column:
        words = stored[RELIABILITY].to_numpy()
        masked = section.mask & (words == section.names[-1])
        if not _near_classes(fresh, words, 1e-6 + loose, section):
            yield f"tables/{fresh.name}: {RELIABILITY} does not follow from the measurements"
    below, above = fresh.interval.ends(-loose), fresh.interval.ends(loose)
    ranges = {
        "estimate": (fresh.estimate - loose, fresh.estimate + loose),
        "std_error": (fresh.std_error, fresh.std_error),
        "ci_low": (below[0], above[0]),
        "ci_high": (below[1], above[1]),
    }
    for name, (least, most) in ranges.items():
        found = stored[name].to_numpy()
        allowed = np.where(fresh.status == EXACT, 0.0, 1e-6 + 1e-6 * np.abs(most))
        wrong = ~((found >= least - allowed) & (found <= most + allowed))
        if (np.where(masked & (name != "std_error"), ~np.isnan(found), wrong)).any():
            yield f"tables/{fresh.name}: {name} does not follow from the measurements"


def _near_classes(
    fresh: PublishedTable, words: np.ndarray, apart: np.ndarray, section: ReliabilitySection
) -> bool:
    """Whether each word is of a class that a count within ``apart`` has: two machines round sums differently."""
    place = {word: k for k, word in enumerate(section.words)}
    found = np.array([place.get(word, -1) for word in words])
    estimated = fresh.status == ESTIMATED
    worst, best = (section.classes(fresh.estimate + move, fresh.std_error) for move in (-apart, apart))
    near = (best <= found) & (found <= worst)
    return bool(np.where(estimated, near, words == NO_ERROR).all())


def contradictions(exact: Invariants, values: Sequence[np.ndarray]) -> list[str]:
    """Exact counts that no records have: one sentence each."""
    return [
        f"{f.INVARIANTS}: {exact.row_name(row)} contradicts {', '.join(map(exact.row_name, others[:4]))}"
        for row, others in exact.contradictions(values)
    ]
