"""The backend `Fold`, with which tests of the executor compile their programs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from graphs import arrays_for, run
from mgb import dtypes, plugins
from mgb.backends import ALL_DTYPES, Backend, Kernel, Strided, Traits
from mgb.executor import Options, compile_program, kernels
from mgb.ir import Graph, Kind, Spec
from mgb.ops import layout
from mgb.ops.declare import OPS
from mgb.runtime import cache
from mgb.tensor import Tensor

F32 = dtypes.float32
DEFAULT = Options()


class Fold(Backend):
    """Compiles to a fold over NumPy, keeps its promises on disk, and checks what it is handed."""

    name = "fold"

    def __init__(self, **traits: Any) -> None:
        kinds = frozenset({Kind.ELEMENTWISE, Kind.REDUCE})
        self.traits = Traits(frozenset(OPS), kinds, ALL_DTYPES, min_ops=1, api_version=1, **traits)
        self.compiled = 0

    def compile(self, graph: Graph) -> Kernel:
        self.compiled += 1
        return self._kernel(graph)

    def _kernel(self, graph: Graph) -> Kernel:
        def call(*arrays: np.ndarray, out: tuple[np.ndarray, ...]) -> None:
            for array in arrays:
                assert array.size > 0
                assert self.traits.strided is not Strided.CONTIGUOUS or array.flags.c_contiguous
            values = [v.copy() for v in run(graph, arrays)]
            for target, value in zip(out, values, strict=True):
                assert type(target) is np.ndarray and target.flags.c_contiguous
                assert (target.shape, target.dtype) == (value.shape, value.dtype)
                target[...] = value

        return Kernel(call, str(graph), graph, atomic=True)

    def join(self, kernels: Sequence[Kernel]) -> Kernel:
        def call(*arrays: np.ndarray, out: tuple[np.ndarray, ...]) -> None:
            inputs, outputs = iter(arrays), iter(out)
            parts = []
            for k in kernels:
                xs = list(islice(inputs, len(k.state.inputs)))
                parts.append((k, xs, tuple(islice(outputs, len(k.state.outputs)))))
            for k, xs, ys in reversed(parts):  # no order is promised
                k.run(*xs, out=ys)

        return Kernel(call, atomic=True)

    def version(self) -> str:
        return "1"

    def save(self, kernel: Kernel) -> bytes | None:
        return kernel.source.encode()

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        if blob.decode() != str(graph):
            raise ValueError("another graph")
        return self._kernel(graph)


def use(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> Any:
    """Compile all programs with `backend` from now on, and no kernel is there yet."""
    monkeypatch.setattr(plugins, "choose_backend", lambda *_: backend)
    cache.clear()
    kernels.forget()
    return backend


def spec(*shape: int, dtype: np.dtype[Any] = F32) -> Spec:
    return Spec(shape, dtype)


S = spec(8, 8)


def check(graph: Graph, options: Options, **tolerance: float) -> None:
    """The program gives what its simplified graph gives, node by node; the passes have tests of their own."""
    arrays = arrays_for(graph, integers=True)
    program = compile_program(graph, options)
    found = program.run(*arrays)
    for value, wanted, node in zip(found, run(program.simplified, arrays), graph.outputs, strict=True):
        assert isinstance(value, np.ndarray)
        assert (value.shape, value.dtype) == (node.spec.shape, node.spec.dtype)
        np.testing.assert_allclose(value, wanted, **({"rtol": 1e-6} | tolerance))


def transposed(x: Tensor) -> Tensor:
    return layout.transpose(x, axes=(1, 0))


class Owner:
    """Holds an array, as a parameter does."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
