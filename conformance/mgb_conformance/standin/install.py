"""The stand-in in the place of CuPy."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import mgb.random
from mgb import device as devices

from .cuda import State, state
from .functions import MODULE, SPECIAL

_before: dict[str, ModuleType | None] = {}


def install(number: int = 1) -> ModuleType:
    """Make ``import cupy`` give the stand-in, with this number of devices, until `uninstall`.

    Returns
    -------
    module
    """
    State.devices, State.largest, state.device = number, None, 0
    state.streams.clear()
    _forget()
    scipy = ModuleType("cupyx.scipy")
    cupyx = ModuleType("cupyx")
    cupyx.scipy, scipy.special = scipy, SPECIAL  # type: ignore[attr-defined]
    for module in (MODULE, cupyx, scipy, SPECIAL):
        name = module.__name__
        module.__spec__ = ModuleSpec(name, None)
        _before.setdefault(name, sys.modules.get(name))
        sys.modules[name] = module
    return MODULE


def uninstall() -> None:
    """Give ``import cupy`` back what it was; no GPU is known any more."""
    _forget()
    for name, module in _before.items():
        if module is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = module
    _before.clear()


def _forget() -> None:
    """Clear the caches of each device, and of the list of devices."""
    mgb.random.forget("gpu")
    devices.forget()
