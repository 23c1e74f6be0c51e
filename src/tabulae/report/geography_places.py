"""Where leaves are on a map, if the public file of a spine says so in columns x and y."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tabulae.spec import Spec, geography_of

_AXES = ("x", "y")


def places_of(spec: Spec) -> np.ndarray | None:
    """Shape (leaves, 2): the place of each leaf of the spine; None where the file has no such columns, or a gap."""
    geography = geography_of(spec)
    name = next(name for name in spec.files if name.startswith("geography/spine."))
    leaf = geography.levels[-1]
    try:
        rows = _read(spec.files[name], name, leaf)
    except (KeyError, pa.ArrowException):
        return None
    both = np.stack([rows[axis].to_numpy() for axis in _AXES], axis=1)
    place = dict(zip(rows[leaf].to_pylist(), both, strict=True))
    found = np.array([place.get(code, (np.nan, np.nan)) for code in geography.leaf_codes.tolist()], float)
    return found if np.isfinite(found).all() else None


def _read(content: bytes, name: str, leaf: str) -> pa.Table:
    """The leaf codes as text, and the axes as numbers."""
    columns = [leaf, *_AXES]
    types = pa.schema([(leaf, pa.string()), *((axis, pa.float64()) for axis in _AXES)])
    if name.endswith(".csv"):
        options = pyarrow.csv.ConvertOptions(column_types=types, include_columns=columns)
        return pyarrow.csv.read_csv(io.BytesIO(content), convert_options=options)
    return pq.read_table(io.BytesIO(content), columns=columns).cast(types)
