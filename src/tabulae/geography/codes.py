"""Columns of codes as positions of distinct codes: hashed and sorted as Arrow strings, for there may be millions."""

from __future__ import annotations

from typing import Any

import numpy as np


def texts(values: np.ndarray) -> Any:
    """An object array of text, None where there is none, as an Arrow array; None where a cell is anything else.

    >>> texts(np.array(["a", None], object)).null_count, texts(np.array(["a", 1], object))
    (1, None)
    """
    import pyarrow as pa

    if not {type(value) for value in values.tolist()} <= {str, np.str_, type(None)}:
        return None
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:  # half of a surrogate pair
        return None


def numbered(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes as positions in their rising order, -1 where there is none; and the codes, as an array of text.

    >>> index, codes = numbered(np.array(["b", None, "a"], object))
    >>> index.tolist(), codes.tolist()
    ([1, -1, 0], ['a', 'b'])
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = pa.array(column, pa.string()).dictionary_encode()
    order = pc.call_function("array_sort_indices", [encoded.dictionary])
    place = np.empty(len(order) + 1, np.int64)
    place[order.to_numpy()], place[-1] = np.arange(len(order)), -1
    codes = encoded.dictionary.take(order).to_numpy(zero_copy_only=False)
    return place[encoded.indices.fill_null(-1).to_numpy()], codes.astype(np.str_)
