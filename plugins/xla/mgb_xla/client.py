"""JAX as this backend wants it, and as little of it as can be changed for others."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
from mgb.runtime import forking

#: The versions of JAX that the tests of this package ran with; others are used all the same.
TESTED = ("0.10.2",)

_log = logging.getLogger("mgb.xla")

_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
_PLATFORMS = "JAX_PLATFORMS"
_ASYNC = "jax_cpu_enable_async_dispatch"


_fork = forking.Resource(
    "XLA",
    lambda: "jax" in sys.modules and _is_initialized(),
    ", or set MGB_JIT_BACKEND to another backend there",
)


def stranded() -> str | None:
    """Return why XLA cannot be used in this process, a fork of one that used it; None where it can."""
    return _fork.problem


def refuse_fork() -> None:
    """Raise a `ForkedProcessError` where a call would hang."""
    _fork.check()


@cache
def load_jax() -> Any:
    """Return the module, with synchronous dispatch on the CPU where nobody has used JAX yet."""
    import jax

    if jax.__version__ not in TESTED:
        _log.info("this is JAX %s; the tests are run with %s", jax.__version__, ", ".join(TESTED))
    if not _is_initialized():
        os.environ.setdefault(_PREALLOCATE, "false")  # of the memory of a GPU JAX takes most otherwise
        jax.config.update(_ASYNC, False)
    elif getattr(jax.config, _ASYNC, True) is not False:
        warnings.warn(
            "JAX was used before the first kernel of backend 'xla', with asynchronous dispatch: results are "
            f'right, small calls take longer; jax.config.update("{_ASYNC}", False) before its first use '
            "mends that",
            stacklevel=2,
        )
    return jax


def left_out() -> str | None:
    """Return why JAX will not have the CPU; None where it will."""
    jax = sys.modules.get("jax")
    platforms = jax.config.jax_platforms if jax is not None else os.environ.get(_PLATFORMS)
    if not platforms or "cpu" in platforms.split(","):
        return None
    return f"{_PLATFORMS}={platforms!r} leaves out the CPU; set {_PLATFORMS}={platforms + ',cpu'!r}"


def _is_initialized() -> bool:
    """Return whether JAX has devices; False where unknown, as the update below then changes nothing."""
    try:
        from jax._src import xla_bridge

        return bool(xla_bridge.backends_are_initialized())
    except (ImportError, AttributeError):
        return False


@cache
def device() -> Any:
    """Return the CPU, even where JAX prefers a GPU."""
    return load_jax().local_devices(backend="cpu")[0]


@cache
def sharding() -> Any:
    """Return where all arrays of a program are."""
    return load_jax().sharding.SingleDeviceSharding(device())


@cache
def one() -> Any:
    """Return the last argument of each program: see `constants`."""
    return load_jax().device_put(np.asarray(1, np.int32), sharding())


@contextmanager
def settings() -> Iterator[None]:
    """Set in this thread the settings that programs are compiled and called with.

    Without them JAX drops 64-bit dtypes, runs op by op, rejects arrays that are not its own, or raises at a
    NaN when the memory of parameters has been given away.
    """
    jax = load_jax()
    with (
        jax.enable_x64(True),
        jax.disable_jit(False),
        jax.debug_nans(False),
        jax.debug_infs(False),
        jax.transfer_guard_host_to_device("allow"),
    ):
        yield


@cache
def calling() -> Callable[[bool], AbstractContextManager[Any]]:
    """Return a function that makes the context of a call: as `settings`, with only those that the call needs.

    Entering all of them takes longer than a small call. The function's argument says whether JAX has to make
    arrays of its own of arguments of 64 bits; it raises a `ForkedProcessError`.
    """
    jax = load_jax()
    config, enable_x64 = jax.config, jax.enable_x64

    def context(converts: bool) -> AbstractContextManager[Any]:
        if _fork.problem is not None:
            refuse_fork()
        if any(_in_the_way(config)):
            return settings()
        wide: AbstractContextManager[Any] = enable_x64(True) if converts else _NOTHING
        return wide

    return context


_NOTHING = nullcontext()
_in_the_way = attrgetter(
    "jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_transfer_guard_host_to_device"
)
