"""Spellings: what an op without a word of ONNX is written as, in ops that have one.

They are ordinary functions of Tensors. Where an op is missing here, its body is taken. Indices, windows and
images are in `export_windows`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mgb import dtypes
from mgb.ir import Kind, Node, Op, Spec
from mgb.ops.bodies.division import fmod
from mgb.ops.bodies.hyperbolic import atan
from mgb.ops.bodies.transcendental import exp, log, pow
from mgb.ops.creation import full_like
from mgb.ops.declare import SAME
from mgb.ops.elementwise import abs, bit_not, copysign, ne, signbit
from mgb.ops.primitives import (
    bit_xor,
    cast,
    eq,
    floor,
    logical_and,
    logical_not,
    logical_or,
    lt,
    neg,
    shl,
    shr,
    sub,
    where,
)
from mgb.ops.reduce import reduce_max, reduce_min
from mgb.ops.sort import argsort_, argtopk
from mgb.tensor import Tensor
from mgb.tensor.apply import apply

from .export_windows import SPELLINGS as WINDOWS

Spelling = Callable[..., Tensor]
Takes = frozenset[Any]

INF = float("inf")
LN2, LN10, PI = 0.6931471805599453, 2.302585092994046, 3.141592653589793


def _together(a: Spec, b: Spec) -> Spec:
    return Spec(np.broadcast_shapes(a.shape, b.shape), a.dtype)


#: Whole numbers divided towards 0, and the remainder with the sign of the divisor, for a divisor that is
#: neither 0 nor -1: on these, and with the least integer, a runtime may trap. Only files have these ops.
QUOTIENT, REMAINDER = (
    Op(name, Kind.ELEMENTWISE, _together, promote=SAME.promote)
    for name in ("file_quotient", "file_remainder")
)


def spelling_of(node: Node) -> Spelling | None:
    """Return a function that computes what `node` does from Tensors like its inputs; None: there is none."""
    function, takes = SPELLINGS.get(node.op.name, (None, frozenset()))
    if function is not None and all(i.spec.dtype in takes for i in node.inputs[:1]):
        return function
    body: Spelling | None = node.op.body
    return body


# division


def _safe(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a divisor that is neither 0 nor -1, and where `b` is the one or the other."""
    zero = eq(b, 0)
    minus = eq(b, -1) if a.dtype in dtypes.SIGNED else logical_and(zero, logical_not(zero))
    return where(logical_or(zero, minus), 1, b), zero, minus


def _rest(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the remainder of division towards 0, and where its sign differs from that of `b`."""
    rest = fmod(a, b)
    return rest, logical_and(ne(rest, 0), ne(lt(rest, 0), lt(b, 0)))


def _mod(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype in dtypes.FLOATS:
        rest, turned = _rest(a, b)
        return where(turned, rest + b, rest)
    safe, zero, _minus = _safe(a, b)
    return where(zero, 0, apply(REMAINDER, a, safe))


def _fmod(a: Tensor, b: Tensor) -> Tensor:
    safe, zero, _minus = _safe(a, b)
    return where(zero, 0, a - apply(QUOTIENT, a, safe) * safe)


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    safe, zero, minus = _safe(a, b)
    return where(zero, 0, where(minus, 0 - a, apply(QUOTIENT, a, safe)))


def _floor_div(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype in dtypes.FLOATS:
        rest, turned = _rest(a, b)
        quotient = (a - rest) / b
        quotient = where(turned, quotient - 1, quotient)
        whole = floor(quotient)
        whole = where(lt(0.5, quotient - whole), whole + 1, whole)
        return where(eq(b, 0), a / b, whole)
    safe, zero, minus = _safe(a, b)
    quotient, rest = apply(QUOTIENT, a, safe), apply(REMAINDER, a, safe)
    over = logical_and(ne(rest, 0), ne(lt(a, 0), lt(safe, 0)))
    return where(zero, 0, where(minus, 0 - a, where(over, quotient - 1, quotient)))


# bits


def _unsigned(x: Tensor) -> Tensor:
    return cast(x, dtype=dtypes.BY_NAME[f"uint{x.dtype.itemsize * 8}"])


def _shl(x: Tensor, count: Tensor) -> Tensor:
    return cast(shl(_unsigned(x), _unsigned(count)), dtype=x.dtype)


def _shr(x: Tensor, count: Tensor) -> Tensor:
    """Shift right; a negative number is shifted as its complement, so that ones come in."""
    shifted = cast(shr(_unsigned(where(lt(x, 0), bit_not(x), x)), _unsigned(count)), dtype=x.dtype)
    return where(lt(x, 0), bit_not(shifted), shifted)


# numbers


def _negative(x: Tensor) -> Tensor:
    """Return the sign bit; that of a NaN is lost."""
    return logical_or(lt(x, 0), logical_and(eq(x, 0), lt(1 / x, 0))) if x.dtype in dtypes.FLOATS else lt(x, 0)


def _copysign(x: Tensor, s: Tensor) -> Tensor:
    return where(signbit(s), neg(abs(x)), abs(x))


def _exp2(x: Tensor) -> Tensor:
    return pow(full_like(x, 2), x)


def _log2(x: Tensor) -> Tensor:
    return _through_double(x, lambda wide: log(wide) * (1 / LN2))


def _log10(x: Tensor) -> Tensor:
    return _through_double(x, lambda wide: log(wide) * (1 / LN10))


def _through_double(x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    return cast(function(cast(x, dtype=dtypes.float64)), dtype=x.dtype)


def _log1p(x: Tensor) -> Tensor:
    """Return the rounding error of ``1 + x`` cancels against that of ``u - 1`` (Kahan)."""
    u = 1 + x
    plain = logical_or(eq(u, x), eq(u, INF))
    return where(eq(u, 1), x, where(plain, log(u), log(u) * (x / where(plain, 1, u - 1))))


def _expm1(x: Tensor) -> Tensor:
    """Compute ``exp(x) - 1`` with its error corrected by the logarithm of ``exp(x)`` (Kahan)."""
    u = exp(x)
    far = logical_or(lt(1, abs(x)), eq(u, 1))
    near = (u - 1) * (x / where(far, 1, log(u)))
    return where(eq(u, 1), x, where(far, u - 1, near))


def _atan2(y: Tensor, x: Tensor) -> Tensor:
    """Compute it by the octant."""
    ay, ax = abs(y), abs(x)
    steep = lt(ax, ay)
    small, large = where(steep, ax, ay), where(steep, ay, ax)
    ratio = where(eq(large, 0), 0, where(eq(small, large), 1, small / large))
    angle = atan(ratio)
    angle = where(steep, PI / 2 - angle, angle)
    return copysign(where(signbit(x), PI - angle, angle), y)


# unsigned 64-bit numbers in the order of signed ones


def _ordered(x: Tensor) -> Tensor:
    return cast(bit_xor(x, 1 << 63), dtype=dtypes.int64)


def _extreme(reduction: Spelling) -> Spelling:
    def spelled(x: Tensor, axis: tuple[int, ...]) -> Tensor:
        return bit_xor(cast(reduction(_ordered(x), axis=axis), dtype=dtypes.uint64), 1 << 63)

    return spelled


_ALL: Takes = frozenset(dtypes.DTYPES)
_NUMBERS: Takes = frozenset((*dtypes.INTEGERS, *dtypes.FLOATS))
_WORDS: Takes = frozenset((dtypes.uint64,))
_NARROW: Takes = frozenset((*dtypes.HALVES, dtypes.float32))
_BYTES: Takes = frozenset((dtypes.bool_, dtypes.int8, dtypes.uint8))
_SIGNED: Takes = frozenset(dtypes.SIGNED)
_INTEGERS: Takes = frozenset(dtypes.INTEGERS)

#: For each op: its spelling, and the dtypes of its first input for which it is preferred to the body.
SPELLINGS: dict[str, tuple[Spelling, Takes]] = {
    **{name: (function, _ALL) for name, function in WINDOWS.items()},
    "bitcast": (lambda x, dtype: cast(x, dtype=dtype), _BYTES),  # true and false are 1 and 0
    "fma": (lambda a, b, c: a * b + c, _ALL),
    "mod": (_mod, _NUMBERS),
    "fmod": (_fmod, _INTEGERS),
    "floor_div": (_floor_div, _NUMBERS),
    "quotient": (_quotient, _INTEGERS),
    "neg": (lambda x: sub(0, x), _ALL),
    "shl": (_shl, _SIGNED),
    "shr": (_shr, _SIGNED),
    "signbit": (_negative, _NUMBERS),
    "copysign": (_copysign, _NUMBERS),
    "exp2": (_exp2, _NUMBERS),
    "log2": (_log2, _NARROW),
    "log10": (_log10, _NARROW),
    "log1p": (_log1p, _NUMBERS),
    "expm1": (_expm1, _NUMBERS),
    "atan2": (_atan2, _NARROW),
    "reduce_max": (_extreme(reduce_max), _WORDS),
    "reduce_min": (_extreme(reduce_min), _WORDS),
    "argsort": (lambda x, **params: argsort_(_ordered(x), **params), _WORDS),
    "argtopk": (lambda x, **params: argtopk(_ordered(x), **params), _WORDS),
}
