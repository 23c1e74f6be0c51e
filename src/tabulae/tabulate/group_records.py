"""Records of any source to counts of groups: values are coded by the rules of their columns, as for other tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod

import numpy as np

from ..adaptive import AdaptivePlan
from ..counts.group_counts import GroupCounts
from ..domain import Attribute
from ..domain.groups import NONE, Family
from ..errors import InvalidArgument
from .group_areas import Areas, areas_of
from .group_codes import PackedCodes
from .group_coding import CodedSource
from .group_counts import EngineCounts
from .group_engine import CodedRecords
from .group_kinds import Kinds, kinds_of
from .group_places import Places, RecordShape
from .rules import OTHER, ColumnRule
from .source import Source
from .units import UnitRule


@contextmanager
def open_group_records(
    source: Source,
    domain_attributes: Sequence[Attribute],
    rules: Mapping[str, ColumnRule],
    shape: RecordShape,
    plan: AdaptivePlan,
    *,
    unit: UnitRule | None = None,
    memory: str | None = None,
) -> Iterator[GroupCounts]:
    """The counts of a plan's groups, from the records of a source; they can be read until the context ends.

    An attribute of codes whose rule says ``null = "other"`` holds no code where its value is missing.

    Args:
        source: where the records are, one row a record.
        domain_attributes: the public domain; those that the shape names are read.
        rules: attribute name -> the rule of its column.
        shape: what the attributes are for.
        plan: what is to be counted.
        unit: which records belong to one unit, and how many of them are counted; None counts every record.
        memory: the most that the engine takes, such as "4GB"; None is 4 GB. More goes, encrypted, to disk.

    Raises:
        DataError: the source cannot be read, is empty, or holds values that are refused: see
            `tabulae.tabulate.tabulate`.
        InvalidArgument: attributes, rules, shape and plan do not fit each other.

    Privacy:
        Each record is counted in one leaf, one cell of the ladder, and in the groups that its codes make it a member
        of: at most ``Family.most`` codes of a family. With ``unit``, one unit more or less changes the records that
        are counted by at most ``unit.rows`` (see `tabulae.tabulate.units`).
    """
    attributes = _attributes(domain_attributes, rules, shape)
    areas, kinds = areas_of(plan), kinds_of(plan)
    families = {family.name: family for family in plan.levels[0].groups.families}
    _check_fit(attributes, shape, areas, kinds, families)
    positions = {
        name: _positions(attributes[name], rules[name], families[family])
        for family, names in shape.codes.items()
        for name in names
    }
    packed = PackedCodes(tuple(families[family] for family, names in shape.codes.items() for _ in names))
    coded = CodedSource(
        source, rules, unit, Places(attributes, shape, areas, kinds, positions, packed), memory
    )
    with coded.opened() as connection:
        records = CodedRecords(connection, source.name, plan, areas, packed, "sum(people)")
        counts = EngineCounts(records, kinds)
        yield counts


def _attributes(
    domain: Sequence[Attribute], rules: Mapping[str, ColumnRule], shape: RecordShape
) -> dict[str, Attribute]:
    known = {attribute.name: attribute for attribute in domain}
    for name in shape.names:
        if name not in known or name not in rules:
            raise InvalidArgument(
                f"attribute {name!r} is named by the shape, and has no categories or no rule"
            )
    return {name: known[name] for name in shape.names}


def _check_fit(
    attributes: Mapping[str, Attribute],
    shape: RecordShape,
    areas: Areas,
    kinds: Kinds,
    families: Mapping[str, Family],
) -> None:
    leaves = prod(attributes[name].size for name in shape.regions)
    if leaves != areas.of_leaf.size:
        raise InvalidArgument(
            f"the regions' attributes have {leaves} combinations, and the plan has {areas.of_leaf.size} leaves"
        )
    sizes = [(name, attributes[name].size) for name in shape.cells]
    if sizes != list(kinds.sizes.items()):
        raise InvalidArgument(
            f"the cells have attributes {sizes}, and the ladders are over {list(kinds.sizes.items())}"
        )
    if unknown := sorted(set(shape.codes) - set(families)):
        raise InvalidArgument(f"there is no family of codes {', '.join(map(repr, unknown))}")


def _positions(attribute: Attribute, rule: ColumnRule, family: Family) -> np.ndarray:
    """Category -> position of the code, or -1 for the category of missing values."""
    out = []
    for label in attribute.labels:
        position = family.position.get(label)
        if position is None and label == OTHER and rule.null == OTHER:
            if rule.unknown == OTHER:
                raise InvalidArgument(
                    f'attribute {attribute.name!r}: unknown = "other" would take unknown codes for no code: refuse '
                    f'them, or make "other" a code of {family.name!r}'
                )
            position = NONE
        if position is None:
            raise InvalidArgument(
                f"{label!r} of attribute {attribute.name!r} is not a code of {family.name!r}"
            )
        out.append(position)
    return np.array(out, np.int64)
