"""The residual planner: a group of residual queries for each set of attributes."""
