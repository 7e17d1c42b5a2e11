"""Operations of the dialects ``arith``, ``math`` and ``vector`` on values of some lanes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from .builder import Builder, Lanes

#: The bits of a value of each dtype.
BITS = {"bool": 1, "float16": 16, "bfloat16": 16, "float32": 32, "float64": 64} | {
    f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def element(dtype: str) -> str:
    """MLIR's type of a value of `dtype` that is computed with: no float of 16 bits is."""
    return f"f{BITS[dtype]}" if is_float(dtype) else f"i{BITS[dtype]}"


def stored(dtype: str) -> str:
    """MLIR's type of an element of `dtype` in memory."""
    return f"f{BITS[dtype]}" if dtype in ("float32", "float64") else f"i{max(8, BITS[dtype])}"


def is_float(dtype: str) -> bool:
    """Whether values of `dtype` are floats."""
    return "float" in dtype


def is_signed(dtype: str) -> bool:
    """Whether they are integers with a sign."""
    return dtype.startswith("int")


def exact(value: Any, dtype: str) -> str:
    """A number as MLIR reads it back to the bit."""
    if is_float(dtype):
        code, width = ("<d", 16) if dtype == "float64" else ("<f", 8)
        pattern = int.from_bytes(struct.pack(code, value), "little")
        return f"0x{pattern:0{width}X}"
    if dtype == "bool":
        return "true" if value else "false"
    bits = BITS[dtype]
    value = int(value)
    return str(value - (1 << bits) if value >> (bits - 1) == 1 else value)  # as a number with a sign


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

    def type(self, dtype: str) -> str:
        """The type of a value of `dtype`."""
        return self.lanes.of(element(dtype))

    def op(self, name: str, operands: Sequence[str], type_: str) -> str:
        """An operation whose operands and result are of one type."""
        return self.builder.apply(name, operands, type_, "v")

    def change(self, name: str, value: str, source: str, target: str) -> str:
        """A conversion from one element type to another."""
        if source == target:
            return value
        types = f"{self.lanes.of(source)} to {self.lanes.of(target)}"
        return self.builder.op(f"{name} {value} : {types}", "v")

    def compare(self, relation: str, a: str, b: str, dtype: str) -> str:
        """Whether `a` is ``"lt"``, ``"gt"``, ``"le"`` or ``"eq"`` to `b`; NaN is not."""
        if is_float(dtype):
            return self.op(f"arith.cmpf o{relation},", (a, b), self.type(dtype))
        sign = "" if relation == "eq" else "s" if is_signed(dtype) else "u"
        return self.op(f"arith.cmpi {sign}{relation},", (a, b), self.type(dtype))

    def is_nan(self, a: str, dtype: str) -> str:
        """Whether `a` is NaN."""
        return self.op("arith.cmpf uno,", (a, a), self.type(dtype))

    def select(self, condition: str, a: str, b: str, type_: str) -> str:
        """`a` where `condition` holds, else `b`."""
        types = f"{self.lanes.of('i1')}, {type_}" if self.lanes.count else type_
        return self.builder.op(f"arith.select {condition}, {a}, {b} : {types}", "v")

    def constant(self, value: Any, dtype: str) -> str:
        """The same number in each lane."""
        return self.literal(exact(value, dtype), element(dtype))

    def literal(self, text: str, type_: str) -> str:
        """The same `text` of an element of `type_` in each lane."""
        if type_ == "i1" and not self.lanes.count:
            return self.builder.constant(text)  # `true` has a type of its own
        value = f"dense<{text}>" if self.lanes.count else text
        return self.builder.constant(f"{value} : {self.lanes.of(type_)}")

    def spread(self, scalar: str, type_: str) -> str:
        """A scalar of element type `type_` in each lane."""
        if not self.lanes.count:
            return scalar
        return self.builder.op(f"vector.broadcast {scalar} : {type_} to {self.lanes.of(type_)}", "s")
