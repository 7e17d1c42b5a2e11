"""The context that a call of the driver belongs to: threads that nobody has given one have none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from .bindings import bindings, check


class Context:
    """That of a GPU, for the calls of the driver that need one.

    It is what the CUDA runtime, and so CuPy, takes: the context that is current in the calling thread,
    whoever made it so, and where there is none the primary one of the GPU, which then stays current there.
    A call that needs a context and finds none is refused before anything is done; so nothing is asked before
    a launch.

    Parameters
    ----------
    ordinal : int
        The number of the GPU.
    """

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal

    def ensure(self) -> None:
        """Give the calling thread a context, if it has none."""
        driver = bindings()
        if not int(check(driver, driver.cuCtxGetCurrent())):
            check(driver, driver.cuCtxSetCurrent(_primary(self._ordinal)))

    def again(self, answer: tuple[Any, ...], call: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the driver's `answer` to `call`.

        Where it was that there is no context, its answer with one.
        """
        if answer[0] is not bindings().CUresult.CUDA_ERROR_INVALID_CONTEXT:
            return answer
        self.ensure()
        return call()


@cache
def _primary(ordinal: int) -> Any:
    """Return the primary context of a GPU, held for as long as the process lives."""
    driver = bindings()
    return check(driver, driver.cuDevicePrimaryCtxRetain(check(driver, driver.cuDeviceGet(ordinal))))
