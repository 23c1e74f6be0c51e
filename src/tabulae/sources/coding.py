"""The rule of one column: which values it may hold, what code each stands for, and what is refused.

A rule compares what a value *means*, so that a CSV file, a Parquet file and a database that hold the same
records give the same counts:

* A value of a numeric attribute is a whole number, however it is stored: an integer, a float or decimal
  without a fraction, or text of the form ``[+-]digits[.zeros]`` ("34", "+034" and "34.0" are 34; "3.7",
  "1e3", "0x1" and "1,000" are not numbers here).
* A value of any other attribute is text and is compared letter by letter, case included: "02" is not "2".
  Where the records store numbers for it, they are compared with those labels that are whole numbers.
* Blanks and tabs around text do not count. Text with nothing else in it is NULL, and so is a float that
  is not a number (NaN): a CSV file could not tell them apart.
* Truth values are compared with labels "true" and "false" in any case, or else with 1 and 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..domain import Attribute, Value
from ..errors import DataError, InvalidArgument
from .columns import ID
from .failures import redacted
from .source import RecordSource, engine_of
from .units import UnitRule

if TYPE_CHECKING:
    import ibis.expr.types as ir


Policy = Literal["refuse", "other"]
Key = TypeVar("Key", int, str)
OTHER = "other"
UNKNOWN_CODE = -1
NULL_CODE = -2
BLANKS = " \t\n\r\v\f"

_INTEGER_LABEL = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(2**63), 2**63)
_EXACT_IN_FLOAT = range(-(2**53), 2**53 + 1)


def whole_number(decimal: str = ".") -> str:
    """The pattern of a whole number as text, its digits without leading zeros in the first group.

    >>> re.search(whole_number(","), "+034,0")[1]
    '34'
    """
    return rf"^[+-]?0*([0-9]+)({re.escape(decimal)}0+)?$"


@dataclass(frozen=True)
class ColumnCoding:
    """How one attribute is read from the records.

    Args:
        column: the column that holds it.
        unknown: what to do with values that the domain does not list: "refuse", or count them in the
            attribute's last category, which must then be labelled "other".
        null: the same for NULL.
        decimal: the sign before the decimals of numbers that are text.
        values: raw value -> code (position of the category). By default the attribute's own values, without
            the category "other" that a policy adds.

    Example:
        >>> ColumnCoding("SEX", values={"1": 0, "2": 1}).unknown
        'refuse'
    """

    column: str
    unknown: Policy = "refuse"
    null: Policy = "refuse"
    decimal: str = "."
    values: Mapping[int, int] | Mapping[str, int] | None = None

    def codes(self, attribute: Attribute) -> dict[Value, int]:
        """Raw value -> code, for the values that count as declared."""
        where = f"attribute {attribute.name!r}"
        for key, policy in (("unknown", self.unknown), ("null", self.null)):
            if policy not in ("refuse", "other"):
                raise InvalidArgument(f'{where}: {key} is "refuse" or "other", not {policy!r}')
        adds = self.has_other
        if adds and attribute.labels[-1] != OTHER:
            raise InvalidArgument(
                f'{where}: the policy "other" counts in a category of its own: its last label must be "other"'
            )
        codes: dict[Value, int]
        if self.values is None:
            declared = attribute.values[:-1] if adds else attribute.values
            codes = {value: code for code, value in enumerate(declared)}
        else:
            codes = dict(self.values.items())
        if any(not 0 <= code < attribute.size for code in codes.values()):
            raise InvalidArgument(f"{where}: values must be given codes 0..{attribute.size - 1}")
        if len({type(value) for value in codes}) > 1 or not all(isinstance(v, int | str) for v in codes):
            raise InvalidArgument(f"{where}: values must be all whole numbers or all strings")
        return codes

    @property
    def has_other(self) -> bool:
        return OTHER in (self.unknown, self.null)


def text_keys(attribute: Attribute, codes: Mapping[Value, int]) -> dict[str, int]:
    """What text in the records is compared with: numbers in plain digits, or labels without blanks.

    >>> text_keys(Attribute.of("age", range(3)), {0: 0, 1: 1, 2: 2})
    {'0': 0, '1': 1, '2': 2}
    """
    return _distinct(attribute, ((str(value).strip(BLANKS), code) for value, code in codes.items()))


def integer_keys(attribute: Attribute, codes: Mapping[Value, int]) -> dict[int, int]:
    """What whole numbers in the records are compared with; labels that are not numbers match none.

    >>> integer_keys(Attribute.of("county", ["001", "003", "x"]), {"001": 0, "003": 1, "x": 2})
    {1: 0, 3: 1}
    """
    numbers = (
        (int(value), code)
        for value, code in codes.items()
        if isinstance(value, int) or _INTEGER_LABEL.fullmatch(value.strip(BLANKS))
    )
    return {n: code for n, code in _distinct(attribute, numbers).items() if n in _INT64}


def float_keys(attribute: Attribute, codes: Mapping[Value, int]) -> dict[float, int]:
    """The same for floats: of whole numbers beyond 2^53 a float does not tell which one it was."""
    keys = integer_keys(attribute, codes)
    return {float(n): code for n, code in keys.items() if n in _EXACT_IN_FLOAT}


def truth_keys(attribute: Attribute, codes: Mapping[Value, int]) -> dict[int, int]:
    """The same for truth values, as 1 and 0.

    >>> truth_keys(Attribute.of("vote", ["No", "True"]), {"No": 0, "True": 1})
    {1: 1}
    """
    words = {"true": 1, "false": 0}
    named = ((words.get(str(value).strip(BLANKS).lower()), code) for value, code in codes.items())
    keys = _distinct(attribute, ((truth, code) for truth, code in named if truth is not None))
    return keys or {n: code for n, code in integer_keys(attribute, codes).items() if n in (0, 1)}


def _distinct(attribute: Attribute, pairs: Iterable[tuple[Key, int]]) -> dict[Key, int]:
    keys: dict[Key, int] = {}
    for key, code in pairs:
        if key == "":
            raise InvalidArgument(
                f"attribute {attribute.name!r} lists an empty value, but empty text is NULL: "
                'write null = "other"'
            )
        if keys.setdefault(key, code) != code:
            raise InvalidArgument(
                f"attribute {attribute.name!r} lists two categories that records cannot tell apart (both "
                f"{key!r}): make them one"
            )
    return keys


def coded(
    records: ir.Table,
    attributes: Sequence[Attribute],
    rules: Mapping[str, ColumnCoding],
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
    table = engine_of(alike).computed_once(alike.mutate(**keyed))
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
    return engine_of(alike).copied(
        alike, pa.table({f"match{i}": pa.array(list(keys), of_type), f"code{i}": codes})
    )


def _keys(raw: Any, attribute: Attribute, rule: ColumnCoding) -> tuple[Any, Mapping[Any, int]]:
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
        return (_plain_number(text, rule.decimal) if numeric else text), text_keys(attribute, codes)
    named = "a type that is not counted" if kind.is_unknown() else f"type {kind}"
    raise DataError(
        f"column {rule.column!r} (attribute {attribute.name!r}) has {named}: the values of an attribute "
        "are text, numbers or truth values; convert it to text"
    )


def _plain_number(text: Any, decimal: str = ".") -> Any:
    """Whole numbers in plain digits ("+007" and "7.0" become "7"), "?" for other text, NULL for NULL."""
    import ibis

    written = whole_number(decimal)
    digits = text.re_extract(written, 1)
    negative = text.startswith("-") & (digits != "0")
    # In some engines "$" also stands before a line's end, of which there are many kinds.
    whole = text.re_search(written) & (text.re_extract(written, 0) == text)
    return ibis.cases(
        (text.isnull(), ibis.null("string")),
        (~whole, "?"),
        (negative, ibis.literal("-") + digits),
        else_=digits,
    )


EXAMPLES = 5
_KINDS = {UNKNOWN_CODE: "values outside the declared categories", NULL_CODE: "NULL values"}


def misfits(
    source: RecordSource, attributes: Sequence[Attribute], rules: Mapping[str, ColumnCoding], table: Any
) -> list[tuple[str, str]]:
    """Column and kind of each fault, and the same with numbers and values, which is confidential.

    Args:
        source: what messages name.
        attributes, rules: as they were coded.
        table: the coded records, alike ones counted (see `mapping`).
    """
    people = {
        f"{i}_{code}": table.people.sum(where=table[f"k{i}"] == code)
        for i in range(len(attributes))
        for code in _KINDS
    }
    numbers = redacted(source.name, lambda: table.aggregate(**people).to_pyarrow().to_pylist()[0])
    faults = []
    for i, attribute in enumerate(attributes):
        for code, kind in _KINDS.items():
            if number := numbers[f"{i}_{code}"]:
                where = f"column {rules[attribute.name].column!r} (attribute {attribute.name!r}): {kind}"
                told = f"{where}: in {int(number)} records"
                if code == UNKNOWN_CODE:
                    told += f", such as {listed(unknown(source, table, f'c{i}', f'k{i}'))}"
                faults.append((where, told))
    return faults


def nameless(source: RecordSource, records: Any, unit: UnitRule) -> list[tuple[str, str]]:
    """Records without a unit, likewise: nobody could say whose they are."""
    number = redacted(source.name, lambda: int(records[ID].isnull().sum().to_pyarrow().as_py() or 0))
    where = f"column {unit.column!r} (unit_id): NULL values, and every record needs the id of its unit"
    return [(where, f"{where}: in {number} records")] if number else []


def refusal(source: RecordSource, faults: Sequence[tuple[str, str]]) -> DataError:
    """The error that names the faults."""
    remedy = (
        'Correct the records, list the values under [attributes], or count them apart with unknown = "other" '
        'or null = "other".'
    )
    return DataError(
        "\n".join(
            [f"{source.name} does not fit the public domain:", *(f"  {told}" for told, _ in faults), remedy]
        ),
        confidential="\n".join(detail for _, detail in faults),
    )


def unknown(source: RecordSource, table: Any, raw: str, key: str) -> list[tuple[Any, int]]:
    """The commonest values that have no code, and how many records have each: for the holder of the records.

    Args:
        source: what messages name.
        table: coded records, alike ones counted.
        raw, key: the columns of the values and of their codes.
    """
    import ibis

    if table[raw].type().is_decimal():
        table = table.mutate(**{raw: table[raw].cast("string")})  # all its digits, and as many as there are
    commonest = (
        table.filter(table[key] == UNKNOWN_CODE)
        .group_by(raw)
        .aggregate(people=table.people.sum().cast("int64"))
        .order_by([ibis.desc("people"), raw])
        .limit(EXAMPLES)
    )
    rows = redacted(source.name, lambda: commonest.to_pyarrow().to_pylist())
    return [(row[raw], row["people"]) for row in rows]


def listed(examples: Iterable[tuple[Any, int]]) -> str:
    """Values, each with its number of records."""
    return ", ".join(f"{value!r} ({people})" for value, people in examples)


def check_counted(source: RecordSource, rows: int, counted: int, least: int = 0) -> None:
    """Raise a `DataError` where there are no records, or other records were counted than there are.

    Args:
        source: what messages name.
        rows, counted: how many there must be, and are.
        least: the smallest code among records that were found to fit before.
    """
    if rows == 0:
        raise DataError(f"{source.name} has no records: there is nothing to publish")
    if counted != rows or least < 0:
        raise DataError(
            f"{source.name} changed while it was read, or records were lost or doubled in counting: make a "
            "copy that nothing writes to, and run again",
            confidential=f"{rows} rows, {counted} counted",
        )
