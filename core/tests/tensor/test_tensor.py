"""Tensor: making one, its operators against NumPy, methods, in-place rebinding."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import mgb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mgb import Parameter, Tensor
from mgb.errors import ConversionError, DeviceError, ShapeError
from mgb.tensor.apply import literal

FLOATS = st.floats(-100, 100, width=32)
INTS = st.integers(-100, 100)
ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BITS = [operator.and_, operator.or_, operator.xor]


def pairs(dtype: type, elements: Any) -> Any:
    shapes = hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)
    return shapes.flatmap(
        lambda s: st.tuples(*(hnp.arrays(dtype, i, elements=elements) for i in s.input_shapes))
    )


def same(got: Tensor, want: Any, **tolerance: float) -> None:
    assert isinstance(got, Tensor)
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got.numpy(), want, **tolerance)


# operators


@pytest.mark.parametrize("op", ARITHMETIC + COMPARISONS, ids=lambda f: f.__name__)
@settings(max_examples=40)
@given(pair=pairs(np.float32, FLOATS))
def test_operators_on_floats(op: Callable[..., Any], pair: tuple[Any, Any]) -> None:
    a, b = pair
    with np.errstate(all="ignore"):
        want = op(a, b)
        same(op(Tensor(a), Tensor(b)), want)
        same(op(Tensor(a), b), want)  # an array on the right
        same(op(a, Tensor(b)), want)  # and on the left


@pytest.mark.parametrize("op", [*BITS, operator.add, operator.mul, operator.mod], ids=lambda f: f.__name__)
@settings(max_examples=40)
@given(pair=pairs(np.int32, INTS))
def test_operators_on_integers(op: Callable[..., Any], pair: tuple[Any, Any]) -> None:
    a, b = pair
    with np.errstate(all="ignore"):
        got, want = op(Tensor(a), Tensor(b)), op(a, b)
    assert got.dtype == want.dtype
    same(got, want)


@pytest.mark.parametrize("op", BITS, ids=lambda f: f.__name__)
def test_operators_on_bools(op: Callable[..., Any]) -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    got = op(Tensor(a), Tensor(b))
    assert got.dtype == np.bool_
    same(got, op(a, b))
    same(op(True, Tensor(b)), op(True, b))
    same(~Tensor(a), ~a)


@pytest.mark.parametrize("op", [*BITS, operator.lshift, operator.rshift], ids=lambda f: f.__name__)
def test_bitwise_operators_on_floats_raise(op: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="integers"):
        op(Tensor([1.0]), Tensor([1.0]))
    with pytest.raises(TypeError, match="integers"):
        ~Tensor([1.0])


@pytest.mark.parametrize(
    "op", [*ARITHMETIC, *COMPARISONS, operator.pow, operator.mod], ids=lambda f: f.__name__
)
def test_operators_with_scalars_on_either_side(op: Callable[..., Any]) -> None:
    a = np.array([1.0, 2.5, 4.0], np.float32)
    same(op(Tensor(a), 2), op(a, 2), rtol=1e-6)
    same(op(3.0, Tensor(a)), op(np.float32(3.0), a), rtol=1e-6)
    assert op(Tensor(a), 2.0).dtype in (np.float32, np.bool_)


def test_unary_operators_and_shifts() -> None:
    a, i = np.array([-1.5, 0.0, 2.0], np.float32), np.array([-5, 0, 7], np.int32)
    same(-Tensor(a), -a)
    same(+Tensor(a), a)
    same(abs(Tensor(a)), abs(a))
    same(~Tensor(i), ~i)
    same(~Tensor(i.astype(np.uint8)), ~i.astype(np.uint8))
    same(Tensor(i) << 2, i << 2)
    same(Tensor(i) >> 1, i >> 1)
    same(1 << Tensor([0, 3]), [1, 8])
    same(64 >> Tensor([0, 3]), [64, 8])


def test_remainder_has_the_signs_of_megengine() -> None:
    same(Tensor([-5.0, 5.0]) % 3.0, [-2.0, 2.0])  # floats: the sign of the left side
    same(Tensor([-5, 5]) % 3, [1, 2])  # integers: the sign of the right side
    same(Tensor([-5, 5]) % 3.0, [-2.0, 2.0])
    same(-5 % Tensor([3, -3]), [1, -2])


@pytest.mark.parametrize(
    ("left", "right"),
    [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((4, 2, 3), (3, 5)), ((3,), (4, 3, 2)), ((4, 2, 3), (3,))],
)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=left).astype(np.float32), rng.normal(size=right).astype(np.float32)
    same(Tensor(a) @ Tensor(b), a @ b, rtol=1e-5, atol=1e-6)
    same(a @ Tensor(b), a @ b, rtol=1e-5, atol=1e-6)


def test_division_of_integers_is_float() -> None:
    got = Tensor([1, 2]) / Tensor([2, 2])
    assert got.dtype == np.float32
    same(got, [0.5, 1.0])


def test_dtype_promotion() -> None:
    half, single, double = (Tensor([1.0], dtype=d) for d in ("float16", "float32", "float64"))
    assert (half + 1.0).dtype == np.float16
    assert (half + single).dtype == np.float32
    assert (double + 1.0).dtype == np.float64
    assert (double * 2).dtype == np.float64
    assert (Tensor([1]) + 1.5).dtype == np.float32
    assert (Tensor([True]) + True).dtype == np.int32
    assert (Tensor([1], dtype="int8") + Tensor([1], dtype="int16")).dtype == np.int16
    assert (Tensor([1], dtype="bfloat16") * half).dtype == np.float32


def test_invalid_operands_raise() -> None:
    t = Tensor([1.0])
    with pytest.raises(TypeError, match="the operand is None and is not supported"):
        t + None
    with pytest.raises(TypeError, match="a tuple is not an array"):
        t + (1.0,)
    with pytest.raises(ConversionError, match="300 does not fit in uint8"):
        Tensor([1], dtype="uint8") + 300
    with pytest.raises(ShapeError, match=r"add.*\(2,\) and \(3,\)"):
        Tensor([1.0, 2.0]) + Tensor([1.0, 2.0, 3.0])
    with pytest.raises(DeviceError, match="ambiguous device"):
        t + literal(1.0, device="gpu0:0")


def test_ops_emit_no_warnings(recwarn: pytest.WarningsRecorder) -> None:
    big = Tensor([3e38, 0.0, -1.0])
    big * big, big / 0.0, big // 0.0, big**0.5, Tensor([1]) // 0, big + 1e300, big.astype("int32")
    half = Tensor([60000.0, np.nan], dtype="float16")
    half * 2, half * 1e6, half * np.array(1e6), half.sum(), half**3, half.astype("int8")
    Tensor(1e6, dtype="float16"), Tensor(1e300), big.astype("float16"), big * np.array([1e300])
    assert not recwarn.list


def test_equality_is_elementwise_and_hash_is_identity() -> None:
    a, b = Tensor([1.0]), Tensor([1.0])
    same(a == b, [True])
    assert hash(a) != hash(b)
    assert {a: 1}[a] == 1


# in place


@pytest.mark.parametrize(
    "change",
    [
        lambda t: operator.iadd(t, 1.0),
        lambda t: operator.isub(t, 1.0),
        lambda t: operator.imul(t, 2.0),
        lambda t: operator.itruediv(t, 2.0),
        lambda t: operator.ifloordiv(t, 2.0),
        lambda t: operator.imod(t, 2.0),
        lambda t: operator.ipow(t, 2.0),
    ],
)
def test_in_place_operators_update_the_tensor_itself(change: Callable[[Any], Any]) -> None:
    array = np.array([1.0, 5.0], np.float32)
    t, alias = Tensor(array), None
    alias, other = t, +t
    out = change(t)
    assert out is t is alias
    same(t, change(array.copy()))
    same(other, array)


def test_in_place_operator_keeps_the_parameter_class() -> None:
    p = Parameter([1.0, 2.0])
    p *= 3.0
    assert isinstance(p, Parameter)
    same(p, [3.0, 6.0])


def test_full_slices_casts_and_reshapes_are_copies() -> None:
    t = Tensor([1.0, 2.0])
    others = [+t, t[:], t[...], t.astype("float32"), t.reshape(2), t.flatten(), mgb.functional.copy(t)]
    t += 1
    for other in others:
        same(other, [1.0, 2.0])


# methods


def test_shape_methods() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    t = Tensor(x)
    same(t.reshape(4, 6), x.reshape(4, 6))
    same(t.reshape((6, -1)), x.reshape(6, -1))
    same(t.reshape(-1), x.ravel())
    same(t.T, x.T)
    same(t.transpose(), x.T)
    same(t.transpose(1, 0, 2), x.transpose(1, 0, 2))
    same(t.transpose((2, -2, 0)), x.transpose(2, 1, 0))
    same(t.flatten(), x.ravel())
    same(t.flatten(1), x.reshape(2, 12))
    same(t.flatten(0, 1), x.reshape(6, 4))
    with pytest.raises(ShapeError, match="24 elements and does not fit"):
        t.reshape(5, -1)
    with pytest.raises(ShapeError, match="not a permutation"):
        t.transpose(0, 0, 1)


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max", "mean"])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), [1]])
def test_reductions(name: str, axis: Any) -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    wanted = tuple(axis) if isinstance(axis, list) else axis
    same(getattr(Tensor(x), name)(axis), getattr(x, name)(wanted), rtol=1e-5, atol=1e-6)
    if axis is not None:
        got = getattr(Tensor(x), name)(axis=axis, keepdims=True)
        same(got, getattr(x, name)(axis=wanted, keepdims=True), rtol=1e-5, atol=1e-6)


def test_reductions_of_other_dtypes() -> None:
    flags, ints = Tensor([True, True, False]), Tensor([1, 2])
    assert (flags.sum().dtype, flags.sum().item()) == (np.int64, 2)
    assert (flags.max().dtype, flags.min().item()) == (np.bool_, False)
    assert (ints.mean().dtype, ints.mean().item()) == (np.float32, 1.5)
    halves = Tensor(np.full(70000, 2.0), dtype="float16")
    assert (halves.mean().dtype, halves.mean().item()) == (np.float16, 2.0)  # though their sum does not fit
    assert ints.reshape(1, 2).sum(keepdims=True).shape == (1, 1)
    with pytest.raises(ShapeError, match="axis 1"):
        ints.sum(1)


def test_max_and_min_propagate_nan() -> None:
    t = Tensor([1.0, np.nan, 3.0])
    assert np.isnan(t.max().item())
    assert np.isnan(t.min().item())


def test_reductions_of_an_empty_axis() -> None:
    nothing = Tensor(np.zeros((0, 2)))
    same(nothing.sum(0), [0.0, 0.0])
    same(nothing.mean(0), [np.nan, np.nan])
    with pytest.raises(ShapeError, match=r"max of an empty array: shape \(0, 2\), axis \(0,\)"):
        nothing.max(0)


def test_device_and_dtype() -> None:
    t = Tensor([1.7, -1.7])
    there = t.to("cpux")
    assert (there.device, t.device) == ("cpux:0", "xpux:0")
    same(there, t.numpy())
    same(t.astype("int32"), [1, -1])
    assert t.astype("bfloat16").dtype.name == "bfloat16"
    with pytest.raises(ConversionError, match="complex256"):
        t.astype("complex256")


# protocols of Python


def test_python_protocols() -> None:
    t = Tensor([[1.0, 2.0], [3.0, 4.0]], name="w")
    assert len(t) == 2
    assert [row.tolist() for row in t] == [[1.0, 2.0], [3.0, 4.0]]
    assert (float(t[0, 1]), int(t[1, 0]), bool(t[0, 0] > 0)) == (2.0, 3, True)
    assert "abc"[Tensor(1)] == "b"
    with pytest.raises(TypeError, match="ndim is 0"):
        len(Tensor(1.0))
    for twin in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t)):
        assert (twin.name, twin.tolist()) == ("w", t.tolist())
    assert pickle.dumps(t, 0).startswith(b"cmgb.tensor\nTensor\n")  # where it is found, whatever the file
    np.testing.assert_array_equal(np.from_dlpack(t), t.numpy())


def test_constructor_dtypes() -> None:
    made = [(np.float64(1), "float32"), ([1, 2], "int32"), (True, "bool"), (np.uint16(3), "uint16")]
    for data, name in made:
        assert Tensor(data).dtype.name == name
    assert Tensor([1.0], dtype="float64").dtype == np.float64
    with pytest.raises(RuntimeError, match="use astype"):
        Tensor(Tensor([1.0]), dtype="int32")
    with pytest.raises(RuntimeError, match=r"use \.to"):
        Tensor(Tensor([1.0]), device="cpu0")
    assert Tensor(Tensor([1.0]), dtype="float32", device="xpux").item() == 1
    with pytest.raises(ConversionError):
        Tensor("text")


def test_scalar_tensor_can_be_formatted() -> None:
    assert f"{Tensor(1.25):.1f} {Tensor(7):03d} {Tensor([1.0])}" == f"{1.25:.1f} 007 {Tensor([1.0])!r}"
    with pytest.raises(TypeError, match="format"):
        format(Tensor([1.0, 2.0]), ".1f")
