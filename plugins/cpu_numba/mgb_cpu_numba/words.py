"""The functions that the text of a kernel calls: one operation of LLVM each, on numbers or on vectors.

A name is that of the operation and what it has to know beside its operands, as in ``load_f32x16``. A `Word`
gives Numba the type of a call and writes the instruction itself: Numba's intrinsics have overloads, which it
looks up at each call.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing import signature
from numba.extending import models, register_model

#: ``result(details, *types) -> type``: Numba's type of a call, of those of its operands.
Result = Callable[..., Any]

#: ``emit(builder, details, *operands) -> value``
Emit = Callable[..., Any]

I32, POINTER, NOTHING = ir.IntType(32), ir.PointerType(), ir.VoidType()

#: The names of types: functions, too, that make a constant.
TYPE = re.compile(r"[fi]\d+(x\d+)?")

#: LLVM's types of floats; and Numba's types of elements: half a float is held by its bits.
_FLOATS = {"f16": ir.HalfType(), "f32": ir.FloatType(), "f64": ir.DoubleType()}
_HELD = {
    "i1": types.boolean, "f16": types.int16, "f32": types.float32, "f64": types.float64,
    "i128": types.Integer("int128", 128, True),
}  # fmt: skip


class Vector(types.Type):  # type: ignore[misc]
    """Numba's type of a vector."""

    def __init__(self, element: Any, lanes: int) -> None:
        self.element, self.lanes = element, lanes
        super().__init__(f"{element}x{lanes}")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, type_: Any) -> None:
        super().__init__(manager, type_, ir.VectorType(manager[type_.element].get_value_type(), type_.lanes))


@cache
def llvm_type(name: str) -> Any:
    """Return LLVM's type called `name`, for example ``f32x16``."""
    element, _, lanes = name.partition("x")
    type_ = _FLOATS.get(element) or ir.IntType(int(element[1:]))
    return ir.VectorType(type_, int(lanes)) if lanes else type_


@cache
def numba_type(name: str) -> Any:
    """Return Numba's type of the same values."""
    element, _, lanes = name.partition("x")
    type_ = _HELD.get(element) or getattr(types, f"int{element[1:]}")
    return Vector(type_, int(lanes)) if lanes else type_


class Word(types.Callable):  # type: ignore[misc]
    """The type of a function that a kernel calls."""

    def __init__(self, name: str, result: Result, emit: Emit, details: Sequence[str] = ()) -> None:
        self.result, self.emit, self.details = result, emit, details
        super().__init__(name)

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Return the signature of a call."""
        operands = [types.unliteral(a) for a in args]
        return signature(self.result(self.details, *operands), *operands)

    def get_call_signatures(self) -> Any:
        """Return the signatures to name in an error."""
        return (), True

    def get_impl_key(self, sig: Any) -> Any:
        """Return the key of an implementation."""
        return self.key


class Named:
    """A function as the globals of a kernel have it."""

    def __init__(self, name: str) -> None:
        operation, *details = name.split("_")
        if TYPE.fullmatch(name):
            operation, details = "number", [name]
        elif operation not in WORDS:
            operation, details = "apply", [operation, *details]
        self.word = Word(name, *WORDS[operation], details)


@cache
def named(name: str) -> Named:
    """Return the function of a name."""
    return Named(name)


# the types of results


def _first(details: Sequence[str], first: Any, *rest: Any) -> Any:
    return first


def _second(details: Sequence[str], first: Any, second: Any, *rest: Any) -> Any:
    return second


def _last_detail(details: Sequence[str], *args: Any) -> Any:
    return numba_type(details[-1])


def _bits(details: Sequence[str], first: Any, *rest: Any) -> Any:
    return Vector(types.boolean, first.lanes) if isinstance(first, Vector) else types.boolean


def _lanes(details: Sequence[str], *args: Any) -> Any:
    return Vector(types.boolean, int(details[0]))


def _element(details: Sequence[str], first: Any, *rest: Any) -> Any:
    return first.element


def _none(details: Sequence[str], *args: Any) -> Any:
    return types.none


# operations

#: The operations that are instructions, and intrinsics with another name. A product and a sum are rounded
#: once where the processor does so.
_INSTRUCTIONS = frozenset("fneg fadd fmul frem udiv sdiv urem shl lshr ashr".split())
_INTRINSICS = {"fma": "fmuladd", "opaque": "arithmetic.fence"}

#: The folds of all lanes whose names are others, and those that begin with a number.
_ACROSS, _BEGINS = {"maximum": "fmaximum", "minimum": "fminimum"}, {"fadd": -0.0, "fmul": 1.0}

_UNSIGNED = {"ugt": ">", "ult": "<", "uge": ">=", "ule": "<="}


def _scalar(type_: Any) -> Any:
    return type_.element if isinstance(type_, ir.VectorType) else type_


def _is_float(type_: Any) -> bool:
    return _scalar(type_) in _FLOATS.values()


def _suffix(type_: Any) -> str:
    """Return the end of an intrinsic's name."""
    element = _scalar(type_)
    name = next((n for n, t in _FLOATS.items() if t == element), None) or f"i{element.width}"
    return name if element is type_ else f"v{type_.count}{name}"


def _call(builder: Any, name: str, result: Any, args: Sequence[Any], flags: Sequence[str] = ()) -> Any:
    """Call an intrinsic or another function, declared where that is not done yet."""
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [a.type for a in args]), name)
    return builder.call(function, args, fastmath=flags)


def _apply(builder: Any, details: Sequence[str], *args: Any) -> Any:
    operation, *flags = details
    if operation in _INSTRUCTIONS:
        method = getattr(builder, operation)
        return method(*args, flags=flags) if flags else method(*args)
    type_ = args[0].type
    name = f"llvm.{_INTRINSICS.get(operation, operation)}.{_suffix(type_)}"
    return _call(builder, name, type_, args, flags)


def _change(operation: str) -> Emit:
    def emit(builder: Any, details: Sequence[str], value: Any) -> Any:
        source, target = details
        if source.startswith("f16"):
            value = builder.bitcast(value, llvm_type(source))
        value = getattr(builder, operation)(value, llvm_type(target))
        return builder.bitcast(value, llvm_type(f"i{target[1:]}")) if target.startswith("f16") else value

    return emit


def _operator(floats: str, integers: str) -> Emit:
    def emit(builder: Any, details: Sequence[str], a: Any, b: Any) -> Any:
        return getattr(builder, floats if _is_float(a.type) else integers)(a, b)

    return emit


def _relation(sign: str) -> Emit:
    def emit(builder: Any, details: Sequence[str], a: Any, b: Any) -> Any:
        if not _is_float(a.type):
            return builder.icmp_signed(sign, a, b)
        return (builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered)(sign, a, b)

    return emit


def _fcmp(builder: Any, details: Sequence[str], a: Any, b: Any) -> Any:
    return builder.fcmp_unordered("uno", a, b)  # the only relation without an operator


def _icmp(builder: Any, details: Sequence[str], a: Any, b: Any) -> Any:
    return builder.icmp_unsigned(_UNSIGNED[details[0]], a, b)


def _select(builder: Any, details: Sequence[str], condition: Any, a: Any, b: Any) -> Any:
    return builder.select(condition, a, b)


# numbers and lanes


def _number(builder: Any, details: Sequence[str], value: Any) -> Any:
    type_ = llvm_type(details[0])
    one = ir.Constant(_scalar(type_), value.constant)
    return ir.Constant(type_, [one] * type_.count) if isinstance(type_, ir.VectorType) else one


def _numbers(builder: Any, details: Sequence[str]) -> Any:
    type_ = llvm_type(details[0])
    return ir.Constant(type_, list(range(type_.count)))


def _spread(builder: Any, details: Sequence[str], value: Any) -> Any:
    type_ = llvm_type(details[0])
    one = builder.insert_element(ir.Constant(type_, ir.Undefined), value, I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, type_.count), None))


def _lane(builder: Any, details: Sequence[str], vector: Any, place: Any) -> Any:
    return builder.extract_element(vector, place)


def _slide(builder: Any, details: Sequence[str], vector: Any, before: Any) -> Any:
    lanes, by = vector.type.count, int(details[0])
    places = ir.Constant(ir.VectorType(I32, lanes), list(range(lanes - by, 2 * lanes - by)))
    return builder.shuffle_vector(before, vector, places)


def _across(builder: Any, details: Sequence[str], vector: Any) -> Any:
    operation, *flags = details
    element, name = vector.type.element, _ACROSS.get(operation, operation)
    begin = [ir.Constant(element, _BEGINS[operation])] if operation in _BEGINS else []
    return _call(
        builder, f"llvm.vector.reduce.{name}.{_suffix(vector.type)}", element, [*begin, vector], flags
    )


def _mask(builder: Any, details: Sequence[str], count: Any) -> Any:
    type_ = [f"i32x{details[0]}"]
    few = _spread(builder, type_, builder.trunc(count, I32))
    return builder.icmp_signed("<", _numbers(builder, type_), few)


# memory


def _size(type_: Any) -> int:
    """Return the bytes of an element."""
    return int(_suffix(_scalar(type_))[1:]) // 8


def _pointer(builder: Any, address: Any, i: Any, type_: Any) -> Any:
    return builder.gep(builder.inttoptr(address, POINTER), [i], source_etype=_scalar(type_))


def _load(builder: Any, details: Sequence[str], address: Any, i: Any, mask: Any = None) -> Any:
    type_ = llvm_type(details[0])
    pointer, size = _pointer(builder, address, i, type_), _size(type_)
    if mask is None:
        return builder.load(pointer, align=size, typ=type_)
    args = [pointer, I32(size), mask, ir.Constant(type_, None)]
    return _call(builder, f"llvm.masked.load.{_suffix(type_)}.p0", type_, args)


def _store(builder: Any, details: Sequence[str], value: Any, address: Any, i: Any, mask: Any = None) -> None:
    type_ = value.type
    pointer, size = _pointer(builder, address, i, type_), _size(type_)
    if mask is None:
        builder.store(value, pointer, align=size)
    else:
        args = [value, pointer, I32(size), mask]
        _call(builder, f"llvm.masked.store.{_suffix(type_)}.p0", NOTHING, args)


def _gather(builder: Any, details: Sequence[str], addresses: Any, mask: Any = None) -> Any:
    type_ = llvm_type(details[0])
    at = builder.inttoptr(addresses, ir.VectorType(POINTER, type_.count))
    if mask is None:
        mask = ir.Constant(ir.VectorType(ir.IntType(1), type_.count), [1] * type_.count)
    args = [at, I32(_size(type_)), mask, ir.Constant(type_, None)]
    return _call(builder, f"llvm.masked.gather.{_suffix(type_)}.v{type_.count}p0", type_, args)


def _copy(builder: Any, details: Sequence[str], *words: Any) -> None:
    _call(builder, "_".join(("mgb", *details)), NOTHING, words)


def _fence(builder: Any, details: Sequence[str]) -> None:
    builder.fence("seq_cst")


_CHANGES = "fpext fptrunc zext sext trunc fptosi fptoui sitofp uitofp bitcast".split()

WORDS: dict[str, tuple[Result, Emit]] = {
    "apply": (_first, _apply), "select": (_second, _select), "fcmp": (_bits, _fcmp), "icmp": (_bits, _icmp),
    **{name: (_last_detail, _change(name)) for name in _CHANGES},
    "number": (_last_detail, _number), "numbers": (_last_detail, _numbers),
    "spread": (_last_detail, _spread), "lane": (_element, _lane), "slide": (_first, _slide),
    "across": (_element, _across), "mask": (_lanes, _mask),
    "load": (_last_detail, _load), "store": (_none, _store), "gather": (_last_detail, _gather),
    "mgb": (_none, _copy), "fence": (_none, _fence),
}  # fmt: skip

#: Python's operators; and `bool`, which Python asks of each condition.
OPERATORS = {
    operator.add: Word("+", _first, _operator("fadd", "add")),
    operator.sub: Word("-", _first, _operator("fsub", "sub")),
    operator.mul: Word("*", _first, _operator("fmul", "mul")),
    operator.truediv: Word("/", _first, _operator("fdiv", "")),
    operator.and_: Word("&", _first, _operator("", "and_")),
    operator.or_: Word("|", _first, _operator("", "or_")),
    operator.xor: Word("^", _first, _operator("", "xor")),
    operator.lt: Word("<", _bits, _relation("<")), operator.le: Word("<=", _bits, _relation("<=")),
    operator.gt: Word(">", _bits, _relation(">")), operator.ge: Word(">=", _bits, _relation(">=")),
    operator.eq: Word("==", _bits, _relation("==")), operator.ne: Word("!=", _bits, _relation("!=")),
    bool: Word("bool", _first, lambda builder, details, bit: bit),
}  # fmt: skip
