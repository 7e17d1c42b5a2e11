"""Many kernels in one call: what they give one by one."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from cpu_numba_helpers import BACKEND, VIEWS, outputs_of, traced, view
from mgb import Parameter, tensor
from mgb.backends import Kernel
from mgb.ir import Graph
from mgb.jit import trace
from mgb.ops import primitives as ops
from mgb.ops.reduce import reduce_sum
from mgb.optimizer import LAMB
from mgb_native import plan

RNG = np.random.default_rng(5)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return (4 * RNG.standard_normal(shape)).astype(dtype)


def momentum(p: Any, g: Any, m: Any) -> Any:
    new = m * 0.9 + g
    return p - new * 0.1, new


def true_momentum(p: Any, g: Any, m: Any) -> Any:
    new = m * np.float64(0.9) + g
    return p - new * 0.1, new


FUNCTIONS: list[tuple[Any, Any, int]] = [  # ours, in NumPy, inputs
    (momentum, true_momentum, 3),
    (lambda a, b: (ops.maximum(a, b) - 1.0,), lambda a, b: (np.maximum(a, b) - 1.0,), 2),
    (lambda a: (reduce_sum(a, axis=(1,)) * a,), lambda a: (a.sum(1, keepdims=True) * a,), 1),
    (lambda a: (reduce_sum(a, axis=(0,)) + 2.0,), lambda a: (a.sum(0, keepdims=True) + 2.0,), 1),
    (lambda a: (a * np.linspace(0, 1, 7, dtype=a.dtype)[:, None],),
     lambda a: (a * np.linspace(0, 1, 7)[:, None],), 1),
]  # fmt: skip


class Case:
    """One kernel, inputs in some layout, outputs, and what NumPy says they must be."""

    def __init__(self, number: int, dtype: Any = np.float32, shape: tuple[int, int] | None = None) -> None:
        ours, truth, inputs = FUNCTIONS[number % len(FUNCTIONS)]
        shape = (7, int(RNG.integers(2, 300))) if shape is None else shape
        layout = VIEWS[number % len(VIEWS)]
        self.inputs = [view(normal(*shape, dtype=dtype), layout) for _ in range(inputs)]
        self.graph: Graph = traced(ours, self.inputs)
        self.kernel: Kernel = BACKEND.compile(self.graph)
        self.want = truth(*(x.astype(np.float64) for x in self.inputs))
        self.out = outputs_of(self.graph)

    def check(self) -> None:
        for got, want in zip(self.out, self.want, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def joined(cases: list[Case]) -> tuple[Any, list[Any], tuple[Any, ...]]:
    kernel = BACKEND.join([c.kernel for c in cases])
    assert kernel is not None
    return kernel.run, [x for c in cases for x in c.inputs], tuple(y for c in cases for y in c.out)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_joined_kernels_with_mixed_dtypes_shapes_and_layouts(
    threads: str, parallel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MGB_NUM_THREADS", threads)
    if parallel:
        monkeypatch.setattr(plan, "PARALLEL", 0)
        monkeypatch.setattr("mgb_native.launch.PARALLEL", 0)
    cases = [Case(i, dtype) for i in range(5) for dtype in (np.float32, np.float64)]
    cases += [Case(2, np.float32, (1, 90_000)), Case(0, np.float32, (7, 60_000)), Case(1, np.float32, (3, 3))]
    run, inputs, out = joined(cases)
    for _ in range(3):
        for y in out:
            y[...] = 77
        run(*inputs, out=out)
        for case in cases:
            case.check()


def test_same_kernel_joined_many_times_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgb_native.launch.PARALLEL", 0)
    monkeypatch.setenv("MGB_NUM_THREADS", "3")
    kernel = BACKEND.compile(traced(momentum, [normal(5, 6)] * 3))
    rows = [[normal(5, n) for _ in range(3)] for n in range(2, 202)]
    wide = [[x.astype(np.float64) for x in row] for row in rows]
    run = BACKEND.join([kernel] * len(rows)).run  # type: ignore[union-attr]
    inputs, out = [x for row in rows for x in row], tuple(y for p, _, m in rows for y in (p, m))
    for _ in range(20):
        run(*inputs, out=out)
        wide = [[*true_momentum(p, g, m), g] for p, g, m in wide]
        wide = [[p, g, m] for p, m, g in wide]
    for row, want in zip(rows, wide, strict=True):
        for x, w in zip(row, want, strict=True):
            np.testing.assert_allclose(x, w, rtol=1e-3, atol=1e-4)


def test_lamb_updates_parameters_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """LAMB: two folds over the parameter and its means, which are written after the second."""
    monkeypatch.setenv("MGB_JIT_BACKEND", "CPU_NUMBA")
    values = [normal(40 + 7 * n, 9) for n in range(6)]
    params = [Parameter(v) for v in values]
    update = LAMB(params, lr=0.01, weight_decay=0.01)

    @trace(without_host=True)
    def step(*grads: Any) -> None:
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
        update.step().clear_grad()

    wide = [(v.astype(np.float64), 0.0, 0.0) for v in values]
    places = set()
    for t in range(1, 8):
        given = [normal(*v.shape) for v in values]
        step(*map(tensor, given))
        places.add(tuple(p._data.ctypes.data for p in params))
        wide = [true_lamb(*state, g, t) for state, g in zip(wide, given, strict=True)]
    for param, (want, *_) in zip(params, wide, strict=True):
        np.testing.assert_allclose(param.numpy(), want, rtol=1e-4, atol=1e-5)
    assert len(places) <= 3  # the values given, those of the recorded call, and their last ones


def true_lamb(p: Any, mean: Any, square: Any, g: Any, t: int) -> tuple[Any, Any, Any]:
    """You et al. 2020."""
    mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
    delta = mean / (1 - 0.9**t) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8) + 0.01 * p
    return p - 0.01 * np.linalg.norm(p) / np.linalg.norm(delta) * delta, mean, square


def test_output_that_overwrites_an_input_too_early_is_correct() -> None:
    x, plain = normal(7, 9), Case(1)
    graph = traced(lambda a: (reduce_sum(a, axis=(0,)) * a, a * 2.0), [x])
    kernel = BACKEND.compile(graph)
    first, second = x.copy(), np.empty_like(x)
    run = BACKEND.join([plain.kernel, kernel]).run  # type: ignore[union-attr]
    for _ in range(2):  # the second time, native code knows the shapes
        first[...] = x
        run(*plain.inputs, first, out=(*plain.out, first, second))
        np.testing.assert_allclose(first, x.astype(np.float64).sum(0) * x, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(second, x * 2)
        plain.check()


def test_joined_call_alternates_between_shapes() -> None:
    small, large = [Case(0, shape=(7, 4)), Case(1, shape=(7, 5))], [Case(0, shape=(7, 400)), Case(1)]
    run, _, _ = joined(small)
    for cases in (small, large, small, large):
        _, inputs, out = joined(cases)
        run(*inputs, out=out)
        for case in cases:
            case.check()


def test_joined_call_takes_strided_inputs_after_contiguous_ones() -> None:
    cases = [Case(1, shape=(7, 30)), Case(1, shape=(7, 30))]
    run, inputs, out = joined(cases)
    for layout in VIEWS * 2:
        for y in out:
            y[...] = 77
        run(*(view(np.ascontiguousarray(x), layout) for x in inputs), out=out)
        for case in cases:
            case.check()


def test_join_of_no_kernels_is_none() -> None:
    assert BACKEND.join([]) is None


def test_joined_kernel_is_freed_with_its_last_reference() -> None:
    run, inputs, out = joined([Case(0), Case(4)])
    run(*inputs, out=out)
    gone = weakref.ref(run.__self__.owner)
    del run
    gc.collect()
    assert gone() is None
