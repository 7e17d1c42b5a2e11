"""The option that asks for a graph of launches: who is told of it, and what is said where none is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from folding import Fold, S, use
from graphs import run as evaluated
from mgb import Tensor, errors
from mgb.executor import Options, compile_program
from mgb.jit import partial_trace, trace, xla_trace
from mgb.ops.reduce import reduce_sum
from mgb.tensor.tracing import graph_of


class Chaining(Fold):
    """Starts kernels in a row by one call, and knows what it was asked for."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self.asked: list[bool | None] = []

    def chain(
        self, kernels: Sequence[Any], wiring: Any, varying: Any, launch_graph: bool | None = None
    ) -> Callable[[Sequence[Any]], None]:
        self.asked.append(launch_graph)

        def run(arrays: Sequence[Any]) -> None:
            for kernel, (reads, writes) in zip(kernels, wiring, strict=True):
                kernel.run(*[arrays[i] for i in reads], out=[arrays[i] for i in writes])

        return run


def in_a_row(x: Tensor) -> Tensor:
    """Two kernels: each folds another axis."""
    y = x * 2.0 - reduce_sum(x, axis=(0,))
    return y / reduce_sum(y, axis=(1,))


@pytest.mark.parametrize("wanted", [None, True, False])
def test_backend_receives_launch_graph_option(monkeypatch: pytest.MonkeyPatch, wanted: bool | None) -> None:
    backend = use(monkeypatch, Chaining(launch_graphs=True))
    graph = graph_of(in_a_row, S)
    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    (found,) = compile_program(graph, Options(launch_graph=wanted)).run(x)
    assert backend.asked == [wanted]
    np.testing.assert_allclose(found, evaluated(graph, [x])[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, r"backend '\w+' makes no graph of launches on the cpu"),
        ({"opt_level": 2}, "opt_level=2 makes no"),
    ],
)
@pytest.mark.parametrize("decorator", [trace, partial_trace])
def test_cuda_graph_without_backend_support_raises(
    decorator: Any, options: dict[str, Any], text: str
) -> None:
    """It is said when the program is compiled; the Tensors are as they were."""
    function = decorator(lambda x: x * 2.0 + 1.0, cuda_graph=True, **options)
    x = Tensor(np.ones(4, np.float32))
    with pytest.raises(errors.UnsupportedError, match=text + ".*leave cuda_graph out.*mgb backends"):
        for _ in range(2):
            np.testing.assert_array_equal(function(x).numpy(), 3)
    assert x.numpy().tolist() == [1, 1, 1, 1]


def test_cuda_graph_false_needs_no_backend_support() -> None:
    function = trace(lambda x: x * 2.0 + 1.0, cuda_graph=False)
    for _ in range(3):
        np.testing.assert_array_equal(function(Tensor(np.ones(4, np.float32))).numpy(), 3)


@pytest.mark.parametrize("given", ["yes", 1, np.True_])
def test_cuda_graph_rejects_non_boolean_values(given: Any) -> None:
    with pytest.raises(errors.TraceInputError, match=r"cuda_graph=.*: give True, False,? or None"):
        trace(lambda x: x, cuda_graph=given)


def test_xla_trace_and_partial_trace_accept_cuda_graph() -> None:
    assert xla_trace(lambda x: x, cuda_graph=True).options.launch_graph is True
    assert partial_trace(lambda x: x, cuda_graph=False).options.launch_graph is False
