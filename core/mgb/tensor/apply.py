"""`apply`: the one place where an op meets its arguments."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from ..errors import ConversionError, DeviceMismatchError
from ..ir import Kind, Op, Spec, dtypes
from ..ir.scalars import SCALARS, Scalar, fixed, plain
from ..runtime import device as devices
from ..runtime import memory
from ..runtime.precision import AUTOCAST, LOW, exactly
from ..runtime.trusted import NUMPY, PACKAGE
from . import ACTIVE, CONSTANT, Session, Tensor, as_array, as_given, converted, quietly, run_in, wrap
from .libraries import Rule

_WEAK = frozenset(dtypes.WEAK)
_HALVES = frozenset(dtypes.HALVES)
_NARROW = _HALVES | {dtypes.float32}
_NONE: dict[str, Any] = {}
#: Whose lines no message names: mgb's own, and those of NumPy's functions, which call Tensors back.
_INNER = (PACKAGE, NUMPY)
_targets: dict[tuple[Any, ...], Sequence[np.dtype[Any]] | None] = {}
_cast: Callable[..., Tensor]
_of_one_sign: Callable[[Any, Any], tuple[Tensor, Tensor]]


def apply(op: Op, *args: Any, **params: Any) -> Tensor:
    """Run `op`, and tell the active trace and the gradient tapes of it.

    Parameters
    ----------
    op : Op
    *args : Tensor, array-like or Python scalar
        The arrays. Operands are promoted by the op's own rule.
    **params
        Everything that is not an array.

    Returns
    -------
    Tensor
    """
    if op.precision and AUTOCAST.get() is not None:
        args = autocasted(op.precision, literals(op.name, args, partial(_targets_of, op)))
    session = ACTIVE.get()
    if session is not None:
        out: Tensor | None = session.shortcut(op, args, params)
        if out is not None:
            return out
    return apply_in(session, op, args, params)


def apply_in(
    session: Session[Tensor] | None, op: Op, args: tuple[Any, ...], params: dict[str, Any]
) -> Tensor:
    """Apply in a session that has no shortcut for this call, or in none."""
    inputs = _promoted(op, args)
    tracked = False
    for tensor in inputs:
        if tensor._tape:
            tracked = True
            break
    if tracked and op.differentiable and (instead := op.under_tape) is not None:
        result: Tensor = exactly(instead, *inputs, **params)
        return result
    if session is not None:
        out = session.step(op, inputs, params)
    else:
        device = params.get("device") or (inputs[0]._device if inputs else devices.default())
        arrays = [t._data if t._session is None else t._array() for t in inputs]
        out = wrap(evaluate(op, arrays, params, device), device)
    if tracked and op.differentiable:
        record(op, inputs, out, params)
    return out


def untaped(op: Op, *inputs: Tensor, **params: Any) -> Tensor:
    """Apply `op` to operands of the dtypes that it computes in; no tape notes it."""
    session = ACTIVE.get()
    if session is not None:
        out: Tensor = session.step(op, inputs, params)
        return out
    arrays = [t._array() for t in inputs]
    return wrap(evaluate(op, arrays, params, inputs[0]._device), inputs[0]._device)


def record(op: Op, inputs: Sequence[Tensor], out: Tensor, params: dict[str, Any]) -> None:
    """Tell every gradient tape that sees one of `inputs` what was done."""
    for tape in recording_tapes(inputs):
        tape.record(op, inputs, out, params)


def recording_tapes(tensors: Iterable[Tensor]) -> list[Any]:
    """Return the gradient tapes that see one of `tensors` and record now, outer ones first."""
    tapes: list[Any] = []
    for tensor in tensors:
        for tape in tensor._tape or ():
            if tape.recording and tape not in tapes:
                tapes.append(tape)
    if len(tapes) > 1:
        tapes.sort(key=_level)
    return tapes


_level = attrgetter("level")


def evaluate(op: Op, arrays: Sequence[Any], params: dict[str, Any], device: str = "") -> Any:
    """Return the array that `op` gives on `arrays`, now, by its eager rule or its body.

    Parameters
    ----------
    op : Op
    arrays : sequence of arrays
        Constants may be NumPy's wherever the others lie.
    params : dict
    device : str, optional
        Where the result is to lie when `arrays` are constants alone.
    """
    if (devices.gpu_module is None and device[:3] != "gpu") or op.crosses:
        return _evaluate(op, arrays, params, device)
    return _evaluate_there(op, arrays, params, device)


def _evaluate_there(op: Op, arrays: Sequence[Any], params: dict[str, Any], device: str) -> Any:
    """Evaluate with the GPU of the arrays as the current one, or without any, that of `device`."""
    where = next((devices.where(a) for a in arrays if not isinstance(a, np.ndarray | np.generic)), device)
    if not devices.is_gpu(where):
        return _evaluate(op, arrays, params, where)
    try:
        return _evaluate_on(op, arrays, params, where)
    except MemoryError:
        memory.empty_cache()
    with devices.memory_explained(where, op.name):
        return _evaluate_on(op, arrays, params, where)


def _evaluate_on(op: Op, arrays: Sequence[Any], params: dict[str, Any], device: str) -> Any:
    """Evaluate on a GPU; a constant of one element is an argument of the kernel, others are copied to it."""
    by_element = op.kind is Kind.ELEMENTWISE
    some = by_element and not all(isinstance(a, np.ndarray) for a in arrays)
    with devices.on(device):
        placed = []
        for a in arrays:
            if isinstance(a, np.ndarray):
                a = a[()] if some and not a.ndim else devices.place(a, device)
            placed.append(a)
        return devices.place(_evaluate(op, placed, params, device), device)


def _evaluate(op: Op, arrays: Sequence[Any], params: dict[str, Any], device: str) -> Any:
    eager = op.eager
    if eager is None:
        return _evaluate_body(op, arrays, params, device or devices.HOST)
    try:
        if op.kind is Kind.LAYOUT:
            value = eager(*arrays, **params)
        else:
            large = False
            for a in arrays:
                if a.dtype in _HALVES:
                    return quietly(_evaluate_half, (op, arrays, params), _NONE)
                large = large or a.nbytes >= memory.SMALL
            if large and type(eager) is np.ufunc:
                params = {"out": _memory_for(op, arrays)}
            value = quietly(eager, arrays, params)
    except (ValueError, IndexError, TypeError):
        op.infer(*(_spec_of(a) for a in arrays), **params)  # raises the error that names op and shapes
        raise
    return value if type(value) is np.ndarray else _as_array(value)


def _memory_for(op: Op, arrays: Sequence[Any]) -> Any:
    """Return memory that was used before for a result of row-major arrays: fresh pages have to be found.

    None where NumPy is to choose the order of the axes.
    """
    if not all(type(a) is np.ndarray and a.flags.c_contiguous for a in arrays):
        return None
    spec = op.infer(*map(_spec_of, arrays))
    return memory.empty(spec.shape, spec.dtype)


def _evaluate_half(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> Any:
    """Evaluate 16-bit floats in float32 and round once, unless a library has better."""
    assert op.eager is not None
    if op.keeps_bits:
        return _as_array(op.eager(*arrays, **params))
    if isinstance(op.eager, Rule) and (made := op.eager.by_library(*arrays, **params)) is not None:
        return made
    dtype = op.infer(*(_spec_of(a) for a in arrays), **params).dtype
    return _as_array(op.eager(*_widened(arrays), **params)).astype(dtype, copy=False)


def _widened(arrays: Sequence[Any]) -> list[Any]:
    return [a.astype(np.float32) if a.dtype in _HALVES else a for a in arrays]


def _evaluate_body(op: Op, arrays: Sequence[Any], params: dict[str, Any], device: str) -> Any:
    assert op.body is not None
    body, wide = op.body, [wrap(a, device) for a in _widened(arrays)]
    out = exactly(lambda: run_in(None, body, *wide, **params))._data
    if any(a.dtype in _HALVES for a in arrays):
        dtype = op.infer(*(_spec_of(a) for a in arrays), **params).dtype
        out = quietly(out.astype, (dtype,), {"copy": False})
    return out


def _as_array(value: Any) -> Any:
    return value if hasattr(value, "strides") and not isinstance(value, np.generic) else np.asarray(value)


def _spec_of(array: Any) -> Spec:
    return Spec(array.shape, array.dtype)


# promotion


def _promoted(op: Op, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Return the arguments as Tensors of the dtypes that `op` computes in."""
    operands: list[Any] = [op]
    device: str | None = None
    for a in args:
        if isinstance(a, Tensor):
            operands.append(a._data.dtype if a._data is not None else a.spec.dtype)
            if device is None:
                device = a._device
            elif device != a._device and not devices.same_place(device, a._device):
                message = f"{op.name}: ambiguous device: {device} and {a._device}; move one with .to(device)"
                raise DeviceMismatchError(message)
        elif type(a) in _WEAK:
            operands.append(type(a))
        elif type(a) in SCALARS and type(a.value) in _WEAK:
            operands.append(type(a.value))
        else:
            return _promoted(op, literals(op.name, args, partial(_targets_of, op)))
    key = tuple(operands)
    try:
        targets = _targets[key]
    except KeyError:
        targets = _targets[key] = _wanted(op, operands[1:])
    if not targets:
        return args if targets is None else _of_one_sign(*map(fixed, args))
    exact = []
    try:
        for a, given, wanted in zip(args, key[1:], targets, strict=True):
            if type(a) in _WEAK or type(a) in SCALARS:
                exact.append(number(op.name, a, wanted, device or devices.default()))
            else:
                exact.append(a if given == wanted else _cast(a, dtype=wanted))
    except ConversionError:
        compares = op.infer(*(Spec((), d) for d in targets)).dtype == dtypes.bool_
        if not compares or targets[0] not in dtypes.INTEGERS:
            raise
        return _promoted(op, tuple(_compared(fixed(a), targets[0]) for a in args))
    return tuple(exact)


def follow(tensor: Tensor, value: Scalar) -> None:
    """Have the trace for which `value` is symbolic recreate `tensor` of it at each call, or else fix it."""
    session = ACTIVE.get()
    if session is None or not session.follows(tensor, value):
        value.fixed()


def follow_exact(tensor: Tensor, value: Scalar) -> Tensor:
    """Have the trace `follow` a Tensor made of `value`; fix that where it rounds otherwise than operands."""
    is_exact = tensor.dtype in (dtypes.float32, dtypes.float64) or type(value) is not Scalar
    follow(tensor, value) if is_exact else value.fixed()
    return tensor


def _compared(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return an operand of a comparison with an integer that `dtype` does not hold.

    It compares as infinity does.
    """
    if isinstance(value, Tensor):
        return _cast(value, dtype=dtypes.float32)
    limits = np.iinfo(dtype)
    if limits.min <= value <= limits.max:
        return value
    return math.inf if value > 0 else -math.inf


def _wanted(op: Op, operands: list[Any]) -> Sequence[np.dtype[Any]] | None:
    """Return the dtypes that the operands are cast to; None when they are taken as they are.

    None at all where only `_of_one_sign` brings them together.
    """
    if op.promote and not operands:
        raise TypeError(f"{op.name}() needs at least one array, got none")
    try:
        targets = op.promote(operands) if op.promote else [dtypes.common([d]) for d in operands]
    except ConversionError as error:
        raise ConversionError(f"{op.name}: {error}") from None
    has_scalar = any(isinstance(d, type) for d in operands)
    return targets if has_scalar or list(targets) != operands else None


def _targets_of(op: Op, operands: list[Any]) -> Sequence[np.dtype[Any]]:
    """Return the dtypes that hold the operands, remembered as `_wanted` says them."""
    key = (op, *operands)
    if key not in _targets:
        _targets[key] = _wanted(op, operands)
    targets = _targets[key]
    if targets is None:
        return operands
    return targets or [dtypes.summed(d) for d in operands]  # integers whose signs differ, in full


def autocasted(precision: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """Cast the Tensors among `args` as `amp.autocast` does for a `precision`; others stay."""
    names = AUTOCAST.get()
    if names is None:
        return tuple(args)
    low, high = map(dtypes.as_dtype, names)
    wanted, given = (low, _NARROW) if precision == LOW else (high, _HALVES)
    return tuple(
        _cast(a, dtype=wanted) if isinstance(a, Tensor) and a.dtype in given and a.dtype != wanted else a
        for a in args
    )


def literals(
    name: str, args: Sequence[Any], promote: Callable[[list[Any]], Sequence[Any]] | None = None
) -> tuple[Any, ...]:
    """Convert the lists and arrays among `args` to Tensors; Tensors and weak numbers stay what they are.

    An array counts as the Tensor that ``tensor(array)`` makes, so that one of float64, which is what NumPy
    makes unless told otherwise, does not turn float32 into float64. Its elements are converted once, from
    what they are to the dtype in which the operands meet: beside a Tensor of float64 no digit is lost.

    Parameters
    ----------
    name : str
        Of the op or function, for messages.
    args : sequence
    promote : callable, optional
        From the dtypes of `args` to those that are wanted; without it, the one in which all of them meet.
    """
    device: str | None = None
    operands: list[Any] = []
    arrays: dict[int, Any] = {}
    for place, a in enumerate(args):
        if isinstance(a, Tensor):
            operands.append(a.dtype)
            device = device or a._device
        elif type(a) in _WEAK:
            operands.append(type(a))
        elif type(a) in SCALARS and promote and type(a.value) in _WEAK:
            operands.append(type(a.value))
        elif type(a) in SCALARS and not promote:
            return literals(name, list(map(fixed, args)), promote)
        else:
            arrays[place] = array = _array_of(name, plain(a))
            operands.append(dtypes.constructed(array.dtype))
    if not arrays:
        return tuple(args)
    targets = promote(operands) if promote else [dtypes.common(operands)] * len(operands)
    made, session = list(args), ACTIVE.get()
    for place, array in arrays.items():
        try:
            value = converted(array, targets[place], array is not args[place])
        except ConversionError as error:
            raise ConversionError(f"{name}: {error}") from None
        made[place] = constant(devices.to_host(value), device or devices.of_array(value))
        if type(args[place]) in SCALARS:
            follow(made[place], args[place])
        elif session is not None:
            session.created(made[place], args[place])
    return tuple(made)


def tensors(name: str, args: Sequence[Any]) -> tuple[Tensor, ...]:
    """Convert `args` like `literals`, and numbers and tuples among them to Tensors too."""
    return literals(name, [np.asarray(a) if type(a) in _WEAK or isinstance(a, tuple) else a for a in args])


def _array_of(name: str, value: Any) -> Any:
    if value is None:
        raise TypeError(f"{name}: the operand is None and is not supported.")
    if isinstance(value, tuple):
        raise TypeError(f"{name}: a tuple is not an array; make a list or a Tensor of it")
    try:
        return as_given(value)
    except ConversionError as error:
        raise ConversionError(f"{name}: {error}") from None


def number(name: str, value: Any, dtype: np.dtype[Any], device: str) -> Tensor:
    """Return a literal of `dtype` made of a weak number, symbolic if that is."""
    try:
        array = quietly(np.array, (value.value if type(value) in SCALARS else value, dtype), _NONE)
    except (OverflowError, TypeError, ValueError) as error:
        raise ConversionError(f"{name}: {value} does not fit in {dtype}") from error
    made = constant(array, device)
    if type(value) in SCALARS:
        follow(made, value)
    return made


def literal(value: Any, dtype: Any = None, device: str | None = None) -> Tensor:
    """Return a Tensor of a value that stands in the program text: a trace compares it and never feeds it."""
    if type(value) in SCALARS:
        return follow_exact(literal(value.value, dtype, device), value)
    value = np.asarray(value) if isinstance(value, np.ndarray) else value  # what stands for one has to stay
    array = as_array(value, dtype)
    return constant(devices.to_host(array), str(device) if device else devices.of_array(array))


def constant(array: Any, device: str) -> Tensor:
    """Return a Tensor around `array` that a trace takes for a literal; it is NumPy's, whatever the device."""
    tensor = wrap(array, device)
    tensor._index = CONSTANT
    return tensor


def install_promotion(
    cast: Callable[..., Tensor], of_one_sign: Callable[[Any, Any], tuple[Tensor, Tensor]]
) -> None:
    """Set what promotion casts by, for `mgb.ops`: ops like any other, traced and differentiated."""
    global _cast, _of_one_sign
    _cast, _of_one_sign = cast, of_one_sign


def caller() -> str:
    """Return ``file:line`` of the innermost frame outside mgb and NumPy, for messages."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INNER):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
