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

A rule may make categories of values, bins of numbers or periods of dates, take whole numbers beyond its ends for its
ends, or compare text without its case: see `tabulae.sources.classes` and `tabulae.sources.values`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..domain import Attribute, Value
from ..errors import DataError, InvalidArgument
from .classes import Bins, Grid, Periods
from .failures import redacted
from .households import FromRecords
from .source import ID, RecordSource, engine_of
from .units import UnitRule
from .values import BLANKS, fold, folded, numbers_of, plain_number, plain_text, wrong_type

if TYPE_CHECKING:
    import ibis.expr.types as ir


Policy = Literal["refuse", "other"]
Key = TypeVar("Key", int, str)
OTHER = "other"
UNKNOWN_CODE = -1
NULL_CODE = -2

_INTEGER_LABEL = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(2**63), 2**63)
_EXACT_IN_FLOAT = range(-(2**53), 2**53 + 1)


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
        made: the bins or periods that values are put in, which are the attribute's categories in their order; None
            where the column holds the categories themselves.
        clamp: whether whole numbers, or periods, beyond the ends count as the nearest end.
        fold: whether text is compared without its case.
        from_records: what an attribute of a unit is made of; it is in no column, whose name is empty then.

    Example:
        >>> ColumnCoding("SEX", values={"1": 0, "2": 1}).unknown
        'refuse'
    """

    column: str
    unknown: Policy = "refuse"
    null: Policy = "refuse"
    decimal: str = "."
    values: Mapping[int, int] | Mapping[str, int] | None = None
    made: Bins | Periods | Grid | None = None
    clamp: bool = False
    fold: bool = False
    from_records: FromRecords | None = None

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
    made: dict[int, Mapping[int, int] | range] = {}
    for i, attribute in enumerate(attributes):
        if rules[attribute.name].made is not None:
            records, made[i] = _put_in_classes(records, i, attribute, rules[attribute.name])
    alike = records.group_by([*beside, *raw, *(f"key{i}" for i in made)]).aggregate(people=records.count())
    keyed = {}
    lookups = {}
    for i, attribute in enumerate(attributes):
        if i in made:
            key, keys = alike[f"key{i}"], made[i]
        else:
            key, keys = _keys(alike[raw[i]], attribute, rules[attribute.name])
            keyed[f"key{i}"] = key
        if not isinstance(keys, range):
            lookups[i] = _lookup(alike, i, keys, key)
    table = engine_of(alike).computed_once(alike.mutate(**keyed))
    for i, lookup in lookups.items():
        table = table.left_join(lookup, table[f"key{i}"] == lookup[f"match{i}"])
    codes = {}
    for i, attribute in enumerate(attributes):
        rule, other = rules[attribute.name], attribute.size - 1
        missing = other if rule.null == "other" else NULL_CODE
        unknown = other if rule.unknown == "other" else UNKNOWN_CODE
        key, kind = table[f"key{i}"], "int32"
        if isinstance(points := made.get(i), range):
            code, kind = ibis.ifelse(key.between(points[0], points[-1]), key - points[0], unknown), "int64"
        else:
            code = ibis.coalesce(table[f"code{i}"], unknown)
        codes[f"k{i}"] = ibis.ifelse(key.isnull(), missing, code).cast(kind)
    return table.select(*beside, *raw, "people", **codes)


def _lookup(alike: ir.Table, i: int, keys: Mapping[Any, int], key: ir.Value) -> ir.Table:
    import pyarrow as pa

    of_type = {"string": pa.string(), "float64": pa.float64()}.get(str(key.type()).lstrip("!"), pa.int64())
    codes = pa.array(list(keys.values()), pa.int32())
    return engine_of(alike).copied(
        alike, pa.table({f"match{i}": pa.array(list(keys), of_type), f"code{i}": codes})
    )


def _put_in_classes(
    records: Any, i: int, attribute: Attribute, rule: ColumnCoding
) -> tuple[Any, Mapping[int, int] | range]:
    """The records with the key of each value's class, before they are grouped: there are fewer classes than values.

    The raw value stays only where it has no class, for whoever must correct it.
    """
    import ibis

    assert rule.made is not None
    raw, name = f"c{i}", f"key{i}"
    keys = rule.made.keys(list(rule.codes(attribute).values()))
    table = rule.made.keyed(records, raw, name, _whose(attribute, rule), rule.decimal)
    first, last = (keys[0], keys[-1]) if isinstance(keys, range) else (min(keys), max(keys))
    if rule.clamp:
        key = table[name]
        table = table.mutate(
            **{
                name: ibis.cases((key < 0, key), (key < first, first), (key > last, last), else_=key).cast(
                    "int64"
                )
            }
        )
    value: Any = table[raw]
    if value.type().is_temporal():
        value = value.cast("string")
    has_class = table[name].between(first, last)
    return table.mutate(**{raw: ibis.ifelse(has_class, ibis.null(value.type()), value)}), keys


def _whose(attribute: Attribute, rule: ColumnCoding) -> str:
    return f"column {rule.column!r} (attribute {attribute.name!r})"


def _keys(raw: Any, attribute: Attribute, rule: ColumnCoding) -> tuple[Any, Mapping[Any, int]]:
    """What is compared in place of the raw value (NULL where it is missing), and the keys it may equal."""
    import ibis

    codes = rule.codes(attribute)
    kind = raw.type()
    if kind.is_boolean():
        return ibis.cases((raw, 1), (~raw, 0)).cast("int64"), truth_keys(attribute, codes)
    if kind.is_integer():
        key, keys = raw, integer_keys(attribute, codes)
    elif kind.is_floating():
        number = raw.cast("float64")
        key = ibis.ifelse(number.isnan(), ibis.null("float64"), number)
        keys = float_keys(attribute, codes)
    elif kind.is_decimal():
        keys = {str(number): code for number, code in integer_keys(attribute, codes).items()}
        key = plain_number(raw.cast("string"))
    elif kind.is_string() or kind.is_null():
        key, keys = _text_key(plain_text(raw), attribute, rule, codes)
    else:
        remedy = "the values of an attribute are text, numbers or truth values; convert it to text"
        raise wrong_type(raw, _whose(attribute, rule), remedy)
    return (_clamped(raw, key, attribute, rule, codes) if rule.clamp else key), keys


def _text_key(
    text: Any, attribute: Attribute, rule: ColumnCoding, codes: Mapping[Value, int]
) -> tuple[Any, Mapping[str, int]]:
    keys = text_keys(attribute, codes)
    if all(isinstance(value, int) for value in codes):
        return plain_number(text, rule.decimal), keys
    if rule.fold:
        return folded(text), _distinct(attribute, ((fold(key), code) for key, code in keys.items()))
    return text, keys


def _clamped(raw: Any, key: Any, attribute: Attribute, rule: ColumnCoding, codes: Mapping[Value, int]) -> Any:
    """The key, of whole numbers beyond the ends that of the nearest end."""
    import ibis

    numbers = numbers_of(raw, _whose(attribute, rule), rule.decimal)
    ends = [int(value) for value in codes]
    first, last = min(ends), max(ends)
    if key.type().is_unsigned_integer():  # of which 64 bits need not hold all
        most = max(last, 0)
        key = ibis.ifelse(key > most, ibis.literal(most, "uint64"), key)
    if key.type().is_integer():
        key = key.cast("int64")
    as_key = [ibis.literal(str(end) if key.type().is_string() else end, key.type()) for end in (first, last)]
    below = numbers.whole & (numbers.value < numbers.start(Fraction(first)))
    above = numbers.whole & (numbers.value >= numbers.after(Fraction(last)))
    return ibis.cases((below, as_key[0]), (above, as_key[1]), else_=key)


EXAMPLES = 5
_KINDS = {UNKNOWN_CODE: "values outside the declared categories", NULL_CODE: "NULL values"}
_OF_VALUES = {UNKNOWN_CODE: "numbers outside its range, or no numbers", NULL_CODE: "NULL values"}


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
        what, kinds = ("value", _OF_VALUES) if attribute.steps else ("attribute", _KINDS)
        for code, kind in kinds.items():
            if number := numbers[f"{i}_{code}"]:
                where = f"column {rules[attribute.name].column!r} ({what} {attribute.name!r}): {kind}"
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
    if any("(value " in told for told, _ in faults):
        remedy += (
            ' Of [values], widen the range, write outside = "clamp", or say which number NULL is: null = 0.'
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
        none = "has no records" if source.where is None else "has no records that meet [source] where"
        raise DataError(f"{source.name} {none}: there is nothing to publish")
    if counted != rows or least < 0:
        raise changed(source, f"{rows} rows, {counted} counted")


def changed(source: RecordSource, confidential: str) -> DataError:
    """What is said where two looks at the records do not agree."""
    return DataError(
        f"{source.name} changed while it was read, or records were lost or doubled in counting: make a "
        "copy that nothing writes to, and run again",
        confidential=confidential,
    )
