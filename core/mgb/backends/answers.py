"""Validation of what a backend's methods return; errors name the backend."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Collection
from types import NoneType
from typing import Any

from ..errors import BackendContractError, MgbError
from .backend import Backend, Kernel, Specialize


def answer(backend: Backend, method: str, kinds: Any, *args: Any) -> Any:
    """Call ``backend.method(*args)`` and check that it returns one of `kinds`; `Callable`: any function.

    Raises
    ------
    BackendContractError
        It is not, or the method raised something else than an error of mgb.
    """
    try:
        given = getattr(backend, method)(*args)
    except (MgbError, MemoryError):
        raise
    except Exception as error:
        raise BackendContractError(
            f"{method}() of backend {backend.name!r} failed: {type(error).__name__}: {error}"
        ) from error
    _check(given, kinds, f"{method}() of backend {backend.name!r} gave")
    return given


def check_kernel(
    backend: Backend,
    method: str,
    kernel: Any,
    ends: tuple[int, int],
    replaces: Collection[tuple[int, int]] | None = None,
) -> Kernel:
    """Return `kernel`, if the core can work with it.

    Parameters
    ----------
    backend : Backend
    method : str
        The method whose answer it is.
    kernel : object
    ends : tuple of int
        How many inputs and outputs its graph has.
    replaces : collection of (int, int), optional
        What the backend was told that the kernel may write over; None: that is not known.

    Raises
    ------
    BackendContractError
        It is no `Kernel`, or says of itself what cannot be.
    """
    of = f"of backend {backend.name!r}"
    _check(kernel, Kernel, f"{method}() {of} gave")
    _check(kernel.run, Callable, f"Kernel.run {of} is")
    _check(kernel.source, (str, Callable), f"Kernel.source {of} is")
    _check(kernel.atomic, bool, f"Kernel.atomic {of} is")
    if (kernel.results is not None) != backend.traits.hands_over:
        which = "without results" if backend.traits.hands_over else "with results"
        raise BackendContractError(
            f"{method}() {of} gave a Kernel {which}, and Traits.hands_over is {backend.traits.hands_over}"
        )
    _check(kernel.results, (Callable, NoneType), f"Kernel.results {of} is")
    follows = backend.traits.specialize is Specialize.SIZES
    _check(kernel.at, Callable if follows else (Callable, NoneType), f"Kernel.at {of} is")
    _check_pairs(kernel.replaces, f"Kernel.replaces {of}", ends[::-1])
    _check_pairs(kernel.hazards or (), f"Kernel.hazards {of}", ends)
    if replaces is not None and not set(kernel.replaces) <= set(replaces):
        raise BackendContractError(f"Kernel.replaces {of} has pairs that were not offered: {kernel.replaces}")
    found: Kernel = kernel
    return found


def _check(given: Any, kinds: Any, what: str) -> None:
    allowed = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(given, allowed):
        names = {
            Kernel: "a mgb.backends.Kernel",
            NoneType: "None",
            str: "a str",
            bool: "a bool",
            Callable: "a function",
        }
        wanted = " or ".join(names.get(kind, kind.__name__) for kind in allowed)
        raise BackendContractError(f"{what} {reprlib.repr(given)}, expected {wanted}")


def _check_pairs(pairs: Any, what: str, counts: tuple[int, int]) -> None:
    """Return whether they are pairs of numbers, each below its count."""
    _check(pairs, Collection, f"{what} is")
    for pair in pairs:
        numbers = isinstance(pair, tuple) and len(pair) == 2 and all(type(n) is int for n in pair)
        if not numbers or not all(0 <= n < count for n, count in zip(pair, counts, strict=True)):
            raise BackendContractError(
                f"{what} has {pair!r}, expected pairs of indices below {counts[0]} and {counts[1]}"
            )
