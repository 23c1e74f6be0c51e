"""Values to codes, inside the engine: one lookup table an attribute, joined from the left.

A left join with distinct keys keeps every record exactly once, whatever it holds. A record whose value no
key matches gets code -1, and one without a value gets -2, unless the rule of the column says "other".

Records that are alike are counted first and looked up once: there are many more people than combinations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..domain import Attribute
from ..errors import DataError
from .given import given, held
from .rules import (
    NULL_CODE,
    UNKNOWN_CODE,
    WHOLE_NUMBER,
    ColumnRule,
    float_keys,
    integer_keys,
    text_keys,
    truth_keys,
)

if TYPE_CHECKING:
    import ibis.expr.types as ir


def coded(
    records: ir.Table,
    attributes: Sequence[Attribute],
    rules: Mapping[str, ColumnRule],
    beside: Sequence[str] = (),
) -> ir.Table:
    """The distinct records, each with a code for each attribute and the number of records like it.

    Args:
        records: raw values in columns c0, c1, ..., one an attribute.
        attributes: in the order of those columns.
        rules: attribute name -> its rule.
        beside: further columns in which records must agree to be alike.

    Returns:
        A lazy table with the raw values c0, c1, ..., the codes k0, k1, ..., ``people``, and those ``beside``.

    Raises:
        DataError: if a column holds something that is neither text, numbers nor truth values.
        InvalidArgument: if a rule does not fit its attribute.
    """
    import ibis

    raw = [f"c{i}" for i in range(len(attributes))]
    alike = records.group_by([*beside, *raw]).aggregate(people=records.count())
    keyed = {}
    lookups = []
    for i, attribute in enumerate(attributes):
        key, keys = _keys(alike[raw[i]], attribute, rules[attribute.name])
        keyed[f"key{i}"] = key
        lookups.append(_lookup(alike, i, keys, key))
    table = held(alike.mutate(**keyed))
    for i, lookup in enumerate(lookups):
        table = table.left_join(lookup, table[f"key{i}"] == lookup[f"match{i}"])
    codes = {}
    for i, attribute in enumerate(attributes):
        rule, other = rules[attribute.name], attribute.size - 1
        missing = other if rule.null == "other" else NULL_CODE
        unknown = other if rule.unknown == "other" else UNKNOWN_CODE
        code = ibis.coalesce(table[f"code{i}"], unknown)
        codes[f"k{i}"] = ibis.ifelse(table[f"key{i}"].isnull(), missing, code).cast("int32")
    return table.select(*beside, *raw, "people", **codes)


def _lookup(alike: ir.Table, i: int, keys: Mapping[Any, int], key: ir.Value) -> ir.Table:
    import pyarrow as pa

    of_type = {"string": pa.string(), "float64": pa.float64()}.get(str(key.type()).lstrip("!"), pa.int64())
    codes = pa.array(list(keys.values()), pa.int32())
    return given(alike, pa.table({f"match{i}": pa.array(list(keys), of_type), f"code{i}": codes}))


def _keys(raw: Any, attribute: Attribute, rule: ColumnRule) -> tuple[Any, Mapping[Any, int]]:
    """What is compared in place of the raw value (NULL where it is missing), and the keys it may equal."""
    import ibis

    codes = rule.codes(attribute)
    numeric = all(isinstance(value, int) for value in codes)
    kind = raw.type()
    if kind.is_boolean():
        return ibis.cases((raw, 1), (~raw, 0)).cast("int64"), truth_keys(attribute, codes)
    if kind.is_integer():
        return raw, integer_keys(attribute, codes)
    if kind.is_floating():
        number = raw.cast("float64")
        return ibis.ifelse(number.isnan(), ibis.null("float64"), number), float_keys(attribute, codes)
    if kind.is_decimal():
        keys = {str(number): code for number, code in integer_keys(attribute, codes).items()}
        return _plain_number(raw.cast("string")), keys
    if kind.is_string() or kind.is_null():
        text = raw.cast("string").strip().nullif("")
        return (_plain_number(text) if numeric else text), text_keys(attribute, codes)
    named = "a type that is not counted" if kind.is_unknown() else f"type {kind}"
    raise DataError(
        f"column {rule.column!r} (attribute {attribute.name!r}) has {named}: the values of an attribute "
        "are text, numbers or truth values; convert it to text"
    )


def _plain_number(text: Any) -> Any:
    """Whole numbers in plain digits ("+007" and "7.0" become "7"), "?" for other text, NULL for NULL."""
    import ibis

    digits = text.re_extract(WHOLE_NUMBER, 1)
    negative = text.startswith("-") & (digits != "0")
    # In some engines "$" also stands before a line's end, of which there are many kinds.
    whole = text.re_search(WHOLE_NUMBER) & (text.re_extract(WHOLE_NUMBER, 0) == text)
    return ibis.cases(
        (text.isnull(), ibis.null("string")),
        (~whole, "?"),
        (negative, ibis.literal("-") + digits),
        else_=digits,
    )
