"""The release folder: written once, read by anyone, verified without the records."""

from ..products.tables.publish import publish, publish_exact, write_contents
from ..products.tables.store import read_measurement, write_measurement
from .read import Release
from .write import PublishedTable, seal

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
