"""Draws in kernels: computed in the shape that is wanted, with the bits that they have everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.random as R
import numpy as np
import pytest
from fusing import TRAITS
from graphs import run
from mgb import Tensor
from mgb.backends import Traits
from mgb.fusion import detect, flat_draws
from mgb.ir import Graph, Kind
from mgb.passes import simplify
from mgb.random import RNG
from mgb.tensor.tracing import graph_of

SIZES = [(), (1,), (7,), (8,), (3, 5), (4, 2, 3), (1, 1)]
DRAWS: dict[str, Callable[[RNG, Any], Tensor]] = {
    "uniform": lambda rng, size: rng.uniform(-1, 2, size),
    "normal": lambda rng, size: rng.normal(1.0, 2.0, size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "randint": lambda rng, size: rng.randint(-5, 100, size),
    "bernoulli": lambda rng, size: rng.bernoulli(0.3, size),
}


def _graph(draw: Callable[[RNG, Any], Any], size: Any) -> tuple[Graph, list[np.ndarray], RNG]:
    """The graph of a draw, of its seed and its number, and their values."""
    rng = RNG(seed=5)
    state = [rng._seed, rng._draws]

    def body(seed: Tensor, number: Tensor) -> Any:
        other = RNG(seed=0)
        other._seed, other._draws = seed, number
        return draw(other, size)

    return graph_of(body, *(t.spec for t in state)), [t.numpy() for t in state], rng


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", DRAWS)
def test_flattened_draw_has_the_same_bits(name: str, size: Any) -> None:
    graph, state, rng = _graph(DRAWS[name], size)
    simple = simplify(graph, 3)
    flat = flat_draws(simple, TRAITS)
    (expected,), (found,) = run(graph, state), run(flat, state)
    assert found.tobytes() == expected.tobytes()
    np.testing.assert_array_equal(found, DRAWS[name](rng, size).numpy())
    assert found.shape == size
    assert found.size == 1 or not any(n.op.kind is Kind.LAYOUT for n in flat.nodes)


@pytest.mark.parametrize("part", [slice(0, 5), slice(2, 8), slice(1, 6), slice(0, 8, 2)], ids=str)
def test_slice_of_a_draw_matches_the_full_draw(part: slice) -> None:
    graph, state, rng = _graph(lambda rng, size: rng.uniform(size=size)[part], (8,))
    (found,) = run(flat_draws(simplify(graph, 3), TRAITS), state)
    np.testing.assert_array_equal(found, rng.uniform(size=(8,)).numpy()[part])


def test_draw_fuses_with_its_readers() -> None:
    graph, _, _ = _graph(lambda rng, size: rng.normal(size=size) * 2.0 + 1.0, (30, 50))
    simple = simplify(graph, 3)
    assert [s.fused for s in detect(flat_draws(simple, TRAITS), TRAITS)] == [True]
    assert len(detect(simple, TRAITS)) > 1


def test_draw_read_in_two_shapes_is_drawn_once() -> None:
    graph, state, _ = _graph(
        lambda rng, size: (lambda x: [x, x.reshape(-1) * 2.0])(rng.uniform(size=size)), (4, 6)
    )
    flat = flat_draws(simplify(graph, 3), TRAITS)
    assert sum(n.op.name == "philox_uniform" for n in flat.nodes) == 1
    for expected, found in zip(run(graph, state), run(flat, state), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_draws_unsupported_by_a_backend_are_left_unchanged() -> None:
    graph, _, _ = _graph(DRAWS["normal"], (30, 50))
    few = Traits(frozenset({"add", "mul"}), dtypes=frozenset({"float32"}), api_version=1)
    assert flat_draws(graph, few) is not None
    assert [n.op.name for n in flat_draws(graph, few).nodes] == [n.op.name for n in graph.nodes]


def test_shared_generator_draws_the_same_in_a_trace() -> None:
    from mgb.jit import trace

    R.seed(11)
    expected = [R.normal(size=(5, 9)).numpy() for _ in range(3)]
    R.seed(11)
    traced = trace(lambda: R.normal(size=(5, 9)) * 1.0, without_host=True)
    for value in expected:
        np.testing.assert_allclose(traced().numpy(), value, rtol=3e-6, atol=3e-6)
