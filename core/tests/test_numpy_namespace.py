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

RNG = np.random.default_rng(5)
X, Y = RNG.uniform(0.5, 2, (3, 4)), RNG.uniform(0.5, 2, (3, 4))
SIGNED = RNG.normal(size=(3, 4))
HOLES = np.where(RNG.random((3, 4)) < 0.4, np.nan, SIGNED)
HOLES[1] = np.nan
CUBE = RNG.normal(size=(2, 3, 4))
V = np.array([3.0, 1.0, 2.0, 2.0])
N = np.array([[4, 1, 7, 0], [12, -6, 3, 9]], np.int32)
M = np.array([6, 4, -3, 0], np.int32)
MASK = np.array([True, False, True, True])
EDGES = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 1e-3])
ANGLES = np.cumsum(RNG.uniform(-5, 5, (2, 8)), axis=1)

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
NAN_REDUCTIONS = (np.nansum, np.nanprod, np.nanmax, np.nanmin, np.nanmean, np.nanvar, np.nanstd)

CALLS: list[Call] = [
    *((f, (HOLES,), {}) for f in NAN_REDUCTIONS),
    *((f, (HOLES,), {"axis": 0}) for f in NAN_REDUCTIONS),
    *((f, (HOLES[[0, 2]],), {"axis": 1, "keepdims": True}) for f in NAN_REDUCTIONS),
    *((f, (HOLES,), {"axis": 0, "ddof": 1}) for f in (np.nanvar, np.nanstd)),
    *((f, (N,), {"axis": 1}) for f in NAN_REDUCTIONS),
    *((f, (HOLES[[0, 2]],), {"axis": 1}) for f in (np.nanargmax, np.nanargmin)),
    *((f, (HOLES,), {"axis": 1}) for f in (np.nancumsum, np.nancumprod)),
    *((f, (X,), {"axis": 1}) for f in (np.ptp, np.amin, np.amax)),
    # turned, cut, joined
    *((np.rot90, (X, k), {}) for k in (-1, 0, 1, 2, 3)),
    (np.rot90, (CUBE,), {"axes": (2, 1)}),
    (np.fliplr, (X,), {}), (np.flipud, (X,), {}),
    *((np.rollaxis, (CUBE, axis, start), {}) for axis in range(3) for start in range(4)),
    (np.array_split, (V, 3), {}), (np.array_split, (X, 5), {"axis": 1}), (np.array_split, (X, [1, 3], 1), {}),
    (np.hsplit, (X, 2), {}), (np.hsplit, (V, 2), {}), (np.vsplit, (X, [1]), {}), (np.dsplit, (CUBE, 2), {}),
    (np.ediff1d, (X,), {}), (np.ediff1d, (V,), {"to_begin": 5.0, "to_end": np.array([1.0, 2.0])}),
    (np.trim_zeros, (np.array([0.0, 0, 1, 0, 2, 0]),), {}), (np.trim_zeros, (np.array([0.0, 1, 0]), "b"), {}),
    (np.column_stack, ([V, X.T],), {}), (np.append, (X, Y), {"axis": 0}), (np.append, (X, V), {}),
    (np.block, ([[X, Y], [Y, X]],), {}), (np.block, ([V, V],), {}), (np.block, ([[X, V[:3, None]]],), {}),
    (np.insert, (V, 2, 9.0), {}), (np.insert, (V, 1, np.array([8.0, 9.0])), {}),
    (np.insert, (V, [0, 2, 2], np.array([7.0, 8.0, 9.0])), {}), (np.insert, (X, -1, 5.0), {"axis": 1}),
    (np.insert, (X, 1, V), {"axis": 0}), (np.insert, (X, [1], V[:3, None]), {"axis": 1}),
    (np.insert, (X, slice(0, 3, 2), 0.0), {"axis": 1}), (np.insert, (X, 1, V[:3]), {"axis": 1}),
    (np.delete, (V, 1), {}), (np.delete, (X, [0, -1]), {"axis": 1}), (np.delete, (X, slice(1, None), 0), {}),
    (np.delete, (V, MASK), {}),
    (np.resize, (V, (2, 3)), {}), (np.broadcast_arrays, (X, V, 2.0), {}),
    (np.diagflat, (N[:, :2],), {"k": 1}),
    (np.vander, (V,), {}), (np.vander, (V, 3), {"increasing": True}),
    (np.ix_, (np.array([0, 2]), MASK), {}), (np.unstack, (CUBE,), {"axis": 1}),
    (np.tril_indices_from, (X,), {"k": 1}), (np.triu_indices_from, (X,), {}),
    (np.diag_indices_from, (X[:, :3],), {}),
    (np.matrix_transpose, (CUBE,), {}),
    # chosen, in order
    (np.select, ([X > 1, X > 0.7], [X, Y]), {"default": -1.0}),
    (np.choose, (N[0] % 2, [V, -V]), {}), (np.choose, (N[1], [V, -V]), {"mode": "wrap"}),
    (np.choose, (N[1], [V, -V]), {"mode": "clip"}),
    (np.compress, (MASK, X), {"axis": 1}), (np.compress, (MASK, V), {}), (np.extract, (X > 1, X), {}),
    (np.piecewise, (SIGNED, [SIGNED < 0, SIGNED > 0.5], [np.negative, 3.0, np.square]), {}),
    (np.piecewise, (SIGNED, [SIGNED < 0], [1.0]), {}),
    (np.partition, (np.array([1.0, 2.0, 3.0]), 1), {}), (np.argpartition, (np.array([3.0, 2.0, 1.0]), 1), {}),
    (np.lexsort, ((N[0], V),), {}), (np.lexsort, (X[::-1].round(),), {}),
    (np.unravel_index, (np.array([0, 7, 11]), (3, 4)), {}),
    (np.ravel_multi_index, ((np.array([0, 2]), np.array([3, 1])), (3, 4)), {}),
    (np.ravel_multi_index, ((np.array([0, 5]), np.array([3, -1])), (3, 4)), {"mode": "clip"}),
    (np.ravel_multi_index, ((np.array([0, 5]), np.array([3, -1])), (3, 4)), {"mode": "wrap"}),
    (np.unwrap, (ANGLES,), {}), (np.unwrap, (ANGLES,), {"axis": 0, "discont": 4.0}),
    (np.unwrap, (ANGLES,), {"period": 3.0}),
    (np.fix, (SIGNED,), {}), (np.isposinf, (EDGES,), {}), (np.isneginf, (EDGES,), {}),
    (np.inner, (X, Y), {}), (np.inner, (CUBE, V), {}), (np.inner, (V, 2.0), {}),
    (np.apply_along_axis, (lambda r: r[:2] * r.sum(), 1, CUBE), {}), (np.apply_along_axis,
    (np.sum, 0, X), {}),
    (np.apply_over_axes, (np.sum, CUBE, (0, 2)), {}),
    # sets
    (np.isin, (N, M), {}), (np.isin, (HOLES, V), {"invert": True}), (np.isin, (N, M[:0]), {}),
    (np.union1d, (N, M), {}), (np.intersect1d, (N, M), {}), (np.setdiff1d, (N, M), {}),
    (np.setxor1d, (N, M), {}),
    *((f, (N,), {}) for f in (np.unique_all, np.unique_counts, np.unique_inverse, np.unique_values)),
    # polynomials
    (np.polyval, (V, X), {}), (np.polyadd, (V, V[1:]), {}), (np.polysub, (V[2:], V), {}),
    (np.polymul, (V, V[1:]), {}), (np.polydiv, (V, V[:2]), {}), (np.polyder, (V,), {"m": 2}),
    (np.polyint, (V,), {"m": 2, "k": [1.0, 2.0]}), (np.polyfit, (np.arange(5.0), np.arange(5.0) ** 2, 2), {}),
    (np.polyfit, (X[0], Y[:2].T, 1), {"w": V}), (np.poly, (V,), {}),
    (np.roots, (np.array([0.0, 1.0, -6.0, 11.0, -6.0, 0.0]),), {}),
    # ranges
    (np.linspace, (V, X, 5), {}), (np.linspace, (0.0, V, 4), {"axis": -1, "endpoint": False}),
    (np.linspace, (V, 9.0, 3), {"retstep": True}), (np.logspace, (V, 0.0, 4), {"base": 2.0}),
    (np.geomspace, (V, X, 4), {}), (np.geomspace, (-V, -1.0, 3), {"endpoint": False}),
    (np.cumulative_sum, (V,), {"include_initial": True}), (np.cumulative_prod, (X,), {"axis": 1}),
    (np.astype, (V, "int32"), {}), (np.sort_complex, (V,), {}), (np.real_if_close, (V + 0j,), {}),
    (np.histogramdd, (X[:, :2],), {"bins": 2}),
    (np.histogram2d, (V, V[::-1].copy()), {"bins": 2}), (np.histogram_bin_edges, (X,), {"bins": 3}),
    # element by element
    *((f, (EDGES,), {}) for f in (np.radians, np.degrees, np.deg2rad, np.rad2deg, np.fabs, np.modf, np.sinc)),
    *((f, (EDGES[:, None], EDGES), {}) for f in (np.fmax, np.fmin, np.logaddexp2)),
    (np.heaviside, (EDGES, 0.25), {}), (np.spacing, (EDGES,), {}), (np.spacing, (X,), {}),
    *((f, (N, M), {}) for f in (np.gcd, np.lcm)),
    (np.gcd, (np.array([2**40 * 9, 0]), np.array([2**35 * 6, -12])), {}),
    (np.gcd, (np.array([3, 6, -128], np.int8), np.array([-128, -128, 3], np.int8)), {}),
    (np.ldexp, (X, N[0]), {}), (np.ldexp, (np.array([1e-300]), np.array([1800])), {}),
    *((np.frexp, (x,), {}) for x in (EDGES, X, np.array([2.0**-1074, 2.0**-1030 * 3, 1e308, -0.0, 7.5]))),
    (np.frexp, (np.array([2.0**-149, 3.0**-90, 3e38, -1.0], np.float32),), {}),
    (np.frexp, (np.array([2.0**-24, 60000, -3.0], np.float16),), {}),
    (np.i0, (np.array([0.0, -0.5, 3.0, 7.999, 8.0, -30.0, 700.0, 710.0, np.nan]),), {}), (np.i0, (X,), {}),
    (np.take, (X, np.array([[7, -9], [3, 0]])), {"mode": "wrap", "axis": 1}),
    (np.take, (X, np.array([100, -3, 2])), {"mode": "clip"}), (np.take, (X, [1, -1], 0, None, "clip"), {}),
    *((f.reduceat, (CUBE, [1, 0, 1]), {"axis": 1}) for f in (np.add, np.multiply, np.maximum, np.minimum)),
    (np.add.reduceat, (V, np.array([0, 3, 1, 2])), {}), (np.add.reduceat, (N, [0]), {}),
    (np.multiply.reduceat, (X, [2, 0]), {"axis": -1}), (np.add.reduceat, (X > 1, [0, 2]), {}),
    (np.float_power, (X, 2.5), {}), (np.float_power, (np.array([3]), np.array([-2])), {}),
    (np.bitwise_count, (N,), {}), (np.bitwise_count, (np.array([0, 255, 7], np.uint8),), {}),
    (np.bitwise_count, (np.array([-(2**63), 2**62 + 5, -1]),), {}),
    (np.vecdot, (CUBE, V), {}), (np.matvec, (CUBE, V), {}), (np.vecmat, (V[:3], CUBE), {}),
    *((f.accumulate, (SIGNED,), {"axis": 1}) for f in (np.maximum, np.minimum, np.logaddexp)),
    *((f.accumulate, (SIGNED,), {}) for f in (np.maximum, np.minimum)),
    (np.logaddexp.reduce, (SIGNED,), {}), (np.fmax.reduce, (HOLES,), {}),
    (np.fmin.reduce, (HOLES,), {"axis": 1}),
    (np.hypot.reduce, (SIGNED,), {"axis": 1}),
]  # fmt: skip

#: What writes into its first argument.
WRITES: list[Call] = [
    (np.copyto, (V,), {}), (np.copyto, (V,), {"where": X > 1}), (np.putmask, (X > 1, V[:3]), {}),
    (np.place, (X > 1, V[:3]), {}), (np.put, ([0, -1, 5], [7.0, 8.0]), {}),
    (np.put_along_axis, (np.array([[0], [2], [1]]), 9.0), {"axis": 1}),
    (np.fill_diagonal, (5.0,), {}), (np.fill_diagonal, ([5.0, 6.0],), {"wrap": True}),
    (np.add.at, ([0, 0, 2], V), {}), (np.subtract.at, ((np.array([1, 1]), [3, 3]), 2.0), {}),
    (np.multiply.at, ((slice(None), [0, 0]), 2.0), {}), (np.maximum.at, ([1, 1], 1.1), {}),
    (np.minimum.at, ([0], 1.0), {}),
]  # fmt: skip

#: What gives no Tensor, of an array of float32.
ANSWERS: list[Call] = [
    *((f, (V,), {}) for f in (np.array2string, np.array_repr, np.array_str)),
    *((f, (V,), {}) for f in (np.min_scalar_type, np.common_type)),
    (np.array_equiv, (V, V[None]), {}), (np.can_cast, (V, "float64"), {}), (np.result_type, (V, M), {}),
    (np.einsum_path, ("i,i", V, V), {}),
]  # fmt: skip
FILES = (np.save, np.savez, np.savez_compressed, np.savetxt)

#: What does not take Tensors, and why.
REFUSED: dict[str, str] = {
    **dict.fromkeys("busday_count busday_offset datetime_as_string is_busday isnat".split(), "dates"),
    **dict.fromkeys("packbits unpackbits".split(), "bytes of bits, which no op makes"),
}


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
def test_calls(call: Call) -> None:
    got, want = called(call)
    if call[0] in (np.roots, np.unique_values):  # in any order
        got, want = np.sort_complex(got), np.sort_complex(want)
    compare(got, want)


@pytest.mark.parametrize("call", WRITES, ids=lambda call: call[0].__name__)
def test_writes(call: Call) -> None:
    function, args, kwargs = call
    target, wanted = Tensor(X, "float64"), X.copy()
    before = target
    function(target, *tensors(args), **tensors(kwargs))
    function(wanted, *args, **kwargs)
    assert target is before
    compare(target, wanted)


@pytest.mark.parametrize("call", ANSWERS, ids=lambda call: call[0].__name__)
def test_answers(call: Call) -> None:
    function, args, kwargs = call
    if function is np.result_type:  # integers and float32 meet in float32
        assert function(Tensor([1.0]), Tensor([1])) == np.float32
        return
    single = tuple(a.astype(np.float32) if isinstance(a, np.ndarray) else a for a in args)
    assert function(*tensors(single), **kwargs) == function(*single, **kwargs)


@pytest.mark.parametrize("function", FILES, ids=lambda f: f.__name__)
def test_files(function: Callable[..., Any], tmp_path: Path) -> None:
    function(tmp_path / "x", Tensor(V))
    (path,) = tmp_path.iterdir()
    found = np.loadtxt(path) if function is np.savetxt else np.load(path)
    np.testing.assert_array_equal(found["arr_0"] if "savez" in function.__name__ else found, V)


def test_every_function_is_served_or_has_a_reason() -> None:
    names = [n for n in dir(np) if not n.startswith("_") and not isinstance(getattr(np, n), type)]
    found = {n for n in names if isinstance(f := getattr(np, n), np.ufunc) and ufunc_of(f) is None}
    found |= {n for n in names if hasattr(f := getattr(np, n), "_implementation") and f not in functions()}
    assert found == set(REFUSED)


def test_a_refusal_names_the_function() -> None:
    with pytest.raises(TypeError, match=r"np\.packbits does not take a Tensor"):
        np.packbits(Tensor([1, 0]))
    with pytest.raises(TypeError, match=r"np\.isnat does not take a Tensor"):
        np.isnat(Tensor([1.0]))
    with pytest.raises(ConversionError, match="gcd: integers are wanted, not float32"):
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
def test_traced(name: str) -> None:
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


def test_gradients_pass_by_nan() -> None:
    slope = mgb.grad(lambda x: np.nansum(x) + np.nanstd(x))(Tensor([1.0, np.nan, 3.0], "float64"))
    np.testing.assert_allclose(slope.numpy(), [1 - 0.5, 0, 1 + 0.5])
