"""Least squares by structure: the information operator P of a strategy, variances and answers through it."""

from .moments import Profile, VarianceBound
from .protocol import EXPLICIT, Information, MeasuredStrategy
from .routes import ROUTES, Route, information, route, solve

__all__ = [
    "EXPLICIT",
    "ROUTES",
    "Information",
    "MeasuredStrategy",
    "Profile",
    "Route",
    "VarianceBound",
    "information",
    "route",
    "solve",
]
