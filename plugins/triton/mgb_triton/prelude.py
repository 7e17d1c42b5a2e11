"""The functions that kernels call. It imports Triton."""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

jit = triton.jit


@jit
def fold_add(a, b):
    return a + b


@jit
def fold_mul(a, b):
    return a * b


@jit
def fold_maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@jit
def fold_minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


# The quotient of a place below 2**31 by a length, by multiplication.
@jit
def divide(place, factor, shift):
    unsigned = place.to(tl.uint32)
    return ((tl.umulhi(unsigned, factor) + unsigned) >> shift).to(tl.int32)


@jit
def infinity_of(sign, dtype: tl.constexpr):
    return tl.full((), 1e999, dtype) * sign


@jit
def nan_of(dtype: tl.constexpr):
    return tl.full((), 1e999, dtype) * 0.0


@jit
def quotient_of(a, b):
    double: tl.constexpr = a.dtype.primitive_bitwidth == 64
    if double:
        return a / b
    else:
        return tl.div_rn(a, b)


@jit
def mulhi_signed(a, b):
    high = tl.umulhi(a.to(tl.uint64, bitcast=True), b.to(tl.uint64, bitcast=True)).to(tl.int64, bitcast=True)
    return high - tl.where(a < 0, b, 0) - tl.where(b < 0, a, 0)


# Sums of exp(x - t), found before t is known: against the greatest x so far, or 0 where that is not finite.
@jit
def is_finite(a):
    return (a - a) == 0


@jit
def shift_of(most):
    return tl.where(is_finite(most), most, 0.0)


# A term of a sum: its error grows with -a, and it falls much faster than that.
@jit
def exp_term(a):
    double: tl.constexpr = a.dtype.primitive_bitwidth == 64
    if double:
        return libdevice.exp(a)
    else:
        return tl.exp2(a * 1.4426950408889634)


@jit
def before_exponentials(found, was, most):
    return found * tl.where((most != was) & is_finite(was), libdevice.exp(was - shift_of(most)), 1.0)


@jit
def settled_exponentials(found, most, t):
    finite = is_finite(most)
    low = most == -1e999
    factor = libdevice.exp(tl.where(finite | low, most - t, -t))
    return tl.where(low & (finite == 0), factor, found * factor)


# Sums of (x - c)**2, found before c is known: against a pivot that moves to the mean so far each time the
# count doubles, so that no outlier stays the pivot of many others.
@jit
def after_squares(squares, sums, pivot, count):
    number = count.to(squares.dtype)
    shift = tl.where((count & (count - 1)) == 0, quotient_of(sums, number), 0.0)
    mean = pivot + shift
    moved = mean - pivot
    squares = squares + moved * (number * moved - 2 * sums)
    sums = sums - number * moved
    return squares, sums, mean


@jit
def settled_squares(squares, sums, pivot, count, c):
    number = count.to(squares.dtype)
    away = c - pivot
    return tl.where(count == 0, 0.0, squares + away * (number * away - 2 * sums))


# What a program has found about its own mean, about another number.
@jit
def moved_squares(squares, sums, count, c):
    away = quotient_of(sums, count) - c
    return squares + count * away * away
