"""The studio: a spec and its plan beside each other on a local page. No record is read."""

from .server import Studio

__all__ = ["Studio"]
