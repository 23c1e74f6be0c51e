"""Strategies as plain documents: what a release publishes, a saved plan fixes, a digest identifies.

An operator becomes a small dict; integer matrices stand beside it in a dict of int64 arrays, so that any
format for arrays can hold them. Reading a document builds the same operators again (equal by value).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse

from ..domain import Domain, Table, canonical_row_space, describe_row_space
from ..errors import InvalidArgument, ReleaseError
from ..linalg import (
    AllRange,
    Centring,
    Contrasts,
    Dense,
    Identity,
    Kron,
    LinearOperator,
    MatrixProduct,
    Partition,
    Permuted,
    Prefix,
    Scaled,
    Sparse,
    Stack,
    Sum,
    Total,
    WidthRange,
)
from .block import Block
from .strategy import Strategy

Arrays = dict[str, np.ndarray]
Document = dict[str, Any]

_FORMS: dict[str, tuple[type, tuple[str, ...]]] = {
    "identity": (Identity, ("n",)),
    "total": (Total, ("n",)),
    "prefix": (Prefix, ("n",)),
    "all-range": (AllRange, ("n",)),
    "centring": (Centring, ("n",)),
    "width-range": (WidthRange, ("n", "width")),
    "partition": (Partition, ("classes", "count")),
    "dense": (Dense, ("array",)),
    "permuted": (Permuted, ("op", "order")),
    "scaled": (Scaled, ("op", "factor")),
    "product": (MatrixProduct, ("left", "right")),
    "contrasts": (Contrasts, ("matrix", "merges", "classes", "within")),
    "kron": (Kron, ("factors",)),
    "stack": (Stack, ("ops",)),
}
"""Kinds of operators: the class, and what its fields are called in a document, in order."""


def describe_operator(operator: LinearOperator, arrays: Arrays) -> Document:
    """An integer operator as a dict; its explicit entries are added to ``arrays`` under new names."""
    for kind, (cls, names) in _FORMS.items():
        if type(operator) is cls and operator.integer:
            values = (_described(getattr(operator, field.name), arrays) for field in fields(cls))
            return {"kind": kind, **dict(zip(names, values, strict=True))}
    match operator:
        case Sparse() if operator.integer:
            coo = operator.matrix.tocoo()
            entries = np.stack([coo.row, coo.col, coo.data]).astype(np.int64)
            return {"kind": "sparse", "entries": _keep(entries, arrays), "shape": list(operator.shape)}
        case Sum() if operator.integer:
            terms = [[int(c), describe_operator(op, arrays)] for c, op in operator.terms]
            return {"kind": "sum", "terms": terms}
    raise InvalidArgument(f"{operator!r} has no published form: only integer matrices are measured")


def _described(value: Any, arrays: Arrays) -> Any:
    """A field of an operator: a number, the name of an array, an operator's document, or a list of these."""
    if isinstance(value, LinearOperator):
        return describe_operator(value, arrays)
    if isinstance(value, np.ndarray):
        return _keep(value, arrays)
    return [_described(part, arrays) for part in value] if isinstance(value, tuple) else value


def read_operator(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> LinearOperator:
    """The operator that :func:`describe_operator` described."""
    kind = document["kind"]
    if kind == "sparse":
        row, column, value = arrays[document["entries"]]
        return Sparse(scipy.sparse.coo_array((value, (row, column)), shape=tuple(document["shape"])))
    if kind == "sum":
        return Sum([(int(c), read_operator(op, arrays)) for c, op in document["terms"]])
    if kind not in _FORMS:
        raise ReleaseError(
            f"a strategy names an operator of unknown kind {kind!r}: it was written by a newer version"
        )
    cls, names = _FORMS[kind]
    values = [_read(document[name], arrays) for name in names]
    if cls is Contrasts and not all(isinstance(part, Partition) for part in (*values[1], *values[2])):
        raise ReleaseError("contrasts are over partitions of cells, and this strategy names others")
    return cls(*values)


def _read(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(value, Mapping):
        return read_operator(value, arrays)
    if isinstance(value, str):
        return arrays[value]
    return [_read(part, arrays) for part in value] if isinstance(value, (list, tuple)) else value


def _keep(array: np.ndarray, arrays: Arrays) -> str:
    """Store an array once; equal arrays share a name."""
    array = np.ascontiguousarray(array, dtype=np.int64)
    for name, known in arrays.items():
        if known.shape == array.shape and np.array_equal(known, array):
            return name
    name = f"matrix{len(arrays) + 1}"
    arrays[name] = array
    return name


def describe_strategy(strategy: Strategy) -> tuple[Document, Arrays]:
    """A strategy as a document and the int64 arrays that it refers to; the domain is not part of it."""
    arrays: Arrays = {}
    blocks = [
        {
            "name": block.name,
            "scale_exponent": block.exponent,
            "relative_scale": str(block.scale),
            "rows": block.rows,
            "query": describe_operator(block.query, arrays),
        }
        for block in strategy.blocks
    ]
    document = {
        "method": strategy.method,
        "noise": strategy.noise,
        "certificate": strategy.certificate,
        "cells": str(strategy.domain.size),
        "blocks": blocks,
    }
    if strategy.invariants:
        document["invariants"] = [_disclosed(table, strategy.domain) for table in strategy.invariants]
    return document, arrays


def _disclosed(table: Table, domain: Domain) -> Document:
    """An invariant by its name and its row space, as the ledger is told of it."""
    return {"table": table.name, "rows": describe_row_space(table, domain)}


def read_strategy(
    document: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    domain: Domain,
    invariants: Sequence[Table] = (),
) -> Strategy:
    """The strategy that :func:`describe_strategy` described, over ``domain`` and under these invariants.

    Raises :class:`~tabulae.errors.ReleaseError` where the document does not fit the domain, is incomplete, or was
    written under other invariants.
    """
    _check_invariants(document.get("invariants", []), invariants, domain)
    try:
        blocks = tuple(
            Block(
                str(b["name"]),
                read_operator(b["query"], arrays),
                int(b["scale_exponent"]),
                Fraction(b["relative_scale"]),
            )
            for b in document["blocks"]
        )
        certificate = document["certificate"]
        certificate = None if certificate is None else float(certificate)
        method = str(document["method"])
        return Strategy(domain, blocks, document["noise"], method, certificate, invariants=tuple(invariants))
    except (KeyError, TypeError, ValueError) as error:
        raise ReleaseError(
            f"the saved strategy does not fit this domain or is incomplete: {error}"
        ) from error


def _check_invariants(written: Any, invariants: Sequence[Table], domain: Domain) -> None:
    """Compare names and row spaces with those that a strategy was written under."""
    given = [canonical_row_space(_disclosed(table, domain)) for table in invariants]
    if not isinstance(written, list) or [canonical_row_space(entry) for entry in written] != given:
        names = ", ".join(repr(table.name) for table in invariants) or "none"
        raise ReleaseError(f"the saved strategy was made under other invariants than these: {names}")


def strategy_digest(strategy: Strategy) -> bytes:
    """SHA-256 over a strategy's queries, grid, relative noise and invariants: what is measured, in canonical form."""
    document, arrays = describe_strategy(strategy)
    measured = {
        name: document[name] for name in ("noise", "cells", "blocks", "invariants") if name in document
    }
    digest = hashlib.sha256(json.dumps(measured, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name}{arrays[name].shape}".encode())
        digest.update(arrays[name].astype("<i8").tobytes())
    return digest.digest()
