"""Strategies that every other is compared with, each in a file of its own, from its own paper."""

from .plain import identity_strategy, workload_strategy

__all__ = ["identity_strategy", "workload_strategy"]
