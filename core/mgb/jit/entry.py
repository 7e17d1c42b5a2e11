"""One step of a record: an op with the origins of its operands, or a cut between programs."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ir import Kind, Op, Spec, dtypes
from ..ir.sizes import At, Size, plain
from ..tensor import Tensor


def _no_spec(*_specs: Spec, **_params: Any) -> Spec:
    raise AssertionError("a cut makes no value")


#: Pseudo-ops in the sequence where the program is split. ``required`` are the steps whose values leave the
#: program.
READ = Op("read of a value", Kind.OPAQUE, _no_spec)
EXCLUDE = Op("exclude_from_trace", Kind.OPAQUE, _no_spec)
END = Op("end", Kind.OPAQUE, _no_spec)
CUTS = frozenset({READ, EXCLUDE, END})

#: The shape of a value as an int32 Tensor. In a record shapes are known, so its node is a constant.
SHAPE = Op(
    "shape_of",
    Kind.OPAQUE,
    lambda x: Spec((x.ndim,), dtypes.int32),
    lambda x: np.array(x.shape, dtypes.int32),
    differentiable=False,
)

#: The gradient that will arrive for its operand, if a call and its gradient are recorded together. From the
#: first one on, the steps belong to another program.
OUTPUT_GRADIENT = Op("output_gradient", Kind.OPAQUE, lambda y: y, differentiable=False)


def has_same_bits(mine: Any, other: Any) -> bool:
    """Check whether two constants are identical, including the sign of zero and the payload of NaN."""
    return bool(mine.dtype == other.dtype and mine.shape == other.shape and mine.tobytes() == other.tobytes())


@dataclass(slots=True, eq=False)
class Literal:
    """A constant operand.

    Attributes
    ----------
    array : array
        The operand of the op.
    raw : bool, int, float or None
        The Python scalar that it was made of, if known.
    owner : weak reference or None
        The Tensor outside whose value it was.
    device : str
        The device of that Tensor; the array may be a NumPy array on any device.
    size : Size or None
        The symbolic length that it is, if any.
    """

    array: Any
    raw: Any = None
    owner: weakref.ref[Tensor] | None = None
    device: str = "xpux:0"
    size: Size | None = None

    def at(self, at: At) -> Literal:
        """Return the constant for other lengths."""
        if self.size is None:
            return self
        value = at(self.size)
        array = np.array(plain(value), self.array.dtype)
        return Literal(array, plain(value), None, self.device, value if type(value) is Size else None)

    def matches(self, other: Any) -> bool:
        """Check whether `other` is the same constant. NaN equals NaN; 0.0 and -0.0 differ."""
        mine = self.array
        if mine is other or has_same_bits(mine, other):
            return True
        if mine.dtype != other.dtype or mine.shape != other.shape or mine.dtype.kind != "f":
            return False
        signs = np.array_equal(np.signbit(mine[mine == 0]), np.signbit(other[mine == 0]))
        return bool(np.array_equal(mine, other, equal_nan=True)) and signs

    def __str__(self) -> str:
        return str(self.array.item()) if self.array.size == 1 else f"a constant of shape {self.array.shape}"


#: An operand: the step that made it (0, 1, ...), an external input (-1 is the first, -2 the second, ...),
#: or a constant.
Ref = int | Literal


def external_ref(number: int) -> int:
    """Return the `Ref` of external input `number`."""
    return -1 - number


#: The type of a cut, which makes no value.
_NOTHING = Spec((), dtypes.bool_)


@dataclass(slots=True)
class Entry:
    """One recorded step: an op with its operands, or a cut."""

    op: Op
    args: tuple[Ref, ...]
    params: dict[str, Any]
    spec: Spec
    source: str
    required: tuple[int, ...] = ()

    def __str__(self) -> str:
        params = "".join(f", {k}={v}" for k, v in self.params.items())
        names = ", ".join(_show(a) for a in self.args)
        return f"{self.op.name}({names}{params})"


def cut_at(op: Op, source: str, required: tuple[int, ...] = ()) -> Entry:
    """Return a cut, where the values of the steps `required` leave the program."""
    return Entry(op, (), {}, _NOTHING, source, required)


def _show(ref: Ref) -> str:
    if isinstance(ref, Literal):
        return str(ref)
    return f"step {ref}" if ref >= 0 else f"input {-1 - ref}"
