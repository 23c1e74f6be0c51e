"""Files of draws: implicates, row by row, and what is said of them; whether a folder still has those that it should."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..estimation.intervals import CHAINS, are_enough
from ..release import folder as f
from ..release.folder import Rows, sync_file

FILE, ABOUT = "implicates.parquet", "posterior.json"
"""Where the draws of a posterior are, and what is said of them."""

_SWEEPS = "sweeps_before", "sweeps_between"


def columns_of(names: Iterable[str]) -> pa.Schema:
    """The columns of implicates: the draw, words, the count."""
    words = pa.dictionary(pa.int32(), pa.string())
    named = [(name, words) for name in names]
    return pa.schema([("draw", pa.int32()), *named, ("count", pa.int64())])


def drawn_document(
    *,
    implicates: int,
    before: int,
    between: int,
    seed: int,
    measurements: str,
    effective: Mapping[str, Mapping[str, float]],
    **more: Any,
) -> dict[str, Any]:
    """What ``posterior.json`` says of ``implicates`` draws: how they were drawn, what they are worth, and if enough.

    Args:
        before, between: sweeps of each chain before the first draw, and between two.
        measurements: the digest of what they are given.
    """
    return {
        "tabulae_posterior": 1,
        "implicates": implicates,
        "chains": CHAINS,
        "sweeps_before": before,
        "sweeps_between": between,
        "seed": seed,
        "measurements": measurements,
        **more,
        "effective_draws": effective,
        "credible": {name: are_enough(worth) for name, worth in effective.items()},
    }


def write_implicates(
    folder: Path, schema: pa.Schema, draws: Iterable[pa.Table], told: Mapping[str, Any]
) -> None:
    """Write the implicates, and how they were drawn."""
    with pq.ParquetWriter(folder / FILE, schema, compression="zstd") as writer:
        for rows in draws:
            writer.write_table(rows)
    sync_file(folder / FILE)
    f.write_json(folder / ABOUT, told)


def _sweeps(about: Mapping[str, Any]) -> str:
    before, between = (about.get(name) for name in _SWEEPS)
    return f"{before} sweeps before the first draw and {between} between two"


def implicate_faults(
    folder: Path, schema: pa.Schema, draws: Iterable[pa.Table], made: Mapping[str, Any]
) -> Iterator[str]:
    """Whether stored implicates are those that the measurements and the seed give, draw by draw."""
    told = f.read_json(folder, ABOUT)
    if told.get("measurements") != made["measurements"]:
        yield f"{ABOUT}: its measurements are not those of this release"
    if told.get("seed") != made["seed"]:
        yield f"{ABOUT}: its seed is not that of {f.SPEC}"
    if (says := _sweeps(told)) != (makes := _sweeps(made)):
        yield (
            f"{ABOUT}: says {says}, and this version of tabulae makes {makes}, so that draws differ. "
            "Check the release with the version that made it"
        )
    asked = {name: made[name] for name in ("measurements", "seed", *_SWEEPS)}
    if {**told, **asked} != made:
        yield f"{ABOUT}: does not say how these implicates are drawn"
    stored = Rows.of_parquet(folder / FILE)
    plain = pa.schema(
        [(each.name, pa.string() if pa.types.is_dictionary(each.type) else each.type) for each in schema]
    )
    if stored.schema != plain:
        yield f"{FILE}: its columns are not the draw, the words of {f.SPEC} and the count"
        return
    for number, rows in enumerate(draws, start=1):
        if not stored.take(rows.num_rows).equals(rows.cast(plain).combine_chunks()):
            yield f"{FILE}: draw {number} is not the one that the measurements and the seed give"
            return
    if stored.take(1).num_rows:
        yield f"{FILE}: has more draws than {ABOUT} says"
