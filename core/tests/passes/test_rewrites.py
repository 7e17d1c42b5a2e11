"""What the passes write in place of something computes what NumPy computes for it, whatever stands where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from graphs import run
from mgb import dtypes
from mgb.ir import Spec
from mgb.passes import simplify
from mgb.tensor.tracing import graph_of

#: Of arrays and of Tensors alike: NumPy's functions take both.
Body = Callable[..., Any]

FOLDS = (np.sum, np.prod, np.max, np.min)
SHAPES = ((4,), (2, 2), (4, 1), (1, 4), (2, 1, 2), (1, 2, 2))


def arithmetic() -> Iterator[tuple[str, Body]]:
    for op, (first, second) in product(
        (np.add, np.subtract, np.multiply, np.divide), product((np.negative, np.positive), repeat=2)
    ):
        signs = f"{first.__name__}, {second.__name__}"
        yield f"{op.__name__} {signs}", lambda x, y, op=op, a=first, b=second: op(a(x), b(y))
    for number in (-1.0, 0.0, 1.0):
        yield f"x * {number}", lambda x, y, c=number: x * c + y
        yield f"{number} * x", lambda x, y, c=number: c * x - y
        yield f"x - {number}", lambda x, y, c=number: (x - c) * y
        yield f"{number} - x", lambda x, y, c=number: (c - x) * y


def layout() -> Iterator[tuple[str, Body]]:
    for first, second in product(permutations(range(3)), repeat=2):
        yield f"{first} {second}", lambda x, y, a=first, b=second: np.transpose(np.transpose(x, a), b)
    for axes, fold in product(permutations(range(3)), (np.sum, np.max)):
        for axis in range(3):
            yield (
                f"{fold.__name__} {axis} of {axes}",
                lambda x, y, a=axes, f=fold, i=axis: f(np.transpose(x, a), axis=i),
            )
    for axes in permutations(range(3)):
        yield (
            f"exp, also {axes}",
            lambda x, y, a=axes: np.sum(np.transpose(np.exp(x), a) * 2.0, axis=0).sum() + np.exp(x),
        )
    for outer, inner in product(FOLDS, repeat=2):
        for i, j in ((0, 1), (1, 0), (1, 2), (2, 0)):
            yield (
                f"{outer.__name__} {i} of {inner.__name__} {j}",
                lambda x, y, f=outer, g=inner, i=i, j=j: f(g(x, axis=j, keepdims=True), axis=i),
            )


def folds_of_transposes() -> Iterator[tuple[str, Body]]:
    for axes, axis, small in product(
        permutations(range(3)), ((0,), (1,), (2,), (0, 2)), ((2, 0), (0, 1), (1,))
    ):
        at = f"{axis} of {axes}, {small}"
        row = lambda x, a=axes, s=small: np.max(np.transpose(x, a), axis=s, keepdims=True)  # noqa: E731
        yield (
            f"product {at}",
            lambda x, y, a=axes, i=axis, r=row: np.sum(np.transpose(x, a) * (r(x) - 3.0) + y, axis=i),
        )
        yield (
            f"variance {at}",
            lambda x, y, a=axes, i=axis: np.mean(
                np.square(np.transpose(x, a) - np.mean(np.transpose(x, a), axis=i, keepdims=True)), axis=i
            ),
        )
        yield (
            f"two operands {at}",
            lambda x, y, a=axes, i=axis: (
                np.sum(np.exp(np.transpose(x, a)) * np.transpose(x * y, a), axis=i)
                + np.max(np.transpose(x, a), axis=i)
            ),
        )
        yield (
            f"also stored {at}",
            lambda x, y, a=axes, i=axis: (
                np.sum(np.transpose(x, a) + y, axis=i).sum() * (np.transpose(x, a) + y)
            ),
        )


def shapes() -> Iterator[tuple[str, Body]]:
    for first, second in product(SHAPES, repeat=2):
        yield f"{first} {second}", lambda x, y, a=first, b=second: np.reshape(np.reshape(x, a), b) + y
        yield (
            f"exp {first} {second}",
            lambda x, y, a=first, b=second: np.reshape(np.exp(np.reshape(x, a)), b) * y,
        )


def wrong(cases: Iterator[tuple[str, Body]], *given: tuple[int, ...]) -> list[str]:
    """The names of the bodies that give something else than NumPy, simplified."""
    random = np.random.default_rng(0)
    arrays = [random.uniform(0.5, 2.0, shape).astype(np.float32) for shape in given]
    found = []
    for name, body in cases:
        graph = simplify(graph_of(body, *(Spec(shape, dtypes.float32) for shape in given)), 3)
        (got,) = run(graph, arrays)
        want = body(*(a.astype(np.float64) for a in arrays))
        if got.shape != want.shape or not np.allclose(got, want, rtol=1e-5, atol=1e-6):
            found.append(name)
    return found


@pytest.mark.parametrize("given", [((3,), (3,)), ((2, 3), (3,)), ((3,), (2, 1))])
def test_sign_and_constant_rewrites_match_numpy(given: tuple[tuple[int, ...], ...]) -> None:
    assert wrong(arithmetic(), *given) == []


def test_transpose_and_reduction_rewrites_match_numpy() -> None:
    assert wrong(layout(), (2, 3, 4), ()) == []


def test_reductions_of_what_is_computed_from_transposes_match_numpy() -> None:
    assert wrong(folds_of_transposes(), (2, 3, 4), ()) == []


@pytest.mark.parametrize("other", [(), (4, 4), (2, 2, 2)])
def test_reshape_rewrites_before_broadcasting_match_numpy(other: tuple[int, ...]) -> None:
    cases = [(name, body) for name, body in shapes() if _fits(body, other)]
    assert cases and wrong(iter(cases), (4,), other) == []


def _fits(body: Body, other: tuple[int, ...]) -> bool:
    try:
        body(np.ones(4), np.ones(other))
    except ValueError:
        return False
    return True
