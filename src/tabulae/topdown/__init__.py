"""Estimates from the whole to its smallest areas: two-pass least squares, top-down, and both together."""
