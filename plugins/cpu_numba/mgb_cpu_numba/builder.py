"""The operations of a kernel in Python that Numba compiles: operators, and functions of `words`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from mgb_native.nest import INDEX, Builder, Carried, Nest, Type

#: The operations that are operators of Python's, and the relations.
_OPERATORS = {
    "fadd": "+", "fsub": "-", "fmul": "*", "fdiv": "/", "add": "+", "sub": "-", "mul": "*",
    "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_RELATIONS = {
    "olt": "<", "ole": "<=", "ogt": ">", "oge": ">=", "oeq": "==", "une": "!=",
    "slt": "<", "sle": "<=", "sgt": ">", "sge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip


def type_text(type_: Type) -> str:
    """Return a type as it is in the names of functions: ``f32``, or ``f32x16`` for a vector."""
    element = "i64" if type_.element == "index" else type_.element
    return f"{element}x{type_.lanes}" if type_.lanes else element


def _literal(value: Any, type_: Type) -> str:
    if type_.is_float:
        return repr(float(value)).replace("inf", "1e999")  # which Python reads as that
    return repr(bool(value) if type_.element == "i1" else int(value))


class NumbaBuilder(Builder):
    """Writes a function of Python's. Constants are made at its head."""

    def __init__(self) -> None:
        super().__init__()
        self.constants: dict[str, str] = {}

    def name(self, hint: str = "") -> str:
        return super().name(hint)[1:]

    def module(self, name: str) -> str:
        constants = [f"  {constant} = {text}" for text, constant in self.constants.items()]
        self.line("return 0")
        return "\n".join([f"def {name}(arrays, plan, span):", *constants, *self.heads, *self.lines, ""])

    def constant(self, text: str) -> str:
        """Return the name of a constant."""
        return self.constants.setdefault(text, f"c{len(self.constants)}")

    def called(self, function: str, *operands: str) -> str:
        """Write the call of a function, and return the name of its result."""
        return self.op(f"{function}({', '.join(operands)})")

    # operations

    def apply(self, operation: str, operands: Sequence[str], type_: Type, flag: str = "") -> str:
        if operation in _OPERATORS and not flag:
            return self.op(f" {_OPERATORS[operation]} ".join(operands))
        return self.called("_".join(filter(None, (operation, flag))), *operands)

    def change(self, operation: str, value: str, source: Type, target: Type) -> str:
        halves = operation == "bitcast" and "f16" in (source.element, target.element)
        if halves or type_text(source) == type_text(target):  # half a float is held by its bits
            return value
        return self.called(f"{operation}_{type_text(source)}_{type_text(target)}", value)

    def compare(self, relation: str, a: str, b: str, type_: Type = INDEX) -> str:
        if relation in _RELATIONS:
            return self.op(f"{a} {_RELATIONS[relation]} {b}")
        return self.called(f"{'fcmp' if type_.is_float else 'icmp'}_{relation}", a, b)

    def select(self, condition: str, a: str, b: str, type_: Type = INDEX) -> str:
        return self.called("select", condition, a, b)

    def opaque(self, value: str, type_: Type) -> str:
        return self.apply("opaque", (value,), type_)

    def number(self, value: Any, type_: Type) -> str:
        text = _literal(value, type_)
        return text if type_ == INDEX else self.constant(f"{type_text(type_)}({text})")

    def numbers(self, type_: Type) -> str:
        return self.constant(f"numbers_{type_text(type_)}()")

    def spread(self, scalar: str, type_: Type) -> str:
        return self.called(f"spread_{type_text(type_)}", scalar)

    def first(self, vector: str, type_: Type) -> str:
        return self.called("lane", vector, "0")

    def last(self, vector: str, type_: Type) -> str:
        return self.called("lane", vector, str(type_.lanes - 1))

    def slide(self, vector: str, before: str, by: int, type_: Type) -> str:
        return self.called(f"slide_{by}", vector, before)

    def across(self, operation: str, vector: str, type_: Type, flag: str = "") -> str:
        return self.called("_".join(filter(None, ("across", operation, flag))), vector)

    def mask(self, count: str, lanes: int) -> str:
        return self.called(f"mask_{lanes}", count)

    # memory

    def view(self, element: str, address: str) -> str:
        return address

    def load(self, view: str, i: str, type_: Type, mask: str = "", name: str = "") -> str:
        given = filter(None, (view.removeprefix("%"), i, mask))
        text = f"load_{type_text(type_)}({', '.join(given)})"
        if not name:
            return self.op(text)
        self.line(f"{name} = {text}")
        return name

    def store(self, value: str, view: str, i: str, type_: Type, mask: str = "") -> None:
        self.call("store", *filter(None, (value, view, i, mask)))

    def gather(self, addresses: str, type_: Type, mask: str) -> str:
        return self.called(f"gather_{type_text(type_)}", *filter(None, (addresses, mask)))

    def call(self, function: str, *operands: str) -> None:
        self.line(f"{function}({', '.join(operands)})")

    def fence(self) -> None:
        self.call("fence")

    # structure

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head`, and what follows one level deeper."""
        self.line(head)
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
        counter, given = self.name(hint), [self.name("a") for _ in carried]
        self.assign([*given, counter], [*(value for value, _ in carried), first])
        with self.block(f"while {counter} < {last}:"):
            self.assign(given, body(counter, given) or ())
            self.line(f"{counter} = {counter} + {step}")
        return given

    def when(
        self,
        condition: str,
        then: Callable[[], Sequence[str] | None],
        otherwise: Sequence[Carried] = (),
    ) -> list[str]:
        results = [self.name("r") for _ in otherwise]
        self.assign(results, [value for value, _ in otherwise])
        with self.block(f"if {condition}:"):
            values = then() or ()
            self.assign(results, values if otherwise else ())
            self.line("pass")
        return results

    def assign(self, names: Sequence[str], values: Sequence[str]) -> None:
        """Give variables their values all at once, of which some may be those of others."""
        pairs = [(name, value) for name, value in zip(names, values, strict=True) if name != value]
        changed, kept = {name for name, _ in pairs}, dict[str, str]()
        for _, value in pairs:
            if value in changed and value not in kept:
                kept[value] = self.op(value)
        for name, value in pairs:
            self.line(f"{name} = {kept.get(value, value)}")


class Kernel(Nest, NumbaBuilder):
    """The kernel of a frame."""
