"""How much memory a run may take, as its user writes it."""

from __future__ import annotations

import re

from ..errors import InvalidArgument, Unsupported

LEAST_ENGINE = 500 * 10**6
"""Bytes: an engine with less does not count many records."""

_MOST = 10**15  # bytes: no machine has as much, and engines take no setting much larger
_UNITS = {
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
_ENGINE = 0.8  # of what is left: an engine takes more than its limit for a while, and its counts take room


def read_memory(text: str) -> int:
    """An amount of memory in bytes.

    >>> read_memory("8GB"), read_memory("1.5 GiB")
    (8000000000, 1610612736)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B)\s*", str(text), re.IGNORECASE)
    size = float(found[1]) * _UNITS[found[2].upper()] if found and found[2].upper() in _UNITS else 0.0
    if not 1 <= size <= _MOST:
        raise InvalidArgument(
            f"memory is {text!r}; write a number with its unit, such as 8GB (10^9 bytes) or 8GiB (2^30), at most "
            "1000TB"
        )
    return int(size)


def size_words(size: int) -> str:
    """Bytes, for people.

    >>> size_words(1_234_000_000), size_words(5_000_000)
    ('1.23 GB', '5.00 MB')
    """
    return f"{size / 1e9:,.2f} GB" if size >= 1e8 else f"{size / 1e6:,.2f} MB"


def engine_memory(memory: int | None, taken: int) -> str | None:
    """What an engine of our own may take of a run's memory, as its setting; None where the run has no bound.

    >>> engine_memory(8 * 10**9, 2 * 10**9)
    '4800MB'
    """
    if memory is None:
        return None
    left = int(_ENGINE * (memory - taken))
    if left < LEAST_ENGINE:
        least = (taken + LEAST_ENGINE / _ENGINE) / 1e9
        raise Unsupported(
            f"this run takes about {taken / 1e9:.1f} GB besides the engine that counts its records, which takes "
            f"0.5 GB at least: {memory / 1e9:.1f} GB are too little. Nothing more was charged: give it --memory "
            f"{least + 0.05:.1f}GB or more, on a machine that has it"
        )
    return f"{left // 10**6}MB"
