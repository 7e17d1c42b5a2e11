"""Arithmetic on `Tensor`: every operator, and the one table that attaches them.

An operator is a direct call of `apply`; during replay of a trace each microsecond of it counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ConversionError
from ..ir import dtypes
from ..ir.scalars import fixed
from ..tensor import Tensor
from ..tensor.apply import apply, tensors
from . import elementwise
from . import primitives as p
from .bodies import division, integers
from .bodies.transcendental import pow
from .declare import op_of
from .images.contract import matmul
from .layout import reshape
from .primitives import cast

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "elementwise"}

ADD, SUB, MUL, DIV, NEG = (op_of(f) for f in (p.add, p.sub, p.mul, p.div, p.neg))
FLOOR_DIV, POW, MATMUL = op_of(division.floor_div), op_of(pow), op_of(matmul)
ABS, FMOD, MOD = op_of(elementwise.abs), op_of(division.fmod), op_of(division.mod)
LT, LE, EQ, NE = op_of(p.lt), op_of(p.le), op_of(p.eq), op_of(elementwise.ne)
AND, OR, NOT = op_of(p.logical_and), op_of(p.logical_or), op_of(p.logical_not)
BIT_AND, BIT_OR, BIT_XOR, BIT_NOT = (op_of(f) for f in (p.bit_and, p.bit_or, p.bit_xor, elementwise.bit_not))
SHL, SHR = op_of(integers.left_shift), op_of(integers.right_shift)
INTEGER_POWER = op_of(integers.integer_power)

Binary = Callable[[Tensor, Any], Tensor]


# arithmetic


def _add(self: Tensor, other: Any) -> Tensor:
    return apply(ADD, self, other)


def _radd(self: Tensor, other: Any) -> Tensor:
    return apply(ADD, other, self)


def _sub(self: Tensor, other: Any) -> Tensor:
    return apply(SUB, self, other)


def _rsub(self: Tensor, other: Any) -> Tensor:
    return apply(SUB, other, self)


def _mul(self: Tensor, other: Any) -> Tensor:
    return apply(MUL, self, other)


def _rmul(self: Tensor, other: Any) -> Tensor:
    return apply(MUL, other, self)


def _div(self: Tensor, other: Any) -> Tensor:
    return apply(DIV, self, other)


def _rdiv(self: Tensor, other: Any) -> Tensor:
    return apply(DIV, other, self)


def _floor_div(self: Tensor, other: Any) -> Tensor:
    return apply(FLOOR_DIV, self, other)


def _rfloor_div(self: Tensor, other: Any) -> Tensor:
    return apply(FLOOR_DIV, other, self)


def remainder(a: Any, b: Any) -> Tensor:
    """Compute MegEngine's ``%``: floats keep the sign of `a`, integers take that of `b`."""
    return apply(FMOD if _is_float(a) or _is_float(b) else MOD, a, b)


def _is_float(x: Any) -> bool:
    """Return whether it is neither an integer nor a truth value."""
    if isinstance(x, Tensor):
        return x.dtype in dtypes.INEXACT
    return isinstance(x, float) or np.asarray(x).dtype.kind in "fc"


def _rmod(self: Tensor, other: Any) -> Tensor:
    return remainder(other, self)


def power(a: Any, b: Any) -> Tensor:
    """Return ``a ** b``: of integers an integer, else a float."""
    if type(b) is float or _is_float(a) or _is_float(b):
        return apply(POW, a, b)
    if type(b) is not int:
        b = fixed(b)  # it decides which ops these are
    return integers.whole_power(a, b) if type(b) is int else apply(INTEGER_POWER, a, b)


def _rpow(self: Tensor, other: Any) -> Tensor:
    return power(other, self)


def product(a: Any, b: Any) -> Tensor:
    """Return ``a @ b`` of the last two axes; a vector is a row on the left, a column on the right."""
    a, b = tensors("matmul", (a, b))
    left, right = a.ndim, b.ndim
    if left > 1 and right > 1:
        return apply(MATMUL, a, b)
    out = apply(
        MATMUL,
        reshape(a, shape=(1, *a.shape)) if left == 1 else a,
        reshape(b, shape=(*b.shape, 1)) if right == 1 else b,
    )
    shape = out.shape if right > 1 else out.shape[:-1]
    return reshape(out, shape=shape if left > 1 else (*shape[: out.ndim - 2], *shape[out.ndim - 1 :]))


def _rmatmul(self: Tensor, other: Any) -> Tensor:
    return product(other, self)


def _abs(self: Tensor) -> Tensor:
    return apply(ABS, self)


def _neg(self: Tensor) -> Tensor:
    return apply(NEG, self)


def _pos(self: Tensor) -> Tensor:
    return cast(self, dtype=self.dtype)  # another Tensor: rebinding one must not rebind the other


# comparisons; > and >= are < and <= with the sides exchanged


def _lt(self: Tensor, other: Any) -> Tensor:
    return apply(LT, self, other)


def _le(self: Tensor, other: Any) -> Tensor:
    return apply(LE, self, other)


def _gt(self: Tensor, other: Any) -> Tensor:
    return apply(LT, other, self)


def _ge(self: Tensor, other: Any) -> Tensor:
    return apply(LE, other, self)


def _eq(self: Tensor, other: Any) -> Tensor:
    return apply(EQ, self, other)


def _ne(self: Tensor, other: Any) -> Tensor:
    return apply(NE, self, other)


# bits and truth values


def _both_bool(a: Any, b: Any) -> bool:
    return all(type(x) is bool or getattr(x, "dtype", None) == dtypes.bool_ for x in (a, b))


def _and(self: Tensor, other: Any) -> Tensor:
    return apply(AND if _both_bool(self, other) else BIT_AND, self, other)


def _or(self: Tensor, other: Any) -> Tensor:
    return apply(OR if _both_bool(self, other) else BIT_OR, self, other)


def _xor(self: Tensor, other: Any) -> Tensor:
    return apply(NE if _both_bool(self, other) else BIT_XOR, self, other)


def _invert(self: Tensor) -> Tensor:
    return apply(NOT if self.dtype == dtypes.bool_ else BIT_NOT, self)


def _shl(self: Tensor, other: Any) -> Tensor:
    return apply(SHL, self, other)


def _rshl(self: Tensor, other: Any) -> Tensor:
    return apply(SHL, other, self)


def _shr(self: Tensor, other: Any) -> Tensor:
    return apply(SHR, self, other)


def _rshr(self: Tensor, other: Any) -> Tensor:
    return apply(SHR, other, self)


# in place: a new value under the old identity


def fitted(value: Tensor, dtype: np.dtype[Any], *operands: Any) -> Tensor:
    """Return `value`, made of `operands`, as a Tensor's `dtype`, which integers keep, as in NumPy."""
    if value.dtype == dtype or dtype not in dtypes.INTEGERS:
        return value
    if value.dtype in dtypes.INTEGERS:
        return cast(value, dtype=dtype)
    if value.dtype == dtypes.float64 and not any(map(_is_float, operands)):
        raise ConversionError(
            f"in place: uint64 and a signed integer meet in float64, which a Tensor of {dtype} does not "
            "hold; cast one of them with astype"
        )
    return value


def _in_place(operator: Binary) -> Binary:
    def assign(self: Tensor, other: Any) -> Tensor:
        value = operator(self, other)
        old, new = self._data, value._data  # quicker than to ask both Tensors
        before = old.dtype if old is not None else self.spec.dtype
        if before is not (new.dtype if new is not None else value.spec.dtype):
            value = fitted(value, before, self, other)
        self._reset(value)
        return self

    return assign


_BINARY: dict[str, tuple[Binary, Binary]] = {
    "add": (_add, _radd),
    "sub": (_sub, _rsub),
    "mul": (_mul, _rmul),
    "truediv": (_div, _rdiv),
    "floordiv": (_floor_div, _rfloor_div),
    "mod": (remainder, _rmod),
    "pow": (power, _rpow),
    "matmul": (product, _rmatmul),
    "and": (_and, _and),
    "or": (_or, _or),
    "xor": (_xor, _xor),
    "lshift": (_shl, _rshl),
    "rshift": (_shr, _rshr),
}

METHODS: dict[str, Any] = {
    "__neg__": _neg,
    "__pos__": _pos,
    "__abs__": _abs,
    "__invert__": _invert,
    "__lt__": _lt,
    "__le__": _le,
    "__gt__": _gt,
    "__ge__": _ge,
    "__eq__": _eq,
    "__ne__": _ne,
}

for _name, (_left, _right) in _BINARY.items():
    METHODS[f"__{_name}__"] = _left
    METHODS[f"__r{_name}__"] = _right
    METHODS[f"__i{_name}__"] = _in_place(_left)

for _name, _method in METHODS.items():
    setattr(Tensor, _name, _method)
