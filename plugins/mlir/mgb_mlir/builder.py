"""The operations of a kernel in MLIR's dialects ``arith``, ``math``, ``vector``, ``scf`` and ``memref``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mgb_native.nest import INDEX, Builder, Carried, Nest, Type

from .memory import Functions

#: The operations whose names are others here.
_ARITH = {
    "fadd": "addf", "fsub": "subf", "fmul": "mulf", "fdiv": "divf", "frem": "remf", "fneg": "negf",
    "add": "addi", "sub": "subi", "mul": "muli", "udiv": "divui", "sdiv": "divsi", "urem": "remui",
    "and": "andi", "or": "ori", "xor": "xori", "shl": "shli", "lshr": "shrui", "ashr": "shrsi",
    "smin": "minsi", "smax": "maxsi", "umin": "minui", "umax": "maxui",
    "maximum": "maximumf", "minimum": "minimumf",
    "fpext": "extf", "fptrunc": "truncf", "zext": "extui", "sext": "extsi", "trunc": "trunci",
    "fptosi": "fptosi", "fptoui": "fptoui", "sitofp": "sitofp", "uitofp": "uitofp", "bitcast": "bitcast",
}  # fmt: skip
_MATH = {"fabs": "absf"}

#: The folds of all lanes whose names are others.
_ACROSS = {
    "fadd": "add", "fmul": "mul", "maximum": "maximumf", "minimum": "minimumf",
    "smax": "maxsi", "smin": "minsi", "umax": "maxui", "umin": "minui",
}  # fmt: skip

#: The arguments of a kernel: arrays of words.
_ARGUMENTS = ("arrays", "plan", "span")


def type_text(type_: Type) -> str:
    """Return a type as MLIR prints it."""
    return f"vector<{type_.lanes}x{type_.element}>" if type_.lanes else type_.element


def _operation(name: str) -> str:
    return f"arith.{_ARITH[name]}" if name in _ARITH else f"math.{_MATH.get(name, name)}"


def _fast(flag: str) -> str:
    return f" fastmath<{flag}>" if flag else ""


def _literal(value: Any, type_: Type) -> str:
    """Return a number as MLIR reads it back to the bit."""
    if type_.is_float:
        code, width = ("<d", 16) if type_.element == "f64" else ("<f", 8)
        return f"0x{int.from_bytes(struct.pack(code, value), 'little'):0{width}X}"
    if type_.element == "i1":
        return "true" if value else "false"
    if type_.element == "index":
        return str(value)
    bits, value = int(type_.element[1:]), int(value)
    return str(value - (1 << bits) if value >> (bits - 1) == 1 else value)  # as a number with a sign


class MlirBuilder(Builder):
    """Writes a function. Constants are written once, at its head."""

    def __init__(self) -> None:
        super().__init__()
        self.constants: dict[str, str] = {}
        self.functions = Functions()

    def module(self, name: str) -> str:
        done = self.constant("0 : i64")
        self.line(f"return {done} : i64")
        words = [f"  %{word} = {self.functions.view('index', f'%{word}_at')}" for word in _ARGUMENTS]
        arguments = ", ".join(f"%{word}_at: index" for word in _ARGUMENTS)
        lines = [f"func.func @{name}({arguments}) -> i64 {{", *self.head(), *words]
        lines += [*self.heads, *self.lines, "}"]
        return "\n".join(["module {", *lines, self.functions.text(), "}", ""])

    def constant(self, text: str) -> str:
        """Return the name of the constant ``value : type``."""
        return self.constants.setdefault(text, f"%c_{len(self.constants)}")

    def head(self) -> list[str]:
        """Return the lines that the constants take."""
        return [f"  {name} = arith.constant {text}" for text, name in self.constants.items()]

    # operations

    def apply(self, operation: str, operands: Sequence[str], type_: Type, flag: str = "") -> str:
        return self.op(f"{_operation(operation)} {', '.join(operands)}{_fast(flag)} : {type_text(type_)}")

    def change(self, operation: str, value: str, source: Type, target: Type) -> str:
        name = "arith.index_cast" if INDEX in (source, target) else _operation(operation)
        return self.op(f"{name} {value} : {type_text(source)} to {type_text(target)}")

    def compare(self, relation: str, a: str, b: str, type_: Type = INDEX) -> str:
        return self.op(f"arith.cmp{'f' if type_.is_float else 'i'} {relation}, {a}, {b} : {type_text(type_)}")

    def select(self, condition: str, a: str, b: str, type_: Type = INDEX) -> str:
        bits = f"{type_text(Type('i1', type_.lanes))}, " if type_.lanes else ""
        return self.op(f"arith.select {condition}, {a}, {b} : {bits}{type_text(type_)}")

    def number(self, value: Any, type_: Type) -> str:
        text = _literal(value, type_)
        if type_ == Type("i1"):
            return self.constant(text)  # `true` has a type of its own
        return self.constant(f"{f'dense<{text}>' if type_.lanes else text} : {type_text(type_)}")

    def numbers(self, type_: Type) -> str:
        places = ", ".join(_literal(k, Type(type_.element)) for k in range(type_.lanes))
        return self.constant(f"dense<[{places}]> : {type_text(type_)}")

    def spread(self, scalar: str, type_: Type) -> str:
        return self.op(f"vector.broadcast {scalar} : {type_.element} to {type_text(type_)}")

    def first(self, vector: str, type_: Type) -> str:
        return self.op(f"vector.extract {vector}[0] : {type_.element} from {type_text(type_)}")

    def last(self, vector: str, type_: Type) -> str:
        return self.op(
            f"vector.extract {vector}[{type_.lanes - 1}] : {type_.element} from {type_text(type_)}"
        )

    def slide(self, vector: str, before: str, by: int, type_: Type) -> str:
        lanes, name = type_.lanes, type_text(type_)
        places = ", ".join(map(str, range(lanes - by, 2 * lanes - by)))
        return self.op(f"vector.shuffle {before}, {vector} [{places}] : {name}, {name}")

    def across(self, operation: str, vector: str, type_: Type, flag: str = "") -> str:
        kind = _ACROSS.get(operation, operation)
        flags = _fast(flag) if flag == "reassoc" else ""
        return self.op(
            f"vector.reduction <{kind}>, {vector}{flags} : {type_text(type_)} into {type_.element}"
        )

    def mask(self, count: str, lanes: int) -> str:
        return self.op(f"vector.create_mask {count} : {type_text(Type('i1', lanes))}", "mask")

    # memory

    def view(self, element: str, address: str) -> str:
        return self.op(self.functions.view(element, address), "view")

    def load(self, view: str, i: str, type_: Type, mask: str = "", name: str = "") -> str:
        memory, vector = f"memref<?x{type_.element}>", type_text(type_)
        text = f"memref.load {view}[{i}] : {memory}"
        if mask:
            types = f"{memory}, {type_text(Type('i1', type_.lanes))}, {vector} into {vector}"
            text = f"vector.maskedload {view}[{i}], {mask}, {self.number(0, type_)} : {types}"
        elif type_.lanes:
            text = f"vector.load {view}[{i}] : {memory}, {vector}"
        if not name:
            return self.op(text, "e")
        self.line(f"%{name} = {text}")
        return f"%{name}"

    def store(self, value: str, view: str, i: str, type_: Type, mask: str = "") -> None:
        memory, vector = f"memref<?x{type_.element}>", type_text(type_)
        if mask:
            types = f"{memory}, {type_text(Type('i1', type_.lanes))}, {vector}"
            self.line(f"vector.maskedstore {view}[{i}], {mask}, {value} : {types}")
        elif type_.lanes:
            self.line(f"vector.store {value}, {view}[{i}] : {memory}, {vector}")
        else:
            self.line(f"memref.store {value}, {view}[{i}] : {memory}")

    def gather(self, addresses: str, type_: Type, mask: str) -> str:
        words, bits, whole = (type_text(Type(e, type_.lanes)) for e in ("i64", "i1", type_.element))
        pointers = f"vector<{type_.lanes}x!llvm.ptr>"
        at = self.op(f"llvm.inttoptr {addresses} : {words} to {pointers}")
        used, rest = mask or self.number(True, Type("i1", type_.lanes)), self.number(0, type_)
        size = f"{{alignment = {int(type_.element[1:]) // 8} : i32}}"
        types = f"({pointers}, {bits}, {whole}) -> {whole}"
        return self.op(f"llvm.intr.masked.gather {at}, {used}, {rest} {size} : {types}")

    def call(self, function: str, *operands: str) -> None:
        self.line(self.functions.call(function, *operands))

    def fence(self) -> None:
        self.line("llvm.fence seq_cst")

    # structure

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def loop(
        self,
        first: str,
        last: str,
        step: str,
        carried: Sequence[Carried],
        body: Callable[[str, list[str]], Sequence[str] | None],
        hint: str = "i",
    ) -> list[str]:
        counter = self.name(hint)
        given = [self.name("a") for _ in carried]
        inits = ", ".join(f"{name} = {value}" for name, (value, _) in zip(given, carried, strict=True))
        types = ", ".join(type_text(type_) for _, type_ in carried)
        results = self._results(carried)
        through = f" iter_args({inits}) -> ({types})" if carried else ""
        self.line(f"{results}scf.for {counter} = {first} to {last} step {step}{through} {{")
        with self._deeper():
            self._yield(body(counter, given), types)
        self.line("}")
        return self._named(results, len(carried))

    def when(
        self,
        condition: str,
        then: Callable[[], Sequence[str] | None],
        otherwise: Sequence[Carried] = (),
    ) -> list[str]:
        types = ", ".join(type_text(type_) for _, type_ in otherwise)
        results = self._results(otherwise)
        gives = f" -> ({types})" if otherwise else ""
        self.line(f"{results}scf.if {condition}{gives} {{")
        with self._deeper():
            self._yield(then(), types)
        if otherwise:
            self.line("} else {")
            with self._deeper():
                self._yield([value for value, _ in otherwise], types)
        self.line("}")
        return self._named(results, len(otherwise))

    def _results(self, carried: Sequence[Carried]) -> str:
        return f"{self.name('r')}:{len(carried)} = " if carried else ""

    def _named(self, results: str, count: int) -> list[str]:
        name = results.partition(":")[0]
        return [f"{name}#{i}" for i in range(count)]

    def _yield(self, values: Sequence[str] | None, types: str) -> None:
        if values:
            self.line(f"scf.yield {', '.join(values)} : {types}")


class Kernel(Nest, MlirBuilder):
    """The kernel of a frame, as one function of a module."""
