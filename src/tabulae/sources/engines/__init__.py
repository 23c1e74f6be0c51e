"""Engines, one class in one file each: what reads and counts records."""
