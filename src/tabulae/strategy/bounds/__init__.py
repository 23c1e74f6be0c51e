"""Errors that no strategy can beat."""
