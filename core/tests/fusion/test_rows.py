"""Short rows are taken apart where they are cut, turned or put together: NumPy's values, in few kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import Tensor
from mgb.backends.plugins import load_backend
from mgb.errors import BackendError
from mgb.fusion import rows, rows_apart
from mgb.ir import Spec
from mgb.jit import trace
from mgb.passes import simplify
from mgb.tensor.tracing import graph_of

R = np.random.default_rng(0)


@pytest.fixture(scope="module", autouse=True)
def _few_rows_are_enough() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "ROWS", 1)
        yield


def stack(*parts: Any) -> Any:
    """Put columns side by side."""
    return np.concatenate([p[..., None] for p in parts], axis=-1)


def rotated(q: Any, p: Any) -> Any:
    q = q / np.sqrt((q * q).sum(axis=1, keepdims=True))
    w, x, y, z = q[:, 0], q[:, 1], q[:, 2], q[:, 3]
    first = stack(1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y))
    second = stack(2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x))
    third = stack(2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y))
    turns = np.concatenate([first, second, third], axis=1).reshape(-1, 3, 3)
    return (turns * p[:, None, :]).sum(axis=2)


def inverse(a: Any) -> Any:
    """Of matrices of two rows, and their symmetric parts; the inverse is transposed twice."""
    m = np.exp(a.reshape(-1, 2, 2) * 0.3)
    p, q, r, s = m[:, 0, 0], m[:, 0, 1], m[:, 1, 0], m[:, 1, 1]
    turned = stack(stack(s, -r), stack(-q, p)) / (p * s - q * r + 3.0)[:, None, None]
    return turned.transpose(0, 2, 1) * 2.0 + m, (m + m.transpose(0, 2, 1)) * turned


def normalised(x: Any, scale: Any) -> Any:
    """With numbers of all rows, and what they have in common is wanted, too."""
    y = (x - x.mean(axis=1, keepdims=True)) * scale
    y = np.concatenate([y[:, ::-1], y[:, :2] * 2.0], axis=1) + 1.0
    return y, y[:, 1:4].sum(axis=0), y.max(axis=1), (y * y).mean(axis=(0, 1)), y.mean(axis=0)


def colours(image: Any) -> Any:
    """Of pixels, which lie along two axes."""
    x = image * 0.5 + 0.1
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    luma = 0.3 * r + 0.6 * g + 0.1 * b
    ycc = stack(luma, (b - luma) * 0.5, (r - luma) * 0.7)
    return np.maximum(ycc, 0.0) * x, ycc.sum(axis=(0, 2)), np.minimum(ycc, image[:, :1]).min(axis=1)


def flipped(x: Any) -> Any:
    """Rows in the opposite order are others."""
    y = np.sin(x)
    z = np.concatenate([y[:, :1], y[:, 1:] * 2.0], axis=1)[::-1] + y
    return z[:, 1] * z[:, 0] + z[:, 1]


def put_among_zeros(x: Any) -> Any:
    y = np.pad((x * 2.0)[:, 1:3], ((0, 0), (1, 2))) + 1.0
    return y * y[:, 1:2], np.argmax(y, axis=1)


CASES: list[tuple[Callable[..., Any], list[tuple[int, ...]]]] = [
    (rotated, [(70, 4), (70, 3)]),
    (inverse, [(65, 4)]),
    (normalised, [(50, 4), (4,)]),
    (normalised, [(50, 5), (1, 5)]),
    (colours, [(9, 20, 3)]),
    (flipped, [(30, 4)]),
    (put_among_zeros, [(40, 5)]),
]


def assert_matches(function: Callable[..., Any], traced: Any, arrays: list[Any]) -> None:
    for _ in range(2):
        found = traced(*map(Tensor, arrays))
    wanted = function(*[a.astype(np.float64) for a in arrays])
    for got, value in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, wanted)), strict=True):
        assert got.shape == value.shape
        np.testing.assert_allclose(got.numpy(), value, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("backend", ["cpu_llvm", "cpu_numba", "mlir", "halide"])
@pytest.mark.parametrize("function, shapes", CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_values_match_numpy(function: Any, shapes: list[tuple[int, ...]], backend: str) -> None:
    try:
        load_backend(backend)
    except BackendError as error:
        pytest.skip(str(error))
    arrays = [R.standard_normal(shape).astype("float32") for shape in shapes]
    assert_matches(function, trace(function, backend=backend), arrays)


@pytest.mark.parametrize("function, shapes", CASES[:2], ids=["rotated", "inverse"])
def test_a_chain_is_one_kernel(function: Any, shapes: list[tuple[int, ...]]) -> None:
    arrays = [Tensor(R.standard_normal((9000, *row)).astype("float32")) for _, *row in shapes]
    text = str(trace(function, backend="cpu_llvm").explain(*arrays))
    assert "1 fused groups" in text and "concat_" not in text


@pytest.mark.parametrize(
    "function, shapes",
    [
        (lambda x: np.exp(x[:, :2]) * x[:, 2:], [(90, 4)]),  # nothing is moved that was computed
        (lambda x: stack(np.exp(x[:, 0]), x[:, 1] * 2.0), [(90, 2)]),
        (lambda x: np.exp(x)[:, :30] * x[:, 2:32], [(90, 32)]),  # too wide
        (lambda x: x / (x * x).sum(axis=1, keepdims=True), [(90, 4)]),
    ],
    ids=["cut", "stacked", "wide", "one kernel"],
)
def test_what_is_one_kernel_anyway_stays(function: Any, shapes: list[tuple[int, ...]]) -> None:
    graph = simplify(graph_of(function, *(Spec(shape, np.dtype("float32")) for shape in shapes)), 3)
    assert rows_apart(graph, load_backend("cpu_llvm").traits) is graph


def test_values_match_numpy_at_other_lengths() -> None:
    traced = trace(rotated, backend="cpu_llvm")
    for count in (40, 40, 41, 300, 5000, 1, 2):
        shapes = [(count, 4), (count, 3)]
        assert_matches(rotated, traced, [R.standard_normal(shape).astype("float32") for shape in shapes])


def test_gradients(check_gradient: Callable[..., None]) -> None:
    check_gradient(trace(rotated), R.normal(size=(6, 4)), R.normal(size=(6, 3)))
    check_gradient(trace(lambda a: inverse(a)[1]), R.normal(size=(5, 4)))


#: What a random program does with a value of which a row has a shape.
MOVES = st.sampled_from(["cut", "turn", "shape", "double", "fold", "keep", "scale", "row", "pad", "flip"])


def step(kind: str, k: int, x: Any) -> Any:
    """One step of a random program: rows of `x` have one or two axes."""
    if kind == "cut":
        return x[:, k % x.shape[1] :] * 1.5
    if kind == "turn":
        return x.transpose(0, *range(x.ndim - 1, 0, -1)) + 0.5
    if kind == "shape":
        count = int(np.prod(x.shape[1:]))
        return np.tanh(x).reshape(x.shape[0], *((count,) if x.ndim > 2 or count % 2 else (2, count // 2)))
    if kind == "double" and int(np.prod(x.shape[1:])) <= 6:
        return np.concatenate([x * 0.5, x[:, ::-1]], axis=1)
    if kind == "fold":
        return x + x.sum(axis=1 + k % (x.ndim - 1), keepdims=True) * 0.2
    if kind == "keep":
        return x - x.max(axis=-1, keepdims=True)
    if kind == "row":
        return x * x[:, :1] * 0.3
    if kind == "pad" and x.ndim == 2 and x.shape[1] < 6:
        return np.pad(x, ((0, 0), (k % 2, 1))) + x[:, k % x.shape[1]][:, None]
    return (x[::-1] if kind == "flip" else x) * 0.9 + np.arange(x.shape[-1], dtype=np.float32)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(MOVES, st.integers(0, 5)), min_size=2, max_size=7), st.integers(1, 6))
def test_random_programs_match_numpy(steps: list[tuple[str, int]], width: int) -> None:
    def program(x: Any) -> Any:
        total = x.sum(axis=1)
        for kind, k in steps:
            x = step(kind, k, x)
            total = total + x.reshape(x.shape[0], -1).sum(axis=1) * 0.1
        return x, total, (x * x).sum(axis=0)

    assert_matches(
        program, trace(program, backend="cpu_llvm"), [R.standard_normal((33, width)).astype("float32")]
    )


def test_operands_with_fewer_axes_are_aligned_to_the_last() -> None:
    def program(a: Any, b: Any) -> Any:
        t = a * 2 + b
        pairs = np.concatenate([t.reshape(4, 4, 4, 1), (t * t).reshape(4, 4, 4, 1)], axis=3)
        row = pairs.sum(axis=3) + t
        whole = row.reshape(4, 4, 4, 1) + t
        return (whole * whole).sum(axis=3)

    given = [R.standard_normal((4, 4, 4)).astype("float32") for _ in range(2)]
    assert_matches(program, trace(program, backend="cpu_llvm"), given)


def test_distances_beside_rows_that_are_looked_up() -> None:
    def program(p: Any, table: Any, index: Any) -> Any:
        apart = p[:, None] - p[None]
        weight = (apart**2).sum(axis=2)[:, :, None] * apart
        return weight.sum(axis=1), np.take(table, index.astype("int32"), axis=0) * 2

    given = [R.standard_normal(shape).astype("float32") for shape in ((64, 3), (100, 7))]
    index = R.integers(0, 100, (5000, 1)).astype("float32")
    assert_matches(program, trace(program, backend="cpu_llvm"), [*given, index])
