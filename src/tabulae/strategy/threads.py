"""How many threads BLAS may use while optimisers run."""

from __future__ import annotations

from contextlib import AbstractContextManager

from threadpoolctl import threadpool_limits

from ..domain import Workload

_SMALL = 512  # widest attribute whose matrices are best multiplied on one thread


def threads_for(workload: Workload) -> AbstractContextManager[object]:
    """One BLAS thread where matrices are small: thousands of short products lose far more by waiting for each other.

    On a machine whose cores are busy the difference is a hundredfold.
    """
    wide = max(workload.domain.shape) > _SMALL
    return threadpool_limits(limits=None if wide else 1, user_api="blas")
