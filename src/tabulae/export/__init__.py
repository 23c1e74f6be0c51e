"""A finished release in other formats: plain CSV, SDMX-CSV, JSON-stat, a workbook; and one answer as a file."""

from .formats import FORMATS, convert_release, write_answer

__all__ = ["FORMATS", "convert_release", "write_answer"]
