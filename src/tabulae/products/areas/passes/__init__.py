"""Least squares on the tree: two passes, variances and forms."""
