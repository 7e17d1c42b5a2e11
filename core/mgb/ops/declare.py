"""Declaration of ops: `primitive` for the op set of backends, `@composite`, `declare` for the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, update_wrapper
from typing import Any

import numpy as np

from ..errors import AxisError, ConversionError, ShapeError
from ..ir import Kind, Op, Spec, dtypes
from ..ir.sizes import broadcast
from ..runtime.precision import HIGH
from ..tensor import Tensor
from ..tensor.apply import apply

#: Every op by name; a third party's `mgb_ops` hook adds to it through `register`.
OPS: dict[str, Op] = {}

Dtypes = Sequence[np.dtype[Any]]
Promote = Callable[[Sequence[dtypes.Operand]], Dtypes]


@dataclass(frozen=True, slots=True)
class Typing:
    """The dtypes of an element-wise op.

    Attributes
    ----------
    promote : callable
        From the operands' dtypes (a Python scalar stands as its type) to the dtypes the op computes on;
        none where `primitives.of_one_sign` finds the operands.
    result : callable
        From those to the dtype of the result.
    precision : str
        See `Op`.
    """

    promote: Promote
    result: Callable[[Dtypes], np.dtype[Any]]
    precision: str = ""


def _same(operands: Sequence[dtypes.Operand]) -> Dtypes:
    return (dtypes.common(operands),) * len(operands)


def _analytic(operands: Sequence[dtypes.Operand]) -> Dtypes:
    dtype = dtypes.common(operands)
    return (dtype if dtype in dtypes.INEXACT else dtypes.float32,) * len(operands)


def _numeric(operands: Sequence[dtypes.Operand]) -> Dtypes:
    dtype = dtypes.common(operands)
    return (dtypes.int32 if dtype == dtypes.bool_ else dtype,) * len(operands)


def _complex(operands: Sequence[dtypes.Operand]) -> Dtypes:
    return tuple(dtypes.complex_of(dtypes.common([d])) for d in operands)


def real(promote: Promote) -> Promote:
    """Wrap `promote` to reject complex numbers: for ops of order, or of reals alone."""

    def checked(operands: Sequence[dtypes.Operand]) -> Dtypes:
        if any(dtypes.category(d) == "complex" for d in operands):
            raise ConversionError("takes real numbers, and got complex ones: take x.real, x.imag or abs(x)")
        return promote(operands)

    return checked


def as_they_are(operands: Sequence[dtypes.Operand]) -> Dtypes:
    """Return the operands' own dtypes."""
    return [dtypes.common([d]) for d in operands]


def _logical(operands: Sequence[dtypes.Operand]) -> Dtypes:
    return (dtypes.bool_,) * len(operands)


def _integer(operands: Sequence[dtypes.Operand]) -> Dtypes:
    if wrong := [d for d in operands if dtypes.category(d) in ("float", "complex")]:
        got = getattr(wrong[0], "name", f"a Python {dtypes.category(wrong[0])}")
        raise ConversionError(f"needs integers or bools, got {got}")
    dtype = dtypes.common(operands)
    if dtype in dtypes.FLOATS:
        listed = " and ".join(d.__name__ if isinstance(d, type) else d.name for d in operands)
        raise ConversionError(f"no integer holds {listed}: cast one of them with astype")
    return (dtype,) * len(operands)


def _counting(operands: Sequence[dtypes.Operand]) -> Dtypes:
    dtype = _integer(operands)[0]
    return (dtypes.int32 if dtype == dtypes.bool_ else dtype,) * len(operands)


def _comparable(operands: Sequence[dtypes.Operand]) -> Dtypes:
    """Return None for uint64 beside a signed integer: their common float64 is too coarse to compare."""
    dtype = dtypes.common(operands)
    if dtype in dtypes.FLOATS and all(dtypes.category(d) != "float" for d in operands):
        return ()
    return (dtype,) * len(operands)


def _select(operands: Sequence[dtypes.Operand]) -> Dtypes:
    return (dtypes.bool_, *_same(operands[1:]))


def _first(given: Dtypes) -> np.dtype[Any]:
    return given[0]


def _last(given: Dtypes) -> np.dtype[Any]:
    return given[-1]


def _bool(_given: Dtypes) -> np.dtype[Any]:
    return dtypes.bool_


def _part(given: Dtypes) -> np.dtype[Any]:
    return dtypes.real_of(given[0])


def _halves_of_complex(operands: Sequence[dtypes.Operand]) -> Dtypes:
    return (dtypes.real_of(dtypes.complex_of(dtypes.common(operands))),) * len(operands)


def _of_parts(given: Dtypes) -> np.dtype[Any]:
    return dtypes.complex_of(given[0])


ANY = Typing(_same, _first)  # concat: any category
SAME = Typing(real(_same), _first)  # maximum: any category but complex
FIELD = Typing(_numeric, _first)  # add: bool counts as int32
NUMERIC = Typing(real(_numeric), _first)  # floor_div: as FIELD, of reals
SMOOTH = Typing(_analytic, _first)  # tanh: integers become float32
ANALYTIC = Typing(_analytic, _first, HIGH)  # exp: likewise; 16 bits may be too few for it
FLOATING = Typing(real(_analytic), _first)  # floor: as SMOOTH, of reals
PRECISE = Typing(real(_analytic), _first, HIGH)  # atan2: as ANALYTIC, of reals
TOTAL = Typing(_numeric, _first, HIGH)  # reduce_sum: as FIELD
EQUAL = Typing(_comparable, _bool)  # eq
COMPARE = Typing(real(_comparable), _bool)  # lt
ALIKE = Typing(_numeric, _bool)  # isclose
PREDICATE = Typing(real(_numeric), _bool)  # signbit
MAGNITUDE = Typing(_numeric, _part)  # abs
PART = Typing(_complex, _part)  # real
PARTS = Typing(real(_halves_of_complex), _of_parts)  # complex
LOGICAL = Typing(_logical, _bool)  # logical_and
INTEGER = Typing(_integer, _first)  # bit_and: bool stays
COUNTING = Typing(_counting, _first)  # shl: bool counts as int32
SELECT = Typing(_select, _last)  # where


def primitive(
    name: str,
    eager: Callable[..., Any],
    typing: Typing,
    grad: Callable[..., Any] | None = None,
    **facts: Any,
) -> Callable[..., Tensor]:
    """Return an element-wise op that has no body: a backend prints it, or the core runs it eagerly.

    The facts are fields of `Op`.
    """
    op = Op(name, Kind.ELEMENTWISE, _infer(name, typing.result), eager, grad, promote=typing.promote,
            differentiable=grad is not None, precision=typing.precision, **facts)  # fmt: skip
    return declare(op)


def composite(
    typing: Typing,
    *,
    eager: Callable[..., Any] | None = None,
    grad: Callable[..., Any] | None = None,
    name: str | None = None,
    differentiable: bool = True,
    **facts: Any,
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Declare an element-wise op by the decorated body; `eager` and `grad` only for speed or stability.

    The docstring of the body is its meaning, the facts are fields of `Op`.
    """

    def decorate(body: Callable[..., Tensor]) -> Callable[..., Tensor]:
        op_name = name or body.__name__
        plain = _infer(op_name, typing.result)

        def infer(*specs: Spec, **params: Any) -> Spec:
            _check_call(body, len(specs), tuple(params))
            return plain(*specs)

        op = Op(op_name, Kind.ELEMENTWISE, infer, eager, grad, body, typing.promote, differentiable,
                precision=typing.precision, meaning=_without_examples(body), **facts)  # fmt: skip
        return update_wrapper(declare(op), body, updated=())

    return decorate


def _without_examples(body: Callable[..., Tensor]) -> str:
    return (inspect.getdoc(body) or "").partition("\n\nExamples\n")[0]


@lru_cache(maxsize=4096)
def _check_call(body: Callable[..., Tensor], arrays: int, params: tuple[str, ...]) -> None:
    """Raise a TypeError where `body` takes no such call."""
    try:
        inspect.signature(body).bind(*range(arrays), **dict.fromkeys(params))
    except TypeError:
        inspect.unwrap(body)(*range(arrays), **dict.fromkeys(params))  # its error names it, and what it takes
        raise


def register(op: Op) -> Op:
    """Add `op` to `OPS`.

    Raises
    ------
    ValueError
        Another op has this name.
    """
    if OPS.setdefault(op.name, op) is not op:
        raise ValueError(f"op {op.name!r} is declared twice")
    return op


def declare(op: Op) -> Callable[..., Tensor]:
    """Register `op` and return the function that applies it: arrays by position, the rest by keyword."""
    register(op)

    def call(*args: Any, **params: Any) -> Tensor:
        return apply(op, *args, **params)

    call.__name__ = call.__qualname__ = op.name
    call.__doc__ = op.meaning or None
    call.op = op  # type: ignore[attr-defined]
    return call


def op_of(function: Callable[..., Tensor]) -> Op:
    """Return the Op behind a function that `primitive`, `composite` or `declare` returned."""
    op: Op = function.op  # type: ignore[attr-defined]
    return op


def arity(op: Op) -> int:
    """Return the number of arrays that `op` takes.

    Raises
    ------
    TypeError
        The op takes any number of arrays.
    """
    function = op.body or op.eager
    assert function is not None
    if isinstance(function, np.ufunc):
        return function.nin
    kinds = [p.kind for p in inspect.signature(function).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        raise TypeError(f"{op.name} takes any number of arrays")
    return sum(
        k in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for k in kinds
    )


def broadcast_shapes(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Broadcast shapes like NumPy.

    Raises
    ------
    ShapeError
        The shapes do not broadcast; the message names the op and every shape.
    """
    shape = broadcast(shapes)
    if shape is None:
        listed = " and ".join(map(str, shapes))
        raise ShapeError(f"{name}: bad input shape for polyadic operator: {listed} do not broadcast")
    return shape


def _infer(name: str, result: Callable[[Dtypes], np.dtype[Any]]) -> Callable[..., Spec]:
    def infer(*specs: Spec) -> Spec:
        return Spec(broadcast_shapes(name, *(s.shape for s in specs)), result([s.dtype for s in specs]))

    return infer


def normalize_axis(name: str, axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return `axis` as sorted non-negative integers; None is every axis.

    Raises
    ------
    AxisError
        An axis is out of range or stands twice.
    TypeError
        Something is not an integer.
    """
    if axis is None:
        return tuple(range(ndim))
    given = tuple(axis) if isinstance(axis, Sequence) and not isinstance(axis, str) else (axis,)
    if not all(isinstance(a, int | np.integer) and not isinstance(a, bool) for a in given):
        raise TypeError(f"{name}: axis {axis!r} is not an integer, a sequence of them, or None")
    axes = sorted(int(a) + ndim if a < 0 else int(a) for a in given)
    if any(not 0 <= a < ndim for a in axes) or len(set(axes)) != len(axes):
        raise AxisError(f"{name}: axis {axis} is out of range for {ndim} axes, or given twice")
    return tuple(axes)
