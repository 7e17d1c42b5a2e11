"""What reads pieces is computed piece by piece; every value is NumPy's, and nothing is put together first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fusing import TRAITS, f32
from graphs import arrays_for, run
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import Tensor
from mgb.fusion import pieces, split
from mgb.ir import Graph, Kind
from mgb.jit import trace
from mgb.passes import simplify, verify
from mgb.tensor.tracing import graph_of

WRITES = replace(TRAITS, strided_outputs=True)

STEPS = st.lists(
    st.tuples(
        st.integers(0, 11), st.integers(0, 7), st.integers(0, 7), st.integers(0, 1), st.integers(-3, 4)
    ),
    min_size=2,
    max_size=9,
)


@pytest.fixture(autouse=True)
def everything_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays are split as well."""
    monkeypatch.setattr(pieces, "LEAST", 0)


def step(values: list[Any], how: int, first: int, second: int, axis: int, by: int) -> Any:
    """One more value of the shape of the inputs, of those there are."""
    x, y = values[first % len(values)], values[second % len(values)]
    m = x.shape[1]
    if how == 0:
        return np.roll(x, by, axis)
    if how == 1:
        return np.flip(x, axis) * 0.5 + y
    if how == 2:
        padded = np.pad(x, ((1, 1), (1, 1)))
        return padded[2:, 1:-1] - padded[:-2, 1:-1] + y * padded[1:-1, : -2 if by > 0 else m]
    if how == 3:
        return np.concatenate([x[1:] * 2.0, y[:1] - 1.0])
    if how == 4:
        return np.concatenate([-y[:, m // 2 :], x[:, : m // 2]], axis=1)
    if how == 5:
        return x.sum(axis=axis, keepdims=True) + y
    if how == 6:
        return np.transpose(np.roll(np.transpose(x, (1, 0)), 1, 0) * 2.0, (1, 0))
    if how == 7:
        return np.where(x < y, np.roll(y, 1, axis), x) + np.arange(m, dtype=np.float32)
    if how == 8:
        return np.pad(x[1:, ::2], ((0, 1), (0, m - len(range(0, m, 2)))), constant_values=float(by)) + x
    if how == 9:
        return np.exp(x * 0.1) - y
    if how == 10:
        return np.stack([x[:, 0], y[:, -1]], axis=1).max(axis=1, keepdims=True) + np.roll(x, by, axis)
    return x * y


@settings(max_examples=100, deadline=None)
@given(STEPS, st.integers(2, 6), st.integers(2, 7), st.integers(1, 3))
def test_splitting_random_graphs_preserves_values(
    steps: list[tuple[int, int, int, int, int]], n: int, m: int, count: int
) -> None:
    def body(x: Any, y: Any) -> list[Any]:
        values = [x, y]
        for each in steps:
            values.append(step(values, *each))
        return values[-count:]

    graph = simplify(graph_of(body, f32(n, m), f32(n, m)), 2)
    found = split(graph, WRITES)
    verify(found)
    arrays = arrays_for(graph)
    for got, wanted in zip(run(found, arrays), run(graph, arrays), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


MODES = ("constant", "edge", "reflect", "symmetric", "wrap")


def around_border(u: Any, mode: Any) -> Any:
    """The sum of the neighbours two elements away, with a border around `u`."""
    p = np.pad(u, 2, mode)
    return p[4:, 2:-2] + p[:-4, 2:-2] + p[2:-2, 4:] + p[2:-2, :-4]


PLACES: list[Any] = [
    lambda x, y: np.concatenate([x, y], 1)[:, 4:9] * 2.0,
    lambda x, y: np.concatenate([x * 2.0, y], 0)[2:, 1:] + 1.0,
    lambda x, y: np.concatenate([x, y * 2.0], 1).sum(1) + np.concatenate([x, y], 1).sum(0)[:5],
    lambda x, y: np.pad(x * y, ((1, 2), (0, 3)))[:, :6] + x[:1],
    lambda x, y: np.pad(np.roll(x, 2, 1), ((2, 1), (1, 1))) * 3.0,
    lambda x, y: np.transpose(np.concatenate([x, y, x], 0))[1:4, 3:9] - 1.0,
    lambda x, y: np.roll(np.roll(x, 1, 0), 2, 1) - y,
    lambda x, y: np.flip(np.concatenate([x, y], 1), 1)[:, 1:-1] + np.flip(np.roll(x, 2, 0), 0)[:, :1],
    lambda x, y: np.concatenate([x, y], 0)[::-2, ::-1] * y,
    *(
        lambda x, y, m=mode: np.pad(x, ((2, 3), (1, 2)), m)[4:, 1:7] + np.pad(y, 3, m)[:6, 2:8]
        for mode in MODES
    ),
]


@pytest.mark.parametrize("body", PLACES)
def test_split_concat_pad_and_roll_match_numpy(body: Any) -> None:
    x, y = (np.random.default_rng(n).uniform(1, 2, (5, 6)).astype(np.float32) for n in range(2))
    graph = split(simplify(graph_of(body, f32(5, 6), f32(5, 6)), 2), WRITES)
    np.testing.assert_allclose(run(graph, [x, y])[0], body(x, y), rtol=1e-5)


def split_of(body: Any, *shapes: tuple[int, ...]) -> Graph:
    return split(simplify(graph_of(body, *(f32(*shape) for shape in shapes)), 2), WRITES)


def copies(graph: Graph) -> list[str]:
    """The names of ops that move elements of what is computed, or put together what is computed with."""
    computing = (Kind.ELEMENTWISE, Kind.REDUCE)
    return [
        n.op.name
        for n in graph.nodes
        if n.op.kind is Kind.LAYOUT
        and (n.op.name in ("concat", "unslice") and any(r.op.kind in computing for r in graph.readers[n]))
    ]


def rotary(x: Any, c: Any, s: Any) -> Any:
    half = x.shape[-1] // 2
    return x * c + np.concatenate([-x[..., half:], x[..., :half]], axis=-1) * s


def stencil(u: Any) -> Any:
    p = np.pad(u, ((1, 1), (1, 1)))
    return u + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)


def around(u: Any) -> Any:
    return np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1) - 4 * u


def test_split_removes_concat_before_computation() -> None:
    for body, shapes in [
        (rotary, [(5, 7, 8), (7, 8), (7, 8)]),
        (stencil, [(9, 8)]),
        (around, [(9, 8)]),
        (lambda x: np.roll(x, 1, 1).sum(axis=0) * 2.0, [(9, 8)]),
        (lambda x: np.flip(np.concatenate([x, x], 0), 0) * 2.0, [(9, 8)]),
        *((lambda x, m=mode: around_border(x, m), [(9, 8)]) for mode in MODES),
    ]:
        found = split_of(body, *shapes)
        assert not copies(found), str(found)


def around_and_around(u: Any, steps: int) -> Any:
    for _ in range(steps):
        u = u + 0.1 * (around(u) - u)
    return u


def test_split_stencil_graph_grows_linearly_with_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What several read is stored: a step more adds ops, and does not multiply them by its neighbours."""
    monkeypatch.setattr(pieces, "LEAST", 500)  # three pieces along an axis pay, nine do not
    two, four, six = (
        len(split_of(lambda u, n=n: around_and_around(u, n), (64, 64)).nodes) for n in (2, 4, 6)
    )
    assert six - four == four - two


def test_returned_concat_is_not_split() -> None:
    def body(x: Any) -> Any:
        rolled = np.roll(x, 1, 1)
        return rolled, rolled * 2.0

    found = split_of(body, (4, 6))
    assert [n.op.name for n in found.nodes].count("concat") == 1


def test_split_skips_backends_without_strided_outputs() -> None:
    graph = simplify(graph_of(stencil, f32(9, 8)), 2)
    assert split(graph, TRAITS) is graph


@pytest.mark.parametrize(
    "body", [stencil, around, lambda u: around_border(u, "symmetric"), lambda u: rotary(u, u[:1], u[1:2])]
)
def test_split_programs_match_numpy_at_new_shapes(body: Any) -> None:
    """On the default backend, by one record; also where a piece has nothing in it."""
    traced = trace(body)
    for n, m in [(40, 60), (40, 60), (41, 62), (300, 64), (2, 2), (3, 130), (40, 60)]:
        x = np.random.default_rng(n).standard_normal((n, m)).astype(np.float32)
        np.testing.assert_allclose(traced(Tensor(x)).numpy(), body(x), rtol=2e-5, atol=2e-5)
