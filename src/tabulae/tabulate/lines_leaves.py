"""The keys of the leaves as text, as they stand in a line when all parts are side by side."""

from __future__ import annotations

from itertools import islice
from typing import Any

from ..errors import InvalidArgument
from .lines import LineLayout

_AT_ONCE = 1 << 20


def leaf_keys(layout: LineLayout) -> Any:
    """An Arrow array of text: the parts of each leaf's key, joined by the delimiter.

    Raises:
        InvalidArgument: a key that has too few or too many parts, is there twice, or could not stand in a line.
    """
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute
    parts, keys = len(layout.keys), []
    leaves = iter(layout.leaves)
    while some := list(islice(leaves, _AT_ONCE)):
        if any(len(leaf) != parts for leaf in some):
            raise InvalidArgument(
                f"the key of a leaf has {parts} parts, one for each Key column of the layout"
            )
        keys.append(pa.array([layout.delimiter.join(leaf) for leaf in some], pa.string()))
    keys = pa.chunked_array(keys, pa.string())
    if pc.count_distinct(keys).as_py() != len(keys):
        raise InvalidArgument("the layout names a leaf twice")
    signs = pc.sum(pc.count_substring(keys, layout.delimiter)).as_py() or 0
    if signs != len(keys) * (parts - 1) or pc.any(pc.match_substring_regex(keys, "[\r\n]")).as_py():
        raise InvalidArgument("the key of a leaf holds the delimiter or a line end")
    return keys


def joined(parts: list[Any], layout: LineLayout) -> Any:
    """Columns of text side by side, with the delimiter between them."""
    import pyarrow.compute

    pc: Any = pyarrow.compute
    return pc.binary_join_element_wise(*parts, layout.delimiter)
