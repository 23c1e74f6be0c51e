"""Strategies that every other is compared with, each in a file of its own, from its own paper."""

from .coa import coa_strategy
from .data_cube import data_cube_strategy
from .fourier import fourier_strategy
from .greedy_h import greedy_h_strategy
from .hb import hb_strategy
from .hierarchical import hierarchical_strategy
from .low_rank import low_rank_strategy
from .plain import identity_strategy, workload_strategy
from .wavelet import wavelet_strategy

__all__ = [
    "coa_strategy",
    "data_cube_strategy",
    "fourier_strategy",
    "greedy_h_strategy",
    "hb_strategy",
    "hierarchical_strategy",
    "identity_strategy",
    "low_rank_strategy",
    "wavelet_strategy",
    "workload_strategy",
]
