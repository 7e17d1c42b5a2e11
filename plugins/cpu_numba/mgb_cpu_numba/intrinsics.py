"""The words that Numba lacks, or spells with other semantics, as LLVM instructions.

Every function computes in the type of its operands. None that spells an op can trap or contains a branch, so
all vectorise; ``quotient`` and ``remainder`` are for places in loops, which are at least 0, and divide by
lengths, which are not 0 where a loop runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir
from mgb_native.remainder import Doubles, fuses, remainder
from numba import types
from numba.extending import intrinsic

from . import memory
from .halves import narrow, widen
from .memory import STORED

#: ``emit(builder, type, *operands) -> value``; `type` is Numba's type of the operands.
Emit = Callable[..., Any]

BIT, DOUBLE = ir.IntType(1), ir.DoubleType()


def _is_float(type_: Any) -> bool:
    return isinstance(type_, types.Float)


def _is_signed(type_: Any) -> bool:
    return isinstance(type_, types.Integer) and type_.name.startswith("int")


def _call(name: str, builder: Any, *args: Any) -> Any:
    type_ = args[0].type
    signature = ir.FunctionType(type_, [type_] * len(args))
    return builder.call(builder.module.declare_intrinsic(f"llvm.{name}", [type_], signature), args)


def _llvm(name: str) -> Emit:
    return lambda builder, _type, *args: _call(name, builder, *args)


def _instruction(floats: str, integers: str) -> Emit:
    """The instruction of an arithmetic word for floats and for integers, which wrap."""
    return lambda builder, type_, *args: getattr(builder, floats if _is_float(type_) else integers)(*args)


def _logical_not(builder: Any, type_: Any, a: Any) -> Any:
    return builder.xor(a, a.type(1))


def _less(builder: Any, type_: Any, a: Any, b: Any) -> Any:
    if _is_float(type_):
        return builder.fcmp_ordered("<", a, b)
    return (builder.icmp_signed if _is_signed(type_) else builder.icmp_unsigned)("<", a, b)


def _extreme(swap: bool) -> Emit:
    """The greater, or the smaller (`swap`), of two; NaN when either is."""

    def emit(builder: Any, type_: Any, a: Any, b: Any) -> Any:
        first = _less(builder, type_, *((a, b) if swap else (b, a)))
        if _is_float(type_):
            first = builder.or_(first, builder.fcmp_unordered("uno", a, a))
        return builder.select(first, a, b)

    return emit


def _any_order(floats: str, integers: str) -> Emit:
    """A step of a sum or product whose order is left to LLVM: it keeps many and adds them up at the end."""

    def emit(builder: Any, type_: Any, a: Any, b: Any) -> Any:
        if _is_float(type_):
            return getattr(builder, floats)(a, b, flags=("reassoc",))
        return getattr(builder, integers)(a, b)

    return emit


def _frozen(builder: Any, value: Any) -> Any:
    """`value`, hidden from rewrites.

    LLVM turns the maximum of p and ``select(mask, x, -inf)`` into ``select(mask, maximum(p, x), p)``, which
    it does not know for a reduction and does not vectorise.
    """
    instruction = ir.Instruction(builder.block, value.type, "freeze", (value,))
    builder._insert(instruction)  # llvmlite has no word for it
    return instruction


def _extreme_of_all(swap: bool) -> Emit:
    """A step of a maximum or minimum (`swap`), in a form that LLVM knows to have no order; NaN stays."""
    name, compare = ("minimum", "<") if swap else ("maximum", ">")

    def emit(builder: Any, type_: Any, a: Any, b: Any) -> Any:
        if _is_float(type_):
            signature = ir.FunctionType(a.type, [a.type] * 2)
            function = builder.module.declare_intrinsic(f"llvm.{name}", [a.type], signature)
            return builder.call(function, (a, _frozen(builder, b)), fastmath=("nsz",))
        order = builder.icmp_signed if _is_signed(type_) else builder.icmp_unsigned
        return builder.select(order(compare, a, b), a, b)

    return emit


def _fma(builder: Any, type_: Any, a: Any, b: Any, c: Any) -> Any:
    if _is_float(type_):
        return _call("fmuladd", builder, a, b, c)
    return builder.add(builder.mul(a, b), c)


def _remainder(builder: Any, type_: Any, a: Any, b: Any) -> Any:
    """C's ``fmod``. It would be a call for each element: the one of float32 is expanded inline."""
    if type_ != types.float32:
        return builder.frem(a, b)
    words = Doubles(
        DOUBLE,
        *(builder.fneg, builder.fadd, builder.fsub, builder.fdiv),
        partial(_call, "fma" if fuses() else "fmuladd", builder),
        lambda a, b, c, d: builder.select(builder.fcmp_ordered("<", a, b), c, d),
        fuses(),
    )
    sizes = [_call("fabs", builder, builder.fpext(x, DOUBLE)) for x in (a, b)]
    return _call("copysign", builder, builder.fptrunc(remainder(*sizes, words), a.type), a)


def _quotient(builder: Any, type_: Any, a: Any, b: Any) -> Any:
    """Towards 0; ``x / 0`` is 0, ``least / -1`` wraps. The divisor that LLVM is given cannot trap."""
    zero = a.type(0)
    is_zero = builder.icmp_unsigned("==", b, zero)
    is_minus = builder.icmp_signed("==", b, b.type(-1)) if _is_signed(type_) else BIT(0)
    divisor = builder.select(builder.or_(is_zero, is_minus), b.type(1), b)
    quotient = (builder.sdiv if _is_signed(type_) else builder.udiv)(a, divisor)
    quotient = builder.select(is_minus, builder.sub(zero, a), quotient)
    return builder.select(is_zero, zero, quotient)


def _shift(left: bool) -> Emit:
    def emit(builder: Any, type_: Any, a: Any, count: Any) -> Any:
        count = builder.and_(count, count.type(type_.bitwidth - 1))
        if left:
            return builder.shl(a, count)
        return (builder.ashr if _is_signed(type_) else builder.lshr)(a, count)

    return emit


def _mulhi(builder: Any, type_: Any, a: Any, b: Any) -> Any:
    double = ir.IntType(2 * type_.bitwidth)
    extend = builder.sext if _is_signed(type_) else builder.zext
    product = builder.mul(extend(a, double), extend(b, double))
    return builder.trunc(builder.lshr(product, double(type_.bitwidth)), a.type)


# fmt: off
_UNARY: dict[str, Emit] = {
    "neg": _instruction("fneg", "neg"), "logical_not": _logical_not,
    "floor": _llvm("floor"), "rint": _llvm("rint"), "sqrt": _llvm("sqrt"),
}
_BINARY: dict[str, Emit] = {
    "add": _instruction("fadd", "add"), "sub": _instruction("fsub", "sub"),
    "mul": _instruction("fmul", "mul"), "mulhi": _mulhi,
    "sum_up": _any_order("fadd", "add"), "multiply_up": _any_order("fmul", "mul"),
    "greatest": _extreme_of_all(swap=False), "least": _extreme_of_all(swap=True),
    "maximum": _extreme(swap=False), "minimum": _extreme(swap=True),
    "towards_zero": _quotient, "fmod": _remainder,
    "bit_and": _instruction("", "and_"), "bit_or": _instruction("", "or_"),
    "quotient": _instruction("", "udiv"), "remainder": _instruction("", "urem"),
    "bit_xor": _instruction("", "xor"), "shl": _shift(left=True), "shr": _shift(left=False),
}
# fmt: on


def _generated(emit: Emit) -> Callable[..., Any]:
    return lambda context, builder, signature, args: emit(builder, signature.args[0], *args)


def _unary(emit: Emit) -> Any:
    return intrinsic(lambda _typing, a: (a(a), _generated(emit)))


def _binary(emit: Emit) -> Any:
    return intrinsic(lambda _typing, a, b: (a(a, b), _generated(emit)))


def _select(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    return builder.select(*args)


WORDS: dict[str, Any] = {
    **{name: _unary(emit) for name, emit in _UNARY.items()},
    **{name: _binary(emit) for name, emit in _BINARY.items()},
    "fma": intrinsic(lambda _typing, a, b, c: (a(a, b, c), _generated(_fma))),
    "where": intrinsic(lambda _typing, condition, a, b: (a(types.boolean, a, b), _select)),
    "slot": memory.slot(),
    "move": memory.move(),
    "any_is": memory.any_is(),
    "ask": memory.ask(),
    "fence": memory.fence(),
    "end": memory.end(),
}


def cast(dtype: str) -> Any:
    """``cast(x)``: `x` in `dtype`; 16-bit floats are rounded, and held as float32."""
    held = STORED[dtype][0]

    def typing(_context: Any, x: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if dtype not in ("float16", "bfloat16"):
                return _convert(builder, x, held, args[0])
            return widen(builder, narrow(builder, _convert(builder, x, held, args[0]), dtype), dtype)

        return held(x), codegen

    return intrinsic(typing)


def _convert(builder: Any, source: Any, target: Any, value: Any) -> Any:
    if source == target:
        return value
    if target == types.boolean:
        compare = builder.fcmp_unordered if _is_float(source) else builder.icmp_unsigned
        return compare("!=", value, value.type(0))
    if _is_float(source) and _is_float(target):
        change = builder.fpext if target.bitwidth > source.bitwidth else builder.fptrunc
    elif _is_float(source):
        change = builder.fptosi if _is_signed(target) else builder.fptoui
    elif _is_float(target):
        change = builder.sitofp if _is_signed(source) else builder.uitofp
    else:
        return _resize(builder, source, target, value)
    return change(value, _llvm_type(target))


def _resize(builder: Any, source: Any, target: Any, value: Any) -> Any:
    width = 1 if source == types.boolean else source.bitwidth
    if target.bitwidth == width:
        return value
    if target.bitwidth < width:
        return builder.trunc(value, _llvm_type(target))
    return (builder.sext if _is_signed(source) else builder.zext)(value, _llvm_type(target))


def _llvm_type(type_: Any) -> Any:
    if _is_float(type_):
        return ir.FloatType() if type_.bitwidth == 32 else ir.DoubleType()
    return ir.IntType(type_.bitwidth)


def bitcast(source: str, target: str) -> Any:
    """``bitcast(x)``: the same bits, read as `target`."""
    result, stored, _ = STORED[target]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = args[0]
        if source == "bool":
            value = builder.zext(value, memory.BYTE)
        elif source in ("float16", "bfloat16"):
            value = narrow(builder, value, source)
        bits = builder.bitcast(value, stored)
        if target == "bool":
            return builder.icmp_unsigned("!=", bits, memory.BYTE(0))
        return widen(builder, bits, target) if target in ("float16", "bfloat16") else bits

    return intrinsic(lambda _typing, x: (result(x), codegen))


#: What makes the functions that depend on a dtype or a buffer.
MAKERS: dict[str, Callable[..., Any]] = {
    "load": memory.load,
    "store": memory.store,
    "gather": memory.gather,
    "tile": memory.tile,
    "flush": memory.flush,
    "cast": cast,
    "bitcast": bitcast,
}
