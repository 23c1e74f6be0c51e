"""The built-in population: people who never lived, in households and group quarters that might have.

A release is best learnt on records that behave like records: twelve counties from a city of many
thousands to a valley of a few hundred, an age pyramid, races that are spread unevenly over the
counties, households whose members resemble each other, students, soldiers, patients and prisoners who
live in group quarters at their proper ages. Every table over them is skewed and has small groups, which
is where privacy and accuracy pull hardest.

The people are a pure function of ``(people, seed)``. Only raw 64-bit output of PCG64 is used, which
NumPy promises to keep, and no transcendental function, so the same seed gives the same people on every
machine and under every NumPy.
"""

from .people import population, write_demo, write_population

__all__ = ["population", "write_demo", "write_population"]
