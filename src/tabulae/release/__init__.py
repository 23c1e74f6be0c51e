"""The release folder: written once, read by anyone, verified without the records."""

from .read import Release, read_measurement
from .tables import (
    PublishedTable,
    publish,
    publish_exact,
)
from .write import (
    seal,
    write_contents,
    write_measurement,
)

__all__ = [
    "PublishedTable",
    "Release",
    "publish",
    "publish_exact",
    "read_measurement",
    "seal",
    "write_contents",
    "write_measurement",
]
