"""Predicates: AND, OR and NOT over tests of attributes, kept in negation normal form.

A test is about the categories of one attribute, or about the combinations of several: ``age < 5``, ``a + b <= c``.

A predicate over several attributes is a short signed sum of products, found with a reduced, ordered decision diagram.
It holds one node for each different function that remains once the first attributes are known, so equal remainders are
found whatever way they were written. Following its edges splits the predicate into disjoint products (Shannon's
expansion); where the complement splits into fewer, the predicate is one minus those (De Morgan, as in HDMM's
Appendix A). The cheaper is taken at each node, and the order of attributes that gives the fewest terms overall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import Unsupported

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Test:
    """True of a cell whose combination of categories of ``attributes`` is in ``cells`` (some of them, not all).

    ``cells`` has an axis for each attribute, all of which matter.
    """

    attributes: tuple[str, ...]
    cells: Mask

    # Not a test case, whatever a test runner may think of its name.
    __test__ = False


@dataclass(frozen=True, eq=False)
class All:
    """True where every part is; the parts test different attributes or are disjunctions."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, eq=False)
class Some:
    """True where some part is; the parts test different attributes or are conjunctions."""

    parts: tuple[Predicate, ...]


Predicate = bool | Test | All | Some


def test(attributes: str | Sequence[str], cells: Mask) -> Predicate:
    """The predicate "the category of the attribute, or the combination of several, is one of these".

    >>> test("sex", np.array([True, True]))
    True
    >>> test(("sex", "age"), np.array([[True, False], [True, False]])).attributes
    ('age',)
    """
    names = [attributes] if isinstance(attributes, str) else list(attributes)
    for axis in reversed(range(len(names))):
        first = np.asarray(cells.take(0, axis))
        if (cells == np.expand_dims(first, axis)).all():
            cells = first
            del names[axis]
    return Test(tuple(names), cells) if names else bool(cells)


def conjunction(parts: Sequence[Predicate]) -> Predicate:
    """The predicate true where all parts are; tests of one attribute become one test."""
    return _join(parts, All, np.logical_and, absorbing=False)


def disjunction(parts: Sequence[Predicate]) -> Predicate:
    """The predicate true where some part is; tests of one attribute become one test."""
    return _join(parts, Some, np.logical_or, absorbing=True)


def negation(predicate: Predicate) -> Predicate:
    """The predicate true where this one is not, by De Morgan's laws."""
    if isinstance(predicate, bool):
        return not predicate
    if isinstance(predicate, Test):
        return Test(predicate.attributes, ~predicate.cells)
    parts = [negation(part) for part in predicate.parts]
    return disjunction(parts) if isinstance(predicate, All) else conjunction(parts)


def tests(predicate: Predicate) -> dict[str, list[np.ndarray]]:
    """Attribute -> what the predicate's tests tell apart of it, in order of appearance: a label for each category."""
    found: dict[str, list[np.ndarray]] = {}
    stack = [predicate]
    while stack:
        node = stack.pop()
        if isinstance(node, Test):
            for axis, name in enumerate(node.attributes):
                found.setdefault(name, []).append(_told_apart(node.cells, axis))
        elif not isinstance(node, bool):
            stack.extend(reversed(node.parts))
    return found


def _told_apart(cells: Mask, axis: int) -> np.ndarray:
    """The same label for categories of one attribute that make no difference, whatever the others are."""
    if cells.ndim == 1:
        return cells
    parts = np.moveaxis(cells, axis, 0)
    labels: dict[bytes, int] = {}
    return np.array([labels.setdefault(part.tobytes(), len(labels)) for part in parts])


def over(predicate: Predicate, names: Sequence[str], shape: tuple[int, ...]) -> Mask:
    """The predicate for every combination of categories of some attributes, all of its own among them.

    >>> over(test("b", np.array([True, False])), ["a", "b"], (2, 2)).tolist()
    [[True, False], [True, False]]
    """
    if isinstance(predicate, bool):
        return np.full(shape, predicate)
    if isinstance(predicate, Test):
        axes = [names.index(name) for name in predicate.attributes]
        along = predicate.cells.transpose(np.argsort(axes))
        return np.broadcast_to(along.reshape([n if i in axes else 1 for i, n in enumerate(shape)]), shape)
    parts = [over(part, names, shape) for part in predicate.parts]
    return np.logical_and.reduce(parts) if isinstance(predicate, All) else np.logical_or.reduce(parts)


def possible(predicate: Predicate) -> dict[str, Mask]:
    """Attribute -> the categories that a conjunction leaves it, for attributes that a part of it tests alone.

    >>> possible(conjunction([test(name, np.array([True, False])) for name in ("age", "sex")]))["sex"]
    array([ True, False])
    """
    parts = predicate.parts if isinstance(predicate, All) else (predicate,)
    return {p.attributes[0]: p.cells for p in parts if isinstance(p, Test) and len(p.attributes) == 1}


def _join(
    parts: Sequence[Predicate],
    kind: type[All] | type[Some],
    merge: Callable[[Mask, Mask], Mask],
    *,
    absorbing: bool,
) -> Predicate:
    masks: dict[tuple[str, ...], Mask] = {}
    others: list[Predicate] = []
    for part in parts:
        for piece in part.parts if isinstance(part, kind) else (part,):
            if isinstance(piece, bool):
                if piece is absorbing:
                    return absorbing
            elif isinstance(piece, Test):
                known = masks.get(piece.attributes)
                masks[piece.attributes] = piece.cells if known is None else merge(known, piece.cells)
            else:
                others.append(piece)
    joined = [test(attributes, cells) for attributes, cells in masks.items()]
    if any(piece is absorbing for piece in joined):
        return absorbing
    kept = [piece for piece in joined if not isinstance(piece, bool)] + others
    if not kept:
        return not absorbing
    return kept[0] if len(kept) == 1 else kind(tuple(kept))


MOST_PRODUCTS = 256
_MOST_NODES = 20_000
_FALSE, _TRUE = 0, 1


class SignedProduct(NamedTuple):
    """A whole number times the product of 0/1 vectors; attributes left out are unrestricted."""

    coefficient: int
    cells: Mapping[str, Mask]


class Expansion(NamedTuple):
    """A predicate as a sum of products, and per tested attribute the categories that some true cell has."""

    products: tuple[SignedProduct, ...]
    reachable: Mapping[str, Mask]


def expand(predicate: Predicate) -> Expansion:
    """The 0/1 vector of the predicate over the domain as ``sum_t c_t kron_i v_ti``, exactly.

    Nothing of the size of the domain is formed. A predicate that is nowhere true has no products.

    Reference: HDMM, Appendix A, Theorems 15 and 16.

    >>> from .predicate import disjunction
    >>> either = disjunction([Test((name,), np.array([True, False])) for name in "abc"])
    >>> [(p.coefficient, sorted(p.cells)) for p in expand(either).products]
    [(1, []), (-1, ['a', 'b', 'c'])]
    """
    if isinstance(predicate, bool):
        return Expansion((SignedProduct(1, {}),) if predicate else (), {})
    atoms = {name: _atoms(masks) for name, masks in tests(predicate).items()}
    best: tuple[int, _Diagram, int] | None = None
    for order in _orders(predicate, list(atoms)):
        diagram = _Diagram({name: int(atoms[name].max()) + 1 for name in order})
        root = diagram.build(predicate, atoms)
        cost = diagram.cost(root)
        if best is None or cost < best[0]:
            best = cost, diagram, root
        if cost <= 2:
            break
    assert best is not None
    cost, diagram, root = best
    if cost > MOST_PRODUCTS:
        raise Unsupported(
            f"it takes {cost} products of conditions on single attributes, more than {MOST_PRODUCTS}: split "
            "it into several tables, or make one attribute of those that it entangles"
        )
    products = tuple(
        SignedProduct(sign, {name: np.isin(atoms[name], values) for name, values in chosen.items()})
        for sign, chosen in diagram.products(root)
    )
    return Expansion(products, {name: np.isin(atoms[name], diagram.reachable(root, name)) for name in atoms})


def _atoms(masks: Sequence[Mask]) -> np.ndarray:
    """Categories that every test treats alike share a number."""
    patterns = np.unique(np.array(masks), axis=1, return_inverse=True)[1]
    return np.asarray(patterns).reshape(-1)


def _orders(predicate: Predicate, names: list[str]) -> Iterator[tuple[str, ...]]:
    if len(names) <= 4:
        yield from permutations(names)
        return
    uses = {name: len(masks) for name, masks in tests(predicate).items()}
    seldom = sorted(names, key=lambda name: uses[name])
    for order in (names, names[::-1], seldom, seldom[::-1], sorted(names)):
        yield tuple(order)


class _Diagram:
    """Nodes are numbered; a node is (level, one child a class of categories); 0 is false and 1 is true."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.names = list(sizes)
        self.sizes = list(sizes.values())
        self.nodes: list[tuple[int, tuple[int, ...]]] = [(len(sizes), ()), (len(sizes), ())]
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        self._negations = {_FALSE: _TRUE, _TRUE: _FALSE}
        self._conjunctions: dict[tuple[int, int], int] = {}
        self._costs = {_FALSE: 0, _TRUE: 1}

    def node(self, level: int, children: tuple[int, ...]) -> int:
        if len(set(children)) == 1:
            return children[0]
        key = level, children
        if key not in self._numbers:
            if len(self.nodes) >= _MOST_NODES:
                raise Unsupported("it entangles too many attributes: split it into several tables")
            self._numbers[key] = len(self.nodes)
            self.nodes.append(key)
        return self._numbers[key]

    def build(self, predicate: Predicate, atoms: Mapping[str, np.ndarray]) -> int:
        if isinstance(predicate, bool):
            return int(predicate)
        if isinstance(predicate, Test):
            levels = [self.names.index(name) for name in predicate.attributes]
            first = [np.unique(atoms[name], return_index=True)[1] for name in predicate.attributes]
            order = np.argsort(levels)
            return self._chosen(sorted(levels), predicate.cells[np.ix_(*first)].transpose(order))
        parts = [self.build(part, atoms) for part in predicate.parts]
        if isinstance(predicate, All):
            return self._all(parts)
        return self.negate(self._all([self.negate(part) for part in parts]))

    def _chosen(self, levels: Sequence[int], cells: Mask) -> int:
        """The node that is true of some combinations of the classes of several attributes."""
        if not levels:
            return int(cells)
        known: dict[bytes, int] = {}
        children = []
        for part in cells:
            key = part.tobytes()
            if key not in known:
                known[key] = self._chosen(levels[1:], part)
            children.append(known[key])
        return self.node(levels[0], tuple(children))

    def _all(self, parts: Sequence[int]) -> int:
        result = _TRUE
        for part in parts:
            result = self.conjoin(result, part)
        return result

    def negate(self, f: int) -> int:
        if f not in self._negations:
            level, children = self.nodes[f]
            g = self.node(level, tuple(self.negate(child) for child in children))
            self._negations[f], self._negations[g] = g, f
        return self._negations[f]

    def conjoin(self, f: int, g: int) -> int:
        f, g = min(f, g), max(f, g)
        if f in (_FALSE, g):
            return f
        if f == _TRUE:
            return g
        if (f, g) not in self._conjunctions:
            level = min(self.nodes[f][0], self.nodes[g][0])
            pairs = zip(self._below(f, level), self._below(g, level), strict=True)
            self._conjunctions[f, g] = self.node(level, tuple(self.conjoin(a, b) for a, b in pairs))
        return self._conjunctions[f, g]

    def _below(self, f: int, level: int) -> tuple[int, ...]:
        own, children = self.nodes[f]
        return children if own == level else (f,) * self.sizes[level]

    def reachable(self, root: int, name: str) -> list[int]:
        """The classes of categories of an attribute that occur in a cell where the root is true."""
        level = self.names.index(name)
        found: set[int] = set()
        seen, stack = {_FALSE}, [root]
        while stack:
            f = stack.pop()
            if f in seen:
                continue
            seen.add(f)
            own, children = self.nodes[f]
            if own > level:
                return list(range(self.sizes[level]))
            if own == level:  # every node but the false one is true somewhere
                found |= {atom for atom, child in enumerate(children) if child != _FALSE}
            else:
                stack.extend(children)
        return sorted(found)

    def cost(self, f: int) -> int:
        """The number of products that `products` lists for a node."""
        if f not in self._costs:
            self._costs[f] = min(self._split_cost(f), 1 + self._split_cost(self.negate(f)))
        return self._costs[f]

    def _split_cost(self, f: int) -> int:
        return sum(self.cost(child) for child in set(self.nodes[f][1]))

    def products(self, f: int) -> Iterator[tuple[int, dict[str, list[int]]]]:
        """Signed products, each an attribute -> classes of categories, that sum to the node's function."""
        if f == _FALSE:
            return
        if f == _TRUE:
            yield 1, {}
            return
        if self._split_cost(f) <= 1 + self._split_cost(self.negate(f)):
            yield from self._split(f)
            return
        yield 1, {}
        for sign, chosen in self._split(self.negate(f)):
            yield -sign, chosen

    def _split(self, f: int) -> Iterator[tuple[int, dict[str, list[int]]]]:
        level, children = self.nodes[f]
        for child in dict.fromkeys(children):
            own = [atom for atom, other in enumerate(children) if other == child]
            for sign, chosen in self.products(child):
                yield sign, {self.names[level]: own, **chosen}
