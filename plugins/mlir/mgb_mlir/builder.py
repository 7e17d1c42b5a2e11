"""Writing a function in MLIR's text: names, constants, loops and branches, in static single assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

#: What is carried through a loop or out of a branch: (value, type).
Carried = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Lanes:
    """What one turn of an innermost loop works on.

    Attributes
    ----------
    count : int
        The elements of a vector; 0 for a scalar.
    mask : str
        Which of them there are; empty when all are.
    """

    count: int = 0
    mask: str = ""

    def of(self, element: str) -> str:
        """The type of a value whose elements are of type `element`."""
        return f"vector<{self.count}x{element}>" if self.count else element


SCALAR = Lanes()


class Builder:
    """The lines of one function. Constants and slots of the plan are written once, at its head."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.constants: dict[str, str] = {}
        self._used = 0

    def line(self, text: str) -> None:
        """Write one line."""
        self.lines.append("  " * self.depth + text)

    def name(self, hint: str = "") -> str:
        """A name that is not taken."""
        self._used += 1
        return f"%{hint}_{self._used}" if hint else f"%{self._used}"

    def op(self, text: str, hint: str = "") -> str:
        """Write the operation `text`, and return the name of its result."""
        name = self.name(hint)
        self.line(f"{name} = {text}")
        return name

    def apply(self, operation: str, operands: Sequence[str], type_: str, hint: str = "") -> str:
        """Write an operation whose operands and result are of one type."""
        return self.op(f"{operation} {', '.join(operands)} : {type_}", hint)

    def constant(self, text: str, hint: str = "c") -> str:
        """The name of the constant ``value : type``."""
        return self.constants.setdefault(text, f"%{hint}_{len(self.constants)}")

    def index(self, value: int) -> str:
        """The name of a constant of type ``index``."""
        return self.constants.setdefault(f"{value} : index", f"%i{value}" if value >= 0 else f"%m{-value}")

    def head(self) -> list[str]:
        """The lines that the constants take."""
        return [f"  {name} = arith.constant {text}" for text, name in self.constants.items()]

    # arithmetic of places

    def add(self, a: str, b: str) -> str:
        """``a + b``."""
        zero = self.index(0)
        if zero in (a, b):
            return a if b == zero else b
        return self.op(f"arith.addi {a}, {b} : index")

    def sub(self, a: str, b: str) -> str:
        """``a - b``."""
        return a if b == self.index(0) else self.op(f"arith.subi {a}, {b} : index")

    def mul(self, a: str, b: str) -> str:
        """``a * b``."""
        one = self.index(1)
        if one in (a, b):
            return a if b == one else b
        return self.op(f"arith.muli {a}, {b} : index")

    def div(self, a: str, b: str) -> str:
        """``a // b`` of places, which are at least 0, by lengths, which are more."""
        return self.op(f"arith.divui {a}, {b} : index")

    def rem(self, a: str, b: str) -> str:
        """``a % b``, likewise."""
        return self.op(f"arith.remui {a}, {b} : index")

    def least(self, a: str, b: str) -> str:
        """The smaller of two."""
        return self.op(f"arith.minsi {a}, {b} : index")

    def greatest(self, a: str, b: str) -> str:
        """The greater of two."""
        return self.op(f"arith.maxsi {a}, {b} : index")

    def compare(self, relation: str, a: str, b: str) -> str:
        """Whether `a` is ``"eq"``, ``"ne"``, ``"slt"``, ``"sle"``, ``"sge"`` to `b`."""
        return self.op(f"arith.cmpi {relation}, {a}, {b} : index")

    def select(self, condition: str, a: str, b: str, type_: str = "index") -> str:
        """`a` where `condition` holds, else `b`."""
        return self.op(f"arith.select {condition}, {a}, {b} : {type_}")

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
        """Write a loop; returns what it carries when it ends.

        Parameters
        ----------
        carried : sequence of (value, type)
            What the first turn is given.
        body : callable
            ``body(counter, given)`` writes a turn and returns what the next one is given, if anything.
        """
        counter = self.name(hint)
        given = [self.name("a") for _ in carried]
        inits = ", ".join(f"{name} = {value}" for name, (value, _) in zip(given, carried, strict=True))
        types = ", ".join(type_ for _, type_ in carried)
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
        """Write a branch; returns what `then` does where it is taken, and else the values of `otherwise`."""
        types = ", ".join(type_ for _, type_ in otherwise)
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
