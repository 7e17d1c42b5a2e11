"""NumPy's functions and methods on Tensors, each against NumPy itself."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor
from mgb.errors import ShapeError
from mgb.jit import trace
from mgb.ops.numpy_protocol import FUNCTIONS, functions
from numpy_calls import ANSWERS, FILES, WRITES
from numpy_calls import CALLS as NAMESPACE
from numpy_sequence_calls import OTHERS, SMOOTH

X = np.random.default_rng(0).uniform(0.5, 2, (3, 4)).astype(np.float32)
Y = np.random.default_rng(1).uniform(0.5, 2, (3, 4)).astype(np.float32)
ROW = np.array([[3, 0, 1, 2]] * 3)
CUBE = np.random.default_rng(2).standard_normal((2, 3, 4)).astype(np.float32)
ODD = np.array([np.nan, 1, -np.inf, np.inf, -2.5], np.float32)
WHOLE = np.array([[3, 1, 3], [0, 1, 7]], np.int32)
BYTES = np.array([250, 10, 20], np.uint8)
ZEROS = np.array([[2.0, 0, 3, 0], [0, 1, 2, 3], [1, 2, 3, 4]], np.float32)
NONE = np.zeros((0, 3), np.float32)

functions()

CALLS: dict[Callable[..., Any], tuple[tuple[Any, ...], dict[str, Any]]] = {
    np.sum: ((X,), {"axis": 1}),
    np.prod: ((X, 0), {}),
    np.min: ((X,), {"axis": 1, "keepdims": True}),
    np.max: ((X,), {}),
    np.mean: ((X, (0, 1)), {}),
    np.var: ((X,), {"axis": 0}),
    np.std: ((X,), {}),
    np.any: ((X > 1,), {"axis": 0}),
    np.all: ((X > 1,), {"axis": 0}),
    np.argmax: ((X, 1), {}),
    np.argmin: ((X,), {}),
    np.sort: ((X,), {"axis": 0}),
    np.argsort: ((X,), {}),
    np.cumsum: ((X,), {}),
    np.linalg.norm: ((X,), {"axis": 1}),
    np.round: ((X, 1), {}),
    np.around: ((X,), {}),
    np.clip: ((X, 0.7, 1.5), {}),
    np.where: ((X > 1, X, 0.0), {}),
    np.dot: ((X, Y.T), {}),
    np.reshape: ((X, (4, -1)), {}),
    np.ravel: ((X,), {}),
    np.transpose: ((X,), {"axes": (1, 0)}),
    np.swapaxes: ((X, 0, 1), {}),
    np.moveaxis: ((X, 0, -1), {}),
    np.expand_dims: ((X, (0, 2)), {}),
    np.squeeze: ((X[:1],), {"axis": 0}),
    np.broadcast_to: ((X, (2, 3, 4)), {}),
    np.concatenate: (([X, Y],), {"axis": 1}),
    np.stack: (([X, Y], -1), {}),
    np.split: ((X, 2), {"axis": 1}),
    np.repeat: ((X, 2), {"axis": 1}),
    np.tile: ((X, (2, 1, 2)), {}),
    np.flip: ((X, 0), {}),
    np.roll: ((X, (1, -2), (0, 1)), {}),
    np.take: ((X, [2, 0]), {"axis": 1}),
    np.take_along_axis: ((X, ROW, 1), {}),
    np.nonzero: ((np.floor(X),), {}),
    np.tril: ((X, 1), {}),
    np.triu: ((X, 1), {}),
    np.diag: ((X,), {"k": 1}),
    np.zeros_like: ((X,), {}),
    np.ones_like: ((X,), {"dtype": "int32"}),
    np.full_like: ((X, 3.0), {}),
    np.copy: ((X,), {}),
    np.shape: ((X,), {}),
    np.ndim: ((X,), {}),
    np.size: ((X,), {}),
    np.array_equal: ((X, X), {}),
    np.iscomplexobj: ((X,), {}),
    np.real: ((X,), {}),
    np.imag: ((X,), {}),
    np.angle: ((X, True), {}),
    np.iscomplex: ((X,), {}),
    np.isreal: ((X,), {}),
    np.vdot: ((X, Y), {}),
    np.isrealobj: ((X,), {}),
    np.allclose: ((X, Y), {}),
}


def tensors(value: Any) -> Any:
    if isinstance(value, list):
        return [tensors(v) for v in value]
    return Tensor(value) if isinstance(value, np.ndarray) else value


def compare(got: Any, want: Any) -> None:
    parts = zip(got, want, strict=True) if isinstance(want, list | tuple) else [(got, want)]
    for g, w in parts:
        assert isinstance(g, Tensor) == isinstance(w, np.ndarray | np.generic)
        assert np.shape(g) == np.shape(w)
        np.testing.assert_allclose(g.numpy() if isinstance(g, Tensor) else g, w, rtol=1e-5, atol=1e-6)


FURTHER: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (np.may_share_memory, (X, Y), {}),
    (np.shares_memory, (X, Y), {"max_work": None}),
    (np.sum, (BYTES,), {"dtype": "int32"}),
    (np.sum, (X, 1, None, None, True), {}),
    (np.sum, (X,), {"keepdims": True}),
    (np.sum, (X,), {"out": None, "axis": None, "initial": 3.0}),
    (np.sum, (NONE, 0), {"initial": 2.5, "keepdims": True}),
    (np.prod, (WHOLE + 1,), {"dtype": "float32", "axis": (0, 1)}),
    (np.max, (X,), {"axis": 1, "initial": 1.5}),
    (np.max, (NONE,), {"initial": 0.0}),
    (np.max, (NONE,), {"axis": 1}),
    (np.min, (X,), {"initial": 0.0}),
    (np.mean, (WHOLE,), {"dtype": "float64", "axis": 0}),
    (np.var, (X,), {"axis": 1, "ddof": 1}),
    (np.std, (X,), {"ddof": 1, "keepdims": True}),
    (np.average, (X,), {}),
    (np.average, (X,), {"axis": 1, "weights": Y}),
    (np.average, (X,), {"axis": 0, "weights": Y[:, 0], "returned": True}),
    (np.average, (CUBE,), {"axis": (1, 2), "weights": X, "keepdims": True}),
    (np.average, (WHOLE,), {"axis": 1, "returned": True}),
    (np.median, (X,), {}),
    (np.median, (X,), {"axis": 0}),
    (np.median, (WHOLE,), {"axis": 1}),
    (np.median, (CUBE,), {"axis": (0, 2), "keepdims": True}),
    (np.median, (ODD,), {}),
    (np.median, (ODD[1:],), {}),
    (np.median, (X[:, :0],), {"axis": 0}),
    (np.count_nonzero, (WHOLE,), {"axis": 1}),
    (np.trace, (X,), {"offset": 1}),
    (np.trace, (CUBE,), {"axis1": 2, "axis2": 0}),
    (np.sort, (X,), {"axis": None}),
    (np.argsort, (X,), {"axis": None}),
    (np.argsort, (np.round(X),), {"kind": "stable", "axis": 0}),
    (np.sort, (X,), {"stable": True}),
    (np.cumsum, (BYTES,), {"dtype": "int32"}),
    (np.cumsum, (WHOLE > 1,), {"axis": 1}),
    (np.cumprod, (X,), {}),
    (np.cumprod, (ZEROS,), {"axis": 1}),
    (np.cumprod, (np.ones((2, 0), np.float32),), {"axis": 1}),
    (np.diff, (X,), {}),
    (np.diff, (X,), {"n": 2, "axis": 0}),
    (np.diff, (X,), {"n": 5}),
    (np.diff, (WHOLE > 1,), {}),
    (np.round, (X,), {"decimals": 1}),
    (np.round, (np.float32([0.5, 1.5, -2.5]),), {}),
    (np.round, (WHOLE,), {"decimals": 1}),
    (np.round, (np.float32([123.0, 155, -250]),), {"decimals": -1}),
    (np.round, (np.int32([123, 155, -250]),), {"decimals": -1}),
    (np.clip, (X,), {"min": 1.0}),
    (np.isclose, (X, X + 1e-6), {}),
    (np.isclose, (ODD, ODD), {"equal_nan": True}),
    (np.isclose, (X, Y), {"atol": 0.5}),
    (np.nan_to_num, (ODD,), {}),
    (np.nan_to_num, (ODD,), {"nan": 1.0, "posinf": 2.0, "neginf": 3.0}),
    (np.nan_to_num, (WHOLE,), {}),
    (np.interp, (X, np.float32([0.6, 1.0, 1.7]), np.float32([2, 5, 1])), {}),
    (np.interp, (X, np.float32([0.6, 1.0, 1.7]), np.float32([2, 5, 1])), {"left": -1.0, "right": 9.0}),
    (np.interp, (np.float32([0, 1, 2, 3]), np.float32([1, 2]), np.float32([5, 7])), {}),
    (np.interp, (np.float32([0, 1, 2]), np.float32([1]), np.float32([5])), {}),
    (np.dot, (X[0], Y[0]), {}),
    (np.dot, (CUBE, Y.T), {}),
    (np.dot, (X, CUBE.transpose(0, 2, 1)), {}),
    (np.dot, (X, 2.0), {}),
    (np.outer, (X, Y[0]), {}),
    (np.tensordot, (CUBE, Y), {}),
    (np.tensordot, (X, Y), {"axes": 0}),
    (np.tensordot, (CUBE, X), {"axes": ((1, 2), (0, 1))}),
    (np.tensordot, (CUBE, CUBE), {"axes": ((2, 0), (-1, 0))}),
    (np.einsum, ("ij,kj->ik", X, Y), {}),
    (np.einsum, ("ij,ij", X, Y), {"optimize": True}),
    (np.einsum, ("ii->i", X[:3, :3]), {}),
    (np.einsum, ("...ij->...ji", CUBE), {}),
    (np.einsum, ("bij,ij,b->jb", CUBE, X, Y[:2, 0]), {}),
    (np.einsum, (X, [0, 1], Y, [2, 1]), {}),
    (np.einsum, (CUBE, [..., 0, 1], X, [0, 1], [1, ...]), {}),
    (np.atleast_1d, (np.array(3.0),), {}),
    (np.atleast_2d, (X[0],), {}),
    (np.atleast_3d, (X,), {}),
    (np.vstack, ([X[0], Y[1]],), {}),
    (np.vstack, ([X, Y[0]],), {}),
    (np.hstack, ([X, Y],), {}),
    (np.hstack, ([X[0], Y[1]],), {}),
    (np.dstack, ([X, Y],), {}),
    (np.pad, (X, 1), {}),
    (np.pad, (X, ((0, 1), (2, 0))), {"mode": "edge"}),
    (np.pad, (X, (1, 2)), {"mode": "reflect"}),
    (np.pad, (X, [(1, 2)]), {"constant_values": 5}),
    (np.meshgrid, (X[0], Y[:, 0]), {}),
    (np.meshgrid, (X[0], Y[:, 0]), {"indexing": "ij"}),
    (np.diagonal, (X,), {"offset": -1}),
    (np.diagonal, (CUBE,), {"axis1": -1, "axis2": 0}),
    (np.argwhere, (WHOLE,), {}),
    (np.flatnonzero, (WHOLE,), {}),
    (np.unique, (WHOLE,), {}),
    (np.unique, (WHOLE,), {"return_index": True, "return_inverse": True, "return_counts": True}),
    (np.unique, (ODD,), {}),
    (np.bincount, (WHOLE[0],), {}),
    (np.bincount, (WHOLE[1],), {"minlength": 12}),
    (np.bincount, (WHOLE[0],), {"weights": X[0, :3]}),
    (np.bincount, (WHOLE[0, :0],), {}),
    (np.histogram, (X,), {"bins": 4}),
    (np.histogram, (X, np.float32([0.5, 1, 2])), {}),
    (np.empty_like, (NONE,), {}),
]


@pytest.mark.parametrize("row", FURTHER, ids=lambda row: row[0].__name__)
def test_more_function_calls_match_numpy(row: Any) -> None:
    function, args, kwargs = row
    given = tuple(tensors(a) for a in args), {name: tensors(v) for name, v in kwargs.items()}
    compare(function(*given[0], **given[1]), function(*args, **kwargs))


UFUNCS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: np.add.reduce(x), "add.reduce"),
    (lambda x: np.add.reduce(x, axis=None), "all of add.reduce"),
    (lambda x: np.multiply.reduce(x, 1, keepdims=True), "multiply.reduce"),
    (lambda x: np.maximum.reduce(x), "maximum.reduce"),
    (lambda x: np.minimum.reduce(x, axis=1), "minimum.reduce"),
    (lambda x: np.logical_and.reduce(x > 1), "logical_and.reduce"),
    (lambda x: np.logical_or.reduce(x > 1), "logical_or.reduce"),
    (lambda x: np.add.accumulate(x), "add.accumulate"),
    (lambda x: np.multiply.accumulate(x, axis=1), "multiply.accumulate"),
    (lambda x: np.multiply.outer(x, x[0]), "multiply.outer"),
    (lambda x: np.less.outer(x[0], x[1]), "less.outer"),
    (lambda x: np.divmod(x, -0.3), "divmod"),
    (lambda x: divmod(x, 0.3), "divmod of Python"),
    (lambda x: divmod(-2.0, x), "divmod from the right"),
]


@pytest.mark.parametrize(("call", "name"), UFUNCS, ids=[name for _, name in UFUNCS])
def test_ufunc_methods_and_divmod_match_numpy(call: Callable[[Any], Any], name: str) -> None:
    compare(call(Tensor(X)), call(X))


METHODS: dict[str, Callable[[Any], Any]] = {
    "ravel": lambda x: x.ravel(),
    "squeeze": lambda x: x[:1].squeeze(0),
    "std": lambda x: x.std(1),
    "var": lambda x: x.var(axis=0, keepdims=True),
    "any": lambda x: (x > 1).any(1),
    "all": lambda x: (x > 1).all(axis=0),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(),
    "argsort": lambda x: x.argsort(0),
    "clip": lambda x: x.clip(0.7, 1.2),
    "clip from below": lambda x: x.clip(min=1),
    "copy": lambda x: x.copy(),
    "cumsum": lambda x: x.cumsum(),
    "cumprod": lambda x: x.cumprod(1),
    "dot": lambda x: x.dot(x.T),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "round": lambda x: x.round(1),
    "repeat": lambda x: x.repeat(2, 0),
    "take": lambda x: x.take([1, 0], axis=1),
    "nonzero": lambda x: (x > 1).nonzero(),
    "diagonal": lambda x: x.diagonal(1),
    "trace": lambda x: x.trace(),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_match_numpy(name: str) -> None:
    compare(METHODS[name](Tensor(X)), METHODS[name](X))


def test_nbytes() -> None:
    assert Tensor(X).nbytes == X.nbytes
    assert Tensor(X, "float16").nbytes == X.nbytes // 2


def test_ambiguous_truth_value_error_suggests_any_and_all() -> None:
    with pytest.raises(ValueError, match=r"a\.any\(\) or a\.all\(\)"):
        bool(Tensor(X))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
def test_bitwise_ops_of_bools_and_integers_match_numpy(dtype: str) -> None:
    flags, numbers = np.array([True, False, True]), np.array([5, 6, 8], dtype)
    for operator in (np.bitwise_and, np.bitwise_or, np.bitwise_xor):
        for a, b in ((flags, numbers), (numbers, flags)):
            got = operator(Tensor(a, a.dtype), Tensor(b, b.dtype))
            assert got.dtype == dtype
            compare(got, operator(a, b))


def test_builtin_round() -> None:
    compare(round(Tensor(X)), np.round(X))
    compare(round(Tensor(X), 1), np.round(X, 1))


def test_copy_is_independent() -> None:
    t = Tensor(X)
    other = t.copy()
    other += 1
    np.testing.assert_array_equal(t.numpy(), X)


def test_signatures_match_numpy() -> None:
    """By position the same ones; any other way, an argument would be taken for another one."""
    keywords = {"optimize", "constant_values"}  # NumPy has them in **kwargs
    for function, served in FUNCTIONS.items():
        theirs = list(inspect.signature(function).parameters.values())
        ours = [p for p in inspect.signature(served).parameters.values() if p.kind is not p.VAR_POSITIONAL]
        if any(p.kind is p.VAR_POSITIONAL for p in theirs):
            continue
        assert {p.name for p in ours} <= {p.name for p in theirs} | keywords, function
        by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        placed = [p.name for p in ours if p.kind in by_place and p.name not in keywords]
        assert placed == [p.name for p in theirs[: len(placed)]], function


@pytest.mark.parametrize("name", ["sum", "clip", "stack", "where", "argmax"])
def test_importing_mgb_alone_enables_numpy_functions(name: str) -> None:
    call = {
        "clip": "np.clip(t, 0, 2)", "stack": "np.stack([t, t])", "where": "np.where(t > 1, t, t)"
    }.get(name, f"np.{name}(t); t.argmax(); t.std()")  # fmt: skip
    script = f"import mgb, numpy as np; t = mgb.tensor([1., 2.]); {call}; print(True)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "True"


def test_extremes_of_an_empty_array_raise() -> None:
    for call in (F.max, F.min, np.max, Tensor.max, lambda x: x.min(0), lambda x: np.median(x)):
        with pytest.raises(ShapeError, match="of an empty array"):
            call(Tensor(NONE))
    assert Tensor(NONE).max(1).shape == (0,)
    assert not F.any(Tensor(NONE)).item()


def test_einsum_rejects_mismatched_operands() -> None:
    with pytest.raises(ShapeError, match="2 terms, but 1 operands"):
        F.einsum("ij,jk", Tensor(X))
    with pytest.raises(ShapeError, match="does not fit an operand with 2 axes"):
        F.einsum("ijk", Tensor(X))
    with pytest.raises(ShapeError, match="has a letter that no operand has"):
        F.einsum("ij->ik", Tensor(X))
    with pytest.raises(ShapeError, match="differ in length"):
        F.einsum("ii", Tensor(X))
    with pytest.raises(ShapeError, match="differ"):
        F.einsum("ij,jk", Tensor(X), Tensor(Y))


DIFFERENTIABLE: dict[str, Callable[[Any], Any]] = {
    "cumprod": lambda x: np.cumprod(x, 1),
    "cumprod with zeros": lambda x: np.cumprod(x * Tensor(ZEROS != 0), 1),
    "average": lambda x: np.average(x, 1, weights=x * x),
    "median": lambda x: np.median(x, 1),
    "diff": lambda x: np.diff(x) ** 2,
    "interp": lambda x: np.interp(x, Tensor([0.5, 1.1, 2.0], "float64"), x[0, :3]),
    "einsum": lambda x: np.einsum("ij,kj,k->i", x, x, x[:, 0]),
    "tensordot": lambda x: np.tensordot(x, x, ((0,), (0,))),
    "trace": lambda x: np.trace(x, 1) ** 2,
    "unique": lambda x: np.unique(x) ** 2,
    "pad": lambda x: np.pad(x, 1, mode="reflect") ** 2,
    "var": lambda x: np.var(x, 1, ddof=1),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name: str, check_gradient: Callable[..., None]) -> None:
    check_gradient(DIFFERENTIABLE[name], X.astype(np.float64))


def test_traced_functions_match_numpy() -> None:
    @trace
    def statistics(x: Tensor) -> tuple[Tensor, ...]:
        return np.median(x, 0), np.cumprod(x, 1), np.unique(np.floor(x)), x.argmax(1), x.std()

    for array in (X, Y, X + Y):
        floor = np.floor(array)
        want = np.median(array, 0), np.cumprod(array, 1), np.unique(floor), array.argmax(1), array.std()
        compare(statistics(Tensor(array)), want)


def test_every_function_is_covered() -> None:
    beside = {function for function in FUNCTIONS if function.__module__ in ("numpy.linalg", "numpy.fft")}
    beside |= {function for function, *_ in (*SMOOTH, *OTHERS, *NAMESPACE, *WRITES, *ANSWERS)} | {*FILES}
    assert set(FUNCTIONS) <= beside | set(CALLS) | {function for function, *_ in FURTHER}


@pytest.mark.parametrize("function", CALLS, ids=lambda f: f.__name__)
def test_functions_match_numpy(function: Callable[..., Any]) -> None:
    args, kwargs = CALLS[function]
    got, want = function(*(tensors(a) for a in args), **kwargs), function(*args, **kwargs)
    parts = zip(got, want, strict=True) if isinstance(want, list | tuple) else [(got, want)]
    for g, w in parts:
        assert isinstance(g, Tensor) == isinstance(w, np.ndarray | np.generic)
        np.testing.assert_allclose(g.numpy() if isinstance(g, Tensor) else g, w, rtol=1e-5)


def test_matrix_norms_match_numpy() -> None:
    for ord in (None, "fro"):
        np.testing.assert_allclose(np.linalg.norm(Tensor(X), ord).item(), np.linalg.norm(X, ord), rtol=1e-6)
        compare(np.linalg.norm(Tensor(CUBE), ord, axis=(0, 2)), np.linalg.norm(CUBE, ord, axis=(0, 2)))


def test_integer_average_and_round_do_not_lose_precision() -> None:
    values, weights = np.array([100, 50], np.int8), np.array([100, 30], np.int8)
    got = np.average(Tensor(values), weights=Tensor(weights)).item()
    np.testing.assert_allclose(got, np.average(values, weights=weights), rtol=1e-6)
    large = np.array([123456789, -2147480111, 15, 25], np.int32)
    for decimals in (0, 2, -1, -3):
        got = np.round(Tensor(large), decimals)
        assert got.dtype == np.int32
        np.testing.assert_array_equal(got.numpy(), np.round(large, decimals))


def test_concatenate_without_axis_flattens() -> None:
    got = np.concatenate([Tensor(X), Y, Tensor(CUBE)], axis=None)
    np.testing.assert_array_equal(got.numpy(), np.concatenate([X, Y, CUBE], axis=None))


def test_sum_of_empty_bools_starts_at_initial() -> None:
    got = np.sum(Tensor(np.zeros(0, bool)), initial=3)
    assert (got.item(), got.dtype) == (3, np.int64)
    assert F.cumsum(Tensor([True, True, False]), 0).tolist() == [1, 2, 2]
    assert np.minimum.reduce(Tensor(X), 0, None, None, True).shape == (1, 4)
    with pytest.raises(ValueError, match="a bound is given twice"):
        np.clip(Tensor(X), 1, 2, min=0)


@pytest.mark.parametrize("low", [-1.0, 0.0, 2.0, np.nan, -np.inf, np.array([2.0, 0.0, np.nan, 1.0, 5.0])])
@pytest.mark.parametrize("high", [-1.0, 0.0, 1.0, np.nan, np.inf, np.array([1.0, 3.0, 1.0, np.nan, 4.0])])
def test_clip_with_crossed_or_nan_bounds_matches_numpy(low: Any, high: Any) -> None:
    x = np.array([-3.0, 0.5, 7.0, np.nan, np.inf])
    for function in (np.clip, trace(np.clip)):
        got = function(Tensor(x), *(b if np.ndim(b) == 0 else Tensor(b) for b in (low, high)))
        np.testing.assert_array_equal(got.numpy(), np.clip(x, low, high))


def test_reduction_methods_accept_dtype() -> None:
    for name in ("sum", "prod", "mean"):
        got, want = (getattr(t, name)(axis=1, dtype="float64") for t in (Tensor(WHOLE), WHOLE))
        assert got.dtype == np.float64
        np.testing.assert_allclose(got.numpy(), want)


def test_einsum_and_pad_reject_invalid_arguments() -> None:
    with pytest.raises(TypeError, match="the equation comes first"):
        F.einsum(Tensor(X), [0, 1], Tensor(X[0]), [1])  # type: ignore[arg-type]
    for equation in ("i1->i", "......ij->ij", "ij->.i"):
        with pytest.raises(ShapeError, match="only letters and at most one ellipsis"):
            F.einsum(equation, Tensor(X))
    for widths, error in (({0: 1}, TypeError), (1.5, TypeError), ((1, 2, 3), ShapeError), (-1, ShapeError)):
        with pytest.raises(error, match="pad: "):
            np.pad(Tensor(X), widths)


@pytest.mark.parametrize(
    "options", [{}, {"weights": True}, {"density": True}], ids=["counts", "weights", "density"]
)
def test_histograms_of_float64_keep_their_digits(options: dict[str, Any]) -> None:
    x, y, w = np.random.default_rng(3).uniform(0, 1, (3, 1000))
    a, b, c = (Tensor(v, dtype="float64") for v in (x, y, w))
    given = {"weights": c} if "weights" in options else options
    wanted = {"weights": w} if "weights" in options else options
    pairs = [
        (np.histogram(a, 20, **given), np.histogram(x, 20, **wanted)),
        (np.histogram2d(a, b, 5, **given), np.histogram2d(x, y, 5, **wanted)),
        (np.histogramdd([a, b], 4, **given)[:1], np.histogramdd([x, y], 4, **wanted)[:1]),
    ]
    for got, true in pairs:
        for one, value in zip(got, true, strict=True):
            np.testing.assert_allclose(one.numpy(), value, rtol=1e-14)
