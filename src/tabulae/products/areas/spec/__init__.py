"""[geography] of a spec: its sections, its files, and what they say together."""

from .section import read_section

__all__ = ["read_section"]
