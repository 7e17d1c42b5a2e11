"""Operations on values of some lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgb.ir import dtypes

from ..folds import HELD
from .bits import BITWISE, WIDTHS, joins
from .builder import Builder, Lanes, Type

#: The bits of a value of each dtype.
BITS = {d.name: row.bits for d, row in dtypes.ROWS.items()}


def element(dtype: str) -> str:
    """Return the type of a value of `dtype` that is computed with: no narrow float is."""
    return f"f{BITS[dtype]}" if is_float(dtype) else f"i{BITS[dtype]}"


def stored(dtype: str) -> str:
    """Return the type of an element of `dtype` in memory."""
    return element(dtype) if is_float(dtype) and dtype not in HELD else f"i{max(8, BITS[dtype])}"


def is_float(dtype: str) -> bool:
    """Return whether values of `dtype` are floats."""
    return "float" in dtype


def is_signed(dtype: str) -> bool:
    """Return whether they are integers with a sign."""
    return dtype.startswith("int")


class Body:
    """Operations on values of some lanes.

    Parameters
    ----------
    builder : Builder
    lanes : Lanes
    """

    def __init__(self, builder: Builder, lanes: Lanes) -> None:
        self.builder = builder
        self.lanes = lanes

    def type(self, dtype: str) -> Type:
        """Return the type of a value of `dtype`."""
        return self.lanes.of(element(dtype))

    def op(self, operation: str, operands: Sequence[str], type_: Type, flag: str = "") -> str:
        """Return an operation whose operands and result are of one type."""
        result = self.builder.apply(operation, operands, type_, flag)
        if operation in BITWISE and type_.lanes:
            self.builder.bitwise[result] = tuple(operands)
        return result

    def change(self, operation: str, value: str, source: str, target: str) -> str:
        """Return a conversion from one element type to another."""
        if source == target:
            return value
        result = self.builder.change(operation, value, self.lanes.of(source), self.lanes.of(target))
        if operation == "bitcast" and self.lanes.count:
            self.builder.bitwise[result] = (value,)
        return result

    def compare(self, relation: str, a: str, b: str, dtype: str) -> str:
        """Return whether `a` is ``"lt"``, ``"gt"``, ``"le"`` or ``"eq"`` to `b`; NaN is not."""
        sign = "o" if is_float(dtype) else "" if relation == "eq" else "s" if is_signed(dtype) else "u"
        return self.builder.compare(sign + relation, a, b, self.type(dtype))

    def is_nan(self, a: str, dtype: str) -> str:
        """Return whether `a` is NaN."""
        return self.builder.compare("uno", a, a, self.type(dtype))

    def is_not_zero(self, a: str, type_: Type) -> str:
        """Return whether `a` is another number than 0, or none."""
        return self.builder.compare(
            "une" if type_.is_float else "ne", a, self.builder.number(0, type_), type_
        )

    def select(self, condition: str, a: str, b: str, type_: Type) -> str:
        """Return `a` where `condition` holds, else `b`."""
        return self.builder.select(condition, self.apart(a, b, type_), self.apart(b, a, type_), type_)

    def apart(self, a: str, b: str, type_: Type) -> str:
        """Return `a` to be chosen instead of `b`, opaque where it combines bits of it."""
        bits = type_.element[1:]
        if not type_.lanes or bits not in WIDTHS or not joins(a, b, self.builder.bitwise):
            return a
        value = self.builder.opaque(
            self.change("bitcast", a, type_.element, f"f{bits}"), self.lanes.of(f"f{bits}")
        )
        return self.change("bitcast", value, f"f{bits}", type_.element)

    def constant(self, value: Any, dtype: str) -> str:
        """Return the same number in each lane."""
        return self.builder.number(value, self.type(dtype))

    def number(self, value: int, element: str) -> str:
        """Return the same number of type `element` in each lane."""
        return self.builder.number(value, self.lanes.of(element))

    def spread(self, scalar: str, element: str) -> str:
        """Return a scalar of type `element` in each lane."""
        return self.builder.spread(scalar, self.lanes.of(element)) if self.lanes.count else scalar
