"""Products with few terms are sums of products in kernels; every value is NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from fusing import TRAITS, f32
from graphs import arrays_for, run
from mgb.fusion.terms import DOT, FEW
from mgb.fusion.vectors import vector_products
from mgb.ir import Kind
from mgb.jit import trace
from mgb.ops.images.contract import MATMUL, matmul
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of

DOTTED = replace(TRAITS, kinds=TRAITS.kinds | {Kind.GATHER}, vocabulary=TRAITS.vocabulary | {"dot"})

#: The shapes of two operands, and those of their transposes that are multiplied.
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "points": ((405, 3), (3, 333)),
    "two": ((500, 2), (2, 301)),
    "four": ((129, 4), (4, 1031)),
    "more": ((405, 5), (5, 333)),
    "a few long rows": ((4, 3), (3, 40_001)),
    "a batch": ((7, 150, 3), (7, 3, 271)),
    "one for all": ((7, 150, 3), (3, 271)),
    "a broadcast batch": ((5, 1, 90, 2), (3, 2, 260)),
    "few columns": ((20_001, 3), (3, 8)),
    "no rows": ((0, 3), (3, 9)),
    "no terms": ((400, 0), (0, 500)),
}

#: What is computed before a product and after it, of arrays that are NumPy's or Tensors, by L.
PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "alone": lambda L, a, b: L.matmul(a, b),
    "after": lambda L, a, b: L.exp(-abs(L.matmul(a, b))) + 1.0,
    "folded": lambda L, a, b: (L.sin(L.matmul(a, b)) ** 2).sum(-1),
    "folded over rows": lambda L, a, b: abs(L.matmul(a, b) - 0.5).sum(-2),
    "folded twice": lambda L, a, b: L.exp(-abs(L.matmul(a, b))).sum(),
    "before": lambda L, a, b: abs(L.matmul(a - a[..., :1, :] * 0.5, b * 2.0)).sum(-1),
}


@pytest.mark.parametrize("flags", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("terms", [2, FEW, FEW + 1])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_few_terms_are_sums_of_products(batch: tuple[int, ...], terms: int, flags: tuple[bool, bool]) -> None:
    left = (terms, 500) if flags[0] else (500, terms)
    right = (301, terms) if flags[1] else (terms, 301)

    def body(a: Tensor, b: Tensor) -> Tensor:
        return matmul(a, b, transpose_a=flags[0], transpose_b=flags[1]) * 2

    graph = graph_of(body, f32(*batch, *left), f32(*batch, *right))
    found = vector_products(graph, DOTTED)
    assert not found.has(MATMUL)
    assert found.has(DOT) == (terms > FEW)
    arrays = arrays_for(graph)
    a, b = (x.swapaxes(-1, -2) if flag else x for x, flag in zip(arrays, flags, strict=True))
    (got,) = run(found, arrays)
    np.testing.assert_allclose(got, 2 * (a.astype(np.float64) @ b), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(900, 3, 255), (90, 3, 301)])
def test_small_products_and_short_rows_stay_dots(shape: tuple[int, ...]) -> None:
    rows, _, columns = shape
    found = vector_products(graph_of(lambda a, b: matmul(a, b), f32(rows, 3), f32(3, columns)), DOTTED)
    assert found.has(DOT)


def numbers(seed: int, shape: tuple[int, ...], dtype: str) -> Any:
    draw = np.random.default_rng(seed)
    found: Any = draw.integers(-9, 9, shape) if dtype == "int32" else draw.normal(size=shape)
    return found.astype(dtype)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", SHAPES)
def test_values_match_numpy(name: str, program: str, turned: bool) -> None:
    a, b = (numbers(k, shape, "float32") for k, shape in enumerate(SHAPES[name]))
    body = PROGRAMS[program]
    want = body(np, a.astype(np.float64), b.astype(np.float64))
    x, y = (mgb.tensor(np.ascontiguousarray(v.swapaxes(-1, -2)) if turned else v) for v in (a, b))

    def call(x: Tensor, y: Tensor) -> Tensor:
        return body(F, *(v.swapaxes(-1, -2) if turned else v for v in (x, y)))  # type: ignore[no-any-return]

    function = trace(call)
    for _ in range(2):
        atol = 2e-5 * np.abs(want).max(initial=1)
        np.testing.assert_allclose(function(x, y).numpy(), want, rtol=2e-5, atol=atol)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_other_dtypes_match_numpy(dtype: str) -> None:
    a, b = numbers(0, (400, 3), dtype), numbers(1, (3, 350), dtype)
    got = trace(lambda a, b: F.maximum(a @ b, 0).sum(1))(
        *(mgb.tensor(x, dtype=dtype) for x in (a, b))
    ).numpy()
    want = np.maximum(a.astype(np.float64) @ b, 0).sum(1)
    np.testing.assert_allclose(got, want, rtol={"float64": 1e-12, "float16": 2e-2, "int32": 0}[dtype])


def test_special_numbers_are_those_of_numpy() -> None:
    a, b = numbers(0, (400, 4), "float32"), numbers(1, (4, 350), "float32")
    a[3, 1], a[5, 2], a[7], b[2, 9], b[:, 11] = np.inf, np.nan, 0.0, -np.inf, np.nan
    got = trace(lambda a, b: a @ b + 1.0)(mgb.tensor(a), mgb.tensor(b)).numpy()
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b + 1.0
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_other_lengths_and_gradients_match_numpy() -> None:
    run = trace(lambda a, b: mgb.grad(lambda a: (a @ b.T).sum())(a) * 2.0 + (a @ b.T).max(1, keepdims=True))
    for rows, columns in ((500, 300), (301, 640), (1200, 140), (50, 40)):
        a, b = numbers(rows, (rows, 3), "float64"), numbers(columns, (columns, 3), "float64")
        got = run(*(mgb.tensor(x, dtype="float64") for x in (a, b))).numpy()
        want = 2.0 * b.sum(0) + (a @ b.T).max(1, keepdims=True)
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-11)
