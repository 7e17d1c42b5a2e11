"""All of NumPy's main namespace: each function takes Tensors, or stands here with the reason why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mgb
import numpy as np
import pytest
from mgb import Tensor
from mgb.errors import ConversionError
from mgb.jit import trace
from mgb.ops.numpy_protocol import functions, ufunc_of
from numpy_calls import ANSWERS, CALLS, FILES, HOLES, REFUSED, WRITES, Call, V, X, Y


def tensors(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(tensors(v) for v in value)
    return Tensor(value, value.dtype) if isinstance(value, np.ndarray) else value


def compare(got: Any, want: Any) -> None:
    if isinstance(want, list | tuple):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            compare(g, w)
        return
    assert np.shape(got) == np.shape(want)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6, atol=1e-9)


def called(call: Call) -> tuple[Any, Any]:
    function, args, kwargs = call
    with np.errstate(all="ignore"):
        return function(*tensors(args), **tensors(kwargs)), function(*args, **kwargs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0].__name__)
def test_calls_match_numpy(call: Call) -> None:
    got, want = called(call)
    if call[0] in (np.roots, np.unique_values):  # in any order
        got, want = np.sort_complex(got), np.sort_complex(want)
    compare(got, want)


@pytest.mark.parametrize("call", WRITES, ids=lambda call: call[0].__name__)
def test_in_place_functions_match_numpy(call: Call) -> None:
    function, args, kwargs = call
    target, wanted = Tensor(X, "float64"), X.copy()
    before = target
    function(target, *tensors(args), **tensors(kwargs))
    function(wanted, *args, **kwargs)
    assert target is before
    compare(target, wanted)


@pytest.mark.parametrize("call", ANSWERS, ids=lambda call: call[0].__name__)
def test_functions_with_non_tensor_results_match_numpy(call: Call) -> None:
    function, args, kwargs = call
    if function is np.result_type:  # integers and float32 meet in float32
        assert function(Tensor([1.0]), Tensor([1])) == np.float32
        return
    single = tuple(a.astype(np.float32) if isinstance(a, np.ndarray) else a for a in args)
    assert function(*tensors(single), **kwargs) == function(*single, **kwargs)


@pytest.mark.parametrize("function", FILES, ids=lambda f: f.__name__)
def test_save_functions_accept_tensors(function: Callable[..., Any], tmp_path: Path) -> None:
    function(tmp_path / "x", Tensor(V))
    (path,) = tmp_path.iterdir()
    found = np.loadtxt(path) if function is np.savetxt else np.load(path)
    np.testing.assert_array_equal(found["arr_0"] if "savez" in function.__name__ else found, V)


def test_every_numpy_function_is_supported_or_listed_as_excluded() -> None:
    names = [n for n in dir(np) if not n.startswith("_") and not isinstance(getattr(np, n), type)]
    found = {n for n in names if isinstance(f := getattr(np, n), np.ufunc) and ufunc_of(f) is None}
    found |= {n for n in names if hasattr(f := getattr(np, n), "_implementation") and f not in functions()}
    assert found == set(REFUSED)


def test_unsupported_function_error_names_the_function() -> None:
    with pytest.raises(TypeError, match=r"np\.packbits does not take a Tensor"):
        np.packbits(Tensor([1, 0]))
    with pytest.raises(TypeError, match=r"np\.isnat does not take a Tensor"):
        np.isnat(Tensor([1.0]))
    with pytest.raises(ConversionError, match="gcd: needs integers, got float32"):
        np.gcd(Tensor([1.0]), 2)


TRACED: dict[str, Callable[[Any], Any]] = {
    "nan reductions": lambda x: (np.nanmean(x, 0), np.nanmax(x), np.nanstd(x, 1)),
    "turns": lambda x: (np.rot90(x), np.ptp(x, 0), np.maximum.accumulate(x, axis=1)),
    "choice": lambda x: np.select([x > 1, x > 0.7], [x, -x]) + np.heaviside(x - 1, 0.5),
    "divisors": lambda x: np.gcd(np.floor(x * 12).astype("int64"), 8),
    "parts": lambda x: (np.frexp(x)[0], np.add.reduceat(x, [0, 2], axis=1), np.i0(x * 9)),
    "polynomial": lambda x: np.polyval(x[0], x) + np.sinc(x),
}


@pytest.mark.parametrize("name", TRACED)
def test_traced_calls_match_numpy(name: str) -> None:
    traced = trace(TRACED[name])
    for array in (X, Y, HOLES if "nan" in name else X * Y):
        with np.errstate(all="ignore"), pytest.warns() if array is HOLES else np.errstate():
            want = TRACED[name](array)
        compare(traced(Tensor(array, "float64")), want)
    assert traced.stats()["body_runs"] == 1


GRADIENTS: dict[str, Callable[[Any], Any]] = {
    "nanmean": lambda x: np.nanmean(x, 0) ** 2,
    "nanvar": lambda x: np.nanvar(x, 1, ddof=1),
    "nanstd": lambda x: np.nanstd(x, 0),
    "nanmax": lambda x: np.nanmax(x, 1) ** 2,
    "nanprod": lambda x: np.nanprod(x, 1),
    "ptp": lambda x: np.ptp(x, 1) ** 2,
    "sinc": lambda x: np.sinc(x),
    "logaddexp2": lambda x: np.logaddexp2(x, x[0] * 2),
    "fmax": lambda x: np.fmax(x, x[0] * 0.9 + 0.05) ** 2,
    "accumulate": lambda x: np.maximum.accumulate(x, axis=1) ** 2,
    "rot90": lambda x: np.rot90(x) ** 2,
    "insert": lambda x: np.insert(x, 1, x[0], axis=0) ** 2,
    "polyval": lambda x: np.polyval(x[0], x),
    "polyfit": lambda x: np.polyfit(x[0], x[1], 2),
    "geomspace": lambda x: np.geomspace(x[0], x[1], 3),
    "float_power": lambda x: np.float_power(x, x[1]),
    "unwrap": lambda x: np.unwrap(x * 9) ** 2,
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str, check_gradient: Callable[..., None]) -> None:
    check_gradient(GRADIENTS[name], X)


def test_sinc_is_smooth_at_zero() -> None:
    slope = mgb.grad(lambda x: mgb.grad(lambda y: np.sinc(y))(x))
    assert slope(Tensor(0.0, "float64")).item() == pytest.approx(-(np.pi**2) / 3)


def test_nan_reductions_have_zero_gradient_at_nan() -> None:
    slope = mgb.grad(lambda x: np.nansum(x) + np.nanstd(x))(Tensor([1.0, np.nan, 3.0], "float64"))
    np.testing.assert_allclose(slope.numpy(), [1 - 0.5, 0, 1 + 0.5])
