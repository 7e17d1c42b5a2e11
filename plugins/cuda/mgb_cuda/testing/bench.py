"""A GPU backend as the tests see it that all of them share. Nothing here needs pytest: scripts use it too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from mgb.backends import Backend, Traits
from mgb.backends.eager_backend import EagerBackend
from mgb.backends.plugins import hookimpl
from mgb.ir import Graph, Spec
from mgb.passes.lower import lower
from mgb.tensor.tracing import graph_of

from ..device import Device
from ..generated import Generated

#: Stands in all outputs before a kernel runs.
SENTINEL = 77


class OnDevice(Generated):
    """Mixed into a backend: all its kernels are for one device.

    Parameters
    ----------
    device : Device
    """

    def __init__(self, device: Any) -> None:
        self.device = device

    def devices(self, arrays: Sequence[Any]) -> Device:
        found: Device = self.device
        return found


@dataclass(frozen=True)
class Bench:
    """The description of a backend for the shared tests.

    Attributes
    ----------
    backend : type
        For the GPUs of a machine, as users name it.
    here : type
        ``here(device)``: its text for a device that runs it on this machine; the device has a default.
    given : type
        ``given(device)``: its text for any device, with the traits of a GPU.
    device : callable
        ``device(multiprocessors)``: one that runs the text here. ``sources`` are all texts that it compiled;
        with ``reverse``, what may run in any order runs in the other one.
    driver : callable
        ``driver(arrays)``: the first GPU of the CUDA driver, as the backend has it.
    """

    backend: type[Generated]
    here: Callable[..., Generated]
    given: Callable[..., Generated]
    device: Callable[[int], Any]
    driver: Callable[[Any], Device]

    @property
    def name(self) -> str:
        """Of the backend."""
        return self.backend.name

    @property
    def helpers(self) -> Path:
        """The module that describes the backend, for scripts that run in a process of their own."""
        return Path(inspect.getfile(self.here))

    @cached_property
    def on_gpus(self) -> Generated:
        """The backend itself."""
        return self.backend()

    def traced(self, function: Callable[..., Any], *arrays: Any) -> Graph:
        """Return the graph of `function` on these arrays, as the backend receives it."""
        return traced(function, arrays, self.backend.traits)


def traced(function: Callable[..., Any], arrays: Sequence[Any], traits: Traits) -> Graph:
    """Return the graph of `function` on these arrays, as a backend of these traits receives it."""
    return lower(graph_of(function, *(Spec(a.shape, a.dtype) for a in arrays)), traits)


def call(run: Callable[..., None], graph: Graph, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Run into fresh outputs, full of a value that a kernel must overwrite."""
    out = tuple(np.full(o.spec.shape, SENTINEL, o.spec.dtype) for o in graph.outputs)
    run(*arrays, out=out)
    return out


def unasked(traits: Traits) -> Traits:
    """Return these traits, of a backend that never serves a program that names none."""
    return replace(traits, priority=EagerBackend().traits.priority - 1)


def provider(backend: Backend) -> type:
    """Return a plugin that answers to the name of `backend`."""

    class Provider:
        @staticmethod
        @hookimpl
        def mgb_backend(name: str) -> Backend | None:
            return backend if name == backend.name else None

    return Provider
