"""Layouts and marginals against the domain's own cells."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.each import each

from tabulae import Domain, Recode
from tabulae.errors import InvalidArgument
from tabulae.products.areas.layout import CellLayout

PLAIN = Domain({"type": 3, "age": 2, "race": 4, "sex": 1})
DOMAIN = PLAIN.with_recodes(
    Recode.from_map("coarse", PLAIN["type"], {0: "x", 1: "y", 2: "x"}),
    Recode.from_map("pairs", PLAIN["race"], {0: "b", 1: "a", 2: "a", 3: "b"}),
    Recode.from_map("turned", PLAIN["race"], {0: "d", 1: "c", 2: "b", 3: "a"}),
)
DENSE = [(), ("type",), ("race", "type"), ("age",), ("type", "age", "race", "sex")]
TABLES = [
    (),
    ("race",),
    ("race", "type"),
    ("age", "coarse"),
    ("pairs", "age"),
    ("sex", "turned", "type"),
    ("type", "age", "race", "sex"),
]


def label(name: str) -> np.ndarray:
    """The class of each category of a view."""
    recode = DOMAIN.recode(name)
    return np.arange(DOMAIN[name].size) if recode is None else np.asarray(recode.classes)


def table_of(layout: CellLayout, names: tuple[str, ...], x: np.ndarray) -> np.ndarray:
    """A marginal cell by cell, in C order of its names, from x over all the layout's cells."""
    shape = [len(DOMAIN.resolve(name).labels) for name in names]
    found = np.zeros(shape, x.dtype)
    for cell in itertools.product(*(range(n) for n in DOMAIN.shape)):
        place = layout.place[np.ravel_multi_index(cell, DOMAIN.shape)]
        if place >= 0:
            at = tuple(
                label(name)[cell[DOMAIN.names.index(DOMAIN.resolve(name).attribute.name)]] for name in names
            )
            found[at] += x.ravel()[place]
    return found.ravel()


@pytest.mark.parametrize("dense", DENSE)
def test_every_cell_has_one_place(dense):
    impossible = np.zeros([DOMAIN[name].size for name in DOMAIN.names if name in dense], bool)
    if dense:
        impossible.flat[0] = True
    layout = CellLayout.of(DOMAIN, dense, impossible)
    assert layout.dense == tuple(name for name in DOMAIN.names if name in dense or DOMAIN[name].size == 1)
    assert layout.cell.shape == (layout.size, layout.algebra.cells)
    assert len(set(layout.cell.ravel().tolist())) == layout.cell.size
    for place, cell in enumerate(layout.cell.ravel().tolist()):
        assert layout.place[cell] == place
    assert (layout.place < 0).sum() == DOMAIN.size - layout.cell.size


@each("dense", DENSE)
@each("names", TABLES)
@each("dtype", [np.int64, np.float64])
def test_margins_add_up_their_cells(dense, names, dtype):
    rng = np.random.default_rng(len(names))
    layout = CellLayout.of(DOMAIN, dense)
    margin = layout.margin(names)
    assert margin.size == np.prod([len(DOMAIN.resolve(name).labels) for name in names])
    for _ in range(4):
        support = np.flatnonzero(rng.random(layout.size) < 0.6)
        support = support if support.size else np.array([0])
        x = rng.integers(0, 9, (2, support.size, layout.algebra.cells)).astype(dtype)
        found = margin.add_up(x, support)
        assert found.dtype == dtype
        classes = margin.present(support)
        assert found.shape == (2, classes.size, margin.inner)
        whole = np.zeros((layout.size, layout.algebra.cells), dtype)
        whole[support] = x[0]
        table = np.zeros(margin.size, dtype)
        table[margin.order[classes]] = found[0]
        assert np.array_equal(table, table_of(layout, names, whole))


def _spread(margin, y, support):
    found = np.zeros((len(y), support.size, margin.layout.algebra.cells))
    margin.add_spread(y, support, into=found)
    return found


@each("dense", DENSE)
@each("names", TABLES)
def test_spreading_is_the_transpose_of_adding_up(dense, names):
    rng = np.random.default_rng(1)
    layout = CellLayout.of(DOMAIN, dense)
    margin, support = layout.margin(names), np.arange(0, layout.size, 2)
    x = rng.normal(size=(3, support.size, layout.algebra.cells))
    y = rng.normal(size=(3, margin.present(support).size, margin.inner))
    assert np.isclose((margin.add_up(x, support) * y).sum(), (x * _spread(margin, y, support)).sum())
    if margin.kept is not None:
        gram = layout.algebra.term(margin.dense_gram(support), margin.kept)
        both = _spread(margin, margin.add_up(x, support), support)
        rotated = layout.algebra.apply(gram, layout.algebra.rotate(x))
        assert np.allclose(both, layout.algebra.unrotate(rotated))


def test_sizes_of_inner_classes():
    margin = CellLayout.of(DOMAIN, ["type"]).margin(["pairs", "age"])
    assert margin.kept is None
    age, race = (sizes.tolist() for sizes in margin.inner_sizes)
    assert age == [1] * 4
    assert race == [2] * 4


def test_names():
    layout = CellLayout.of(DOMAIN, ["type"])
    assert layout.margin([]).name == "total"
    assert layout.margin(DOMAIN.names).name == "detailed"
    assert layout.margin(["race", "coarse"]).name == "race * coarse"


def test_refusals():
    layout = CellLayout.of(DOMAIN, ["type"])
    with pytest.raises(InvalidArgument, match="are both of 'type'"):
        layout.margin(["type", "coarse"])
    with pytest.raises(InvalidArgument, match="can occur: remove a structural zero"):
        CellLayout.of(DOMAIN, ["type"], np.ones(3, bool))
    with pytest.raises(InvalidArgument, match="structural zeros have shape"):
        CellLayout.of(DOMAIN, ["type"], np.zeros(2, bool))
    with pytest.raises(InvalidArgument, match="at most 256 are handled"):
        CellLayout.of(Domain({"a": 17, "b": 17}), ["a", "b"])
