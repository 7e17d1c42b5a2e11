"""Eager code beside compiled code: every element-wise op of floats, on numbers of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from mgb import tensor
from mgb.errors import ConversionError
from mgb.ir import Kind, Op
from mgb.jit import trace
from mgb.ops.declare import OPS, arity
from mgb.tensor.apply import apply

Array = np.ndarray[Any, Any]

#: Of two zeros they give either one.
EITHER_ZERO = frozenset({"maximum", "minimum"})
#: Arithmetic and what picks, which IEEE 754 prescribes to the bit. Other ops are NumPy's or SciPy's functions
#: in eager code and polynomials in kernels, each right to a few units in the last place of float32: next to
#: the middle of two 16-bit numbers one rounds up and the other down.
EXACT = frozenset({
    "abs", "add", "ceil", "clip", "copysign", "div", "eq", "floor", "hardtanh", "isfinite", "isinf", "isnan",
    "le", "lt", "maximum", "minimum", "mod", "mul", "ne", "neg", "prelu", "reciprocal", "relu", "relu6",
    "round", "sign", "signbit", "sqrt", "square", "sub", "trunc", "where",
})  # fmt: skip


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, name))


def special(dtype: np.dtype[Any]) -> Array:
    """Zeros, ends of the range, what is next to 1, and some plain numbers, of both signs; NaN."""
    info = ml_dtypes.finfo(dtype)
    tiny, least, step = float(info.smallest_normal), float(info.smallest_subnormal), float(info.eps)
    ends = [0.0, least, tiny / 2, tiny, 1 - step / 2, 1.0, 1 + step, float(info.max), np.inf]
    plain = [0.1, 0.5, 2.0, 3.0, np.pi, 7.5, 10.0, 20.0, 88.0, 1000.0]
    return np.array([*ends, *plain, *(-v for v in ends + plain), np.nan]).astype(dtype)


def of_any_bits(dtype: np.dtype[Any], count: int, seed: int) -> Array:
    """Numbers of any bits, then as many around 0."""
    rng, word = np.random.default_rng(seed), np.dtype(f"uint{8 * dtype.itemsize}")
    bits = rng.integers(0, np.iinfo(word).max, count, word, endpoint=True)
    return np.concatenate([bits.view(dtype), (rng.standard_normal(count) * 4).astype(dtype)])


def operands(dtype: np.dtype[Any], count: int, some: int) -> list[Array]:
    """For an op of so many operands: each special value beside each other, and `some` of any bits."""
    values = [special(dtype)] * min(count, 2)
    first = [a.ravel() for a in np.meshgrid(*values)]
    first += [np.roll(first[0], 7)] * (count - len(first))
    return [np.concatenate([a, of_any_bits(dtype, some, k)]) for k, a in enumerate(first)]


def ops(dtype: np.dtype[Any], count: int) -> Iterator[Op]:
    """The element-wise ops of `count` floats, not `fma`, which is free to round its product or not."""
    for op in OPS.values():
        if op.name in ("fma", "complex"):
            continue
        try:
            taken = op.kind is Kind.ELEMENTWISE and op.promote is not None and arity(op) == count
            if taken and set(op.promote([dtype] * count)) <= {dtype, np.dtype(bool)}:
                yield op
        except ConversionError:  # it takes no floats, or none of these
            continue


def both(function: Callable[..., Any], arrays: Sequence[Array], backend: str) -> list[tuple[Array, Array]]:
    """The results of the first call, which is eager, and of the second, which is compiled."""
    traced = trace(function, backend=backend)
    eager, compiled = ([y.numpy() for y in traced(*map(tensor, arrays))] for _ in range(2))
    return list(zip(eager, compiled, strict=True))


def scanned(dtype: np.dtype[Any], count: int, some: int, backend: str) -> list[str]:
    """The ops of `count` operands whose two results differ, and where."""
    arrays, found = operands(dtype, count, some), list(ops(dtype, count))
    assert len(found) > 2
    pairs = both(lambda *xs: [_applied(op, xs) for op in found], arrays, backend)
    return [
        f"{op.name}: {text}"
        for op, (eager, compiled) in zip(found, pairs, strict=True)
        if (text := difference(eager, compiled, arrays, _allowed(op, dtype), op.name not in EITHER_ZERO))
    ]


def _applied(op: Op, xs: Sequence[Any]) -> Any:
    return apply(op, *(x > 0 if op.name in ("where", "unlikely") and x is xs[0] else x for x in xs))


def _allowed(op: Op, dtype: np.dtype[Any]) -> int:
    """How many units in the last place both results may be apart."""
    if op.name in EXACT:
        return 0
    return 1 if dtype.itemsize == 2 else 40  # of a logarithm near 0 the leading digits are gone


def difference(eager: Array, compiled: Array, arrays: Sequence[Array], units: int, zeros: bool = True) -> str:
    """The first place where two results are not the same but for `units` in the last place, in words."""
    assert eager.dtype == compiled.dtype
    places = np.flatnonzero(_apart(eager, compiled, units, zeros))
    if not len(places):
        return ""
    k = int(places[0])
    given = [float(a.flat[k]) for a in arrays if a.size == eager.size]
    return f"{len(places)} of {eager.size}, as {given}: {eager.flat[k]}, compiled {compiled.flat[k]}"


def _apart(a: Array, b: Array, units: int, zeros: bool) -> Array:
    if a.dtype.kind in "biu":
        return np.asarray(a != b)
    nan, other_nan = np.isnan(a.astype(np.float64)), np.isnan(b.astype(np.float64))
    far = np.abs(_order(a) - _order(b)) > units
    unlike_zeros = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)) & zeros
    return np.asarray(np.where(nan | other_nan, nan != other_nan, far | unlike_zeros))


def _order(a: Array) -> Array:
    """Whole numbers in the order of floats, one apart where nothing lies between; both zeros are 0."""
    bits = np.ascontiguousarray(a).view(f"int{8 * a.dtype.itemsize}").astype(np.int64)
    return np.where(bits < 0, -(bits & ((1 << (8 * a.dtype.itemsize - 1)) - 1)), bits)
