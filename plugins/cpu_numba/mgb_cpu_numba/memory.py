"""Loads and stores as Numba intrinsics over bare addresses.

Each buffer of a kernel has a *scope*; LLVM is told that accesses of different scopes never overlap, without
which it would not vectorise a loop over many pointers. That is true of every two buffers but an output that
is the very memory of an input. There it is harmless, because a kernel loads an element before it computes
what is stored in its place; the kernels where it would not be refuse such a call, see `hazards`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .halves import narrow, widen

BYTE = ir.IntType(8)
WORD = ir.IntType(64)

#: Bytes of a cache line, and how many lines of a transposed input are asked for before they are read.
LINE, AHEAD = 64, 24

# fmt: off
#: For each dtype: Numba's type of the value in a kernel, LLVM's type in memory, its bytes.
STORED = {
    "bool": (types.boolean, BYTE, 1),
    "float16": (types.float32, ir.IntType(16), 2), "bfloat16": (types.float32, ir.IntType(16), 2),
    "float32": (types.float32, ir.FloatType(), 4), "float64": (types.float64, ir.DoubleType(), 8),
} | {
    f"{sign}int{bits}": (getattr(types, f"{sign}int{bits}"), ir.IntType(bits), bits // 8)
    for sign in ("", "u") for bits in (8, 16, 32, 64)
}
# fmt: on


def load(dtype: str, scope: str, others: Sequence[str]) -> Any:
    """``load(address, index)``: an element of an array of `dtype`."""
    value_type, memory_type, size = STORED[dtype]

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.load(_pointer(builder, args, memory_type), align=size)
        _annotate(builder, found, scope, others)
        if dtype == "bool":
            return builder.icmp_unsigned("!=", found, BYTE(0))
        return widen(builder, found, dtype) if dtype in ("float16", "bfloat16") else found

    return intrinsic(lambda _typing, address, index: (value_type(types.int64, types.int64), emit))


def store(dtype: str, scope: str, others: Sequence[str]) -> Any:
    """``store(address, index, value)``."""
    value_type, memory_type, size = STORED[dtype]

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = args[2]
        if dtype == "bool":
            value = builder.zext(value, BYTE)
        elif dtype in ("float16", "bfloat16"):
            value = narrow(builder, value, dtype)
        access = builder.store(value, _pointer(builder, args, memory_type), align=size)
        _annotate(builder, access, scope, others)
        return context.get_dummy_value()

    return intrinsic(
        lambda _typing, address, index, value: (types.void(types.int64, types.int64, value_type), emit)
    )


def gather(size: int) -> Any:
    """``gather(buffer, address, step, count)``: where `count` elements of `size` bytes lie side by side: at
    `address` if `step` is `size`, else in `buffer`, to which they are copied.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        buffer, address, step, _ = args
        apart = builder.icmp_unsigned("!=", step, WORD(size))
        with builder.if_then(apart, likely=False):
            builder.call(_copy_function(builder.module, size), args)
        return builder.select(apart, buffer, address)

    words = [types.int64] * 4
    return intrinsic(lambda _typing, buffer, address, step, count: (types.int64(*words), emit))


def _copy_function(module: Any, size: int) -> Any:
    """The loop of `gather`."""
    name = f"mgb_copy_{size}"
    if name in module.globals:
        return module.globals[name]
    function = _function(module, name, 4)
    target, source, step, count = function.args
    element = ir.IntType(8 * size)
    builder = ir.IRBuilder(function.append_basic_block())
    loops: Any = cgutils.for_range
    with loops(builder, count) as loop:
        place = builder.add(source, builder.mul(loop.index, step))
        found = builder.load(builder.inttoptr(place, element.as_pointer()), align=size)
        builder.store(found, _pointer(builder, (target, loop.index), element), align=size)
    builder.ret_void()
    return function


def tile(size: int) -> Any:
    """``tile(buffer, address, step, count, across, rows, pitch)``: lay out `rows` rows of `count` elements of
    `size` bytes in `buffer`, `pitch` elements apart. Elements are `step` bytes apart, rows `across`; nothing
    is done for a `step` of 0.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        with builder.if_then(builder.icmp_unsigned("!=", args[2], WORD(0))):
            builder.call(_tile_function(builder.module, size), args)
        return context.get_dummy_value()

    words = [types.int64] * 7
    return intrinsic(
        lambda _typing, buffer, address, step, count, across, rows, pitch: (types.void(*words), emit)
    )


def _tile_function(module: Any, size: int) -> Any:
    """The loops of `tile`: each turn of the outer one reads a cache line, which it asked for long before."""
    name = f"mgb_tile_{size}"
    if name in module.globals:
        return module.globals[name]
    function = _function(module, name, 7)
    target, source, step, count, across, rows, pitch = function.args
    element = ir.IntType(8 * size)
    builder = ir.IRBuilder(function.append_basic_block())
    loops: Any = cgutils.for_range
    with loops(builder, count) as column:
        place = builder.add(source, builder.mul(column.index, step))
        _prefetch(builder, builder.add(place, builder.mul(step, WORD(AHEAD))))
        with loops(builder, rows) as row:
            at = builder.add(place, builder.mul(row.index, across))
            found = builder.load(builder.inttoptr(at, element.as_pointer()), align=size)
            to = builder.add(column.index, builder.mul(row.index, pitch))
            builder.store(found, _pointer(builder, (target, to), element), align=size)
    builder.ret_void()
    return function


def _prefetch(builder: Any, address: Any) -> None:
    """Prefetch a cache line that will be read; an address outside memory is ignored."""
    i32, pointer = ir.IntType(32), BYTE.as_pointer()
    signature = ir.FunctionType(ir.VoidType(), [pointer, i32, i32, i32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], signature)
    builder.call(function, [builder.inttoptr(address, pointer), i32(0), i32(3), i32(1)])


def ask() -> Any:
    """``ask(address, bytes)``: have the cache lines from `address` on on their way when they are read."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, size = args
        loops: Any = cgutils.for_range_slice
        with loops(builder, WORD(0), size, WORD(LINE), WORD) as (offset, _):
            _prefetch(builder, builder.add(address, offset))
        return context.get_dummy_value()

    return intrinsic(lambda _typing, address, size: (types.void(types.int64, types.int64), emit))


def flush(size: int) -> Any:
    """``flush(target, buffer, count)``: copy `count` elements of `size` bytes past the caches."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.call(_stream_function(builder.module, size), args)
        return context.get_dummy_value()

    words = [types.int64] * 3
    return intrinsic(lambda _typing, target, buffer, count: (types.void(*words), emit))


def _stream_function(module: Any, size: int) -> Any:
    """The loops of `flush`: whole lines of the target by non-temporal stores, its ends element by element."""
    name = f"mgb_stream_{size}"
    if name in module.globals:
        return module.globals[name]
    function = _function(module, name, 3)
    target, source, count = function.args
    element, in_line = ir.IntType(8 * size), LINE // size
    line = ir.VectorType(element, in_line)
    builder = ir.IRBuilder(function.append_basic_block())
    before = builder.and_(builder.neg(builder.lshr(target, WORD(size.bit_length() - 1))), WORD(in_line - 1))
    short = builder.icmp_unsigned("<", count, before)
    head = builder.select(short, count, before)
    lines = builder.lshr(builder.sub(count, head), WORD(in_line.bit_length() - 1))
    tail = builder.add(head, builder.mul(lines, WORD(in_line)))
    _copy(builder, target, source, WORD(0), head, element)
    loops: Any = cgutils.for_range
    with loops(builder, lines) as loop:
        place = builder.add(head, builder.mul(loop.index, WORD(in_line)))
        pointers = [_pointer(builder, (base, place), element) for base in (source, target)]
        found, to = (builder.bitcast(p, line.as_pointer()) for p in pointers)
        access = builder.store(builder.load(found, align=size), to, align=LINE)
        access.set_metadata("nontemporal", module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
    _copy(builder, target, source, tail, count, element)
    builder.ret_void()
    return function


def _copy(builder: Any, target: Any, source: Any, start: Any, stop: Any, element: Any) -> None:
    loops: Any = cgutils.for_range_slice
    with loops(builder, start, stop, WORD(1), WORD) as (index, _):
        found = builder.load(_pointer(builder, (source, index), element), align=element.width // 8)
        builder.store(found, _pointer(builder, (target, index), element), align=element.width // 8)


def _function(module: Any, name: str, arity: int) -> Any:
    """A function of words that stays one: a kernel that calls it often holds it once."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD] * arity), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.attributes.add("nounwind")
    return function


def fence() -> Any:
    """``fence()``: what was stored before, past the caches too, is seen before what is stored after."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return intrinsic(lambda _typing: (types.void(), emit))


def end() -> Any:
    """``end()``: nothing, where a loop ends.

    LLVM folds a last block that is empty into the loop within it, and what was said about the loop is lost.
    """

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        nothing = ir.FunctionType(ir.VoidType(), [])
        builder.call(ir.InlineAsm(nothing, "", "", side_effect=True), [])
        return context.get_dummy_value()

    return intrinsic(lambda _typing: (types.void(), emit))


def move() -> Any:
    """``move(address, places, stride)``: `address` and `places` times `stride`."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.add(args[0], builder.mul(args[1], args[2]))

    return intrinsic(
        lambda _typing, address, places, stride: (types.int64(types.int64, types.int64, types.int64), emit)
    )


def slot() -> Any:
    """``slot(plan, index)``: an integer of the launch plan, which a kernel never writes."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = builder.load(_pointer(builder, args, WORD), align=8)
        found.set_metadata("invariant.load", builder.module.add_metadata([]))
        return found

    return intrinsic(lambda _typing, plan, index: (types.int64(types.int64, types.int64), emit))


def any_is() -> Any:
    """``any_is(address, *others)``: whether one of `others` is `address`."""

    def typing(_typing: Any, address: Any, *others: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            found = ir.IntType(1)(0)
            for i in range(len(others)):
                equal = builder.icmp_unsigned("==", args[0], builder.extract_value(args[1], i))
                found = builder.or_(found, equal)
            return found

        rest: Any = types.StarArgTuple
        return types.boolean(address, rest(others)), emit

    return intrinsic(typing)


def _pointer(builder: Any, args: Any, element: Any) -> Any:
    base = builder.inttoptr(args[0], element.as_pointer())
    return builder.gep(base, [args[1]], inbounds=True)


def _annotate(builder: Any, access: Any, scope: str, others: Sequence[str]) -> None:
    module = builder.module
    domain = module.add_metadata(["mgb"])
    access.set_metadata("alias.scope", module.add_metadata([module.add_metadata([scope, domain])]))
    if others:
        scopes = [module.add_metadata([other, domain]) for other in others]
        access.set_metadata("noalias", module.add_metadata(scopes))
