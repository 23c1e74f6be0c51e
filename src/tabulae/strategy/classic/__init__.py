"""Strategies of the literature, to compare with."""

from .cubes import data_cube_strategy, fourier_strategy, identity_strategy, workload_strategy
from .explicit import coa_strategy, low_rank_strategy
from .trees import greedy_h_strategy, hb_strategy, hierarchical_strategy, wavelet_strategy

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
