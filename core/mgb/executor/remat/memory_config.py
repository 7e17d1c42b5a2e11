"""The configuration of rematerialization: two ways to trade time for memory."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any


def _workers() -> int:
    return max(1, (os.cpu_count() or 1) // 2)


@dataclass(frozen=True, slots=True)
class SublinearMemoryConfig:
    """Keep the values at a few split points, and compute the rest again for the gradient.

    Parameters
    ----------
    thresh_nr_try : int
        How many thresholds for the size of a block are tried.
    genetic_nr_iter : int
        Rounds of the genetic search over the split points; 0: none.
    genetic_pool_size : int
        Candidates in a round.
    lb_memory_mb : int
        Stop where the peak is below so many MiB; 0: as low as it gets.
    num_worker : int
        Threads of the search. The result does not depend on it.

    Raises
    ------
    ValueError
        A negative number, or no worker.

    Notes
    -----
    T. Chen, B. Xu, C. Zhang, C. Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016.

    Examples
    --------
    >>> from mgb.jit import trace
    >>> step = trace(lambda x: F.exp(F.sin(x)).sum(), sublinear_memory_config=SublinearMemoryConfig())
    >>> step(F.zeros((4,)))
    Tensor(4., device=xpux:0)
    """

    thresh_nr_try: int = 10
    genetic_nr_iter: int = 0
    genetic_pool_size: int = 20
    lb_memory_mb: int = 0
    num_worker: int = field(default_factory=_workers)

    def __post_init__(self) -> None:
        for name in ("thresh_nr_try", "genetic_nr_iter", "genetic_pool_size", "lb_memory_mb"):
            _whole(self, name, 0)
        _whole(self, "num_worker", 1)


@dataclass(frozen=True, slots=True)
class DTRConfig:
    """Drop values when memory passes a threshold, and compute them again when they are wanted.

    Parameters
    ----------
    eviction_threshold : int
        Bytes.
    evictee_minimum_size : int
        Values of fewer bytes stay.
    recomp_memory_factor, recomp_time_factor : float
        The powers of size and staleness in the heuristic that chooses what to drop.

    Raises
    ------
    ValueError
        A threshold that is not positive, another negative number, or a power that is not finite.

    Notes
    -----
    M. Kirisame et al., "Dynamic Tensor Rematerialization", ICLR 2021.

    Examples
    --------
    >>> from mgb.jit import trace
    >>> step = trace(lambda x: F.exp(F.sin(x)).sum(), dtr_config=DTRConfig(eviction_threshold=1 << 20))
    >>> step(F.zeros((4,)))
    Tensor(4., device=xpux:0)
    """

    eviction_threshold: int
    evictee_minimum_size: int = 1 << 20
    recomp_memory_factor: float = 1.0
    recomp_time_factor: float = 1.0

    def __post_init__(self) -> None:
        _whole(self, "eviction_threshold", 1)
        _whole(self, "evictee_minimum_size", 0)
        for name in ("recomp_memory_factor", "recomp_time_factor"):
            _finite(self, name)


def _whole(config: object, name: str, least: int) -> None:
    value: Any = getattr(config, name)
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    _require(whole and value >= least, config, name, f"a whole number of at least {least}")


def _finite(config: object, name: str) -> None:
    value: Any = getattr(config, name)
    number = isinstance(value, Real) and not isinstance(value, bool)
    _require(number and 0 <= value <= sys.float_info.max, config, name, "a finite number of at least 0")


def _require(fits: bool, config: object, name: str, wanted: str) -> None:
    if not fits:
        raise ValueError(f"{type(config).__name__}({name}={getattr(config, name)!r}): it must be {wanted}")
