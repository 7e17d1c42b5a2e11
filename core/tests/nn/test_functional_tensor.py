"""`mgb.functional`: element-wise names, reductions, creation and rearrangement against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor
from mgb.errors import ConversionError, ShapeError
from mgb.ir import Kind, Spec
from mgb.jit import trace
from mgb.tensor.tracing import graph_of
from scipy import special

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 3, 4))
POSITIVE, INSIDE = np.abs(X) + 1.1, np.tanh(X)


def wide(x: Any) -> Tensor:
    return Tensor(x, dtype="float64")


def same(got: Any, want: Any, rtol: float = 1e-12) -> None:
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=1e-12)


# element-wise

ONE: list[tuple[Callable[..., Tensor], Callable[..., Any], Any]] = [
    (F.neg, np.negative, X), (F.abs, np.abs, X), (F.sign, np.sign, X), (F.square, np.square, X),
    (F.sqrt, np.sqrt, POSITIVE), (F.rsqrt, lambda x: 1 / np.sqrt(x), POSITIVE), (F.cbrt, np.cbrt, X),
    (F.exp, np.exp, X), (F.exp2, np.exp2, X), (F.expm1, np.expm1, X), (F.log, np.log, POSITIVE),
    (F.log2, np.log2, POSITIVE), (F.log10, np.log10, POSITIVE), (F.log1p, np.log1p, POSITIVE),
    (F.erf, special.erf, X), (F.erfc, special.erfc, X), (F.erfinv, special.erfinv, INSIDE),
    (F.erfcinv, special.erfcinv, 1 + INSIDE), (F.sin, np.sin, X), (F.cos, np.cos, X), (F.tan, np.tan, X),
    (F.asin, np.arcsin, INSIDE), (F.acos, np.arccos, INSIDE), (F.atan, np.arctan, X), (F.sinh, np.sinh, X),
    (F.cosh, np.cosh, X), (F.tanh, np.tanh, X), (F.asinh, np.arcsinh, X), (F.acosh, np.arccosh, POSITIVE),
    (F.atanh, np.arctanh, INSIDE), (F.isnan, np.isnan, X), (F.isinf, np.isinf, X),
    (F.isfinite, np.isfinite, X), (F.floor, np.floor, X), (F.ceil, np.ceil, X),
    (F.logical_not, np.logical_not, X > 0),
]  # fmt: skip
TWO: list[tuple[Callable[..., Tensor], Callable[..., Any], Any]] = [
    (F.add, np.add, X), (F.sub, np.subtract, X), (F.mul, np.multiply, X), (F.div, np.divide, X),
    (F.floor_div, np.floor_divide, X), (F.mod, np.fmod, X), (F.pow, np.power, POSITIVE),
    (F.maximum, np.maximum, X), (F.minimum, np.minimum, X),
    (F.logaddexp, np.logaddexp, X), (F.hypot, np.hypot, X), (F.copysign, np.copysign, X),
    (F.logical_and, np.logical_and, X > 0), (F.logical_or, np.logical_or, X > 0),
    (F.logical_xor, np.logical_xor, X > 0), (F.equal, np.equal, X > 0), (F.not_equal, np.not_equal, X > 0),
    (F.less, np.less, X), (F.less_equal, np.less_equal, X), (F.greater, np.greater, X),
    (F.greater_equal, np.greater_equal, X),
]  # fmt: skip


@pytest.mark.parametrize(("function", "numpys", "x"), ONE, ids=lambda f: getattr(f, "__name__", ""))
def test_functions_of_one_operand(
    function: Callable[..., Tensor], numpys: Callable[..., Any], x: Any
) -> None:
    same(function(Tensor(x, dtype="bool" if x.dtype == bool else "float64")), numpys(x))
    assert function.__doc__


@pytest.mark.parametrize(("function", "numpys", "x"), TWO, ids=lambda f: getattr(f, "__name__", ""))
def test_functions_of_two_operands(
    function: Callable[..., Tensor], numpys: Callable[..., Any], x: Any
) -> None:
    dtype, y = "bool" if x.dtype == bool else "float64", x[:, ::-1]
    same(function(Tensor(x, dtype=dtype), Tensor(y, dtype=dtype)), numpys(x, y))
    same(function(x=Tensor(x, dtype=dtype), y=Tensor(y, dtype=dtype)), numpys(x, y))


def test_rounding_matches_megengine() -> None:
    same(F.round(Tensor([0.5, 1.5, -2.5, 2.4, np.nan])), [1, 2, -3, 2, np.nan])
    for function in (F.round, F.floor, F.ceil):
        got = function(Tensor([1, -2]))
        assert got.dtype == np.int32
        same(got, [1, -2])


def test_clip() -> None:
    x = np.array([-2.0, 0.5, 2.0, np.nan])
    same(F.clip(wide(x), -1, 1), np.clip(x, -1, 1))
    same(F.clip(wide(x), lower=-1), np.clip(x, -1, None))
    same(F.clip(wide(x), upper=1), np.clip(x, None, 1))
    with pytest.raises(ValueError, match="give lower, upper, or both"):
        F.clip(wide(x))


def test_shifts() -> None:
    same(F.left_shift(Tensor([1, 3]), 2), [4, 12])
    same(F.right_shift(Tensor([-8, 8]), 2), [-2, 2])


# reductions


@pytest.mark.parametrize("axis", [None, 1, (0, -1)])
@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "mean", "var", "std"])
def test_reductions(name: str, axis: Any) -> None:
    same(getattr(F, name)(wide(X), axis), getattr(np, name)(X, axis=axis))
    if axis is not None:
        same(
            getattr(F, name)(wide(X), axis=axis, keepdims=True),
            getattr(np, name)(X, axis=axis, keepdims=True),
        )


def test_variance_of_halves_and_integers() -> None:
    x = np.array([300.0, 301.0, 299.0, 300.0])
    got = F.var(Tensor(x, dtype="float16"))
    assert (got.dtype, got.item()) == (np.float16, 0.5)  # in float16, 300 ** 2 would be infinite
    assert F.var(Tensor([1, 2, 3, 4])).item() == 1.25


def test_any_and_all() -> None:
    flags = np.array([[True, False], [False, False]])
    same(F.any(Tensor(flags), 1), flags.any(1))
    same(F.all(Tensor(flags), 0), flags.all(0))
    same(F.any(Tensor([0.0, np.nan])), np.bool_(True))


@pytest.mark.parametrize("ord", [None, 0, 1, 2, 3, 2.5, np.inf, -np.inf])
def test_norm(ord: Any) -> None:
    x = X.reshape(6, 4)
    same(F.norm(wide(x), ord, axis=1), np.linalg.norm(x, ord, axis=1))
    same(F.norm(wide(x), ord), np.linalg.norm(x.ravel(), ord))


def test_normalize() -> None:
    x = np.array([[3.0, 4.0], [0.0, 0.0]])
    same(F.normalize(wide(x), axis=1), [[0.6, 0.8], [0.0, 0.0]])
    same(F.normalize(wide(x)), x / 5)


@pytest.mark.parametrize(
    ("mode", "want"),
    [("SUM", np.sum), ("PRODUCT", np.prod), ("MIN", np.min), ("MAX", np.max), ("MEAN", np.mean),
     ("SUM_SQR", lambda x, axis: np.sum(x * x, axis=axis))],
)  # fmt: skip
def test_reduce_by_mode(mode: str, want: Callable[..., Any]) -> None:
    same(F.Reduce(mode=mode, axis=1)(wide(X)), want(X, axis=1))
    same(F.Reduce(mode, 0, keepdims=True)(wide(X)), np.expand_dims(want(X, axis=0), 0))


def test_unknown_reduce_mode_is_rejected() -> None:
    with pytest.raises(ValueError, match="'NORM' is not a mode of Reduce; choose one of SUM"):
        F.Reduce("NORM")


def test_mean_graph_does_not_depend_on_the_length() -> None:
    graphs = [graph_of(lambda x: F.mean(x, 0), Spec((n, 3), np.dtype("float32"))) for n in (2, 5)]
    assert [[n.op.name for n in g.nodes] for g in graphs] == [["reduce_sum", "extent", "div", "reshape"]] * 2


@pytest.mark.parametrize("function", [F.sum, F.prod, F.mean, F.var, F.std, F.max, F.min])
def test_gradients_of_reductions(function: Callable[..., Tensor], check_gradient: Any) -> None:
    check_gradient(lambda t: function(t, 1), X)
    check_gradient(function, X[0])


@pytest.mark.parametrize("ord", [None, 1, 3, np.inf])
def test_gradients_of_norms(ord: Any, check_gradient: Any) -> None:
    check_gradient(lambda t: F.norm(t, ord, axis=0), X[0])


# creation


@pytest.mark.parametrize("arguments", [(5,), (2, 7), (0, 1, 0.25), (5, 0, -2), (3, 1), (-1.5, 1.4, 0.3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arange(arguments: Any, dtype: str) -> None:
    got = F.arange(*arguments, dtype=dtype)
    assert got.dtype == dtype
    want = np.arange(*arguments, dtype="float64")
    rounding = np.finfo(dtype).eps * max(map(abs, arguments))
    np.testing.assert_allclose(got.numpy(), want, rtol=0, atol=2 * rounding)
    if all(isinstance(a, int) for a in arguments):
        same(F.arange(*arguments, dtype="int32"), np.arange(*arguments))


def test_arange_rejects_step_0() -> None:
    with pytest.raises(ValueError, match="step must not be 0"):
        F.arange(0, 1, 0)


@pytest.mark.parametrize("num", [0, 1, 2, 7])
def test_linspace(num: int) -> None:
    got = F.linspace(-1, 0.3, num, dtype="float64")
    same(got, np.linspace(-1, 0.3, num))
    if num > 1:
        assert got[-1].item() == 0.3
    same(F.linspace(Tensor(0.0), Tensor(6.0), 4), np.linspace(0, 6, 4))


def test_full_zeros_ones_and_like_variants() -> None:
    same(F.full((2, 3), 1.5), np.full((2, 3), 1.5))
    same(F.full(2, Tensor([1, 2]), dtype="int32"), [1, 2])
    assert F.zeros((2, 0)).shape == (2, 0)
    ints = Tensor([[1, 2]])
    for got, value in ((F.zeros_like(ints), 0), (F.ones_like(ints), 1), (F.full_like(ints, 7), 7)):
        assert got.dtype == np.int32
        same(got, [[value, value]])
    assert F.ones((1,), device="cpux").device == "cpux:0"
    same(F.ones(3), np.ones(3))


def test_eye() -> None:
    same(F.eye(2, 3), np.eye(2, 3))
    same(F.eye(3, dtype="int32"), np.eye(3))


def test_creation_ops_are_fusible() -> None:
    graph = graph_of(
        lambda x: (
            F.arange(4),
            F.eye(3),
            F.zeros((2, 2)),
            F.one_hot(x, 5),
            F.tril(F.ones((3, 3))),
            F.argmax(x, 1),
        ),
        Spec((2, 3), np.dtype("int32")),
    )
    assert {n.op.kind for n in graph.nodes} <= {Kind.LEAF, Kind.ELEMENTWISE, Kind.REDUCE, Kind.LAYOUT}


# rearrangement: the function, NumPy's result

T = wide(X)
REARRANGED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "reshape": (lambda t: F.reshape(t, (4, -1)), X.reshape(4, -1)),
    "flatten": (lambda t: F.flatten(t, 1), X.reshape(2, 12)),
    "broadcast_to": (lambda t: F.broadcast_to(t, (5, 2, 3, 4)), np.broadcast_to(X, (5, 2, 3, 4))),
    "expand_dims": (lambda t: F.expand_dims(t, (0, -1)), np.expand_dims(X, (0, -1))),
    "squeeze": (lambda t: F.squeeze(t[:1, :, :1]), X[0, :, 0]),
    "squeeze one": (lambda t: F.squeeze(t[:1, :, :1], -1), X[:1, :, 0]),
    "transpose": (lambda t: F.transpose(t, (2, 0, 1)), X.transpose(2, 0, 1)),
    "transpose new": (lambda t: F.transpose(t, (2, "x", 0, 1)), X.transpose(2, 0, 1)[:, None]),
    "dimshuffle": (lambda t: F.dimshuffle(t[:1], ("x", 2, 1)), X[0].T[None]),
    "swapaxes": (lambda t: F.swapaxes(t, 0, -1), X.swapaxes(0, -1)),
    "moveaxis": (lambda t: F.moveaxis(t, 0, -1), np.moveaxis(X, 0, -1)),
    "moveaxis two": (lambda t: F.moveaxis(t, (0, 1), (-1, 0)), np.moveaxis(X, (0, 1), (-1, 0))),
    "concat": (lambda t: F.concat([t, t[:, :1]], axis=1), np.concatenate([X, X[:, :1]], 1)),
    "stack": (lambda t: F.stack([t, t + 1], axis=-1), np.stack([X, X + 1], -1)),
    "repeat": (lambda t: F.repeat(t, 2, axis=1), X.repeat(2, 1)),
    "repeat flat": (lambda t: F.repeat(t, 3), X.repeat(3)),
    "repeat some": (lambda t: F.repeat(t, [2, 0, 1], axis=1), X.repeat([2, 0, 1], 1)),
    "tile": (lambda t: F.tile(t, (2, 1, 3)), np.tile(X, (2, 1, 3))),
    "tile more axes": (lambda t: F.tile(t, (2, 1, 1, 2)), np.tile(X, (2, 1, 1, 2))),
    "flip": (lambda t: F.flip(t), np.flip(X)),
    "flip one": (lambda t: F.flip(t, (0, 2)), np.flip(X, (0, 2))),
    "roll": (lambda t: F.roll(t, 5), np.roll(X, 5)),
    "roll axes": (lambda t: F.roll(t, (1, -2), (0, 2)), np.roll(X, (1, -2), (0, 2))),
    "pad": (lambda t: F.pad(t, ((1, 0), (0, 2), (1, 1))), np.pad(X, ((1, 0), (0, 2), (1, 1)))),
    "pad value": (
        lambda t: F.pad(t, ((1, 0), (0, 2), (1, 1)), constant_value=7.0),
        np.pad(X, ((1, 0), (0, 2), (1, 1)), constant_values=7.0),
    ),
    "pad edge": (
        lambda t: F.pad(t, ((0, 0), (1, 2), (1, 5)), "edge"),
        np.pad(X, ((0, 0), (1, 2), (1, 5)), "edge"),
    ),
    "pad reflect": (
        lambda t: F.pad(t, ((0, 0), (1, 2), (3, 1)), "reflect"),
        np.pad(X, ((0, 0), (1, 2), (3, 1)), "reflect"),
    ),
    "tril": (lambda t: F.tril(t, 1), np.tril(X, 1)),
    "triu": (lambda t: F.triu(t, -1), np.triu(X, -1)),
    "diag": (lambda t: F.diag(t[0], -1), np.diag(X[0], -1)),
    "diag of a vector": (lambda t: F.diag(t[0, 0], 2), np.diag(X[0, 0], 2)),
    "masked_fill": (lambda t: F.masked_fill(t, Tensor(X > 0), -9.0), np.where(X > 0, -9.0, X)),
    "where": (lambda t: F.where(Tensor(X > 0), t, 0.0), np.where(X > 0, X, 0.0)),
}


@pytest.mark.parametrize("name", REARRANGED)
def test_rearrangement_and_its_gradient(name: str, check_gradient: Any) -> None:
    function, want = REARRANGED[name]
    same(function(T), want)
    check_gradient(function, X)


@pytest.mark.parametrize("cuts", [2, 3, 4, [1], [1, 3], [2, 2, 9]])
def test_split(cuts: Any) -> None:
    """Into numbers of parts that do not divide the axis too: the first ones are longer."""
    for got, want in zip(F.split(T, cuts, axis=2), np.array_split(X, cuts, axis=2), strict=True):
        same(got, want)


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_meshgrid(indexing: Any) -> None:
    a, b, c = (np.arange(n, dtype=float) for n in (2, 3, 4))
    for got, want in zip(
        F.meshgrid(*map(wide, (a, b, c)), indexing=indexing), np.meshgrid(a, b, c, indexing=indexing)
    ):
        same(got, want)


def test_cast_and_copy() -> None:
    assert F.cast(T, "float16").dtype == np.float16
    there = F.copy(T, "cpux")
    assert there.device == "cpux:0"
    same(there, X)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F.split(T, 5, axis=2), ShapeError, "into 5 parts"),
        (lambda: F.stack([T, T[0]]), ShapeError, "must have the same shape"),
        (lambda: F.concat([]), ShapeError, "at least one array"),
        (lambda: F.concat([T, T[:, 1:]]), ShapeError, "differ beside axis 0"),
        (lambda: F.squeeze(T, 1), ShapeError, "longer than 1"),
        (lambda: F.dimshuffle(T, (0, 1)), ShapeError, "does not fit"),
        (lambda: F.moveaxis(T, (0, 0), (1, 2)), ShapeError, "cannot move"),
        (lambda: F.expand_dims(T, 5), ShapeError, "axis 5"),
        (lambda: F.broadcast_to(T, (2, 3, 5)), ShapeError, "does not broadcast"),
        (lambda: F.pad(T, ((1, 1),)), ShapeError, "1 pairs for the 3 axes"),
        (lambda: F.pad(T, ((1, 1),) * 3, "round"), ValueError, "'round' is not a mode"),
        (lambda: F.pad(T, ((2, 0), (0, 0), (0, 0)), "reflect"), ShapeError, "longer than its borders"),
        (lambda: F.roll(T, (1, 2, 3), (0, 1)), ShapeError, "3 shifts for 2 axes"),
        (lambda: F.where(T, T, T), ConversionError, "must be of bools"),
        (lambda: F.where(T > 0, 1), TypeError, "y is missing; give both x and y, or neither"),
        (lambda: F.where(T > 0, y=1), TypeError, "x is missing; give both x and y, or neither"),
        (lambda: F.diag(T), ShapeError, "a vector or a matrix"),
        (lambda: F.cond_take(T > 0, T[0]), ShapeError, "cond_take"),
        (lambda: F.meshgrid(T, indexing="yx"), ValueError, "'xy' or 'ij'"),
    ],
)
def test_invalid_arguments_are_reported(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_broadcast_to_preserves_lengths_given_as_none() -> None:
    x = np.arange(6.0).reshape(2, 1, 3)
    same(F.broadcast_to(wide(x), (4, None, 5, None)), np.broadcast_to(x, (4, 2, 5, 3)))
    same(F.broadcast_to(wide(x[0]), (2, None, 3)), np.broadcast_to(x[0], (2, 1, 3)))
    with pytest.raises(ShapeError, match="None is only for existing axes"):
        F.broadcast_to(wide(x[0]), (None, 1, 3))
    with pytest.raises(ShapeError, match="does not broadcast"):
        F.broadcast_to(wide(x), (None, None))


def test_full_has_the_dtype_of_its_value() -> None:
    for value, dtype in ((True, "bool"), (4, "int32"), (2.5, "float32"), (np.float64(1), "float32")):
        got = F.full((2,), value)
        assert (got.dtype.name, got.tolist()) == (dtype, [value] * 2)
    assert F.full((2,), 4, "float16").dtype == F.full((2,), Tensor([1.0], dtype="float16")).dtype == "float16"


def test_eye_accepts_a_shape_as_one_argument() -> None:
    for shape in ([3, 4], (3, 4), Tensor([3, 4]), np.array([3, 4])):
        same(F.eye(shape), np.eye(3, 4))
    same(F.eye([3], dtype="bool"), np.eye(3).astype(bool))
    same(F.eye(3, 4), np.eye(3, 4))
    with pytest.raises(ShapeError, match=r"eye: give rows and columns, at most two numbers, got \(1, 2, 3\)"):
        F.eye((1, 2, 3))


def test_where_with_only_a_mask_matches_nonzero() -> None:
    for got, want in zip(F.where(Tensor(X > 0)), np.nonzero(X > 0), strict=True):
        same(got, want)


def test_atan2_and_keyword_arguments() -> None:
    y = X[:, ::-1]
    same(F.atan2(wide(X), wide(y)), np.arctan2(X, y))
    same(F.atan2(x=wide(y), y=wide(X)), np.arctan2(X, y))
    same(F.isnan(inp=Tensor([1.0, np.nan])), [False, True])
    same(F.isinf(inp=Tensor([1.0, np.inf])), [False, True])


def test_concat_takes_numbers_as_vectors_of_one_element() -> None:
    # as MegEngine's code joins shapes: F.concat([x.shape[:1], 256])
    shape = Tensor((2, 3))
    assert F.concat([shape, 256]).tolist() == [2, 3, 256]
    assert F.concat([shape, 256]).dtype == "int32"
    assert F.concat([1.5, shape, 2]).tolist() == [1.5, 2.0, 3.0, 2.0]
    traced = trace(lambda x, n: F.concat([x, n]) * 2)
    for n in (1, 2, 3):
        assert traced(shape, n).tolist() == [4, 6, 2 * n]
