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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from ..domain import Attribute
from ..domain.attribute import Value
from ..errors import InvalidArgument

Policy = Literal["refuse", "other"]
Key = TypeVar("Key", int, str)
OTHER = "other"
UNKNOWN_CODE = -1
NULL_CODE = -2
BLANKS = " \t\n\r\v\f"

WHOLE_NUMBER = r"^[+-]?0*([0-9]+)(\.0+)?$"
_INTEGER_LABEL = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(2**63), 2**63)
_EXACT_IN_FLOAT = range(-(2**53), 2**53 + 1)


@dataclass(frozen=True)
class ColumnRule:
    """How one attribute is read from the records.

    Args:
        column: the column that holds it.
        unknown: what to do with values that the domain does not list: "refuse", or count them in the
            attribute's last category, which must then be labelled "other".
        null: the same for NULL.
        values: raw value -> code (position of the category). By default the attribute's own values, without
            the category "other" that a policy adds.

    Example:
        >>> ColumnRule("SEX", values={"1": 0, "2": 1}).unknown
        'refuse'
    """

    column: str
    unknown: Policy = "refuse"
    null: Policy = "refuse"
    values: Mapping[int, int] | Mapping[str, int] | None = None

    def codes(self, attribute: Attribute) -> dict[Value, int]:
        """Raw value -> code, for the values that count as declared.

        Raises:
            InvalidArgument: if a policy is unknown, if "other" has no category to count in, or if the codes
                or the values given are not those of the attribute.
        """
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
        """Whether some records are to be counted in the category "other"."""
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
