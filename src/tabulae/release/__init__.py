"""The release folder: written once, read by anyone, verified without the records."""

from .read import Release
from .write import PublishedTable, seal

__all__ = ["PublishedTable", "Release", "seal"]
