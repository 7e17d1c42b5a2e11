"""The operations of a kernel in the language of LLVM."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from mgb_native.nest import INDEX, Builder, Carried, Nest, Type

#: The operations that are instructions of two operands; others are intrinsics.
_INSTRUCTIONS = frozenset(
    "fadd fsub fmul fdiv frem add sub mul udiv sdiv urem and or xor shl lshr ashr".split()
)

#: Intrinsics whose names are others here. A product and a sum are rounded once where the processor does so.
_INTRINSICS = {"fma": "fmuladd", "opaque": "arithmetic.fence"}

#: The folds of all lanes whose names are others, and those that begin with a number.
_ACROSS, _BEGINS = {"maximum": "fmaximum", "minimum": "fminimum"}, {"fadd": "-0.0", "fmul": "1.0"}

_ELEMENTS = {"f16": "half", "f32": "float", "f64": "double", "index": "i64"}


def type_text(type_: Type) -> str:
    """Return a type as LLVM prints it."""
    element = _ELEMENTS.get(type_.element, type_.element)
    return f"<{type_.lanes} x {element}>" if type_.lanes else element


def _suffix(type_: Type) -> str:
    """Return the end of an intrinsic's name."""
    element = "i64" if type_ == INDEX else type_.element
    return f"v{type_.lanes}{element}" if type_.lanes else element


def _bytes(type_: Type) -> int:
    return 8 if type_.element == "index" else int(type_.element[1:]) // 8


def _literal(value: Any, type_: Type) -> str:
    """Return a number such that it is read back to the bit."""
    if type_.is_float:
        if type_.element == "f32":
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        return f"0x{int.from_bytes(struct.pack('<d', value), 'little'):016X}"
    if type_.element == "i1":
        return "true" if value else "false"
    bits, value = 8 * _bytes(type_), int(value)
    return str(value - (1 << bits) if value >> (bits - 1) == 1 else value)


class LlvmBuilder(Builder):
    """Writes a function of LLVM's.

    Attributes
    ----------
    block : str
        The block that is being written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.block = "start"
        self._declared: dict[str, str] = {}

    def module(self, name: str) -> str:
        head = [f"define i64 @{name}(ptr %arrays, ptr %plan, ptr %span) nounwind {{", "entry:"]
        lines = [*head, *self.heads, "  br label %start", "start:", *self.lines, "  ret i64 0", "}"]
        return "\n".join([*lines, *self._declared.values(), ""])

    # operations

    def apply(self, operation: str, operands: Sequence[str], type_: Type, flag: str = "") -> str:
        flags, name = f"{flag} " if flag else "", type_text(type_)
        if operation in _INSTRUCTIONS or operation == "fneg":
            return self.op(f"{operation} {flags}{name} {', '.join(operands)}")
        given = ", ".join(f"{name} {x}" for x in operands)
        function = f"llvm.{_INTRINSICS.get(operation, operation)}.{_suffix(type_)}"
        return self.op(f"call {flags}{name} @{function}({given})")

    def change(self, operation: str, value: str, source: Type, target: Type) -> str:
        if type_text(source) == type_text(target):
            return value
        return self.op(f"{operation} {type_text(source)} {value} to {type_text(target)}")

    def compare(self, relation: str, a: str, b: str, type_: Type = INDEX) -> str:
        return self.op(f"{'fcmp' if type_.is_float else 'icmp'} {relation} {type_text(type_)} {a}, {b}")

    def select(self, condition: str, a: str, b: str, type_: Type = INDEX) -> str:
        name, bits = type_text(type_), type_text(Type("i1", type_.lanes))
        return self.op(f"select {bits} {condition}, {name} {a}, {name} {b}")

    def opaque(self, value: str, type_: Type) -> str:
        return self.apply("opaque", (value,), type_)

    def number(self, value: Any, type_: Type) -> str:
        text = _literal(value, type_)
        return f"splat ({type_text(Type(type_.element))} {text})" if type_.lanes else text

    def numbers(self, type_: Type) -> str:
        element = Type(type_.element)
        return f"<{', '.join(f'{type_text(element)} {_literal(k, element)}' for k in range(type_.lanes))}>"

    def spread(self, scalar: str, type_: Type) -> str:
        element, name = type_text(Type(type_.element)), type_text(type_)
        if not scalar.startswith("%"):
            return f"splat ({element} {scalar})"
        one = self.op(f"insertelement {name} poison, {element} {scalar}, i64 0")
        places = type_text(Type("i32", type_.lanes))
        return self.op(f"shufflevector {name} {one}, {name} poison, {places} zeroinitializer")

    def first(self, vector: str, type_: Type) -> str:
        return self.op(f"extractelement {type_text(type_)} {vector}, i64 0")

    def last(self, vector: str, type_: Type) -> str:
        return self.op(f"extractelement {type_text(type_)} {vector}, i64 {type_.lanes - 1}")

    def slide(self, vector: str, before: str, by: int, type_: Type) -> str:
        lanes, name = type_.lanes, type_text(type_)
        places = ", ".join(f"i32 {k}" for k in range(lanes - by, 2 * lanes - by))
        return self.op(f"shufflevector {name} {before}, {name} {vector}, <{lanes} x i32> <{places}>")

    def across(self, operation: str, vector: str, type_: Type, flag: str = "") -> str:
        element = type_text(Type(type_.element))
        begin = f"{element} {_BEGINS[operation]}, " if operation in _BEGINS else ""
        function = f"llvm.vector.reduce.{_ACROSS.get(operation, operation)}.{_suffix(type_)}"
        given = f"{begin}{type_text(type_)} {vector}"
        return self.op(f"call {f'{flag} ' if flag else ''}{element} @{function}({given})")

    def mask(self, count: str, lanes: int) -> str:
        type_ = Type("i32", lanes)
        few = self.spread(self.op(f"trunc i64 {count} to i32"), type_)
        return self.compare("slt", self.numbers(type_), few, type_)

    # memory

    def view(self, element: str, address: str) -> str:
        return self.op(f"inttoptr i64 {address} to ptr", "at")

    def _pointer(self, view: str, i: str, type_: Type) -> str:
        if i == self.index(0):
            return view
        return self.op(f"getelementptr {type_text(Type(type_.element))}, ptr {view}, i64 {i}", "p")

    def load(self, view: str, i: str, type_: Type, mask: str = "", name: str = "") -> str:
        pointer, whole, size = self._pointer(view, i, type_), type_text(type_), _bytes(type_)
        if mask:
            bits = type_text(Type("i1", type_.lanes))
            function = self._masked("load", whole, type_, f"ptr, i32, {bits}, {whole}")
            return self.op(
                f"call {whole} @{function}(ptr {pointer}, i32 {size}, {bits} {mask}, {whole} zeroinitializer)"
            )
        text = f"load {whole}, ptr {pointer}, align {size}"
        if not name:
            return self.op(text)
        self.line(f"%{name} = {text}")
        return f"%{name}"

    def store(self, value: str, view: str, i: str, type_: Type, mask: str = "") -> None:
        pointer, whole, size = self._pointer(view, i, type_), type_text(type_), _bytes(type_)
        if not mask:
            self.line(f"store {whole} {value}, ptr {pointer}, align {size}")
            return
        bits = type_text(Type("i1", type_.lanes))
        function = self._masked("store", "void", type_, f"{whole}, ptr, i32, {bits}")
        self.line(f"call void @{function}({whole} {value}, ptr {pointer}, i32 {size}, {bits} {mask})")

    def _masked(self, what: str, result: str, type_: Type, given: str, pointers: str = "p0") -> str:
        """Return the name of an intrinsic, declared, for LLVM to mend: its operands differ among releases."""
        name = f"llvm.masked.{what}.{_suffix(type_)}.{pointers}"
        self._declared[name] = f"declare {result} @{name}({given})"
        return name

    def gather(self, addresses: str, type_: Type, mask: str) -> str:
        words, pointers = type_text(Type("i64", type_.lanes)), f"<{type_.lanes} x ptr>"
        return self._gathered(self.op(f"inttoptr {words} {addresses} to {pointers}"), type_, mask)

    def gather_near(self, start: str, offsets: str, type_: Type, mask: str) -> str:
        first = self.op(f"inttoptr i64 {start} to ptr")
        at = self.op(f"getelementptr i8, ptr {first}, {type_text(Type('i32', type_.lanes))} {offsets}")
        return self._gathered(at, type_, mask)

    def _gathered(self, at: str, type_: Type, mask: str) -> str:
        whole, size, bits = type_text(type_), _bytes(type_), type_text(Type("i1", type_.lanes))
        pointers = f"<{type_.lanes} x ptr>"
        kind = f"{pointers}, i32, {bits}, {whole}"
        function = self._masked("gather", whole, type_, kind, f"v{type_.lanes}p0")
        used = mask or self.number(True, Type("i1", type_.lanes))
        given = f"{pointers} {at}, i32 {size}, {bits} {used}, {whole} zeroinitializer"
        return self.op(f"call {whole} @{function}({given})")

    def call(self, function: str, *operands: str) -> None:
        self._declared[function] = f"declare void @{function}({', '.join(['i64'] * len(operands))})"
        self.line(f"call void @{function}({', '.join(f'i64 {x}' for x in operands)})")

    def fence(self) -> None:
        self.line("fence seq_cst")

    # structure

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")
        self.block = name

    def _labels(self, *hints: str) -> list[str]:
        return [self.name(hint)[1:] for hint in hints]

    def loop(
        self,
        first: str,
        last: str,
        step: str,
        carried: Sequence[Carried],
        body: Callable[[str, list[str]], Sequence[str] | None],
        hint: str = "i",
    ) -> list[str]:
        head, turn, end = self._labels("head", "turn", "end")
        before, counter, given = self.block, self.name(hint), [self.name("a") for _ in carried]
        self.line(f"br label %{head}")
        self.label(head)
        at = len(self.lines)  # of the lines that say what comes from the end of a turn
        more = self.compare("slt", counter, last)
        self.line(f"br i1 {more}, label %{turn}, label %{end}")
        self.label(turn)
        values = body(counter, given) or ()
        after = self.op(f"add nsw i64 {counter}, {step}")
        self.line(f"br label %{head}")
        names, types = [counter, *given], [INDEX, *(type_ for _, type_ in carried)]
        begun, ended = [first, *(value for value, _ in carried)], [after, *values]
        self.lines[at:at] = [
            f"  {name} = phi {type_text(type_)} [ {a}, %{before} ], [ {b}, %{self.block} ]"
            for name, type_, a, b in zip(names, types, begun, ended, strict=True)
        ]
        self.label(end)
        return given

    def when(
        self,
        condition: str,
        then: Callable[[], Sequence[str] | None],
        otherwise: Sequence[Carried] = (),
    ) -> list[str]:
        taken, end = self._labels("taken", "end")
        before = self.block
        self.line(f"br i1 {condition}, label %{taken}, label %{end}")
        self.label(taken)
        values = then() or ()
        last = self.block
        self.line(f"br label %{end}")
        self.label(end)
        pairs = zip(values, otherwise, strict=True) if otherwise else ()
        return [
            self.op(f"phi {type_text(type_)} [ {a}, %{last} ], [ {b}, %{before} ]") for a, (b, type_) in pairs
        ]


class Kernel(Nest, LlvmBuilder):
    """The kernel of a frame."""
