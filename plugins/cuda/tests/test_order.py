"""In which order loops visit the axes of a domain: the rule alone, on shapes and strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from mgb.codegen import collapse
from mgb.ops.bodies.transcendental import exp
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb_cuda.frame import Frame
from mgb_cuda.generated import traits
from mgb_cuda.steps import Steps, steps
from mgb_cuda.testing.bench import traced

WORDS = traits(frozenset({"add", "mul", "sub", "div", "exp", "reduce_sum", "reduce_max"}), "gpu", 0)


def visited(function: Callable[..., Any], *arrays: np.ndarray) -> Steps:
    """The loops of a call on these arrays."""
    frame = Frame(traced(function, arrays, WORDS))
    shapes = [*(a.shape for a in arrays), *(o.spec.shape for o in frame.graph.outputs)]
    return steps(frame, shapes, [a.strides for a in arrays])


def laid(order: str, shape: Sequence[int]) -> np.ndarray:
    """An array whose axes lie in memory in this order: letters of ``abcd``, outermost first."""
    axes = ["abcd".index(letter) for letter in order]
    return np.zeros([shape[axis] for axis in axes], np.float32).transpose(np.argsort(axes))


def fold(axis: tuple[int, ...]) -> Callable[[Any], Any]:
    return lambda x: reduce_sum(x, axis=axis)


def softmax(x: Any) -> Any:
    e = exp(x - reduce_max(x, axis=(1,)))
    return e / reduce_sum(e, axis=(1,))


@pytest.mark.parametrize(
    ("order", "shape", "axis", "loops", "folded"),
    [
        ("ab", (500, 700), (1,), (500, 700), (False, True)),
        ("ba", (500, 700), (1,), (700, 500), (True, False)),
        ("ba", (500, 700), (0,), (700, 500), (False, True)),
        ("ba", (500, 700), (0, 1), (350_000,), (True,)),
        ("bac", (50, 60, 4), (0, 1, 2), (12_000,), (True,)),
        ("cba", (50, 60, 70), (0, 1, 2), (210_000,), (True,)),
        ("acdb", (8, 16, 30, 40), (0, 2, 3), (9600, 16), (True, False)),
        ("acdb", (8, 16, 30, 40), (1,), (9600, 16), (False, True)),
        ("abcd", (8, 16, 30, 40), (0, 2, 3), (8, 16, 1200), (True, False, True)),
        ("cab", (50, 60, 70), (1,), (70, 50, 60), (False, False, True)),
    ],
)
def test_loop_order_follows_the_memory_layout(
    order: str,
    shape: tuple[int, ...],
    axis: tuple[int, ...],
    loops: tuple[int, ...],
    folded: tuple[bool, ...],
) -> None:
    found = visited(fold(axis), laid(order, shape))
    assert (found.loops.shape, found.loops.folded) == (loops, folded)
    assert found.columns is not folded[-1] and found.loops.strides[0][-1] == 1


@pytest.mark.parametrize(("orders", "columns"), [("F", True), ("FFFC", True), ("FFC", False), ("FC", False)])
def test_column_order_needs_enough_transposed_arrays(orders: str, columns: bool) -> None:
    """Half of all sectors must be saved, when those that lie otherwise have paid."""
    arrays = [laid("ba" if order == "F" else "ab", (500, 700)) for order in orders]
    assert visited(lambda *xs: reduce_sum(prod(xs), axis=(1,)), *arrays).columns is columns


def test_larger_array_decides_the_loop_order() -> None:
    x, y = laid("cab", (50, 60, 70)), laid("abc", (1, 60, 70))
    assert visited(lambda x, y: reduce_sum(x * y, axis=(1,)), x, y).loops.strides[0][-1] == 1


def test_full_size_outputs_decide_the_loop_order() -> None:
    """However many inputs lie otherwise: these can be turned."""
    arrays = [laid("ba", (500, 700))] * 3
    assert not visited(lambda *xs: softmax(prod(xs)), *arrays).columns


def test_short_innermost_axis_does_not_decide_the_loop_order() -> None:
    """The channels of an image are innermost in memory, but there are too few of them."""
    assert visited(fold((2,)), laid("acb", (64, 3, 5000))).loops.folded == (False, False, True)
    assert visited(fold((2,)), laid("acb", (64, 32, 5000))).loops.folded == (False, True, False)


def test_irregular_strides_keep_the_axis_order() -> None:
    x = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (50, 60), (4 * 999_983, 4 * 100))
    assert visited(fold((1,)), x).loops.folded == (False, True)


def test_outputs_decide_the_loop_order_without_reductions() -> None:
    assert visited(lambda x, y: x + y, *[laid("ba", (500, 700))] * 2).loops.shape == (500, 700)


@st.composite
def problems(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, ...]]]:
    """A shape, the axes that are folded, and shapes that broadcast to it."""
    shape = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=4)))
    axis = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    few = draw(st.lists(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)), max_size=3))
    return shape, axis, [tuple(d if k else 1 for d, k in zip(shape, keeps, strict=True)) for keeps in few]


@hypothesis.settings(max_examples=150, derandomize=True, database=None)
@hypothesis.given(problems(), st.booleans())
def test_row_major_arrays_keep_their_axis_order(problem: Any, stores: bool) -> None:
    shape, axis, others = problem
    arrays = [np.zeros(s, np.float32) for s in (shape, *others)]

    def function(x: Any, *ys: Any) -> Any:
        for y in ys:
            x = x + y
        whole = reduce_sum(x, axis=axis)
        return [x * whole, whole] if stores else whole

    frame = Frame(traced(function, arrays, WORDS))
    given = [*arrays, *(np.zeros(o.spec.shape, np.float32) for o in frame.graph.outputs)]
    own = [tuple(0 if d == 1 else s // 4 for d, s in zip(a.shape, a.strides, strict=True)) for a in given]
    assert visited(function, *arrays).loops == collapse(shape, own, frame.folded_axes)
