"""Copies of large arrays, and views of what is looked up, against NumPy: bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, plugins
from mgb.jit import trace

DEFAULT = plugins.choose_backend("cpu")

pytestmark = pytest.mark.skipif(
    not DEFAULT.traits.strided_outputs,
    reason="the kernels of the default backend write row-major results only",
)

#: Of 3 * 2**18 elements: each copy is large enough for a kernel.
SHAPE = (3, 512, 8, 64)


def windows(x: Any, rows: int) -> Any:
    return x.reshape(3, 2, rows, 8, 64).transpose(0, 2, 1, 3, 4).reshape(3, 2 * rows, 8, 64)


#: Of a module with the functions `pad` and `concat`, and an array.
COPIES: dict[str, Callable[[Any, Any], Any]] = {
    "a reshape of a transpose": lambda m, x: x.transpose(2, 0, 3, 1).reshape(24, -1),
    "a reshape of a window backwards": lambda m, x: x[:, ::-1, :7].reshape(-1),
    "a border": lambda m, x: m.pad(x, ((1, 0), (0, 2), (3, 4), (0, 0))),
    "a relative shift": lambda m, x: m.pad(x, ((0, 0),) * 3 + ((1, 0),)).reshape(3, 512, 65, 8)[:, :, 1:],
    "side by side": lambda m, x: m.concat([x, x[:, ::-1], x[:, :2]], axis=1),
    "half of shuffled channels": lambda m, x: windows(m.concat([x, x[::-1]], 1), 512)[:, :512],
    "a window inside of merged axes": lambda m, x: x.transpose(1, 0, 2, 3).reshape(1536, 8, 64)[1:-1],
}


def numbers(dtype: str) -> Any:
    """Return random bits: NaNs with every payload are among the floats."""
    bits = np.random.default_rng(5).integers(0, 256, (*SHAPE, np.dtype(dtype).itemsize), dtype=np.uint8)
    return bits.view(dtype)[..., 0] if dtype != "bool" else bits[..., 0] > 99


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "bool", "complex64"])
@pytest.mark.parametrize("name", COPIES)
def test_copies_keep_every_bit(name: str, dtype: str) -> None:
    body = COPIES[name]
    x, run = numbers(dtype), trace(lambda x: body(F, x))
    for _ in range(2):
        got = run(Tensor(x, dtype=dtype)).numpy()
    wanted = np.ascontiguousarray(body(np, x))
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    assert np.ascontiguousarray(got).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", COPIES)
def test_copies_beside_what_is_computed(name: str) -> None:
    body = COPIES[name]
    x = np.random.default_rng(6).standard_normal(SHAPE).astype("float32")
    run = trace(lambda x: (body(F, x), body(F, x * 2.0) + 1.0, body(F, x - 1.0)))
    for _ in range(2):
        got = run(Tensor(x))
    wanted = (body(np, x), body(np, x * 2) + 1, body(np, x - 1))
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


@pytest.mark.parametrize("name", COPIES)
def test_large_copies_are_kernels(name: str) -> None:
    x, run = Tensor(numbers("float32")), trace(lambda x: COPIES[name](F, x))
    for _ in range(2):
        run(x)
    assert "fused by" in str(run.explain(x))


def test_nested_parts_are_written_once() -> None:
    """A mean of mirrored neighbours is nine pieces in three rows: each is written where it will stand."""

    def body(m: Any, x: Any) -> Any:
        p = m.pad(x, ((0, 0), (1, 1), (1, 1)), mode="reflect")
        return 0.25 * (p[:, :-2, 1:-1] + p[:, 2:, 1:-1] + p[:, 1:-1, :-2] + p[:, 1:-1, 2:])

    x = np.random.default_rng(8).standard_normal((16, 256, 256)).astype("float32")
    run = trace(lambda x: body(F, x))
    for _ in range(2):
        got = run(Tensor(x))
    np.testing.assert_allclose(got.numpy(), body(np, x), atol=1e-6)
    explained = str(run.explain(Tensor(x)))
    assert "bitcast" not in explained
    assert "arena 0," in explained


def both(x: Any, i: Any, j: Any) -> Any:
    y = x[j, i[:, :100] % 64].reshape(3, 3, 100).transpose(2, 0, 1).reshape(100, 9)
    return x[i % 64, j].transpose(1, 0) + y


LOOKED_UP: dict[str, Callable[[Any, Any, Any], Any]] = {
    "pages": lambda x, i, j: x[i].reshape(9, 100, 4, 16).transpose(0, 2, 1, 3) * 0.5,
    "columns": lambda x, i, j: x[:, j].reshape(20, 25, 100).transpose(2, 0, 1) + 1.0,
    "both": both,
    "of look-ups": lambda x, i, j: x[i[:, j]].reshape(9, 10, 10, 64).transpose(3, 1, 0, 2) * 2.0,
    "rows of one": lambda x, i, j: x[i[:, :1]].reshape(3, 3, 1, 8, 8).transpose(4, 0, 2, 1, 3) - 1.0,
}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_views_of_what_is_looked_up(name: str) -> None:
    body = LOOKED_UP[name]
    draw = np.random.default_rng(7)
    x = draw.standard_normal((500, 64)).astype("float32")
    i, j = draw.integers(0, 500, (9, 100)), draw.integers(0, 64, 100)
    run = trace(body)
    for _ in range(2):
        got = run(Tensor(x), Tensor(i, dtype="int32"), Tensor(j, dtype="int32"))
    np.testing.assert_allclose(got.numpy(), body(x, i, j), rtol=1e-6)
