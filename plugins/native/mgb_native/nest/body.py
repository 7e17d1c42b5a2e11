"""Operations on values of some lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgb.ir import dtypes

from ..folds import HELD
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
        return self.builder.apply(operation, operands, type_, flag)

    def change(self, operation: str, value: str, source: str, target: str) -> str:
        """Return a conversion from one element type to another."""
        if source == target:
            return value
        return self.builder.change(operation, value, self.lanes.of(source), self.lanes.of(target))

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
        return self.builder.select(condition, a, b, type_)

    def constant(self, value: Any, dtype: str) -> str:
        """Return the same number in each lane."""
        return self.builder.number(value, self.type(dtype))

    def number(self, value: int, element: str) -> str:
        """Return the same number of type `element` in each lane."""
        return self.builder.number(value, self.lanes.of(element))

    def spread(self, scalar: str, element: str) -> str:
        """Return a scalar of type `element` in each lane."""
        return self.builder.spread(scalar, self.lanes.of(element)) if self.lanes.count else scalar
