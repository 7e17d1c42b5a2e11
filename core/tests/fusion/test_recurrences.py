"""Loops whose steps are element-wise become scans where a backend takes them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mgb import Tensor, dtypes
from mgb.backends import Scope
from mgb.backends.plugins import load_backend
from mgb.fusion import recurrences
from mgb.ir import Graph, Kind, Spec
from mgb.jit import scan
from mgb.loops import RECURRENCE, SCAN, run_graph
from mgb.tensor.tracing import graph_of

SHAPE = (40, 130)
TRAITS = replace(
    load_backend("eager").traits,
    kinds=frozenset(Kind),
    scope=Scope.DOMAIN,
)


def loop(
    step: Callable[..., Any], shape: tuple[int, ...] = SHAPE, dtype: Any = dtypes.float32, **given: Any
) -> Graph:
    def function(x: Tensor, init: Tensor) -> Any:
        end, ys = scan(step, init, x, **given)
        return [end * 1, *(ys if isinstance(ys, tuple) else (ys,))]

    return graph_of(function, Spec(shape, dtype), Spec(shape[1:], dtype))


def average(s: Any, x: Any) -> Any:
    s = s * 0.9 + x * 0.1
    return s, s


def count(graph: Graph) -> tuple[int, int]:
    """Return how many recurrences and how many loops there are."""
    return sum(n.op is RECURRENCE for n in graph.nodes), sum(n.op is SCAN for n in graph.nodes)


def check(graph: Graph, expected: int) -> None:
    """Check that there are so many recurrences instead of the loop, which give the same."""
    found = recurrences(graph, TRAITS)
    assert count(graph) == (0, 1) and count(found) == (expected, 0)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=n.spec.shape).astype(np.float32) for n in graph.inputs]
    for got, want in zip(run_graph(found, arrays), run_graph(graph, arrays), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (average, 1),
        (lambda s, x: (s * 0.5 + x, s - x), 2),  # the end and rows of what was carried before
        (lambda s, x: (t := s * 0.5 + x, t * 2 - x), 1),  # rows that follow from the end
        (lambda s, x: (s * 0.9 + x, s), 2),  # rows that are what was carried
        (lambda s, x: (s, s + x), 1),  # what never changes
        (lambda s, x: (s, s), 1),
        (lambda s, x: (s * 0.5 + x, (s * 2, s)), 2),  # rows of which one follows from the other
        (lambda s, x: (x, s * 2), 1),  # an end that is a row
        (lambda s, x: (x * 2, x), 0),  # results that do not follow from what is carried
    ],
)
def test_results_are_those_of_the_loop(step: Callable[..., Any], expected: int, reverse: bool) -> None:
    check(loop(step, reverse=reverse), expected)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda s, x, c: (s * 0.9 + x, c * 2), 1),
        (lambda s, x, c: (s * 0.9 + x, c), 1),
        (lambda s, x, c: (c, s + x), 1),
        (lambda s, x, c: (c * 2, c), 0),
    ],
)
def test_results_that_are_equal_in_all_steps(step: Callable[..., Any], expected: int, reverse: bool) -> None:
    def function(x: Tensor, init: Tensor, c: Tensor) -> Any:
        end, ys = scan(lambda s, x: step(s, x, c), init, x, reverse=reverse)
        return [end * 1, ys]

    row = Spec(SHAPE[1:], dtypes.float32)
    check(graph_of(function, Spec(SHAPE, dtypes.float32), row, row), expected)


def test_the_loop_of_the_head_of_the_module() -> None:
    """Run the expression that it quotes."""
    code = re.search(r"``(scan\(.*?)``", sys.modules[recurrences.__module__].__doc__ or "")
    assert code is not None
    row = Spec(SHAPE[1:], dtypes.float32)
    graph = graph_of(
        lambda init, xs: eval(code[1], {"scan": scan, "init": init, "xs": xs}),
        row,
        Spec(SHAPE, dtypes.float32),
    )
    check(graph, 1)


@pytest.mark.parametrize(
    "graph",
    [
        loop(lambda s, x: (s + s.sum() * x, s)),  # a reduction
        loop(average, (4, 4000)),  # few steps
        loop(average, (40, 40)),  # few elements
        loop(average, dtype=dtypes.float16),  # rounded at each step
        loop(lambda s, x: (s + x, (s > 0).astype("int32"))),  # rows of another dtype
        loop(lambda s, x: (s + x.sum(), s), (40, 4, 130)),  # rows that are reduced
    ],
    ids=["reduction", "short", "small", "float16", "dtype", "rows"],
)
def test_other_loops_stay(graph: Graph) -> None:
    assert recurrences(graph, TRAITS) is graph


def test_backends_without_the_word_keep_loops() -> None:
    graph = loop(average)
    plain = replace(TRAITS, vocabulary=TRAITS.vocabulary - {"recurrence"})
    assert recurrences(graph, plain) is graph
