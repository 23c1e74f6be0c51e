"""Strategies of the literature, to compare with."""
