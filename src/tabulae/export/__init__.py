"""A finished release in other formats: plain CSV, SDMX-CSV with its structures, JSON-stat."""

from .formats import FORMATS, convert_release

__all__ = ["FORMATS", "convert_release"]
