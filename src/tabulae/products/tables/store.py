"""The measurement of a release of tables on disk: strategy, noisy counts and exact counts, written and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ...domain import Domain, Table
from ...errors import ReleaseError
from ...measurement import MeasuredLeftOut, Measurement
from ...privacy import LAWS, ZCDP, ApproxDP, LeftOut, PrivacyLoss, PureDP
from ...release import folder as f
from ...release.write import parquet_bytes
from ...strategy import Block, Strategy, describe_strategy, law_variances, read_strategy
from ..measured import charged_id, loss_document

_ROWS = 2**20  # measured rows that are written together


class MeasurementWriter:
    """Writes strategy, measurements and exact counts; ``measurement.json`` comes last, its presence says "complete".

    Raises :class:`~tabulae.errors.ReleaseError` for a rehearsal: values that no ledger paid for, or that an
    insecure source drew, are not for publication.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._document: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None:
        pass

    def __call__(self, measurement: Measurement, /) -> None:
        """Write everything but ``measurement.json``."""
        release_id = charged_id(measurement.release_id, rehearsal=measurement.rehearsal)
        _write_strategy(self.folder, measurement)
        files = []
        for i, rows in enumerate(measured_rows(measurement)):
            files.append(f"measurements/{i + 1:03d}.parquet")
            rows.write(self.folder / files[-1])
        exact = []
        for table, values in zip(measurement.strategy.invariants, measurement.exact, strict=True):
            rows = pa.table({"cell": np.arange(len(values), dtype=np.int64), "value": values})
            exact.append({"table": table.name, "file": f"{f.INVARIANTS}/{table.name}.parquet"})
            f.write_bytes(self.folder / exact[-1]["file"], parquet_bytes(rows))
        for written in ("measurements", *((f.INVARIANTS,) if exact else ())):
            f.sync_folder(self.folder / written)
        self._document = {
            "release_id": release_id,
            "neighbours": measurement.neighbours,
            "budget": loss_document(measurement.budget),
            "files": files,
            **({"exact": exact} if exact else {}),
            **_left_out_document(measurement.left_out),
        }

    def finish(self, done: Any) -> None:
        f.write_json(self.folder / f.MEASUREMENT, self._document)


def _left_out_document(told: MeasuredLeftOut | None) -> dict[str, Any]:
    """The noisy counts of what is left out, with their laws, under one key; nothing where nothing is told."""
    if told is None:
        return {}
    counts = {
        name: {"value": value, "law": {"name": law.name, "parameter": str(law.parameter)}}
        for name, value, law in zip(told.rule.COUNTS, told.values, told.laws, strict=True)
    }
    return {"left_out": {"share": str(told.rule.share), "at_most": told.rule.at_most, **counts}}


def _left_out(document: Mapping[str, Any] | None) -> MeasuredLeftOut | None:
    """The same, read back."""
    if document is None:
        return None
    rule = LeftOut(Fraction(document["share"]), document["at_most"])
    counts = [document[name] for name in rule.COUNTS]
    if not all(type(number) is int for number in (rule.at_most, *(count["value"] for count in counts))):
        raise ValueError("the rows left out are not whole numbers")
    laws = tuple(LAWS[count["law"]["name"]](Fraction(count["law"]["parameter"])) for count in counts)
    return MeasuredLeftOut(rule, tuple(count["value"] for count in counts), laws)


def _write_strategy(folder: Path, measurement: Measurement) -> None:
    document, arrays = describe_strategy(measurement.strategy)
    for name, array in arrays.items():
        f.write_bytes(folder / "strategy" / f"{name}.parquet", parquet_bytes(_entries(array)))
    document["arrays"] = {name: list(array.shape) for name, array in arrays.items()}
    parts = measurement.strategy.domain.parts
    for block, law in zip(document["blocks"], measurement.laws, strict=True):
        block["law"] = {
            "name": law.name,
            "parameter": str(law.parameter),
            "step": f"2^-{block['scale_exponent']}" + (f"/{parts}" if parts > 1 else ""),
        }
    f.write_json(folder / f.STRATEGY, document)


@dataclass(frozen=True, eq=False)
class MeasuredRows:
    """The noisy answers of one block as they are published: integers (rows,), their variance in squared counts."""

    block: Block
    values: np.ndarray
    variance: float

    def part(self, start: int, stop: int) -> pa.Table:
        part = self.values[start:stop]
        rows = len(part)
        return pa.table(
            {
                "query_name": pa.DictionaryArray.from_arrays(
                    np.zeros(rows, np.int32), pa.array([self.block.name])
                ),
                "cell": np.arange(start, start + rows, dtype=np.int64),
                "value": part,
                "scale_exponent": np.full(rows, self.block.exponent, dtype=np.int32),
                "variance": np.full(rows, self.variance),
            }
        )

    def write(self, path: Path) -> None:
        with f.drafted(path) as file:
            writer = pq.ParquetWriter(file, self.part(0, 0).schema, compression="zstd")
            for start in range(0, len(self.values), _ROWS):
                writer.write_table(self.part(start, start + _ROWS))
            writer.close()


def measured_rows(measurement: Measurement) -> list[MeasuredRows]:
    """The noisy answers of each block as they are published."""
    variances = law_variances(measurement.strategy, measurement.laws)
    blocks = zip(measurement.strategy.blocks, measurement.block_values(), variances, strict=True)
    return [MeasuredRows(block, values, float(variance)) for block, values, variance in blocks]


def _entries(array: np.ndarray) -> pa.Table:
    """Non-zero entries of an integer matrix (or vector, as one column)."""
    matrix = array if array.ndim == 2 else array[:, None]
    row, column = np.nonzero(matrix)
    return pa.table({"row": row, "column": column, "value": matrix[row, column].astype(np.int64)})


_LOSSES: dict[str, type[PrivacyLoss]] = {"pure": PureDP, "approx": ApproxDP, "zcdp": ZCDP}


def read_measurement(folder: Path, domain: Domain, invariants: Sequence[Table] = ()) -> Measurement:
    """The measurement stored in a folder by :class:`MeasurementWriter`.

    Raises :class:`~tabulae.errors.ReleaseError` where it cannot be read, or was made under other invariants.
    """
    about = f.read_json(folder, f.MEASUREMENT)
    document = f.read_json(folder, f.STRATEGY)
    try:
        arrays = {name: _matrix(folder, name, shape) for name, shape in document["arrays"].items()}
        strategy = read_strategy(document, arrays, domain, invariants)
        values = _values([folder / name for name in about["files"]])
        budget = dict(about["budget"])
        return Measurement(
            strategy,
            values,
            tuple(LAWS[b["law"]["name"]](Fraction(b["law"]["parameter"])) for b in document["blocks"]),
            _LOSSES[budget.pop("definition")](**budget),
            about["neighbours"],
            rehearsal=False,
            release_id=about["release_id"],
            exact=_exact_values(folder, about.get("exact", []), strategy),
            left_out=_left_out(about.get("left_out")),
        )
    except (KeyError, TypeError, ValueError, OSError, pa.ArrowException) as error:
        raise ReleaseError(f"the measurements in {folder} cannot be read: {error!r}") from None


def _values(files: Sequence[Path]) -> np.ndarray:
    """The integers of all blocks, in order, without a second copy of them."""
    rows = [pq.read_metadata(file).num_rows for file in files]
    values, start = np.empty(sum(rows), dtype=np.int64), 0
    for path in files:
        with pq.ParquetFile(path) as file:
            for part in file.iter_batches(_ROWS, columns=["value"]):
                values[start : start + part.num_rows] = part["value"].to_numpy()
                start += part.num_rows
    return values


def _exact_values(
    folder: Path, entries: Sequence[Mapping[str, str]], strategy: Strategy
) -> tuple[np.ndarray, ...]:
    if [entry["table"] for entry in entries] != [table.name for table in strategy.invariants]:
        raise ValueError("the exact counts are not those of the strategy's invariants")
    found = [pq.read_table(folder / entry["file"]) for entry in entries]
    if any(not np.array_equal(t["cell"].to_numpy(), np.arange(t.num_rows)) for t in found):
        raise ValueError("the exact counts are not in the order of their rows")
    return tuple(table["value"].to_numpy().astype(np.int64) for table in found)


def _matrix(folder: Path, name: str, shape: list[int]) -> np.ndarray:
    table = pq.read_table(folder / "strategy" / f"{name}.parquet")
    out = np.zeros((shape[0], shape[1] if len(shape) == 2 else 1), dtype=np.int64)
    out[table["row"].to_numpy(), table["column"].to_numpy()] = table["value"].to_numpy()
    return out if len(shape) == 2 else out[:, 0]
