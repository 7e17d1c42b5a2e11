"""The backend whose kernels run on the host, and building graphs for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mgb.ir import Graph, Spec
from mgb.passes.lower import lower
from mgb.plugins import hookimpl
from mgb.tracing import graph_of
from mgb_cuda.device import Device
from mgb_cuda.testing.host import HostDevice, missing
from mgb_nvrtc.backend import Generated, text_version, traits


class OnHost(Generated):
    """The text that NVRTC would be given, run by the host."""

    name = "nvrtc_on_host"
    traits = traits("cpu")

    def __init__(self, device: HostDevice | None = None) -> None:
        self.host = device or HostDevice()

    def devices(self, arrays: Sequence[Any]) -> Device:
        return self.host

    def probe(self) -> str | None:
        return missing()

    def version(self) -> str:
        return text_version()


BACKEND = OnHost()


class Plugin:
    """Answers to the name of the backend."""

    @staticmethod
    @hookimpl
    def mgb_backend(name: str) -> OnHost | None:
        return BACKEND if name == BACKEND.name else None


def traced(function: Callable[..., Any], *arrays: Any) -> Graph:
    """The graph of `function` on these arrays, as the backend receives it."""
    return lower(graph_of(function, *(Spec(a.shape, a.dtype) for a in arrays)), BACKEND.traits)


def call(run: Callable[..., None], graph: Graph, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Run into fresh outputs, full of a value that a kernel must overwrite."""
    out = tuple(np.full(o.spec.shape, 77, o.spec.dtype) for o in graph.outputs)
    run(*arrays, out=out)
    return out
