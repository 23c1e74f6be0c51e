"""The row space of a table as plain values: written into a ledger, and read back over another domain.

What a table of exact counts gives away is every sum of its rows: its row space. A description names the
attributes with the labels of their categories and the matrices with a number a category, so that it can be
read years later, over a domain that lists its attributes or their categories in another order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import InvalidArgument, Unsupported
from ..linalg import AllRange, Dense, Identity, LinearOperator, MatrixProduct, Partition, Prefix, Stack, Total
from .domain import Domain
from .table import Table, Term

Description = Mapping[str, Any]
"""Of the form that `tabulae.privacy.Disclosure` documents under ``rows``."""

_MOST_ENTRIES = 5_000_000


def describe_row_space(table: Table, domain: Domain) -> dict[str, Any]:
    """The row space of a table of whole counts, as values that JSON can hold.

    A table of one product is described by the simplest matrices that span the same rows, attribute by attribute:
    for values, classes, prefixes and ranges alike the class of each category. Attributes that are only summed over
    are left out. A sum of several products keeps its matrices row by row, since its rows join them.

    Reference: the row space of a Kronecker product is the Kronecker product of the row spaces.

    >>> domain = Domain({"sex": ["F", "M"], "age": range(3)})
    >>> describe_row_space(Table("t", {"age": Prefix(3)}), domain)  # doctest: +NORMALIZE_WHITESPACE
    {'attributes': {'age': ['0', '1', '2']},
     'terms': [{'coefficient': 1, 'factors': {'age': {'classes': [0, 1, 2], 'count': 3}}}]}
    """
    table.check(domain)
    if len(table.terms) == 1:
        factors = {name: _spanning(factor) for name, factor in table.terms[0].factors.items()}
        terms = [_term(table, Term(1, factors))]
    else:
        terms = [_term(table, term) for term in table.terms]
    mentioned = {name for term in terms for name in term["factors"]}
    labels = {name: list(domain[name].labels) for name in domain.names if name in mentioned}
    return {"attributes": labels, "terms": terms}


def read(name: str, description: Description, domain: Domain) -> Table | None:
    """The table over this domain whose rows a description holds, up to their order.

    Args:
        name: what to call the table.
        description: what :func:`describe_row_space` wrote, whatever the order of attributes and categories was then.
        domain: another domain, or the same.

    Returns:
        None where the domain lacks an attribute or has it with other categories: the rows cannot then be compared with
        tables of this domain. Nothing is known of attributes that the description leaves out: what they divide is
        taken to be the same records.

    >>> domain = Domain({"sex": ["F", "M"], "age": range(3)})
    >>> other = Domain({"age": range(3), "sex": ["M", "F"]})
    >>> sexes = describe_row_space(Table("sex", {"sex": Identity(2)}), domain)
    >>> read("sex", sexes, other).rows(other)
    2
    >>> read("sex", sexes, Domain({"sex": ["F", "M", "X"]})) is None
    True
    """
    columns: dict[str, list[int]] = {}
    for attribute, labels in description["attributes"].items():
        if attribute not in domain or sorted(labels) != sorted(domain[attribute].labels):
            return None
        position = {label: at for at, label in enumerate(labels)}
        columns[attribute] = [position[label] for label in domain[attribute].labels]
    terms = [
        Term(
            term["coefficient"],
            {
                attribute: _matrix(written, columns[attribute])
                for attribute, written in term["factors"].items()
            },
        )
        for term in description["terms"]
    ]
    return Table.of_terms(name, terms)


def joint_row_space(
    domain: Domain, described: Iterable[tuple[str, Description]]
) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Tables over this domain that stand for all descriptions together, and the names of those that cannot be read.

    Their stacked rows span the joint row space: every count in it is exact for whoever has all the releases, also one
    that no single description holds. Of equal descriptions the first is kept; of others with one name, the later ones
    are numbered.

    Reference: Subspace Differential Privacy, Proposition 2.9 (composition stacks the rows).

    >>> domain = Domain({"sex": ["F", "M"], "age": range(3)})
    >>> sex = describe_row_space(Table("sex", {"sex": Identity(2)}), domain)
    >>> old = describe_row_space(Table("age", {"age": Identity(2)}), Domain({"age": ["young", "old"]}))
    >>> [table.name for table in joint_row_space(domain, [("sex", sex), ("again", sex)])[0]]
    ['sex']
    >>> joint_row_space(domain, [("age", old)])
    ((), ('age',))
    """
    kept: dict[str, Table] = {}
    names: set[str] = set()
    unread: dict[str, None] = {}
    for name, description in described:
        table = read(_unused(name, names), description, domain)
        if table is None:
            unread[name] = None
        elif (span := canonical_row_space(describe_row_space(table, domain))) not in kept:
            kept[span] = table
            names.add(table.name)
    return tuple(kept.values()), tuple(unread)


def canonical_row_space(description: Description) -> str:
    """A text that is equal for equal descriptions; tables of one product with equal texts span the same rows.

    >>> domain = Domain({"age": range(3)})
    >>> one, other = (describe_row_space(Table("t", {"age": op(3)}), domain) for op in (Prefix, Identity))
    >>> canonical_row_space(one) == canonical_row_space(other)
    True
    """
    return json.dumps(description, sort_keys=True)


def _unused(name: str, taken: set[str]) -> str:
    numbered, number = name, 1
    while numbered in taken:
        number += 1
        numbered = f"{name} ({number})"
    return numbered


def _term(table: Table, term: Term) -> dict[str, Any]:
    """A product as plain values, without the matrices that only add an attribute up."""
    factors = {
        name: _matrix_document(table, name, factor)
        for name, factor in term.factors.items()
        if not isinstance(factor, Total)
    }
    return {"coefficient": term.coefficient, "factors": factors}


def _matrix_document(table: Table, attribute: str, factor: LinearOperator) -> dict[str, Any]:
    rows, categories = factor.shape
    classes = _partition(factor)
    if classes is not None:
        return {"classes": classes.tolist(), "count": rows}
    where = f"table {table.name!r}: the matrix of {attribute!r}"
    if not factor.integer:
        raise InvalidArgument(
            f"{where} has entries that are not whole numbers, and an exact count is one: multiply its rows until "
            "they are whole"
        )
    if rows * categories > _MOST_ENTRIES:
        raise Unsupported(
            f"{where} ({rows} x {categories}) is too large to be written into a ledger (at most {_MOST_ENTRIES:,} "
            f"entries): ask for classes or single values of {attribute!r}"
        )
    return {"rows": factor.dense().tolist()}


def _matrix(written: Mapping[str, Any], columns: list[int]) -> LinearOperator:
    """The matrix with its columns in the order of a domain."""
    if "rows" in written:
        return Dense(np.array(written["rows"], dtype=np.int64)[:, columns])
    classes = np.array(written["classes"], dtype=np.int64)[columns]
    if len(classes) == written["count"] and np.array_equal(classes, np.arange(len(classes))):
        return Identity(len(classes))
    return Partition(classes, written["count"])


def _partition(factor: LinearOperator) -> np.ndarray | None:
    """The row to which each category is added, -1 for none; None where that is not what the matrix does."""
    if not factor.binary or max(factor.column_norms(1)) > 1:
        return None
    return factor.T @ np.arange(1, factor.shape[0] + 1) - 1


def _spanning(factor: LinearOperator) -> LinearOperator:
    """The simplest matrix with the same row space: Total, classes in order of appearance, or the matrix itself."""
    classes = _classes(factor)
    if classes is None:
        return factor
    used = classes >= 0
    _, first, inverse = np.unique(classes[used], return_index=True, return_inverse=True)
    numbered = np.full(len(classes), -1, dtype=np.int64)
    numbered[used] = np.argsort(np.argsort(first))[inverse]
    return Total(len(classes)) if (numbered == 0).all() else Partition(numbered)


def _classes(factor: LinearOperator) -> np.ndarray | None:
    """Classes whose sums span the rows of the matrix; None where it is not of such a kind."""
    if isinstance(factor, Prefix | AllRange):  # of full column rank: their rows span everything
        return np.arange(factor.n)
    if isinstance(factor, MatrixProduct) and isinstance(factor.right, Partition):
        left, classes = _classes(factor.left), factor.right.classes
        return None if left is None else np.where(classes >= 0, left[classes], -1)
    if isinstance(factor, Stack):
        return _beside(factor)
    return _partition(factor)


def _beside(stack: Stack) -> np.ndarray | None:
    """Classes of parts that share no category: then the spaces that they span are of the classes of all."""
    joined = np.full(stack.shape[1], -1, dtype=np.int64)
    for part in stack.ops:
        classes = _classes(part)
        if classes is None or np.any((joined >= 0) & (classes >= 0)):
            return None
        joined = np.where(classes >= 0, classes + joined.max() + 1, joined)
    return joined
