"""Least squares by structure: the information operator P of a strategy, variances and answers through it."""
