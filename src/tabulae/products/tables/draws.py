"""Draws of a release of tables: its implicates, and what is said of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...domain.domain import heading_and_labels
from ...errors import ReleaseError, Unsupported
from ...linalg import Identity, LinearOperator
from ...release import folder as f
from ...release.write import word_column
from ..implicates import ABOUT, FILE, columns_of, drawn_document, implicate_faults, write_implicates

if TYPE_CHECKING:
    from ...estimation.clique_posterior import Clique
    from ...estimation.whole_tables import Posterior

OF = "attributes"
"""The column that says which attributes a row counts people by."""


def check_drawn(made: Posterior) -> None:
    """Refuse, before anything is charged, what could not be drawn or written.

    Raises:
        Unsupported: the measurements are not of a kind that whole tables are drawn from, or there are too many cells;
            an attribute has the name of a column of implicates.
    """
    _ = made.model, made.everybody
    for name in ("draw", OF, "count"):
        if name in made.domain:
            raise Unsupported(
                f"the attribute {name!r} has the name of a column of {FILE}: give it another name, and its column's "
                'name as column = "..."'
            )


def document(made: Posterior) -> dict[str, Any]:
    """What ``posterior.json`` says."""
    draws = made.draws
    digest = hashlib.sha256()
    for values in (made.measurement.values, *made.measurement.exact):
        digest.update(np.ascontiguousarray(values).data)
    return drawn_document(
        implicates=len(draws.cells),
        before=draws.before,
        between=draws.every,
        seed=made.seed,
        measurements=digest.hexdigest(),
        sets=[_named(made, clique) for clique in made.cliques],
        effective=made.effective,
    )


def _named(made: Posterior, clique: Clique) -> list[str]:
    return [made.domain.names[k] for k in clique.attributes]


def rows_of(made: Posterior) -> Iterator[pa.Table]:
    """The implicates, one draw after the other: by set of attributes, then by cell; cells of nobody are left out.

    Attributes that are not of a row's set are empty in it.
    """
    schema = _schema(made)
    labels = [heading_and_labels(made.domain, name, merge)[1] for name, merge in _merges(made)]
    sets = [" ".join(_named(made, clique)) for clique in made.cliques]
    sizes = [made.model.shape(clique) for clique in made.cliques]
    of = np.concatenate([np.full(int(np.prod(size)), i) for i, size in enumerate(sizes)])
    codes = np.full((len(labels), of.size), -1)
    for i, (clique, size) in enumerate(zip(made.cliques, sizes, strict=True)):
        for k, code in zip(
            clique.attributes, np.indices(size).reshape(len(size), int(np.prod(size))), strict=True
        ):
            codes[k, of == i] = code
    for number, cells in enumerate(made.draws.cells, start=1):
        some = np.flatnonzero(cells)
        columns = [pa.array(np.full(some.size, number, np.int32)), word_column(of[some], sets)]
        for words, code in zip(labels, codes[:, some], strict=True):
            index = pa.array(code.astype(np.int32), mask=code < 0)
            columns.append(pa.DictionaryArray.from_arrays(index, pa.array([*words], pa.string())))
        columns.append(pa.array(cells[some].astype(np.int64)))
        yield pa.Table.from_arrays(columns, schema=schema)


def read_draws(folder: Path, made: Posterior) -> np.ndarray:
    """The cells of stored implicates, shape (draws, cells): what was drawn need not be drawn again.

    Raises:
        ReleaseError: the file does not hold draws of these sets of attributes.
    """
    rows = pq.read_table(folder / FILE)
    labels = [heading_and_labels(made.domain, name, merge)[1] for name, merge in _merges(made)]

    def codes(name: str, words: Sequence[str]) -> np.ndarray:
        place = {word: code for code, word in enumerate(words)}
        chunks = rows[name].cast(pa.string()).chunks
        column = pa.concat_arrays([pa.array([], pa.string()), *chunks]).dictionary_encode()
        code = np.array([place.get(word, -1) for word in column.dictionary.to_pylist()] + [-1])
        return code[column.indices.fill_null(len(code) - 1).to_numpy(zero_copy_only=False)]

    try:
        of = codes(OF, [" ".join(_named(made, clique)) for clique in made.cliques])
        place = np.full(rows.num_rows, -1)
        for i, clique in enumerate(made.cliques):
            some = of == i
            code = [codes(made.domain.names[k], labels[k])[some] for k in clique.attributes]
            inside = np.ravel_multi_index(code, made.model.shape(clique)) if code else 0
            place[some] = made.model.starts[i] + inside
        found = np.zeros((f.read_json(folder, ABOUT)["implicates"], made.model.cells), np.int64)
        if (place < 0).any():
            raise ValueError
        found[rows["draw"].to_numpy() - 1, place] = rows["count"].to_numpy()
    except (KeyError, ValueError, IndexError):
        raise ReleaseError(
            f"{folder / FILE} does not hold draws of the attributes of {f.SPEC}: tabulae check says what differs"
        ) from None
    return found


def _merges(made: Posterior) -> Iterator[tuple[str, LinearOperator]]:
    """Of each attribute the classes that are told apart: the categories themselves, where they all are."""
    for name, merge in zip(made.domain.names, made.merges, strict=True):
        yield name, Identity(merge.shape[1]) if merge.shape[0] == merge.shape[1] else merge


def _schema(made: Posterior) -> pa.Schema:
    return columns_of([OF, *made.domain.names])


def write_draws(folder: Path, made: Posterior) -> None:
    """Write the implicates, and how they were drawn."""
    write_implicates(folder, _schema(made), rows_of(made), document(made))


def draws_faults(folder: Path, made: Posterior) -> Iterator[str]:
    """Whether stored implicates are those that the measurements and the seed give."""
    yield from implicate_faults(folder, _schema(made), rows_of(made), document(made))
