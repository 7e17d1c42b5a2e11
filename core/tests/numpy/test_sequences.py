"""Quantiles, places in order, neighbours and areas: against NumPy, gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from differences import check
from mgb import Tensor
from mgb.errors import ShapeError
from mgb.jit import trace
from numpy_calls import Call
from numpy_sequence_calls import LONG, OTHERS, RNG, SHORT, SMOOTH, X


def given(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return Tensor(value, dtype="float64" if value.dtype.kind == "f" else "int32")
    return value


def parts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("call", [*SMOOTH, *OTHERS], ids=lambda call: call[0].__name__)
def test_values_match_numpy(call: Call) -> None:
    """At once, and in a trace: of the call that records and of the next."""
    function, args, options = call
    tensors = [given(a) for a in args]
    traced = trace(lambda *xs: function(*xs, **options))
    for found in (function(*tensors, **options), traced(*tensors), traced(*tensors)):
        for got, want in zip(parts(found), parts(function(*args, **options)), strict=True):
            assert got.shape == np.shape(want)
            single = {"rtol": 1e-5, "atol": 1e-6} if got.dtype == "float32" else {"rtol": 1e-9, "atol": 1e-11}
            np.testing.assert_allclose(got.numpy(), want, **single)


@pytest.mark.parametrize("call", SMOOTH, ids=lambda call: call[0].__name__)
def test_gradients_match_finite_differences(call: Call) -> None:
    function, args, options = call
    arrays = [a for a in args if isinstance(a, np.ndarray)]

    def weighted(*xs: Tensor) -> Any:
        left = iter(xs)
        out = function(*(next(left) if isinstance(a, np.ndarray) else a for a in args), **options)
        return sum((y * Tensor(np.cos(np.arange(y.size)).reshape(y.shape), dtype="float64")).sum()
                   for y in parts(out))  # fmt: skip

    check(weighted, *arrays)


def test_new_shapes_do_not_retrace() -> None:
    functions = [
        lambda x: np.quantile(x, [0.2, 0.7], axis=0),
        lambda x: np.gradient(x, axis=0),
        lambda x: np.trapezoid(x, axis=0),
        lambda x: np.cov(x.T),
        lambda x: np.searchsorted(np.sort(x[:, 0]), x),
    ]
    for function in functions:
        traced = trace(function)
        for rows in (4, 6, 9, 12):
            x = RNG.normal(size=(rows, 3))
            np.testing.assert_allclose(traced(given(x)).numpy(), function(x), rtol=1e-9, atol=1e-11)
        assert traced.stats()["body_runs"] <= 2


REFUSED: dict[str, Callable[[], Any]] = {
    "must be between 0 and 1": lambda: np.quantile(given(X), 1.5),
    "must be between 0 and 100": lambda: np.percentile(given(X), -1),
    "method is one of": lambda: np.quantile(given(X), 0.5, method="best"),
    "of an empty array": lambda: np.quantile(given(X[:, :0]), 0.5),
    "mode is": lambda: np.convolve(given(LONG), given(SHORT), "most"),
    "non-empty vectors": lambda: np.convolve(given(X), given(SHORT)),
    "at least 3": lambda: np.gradient(given(SHORT[:2]), edge_order=2),
    "bins must be a non-empty vector": lambda: np.digitize(given(X), given(X)),
    "must be a vector": lambda: np.searchsorted(given(X), given(X)),
}


@pytest.mark.parametrize("text", REFUSED)
def test_invalid_arguments_raise(text: str) -> None:
    with pytest.raises((ValueError, ShapeError), match=text):
        REFUSED[text]()
