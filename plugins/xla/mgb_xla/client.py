"""JAX as this backend wants it, and as little of it as can be changed for others."""

from __future__ import annotations

import os
import sys
import warnings
from functools import cache
from typing import Any

import numpy as np

#: The versions of JAX that the tests of this package ran with; others are used all the same.
TESTED = ("0.10.2",)

_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
_ASYNC = "jax_cpu_enable_async_dispatch"


@cache
def load_jax() -> Any:
    """The module, with synchronous dispatch on the CPU where nobody has used JAX yet."""
    if "jax" not in sys.modules:  # where there is a GPU, JAX would take most of its memory at once
        os.environ.setdefault(_PREALLOCATE, "false")
    import jax

    if not _is_initialized():
        jax.config.update(_ASYNC, False)
    elif getattr(jax.config, _ASYNC, True) is not False:
        warnings.warn(
            "JAX was used before the first kernel of backend 'xla', with asynchronous dispatch: results are "
            f'right, small calls take longer; jax.config.update("{_ASYNC}", False) before its first use '
            "mends that",
            stacklevel=2,
        )
    return jax


def _is_initialized() -> bool:
    """Does JAX have devices already? Where that cannot be asked: no, and the update below changes nothing."""
    try:
        from jax._src import xla_bridge

        return bool(xla_bridge.backends_are_initialized())
    except (ImportError, AttributeError):
        return False


@cache
def device() -> Any:
    """The CPU, even where JAX prefers a GPU."""
    return load_jax().devices("cpu")[0]


@cache
def sharding() -> Any:
    """Where all arrays of a program are."""
    return load_jax().sharding.SingleDeviceSharding(device())


@cache
def one() -> Any:
    """The last argument of each program: see `constants`."""
    return load_jax().device_put(np.asarray(1, np.int32), sharding())


def wide() -> Any:
    """A context in which this thread has 64-bit dtypes; JAX drops them otherwise."""
    return load_jax().enable_x64(True)
