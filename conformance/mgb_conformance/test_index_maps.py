"""Traced programs that reach elements through maps, and folds of several numbers, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mgb
import numpy as np
import pytest
from mgb.jit import trace

from .cases import samples
from .drive import Driver

#: Functions of arrays, which NumPy's functions serve whether they are Tensors or not.
Function = Callable[..., Any]


def _stencil(x: Any) -> Any:
    p = np.pad(x, 1, mode="reflect")
    return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * x


def _rotated(x: Any) -> Any:
    half = x.shape[-1] // 2
    return np.concatenate([x[:, :half] * 0.6 - x[:, half:] * 0.8, x[:, :half] * 0.8 + x[:, half:] * 0.6], 1)


def _interleaved(x: Any) -> Any:
    a, b = x[:, 0::2], x[:, 1::2]
    return np.stack([a * 0.6 - b * 0.8, b * 0.6 + a * 0.8], axis=-1).reshape(x.shape)


def _one_hot(x: Any) -> Any:
    return (x[:, :1] * 3 // 1 % 5 == np.arange(5)) * x[:, :5]


#: Of an array (240, 260): large enough for pieces and threads, and no multiple of a vector.
MAPS: dict[str, Function] = {
    "steps": lambda x: x[::3, 1::2] * 2 + x[1::3, ::2],
    "backwards": lambda x: x[::-1, ::-2] - x[:, ::2],
    **{
        f"{mode} border": lambda x, mode=mode: np.pad(x * 2, ((2, 1), (0, 3)), mode=mode)[1:, 1:] + 1
        for mode in ("constant", "edge", "reflect", "symmetric", "wrap")
    },
    "stencil": _stencil,
    "side by side": lambda x: np.concatenate([x * 2, x[:, :7] - 1, x[:, ::-1]], axis=1) * 0.5,
    "one above the other": lambda x: np.concatenate([x[5:] * 2, x[:5] + 1], axis=0) * x,
    "stacked": lambda x: np.stack([x + 1, x * 2, -x], axis=1) * 0.5,
    "stacked last": lambda x: np.stack([x + 1, x * 2, -x], axis=-1) * 0.5,
    "rolled": lambda x: np.roll(x, 3, 0) + np.roll(x, -2, 1) - 4 * x,
    "rolled both ways": lambda x: np.roll(x, (1, -1), (0, 1)) * x,
    "rotated halves": _rotated,
    "interleaved": _interleaved,
    "repeated": lambda x: np.repeat(x * 2, 3, axis=1) + 1,
    "tiled": lambda x: np.tile(x[:40] * 2, (6, 1)) - x,
    "transposed operand": lambda x: x[:, :240] + x[:, :240].T * 2,
    "transposed result": lambda x: (x * 2 + 1).T,
    "channels first": lambda x: x.reshape(60, 52, 20).transpose(2, 0, 1) / 255 - 0.5,
    "channels last": lambda x: (x.reshape(20, 60, 52) * 2).transpose(1, 2, 0) + 1,
    "one-hot": _one_hot,
    "broadcast": lambda x: np.broadcast_to(x[:, :1] * 2, x.shape) + x[:1],
}


def _spread(x: Any, axis: int) -> Any:
    mean = x.mean(axis=axis, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=axis, keepdims=True) + 1e-5)


def _log_sum_exp(x: Any, axis: int) -> Any:
    top = x.max(axis=axis, keepdims=True)
    return np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top


def _confidence(x: Any, axis: int) -> list[Any]:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return [x.argmax(axis=axis), (e / e.sum(axis=axis, keepdims=True)).max(axis=axis)]


def _range(x: Any, axis: int) -> list[Any]:
    least, greatest = x.min(axis=axis), x.max(axis=axis)
    return [least, greatest, greatest - least]


#: Of an array and an axis.
FOLDS: dict[str, Callable[[Any, int], Any]] = {
    "where the greatest is, and it": lambda x, axis: [x.argmax(axis=axis), x.max(axis=axis)],
    "where the least is, and it": lambda x, axis: [x.argmin(axis=axis), x.min(axis=axis) * 2],
    "the least and the greatest": _range,
    "log-sum-exp": _log_sum_exp,
    "spread": _spread,
    "moments": lambda x, axis: [x.mean(axis=axis), x.var(axis=axis)],
    "confidence": _confidence,
    "any and all": lambda x, axis: [
        (x > 2.9).any(axis=axis),
        (x > -2.9).all(axis=axis),
        (x > 0).sum(axis=axis),
    ],
}


def compare(driver: Driver, function: Function, x: Any, tolerance: float = 2e-5) -> None:
    """Run `function` three times in a trace, and compare it with NumPy."""
    run, want = trace(function, backend=driver.backend.name), function(x.astype(np.float64))
    for _ in range(3):
        got = run(mgb.tensor(x))
        pairs = zip(got, want, strict=True) if isinstance(want, list) else [(got, want)]
        for found, wanted in pairs:
            np.testing.assert_allclose(found.numpy(), wanted, rtol=tolerance, atol=tolerance)


class TestIndexMaps:
    @pytest.fixture(autouse=True)
    def where_the_backend_works(self, driver: Driver) -> Iterator[None]:
        """Tensors are made on a device of the backend."""
        with driver.place.as_default():
            yield

    @pytest.mark.parametrize("name", MAPS)
    def test_maps_match_numpy(self, driver: Driver, name: str) -> None:
        compare(driver, MAPS[name], samples("float32", (240, 260)) % 3)

    @pytest.mark.parametrize("shape", [(3, 5000), (700, 33), (40, 7, 60)], ids=str)
    @pytest.mark.parametrize("axis", [0, 1, -1])
    @pytest.mark.parametrize("name", FOLDS)
    def test_folds_of_several_numbers_match_numpy(
        self, driver: Driver, name: str, axis: int, shape: tuple[int, ...]
    ) -> None:
        compare(driver, lambda x: FOLDS[name](x, axis), samples("float32", shape) % 3, 1e-4)
