"""The operations that kernels are made of, for a backend to write in its language.

They are called as LLVM calls its instructions: ``fadd``, ``sext``. What has no instruction there has the name
of LLVM's intrinsic: ``fma``, ``roundeven``. Values are in static single assignment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple


class Type(NamedTuple):
    """The type of a value.

    Attributes
    ----------
    element : str
        ``f32``, ``i8``, ...; ``index`` is a place or an address.
    lanes : int
        The elements of a vector; 0 for a scalar.
    """

    element: str
    lanes: int = 0

    @property
    def is_float(self) -> bool:
        return self.element[0] == "f"


INDEX, BIT, WORD = Type("index"), Type("i1"), Type("i64")

#: What is carried through a loop or out of a branch.
Carried = tuple[str, Type]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The elements of one iteration of an innermost loop.

    Attributes
    ----------
    count : int
        The elements of a vector; 0 for a scalar.
    mask : str
        Which of them there are; empty when all are.
    """

    count: int = 0
    mask: str = ""

    def of(self, element: str) -> Type:
        """Return the type of a value whose elements are of type `element`."""
        return Type(element, self.count)


SCALAR = Lanes()


class Builder(ABC):
    """The lines of one function; what stands at its head is written once.

    Attributes
    ----------
    lines : list of str
    heads : list of str
        The lines at the head of the function.
    bitwise : dict
        The operands of the vectors that combine or reinterpret bits.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.heads: list[str] = []
        self.bitwise: dict[str, tuple[str, ...]] = {}
        self.depth = 1
        self._used = 0

    def line(self, text: str) -> None:
        """Write one line."""
        self.lines.append("  " * self.depth + text)

    def name(self, hint: str = "") -> str:
        """Return a name that is not taken."""
        self._used += 1
        return f"%{hint}_{self._used}" if hint else f"%v{self._used}"

    def op(self, text: str, hint: str = "") -> str:
        """Write the operation `text`, and return the name of its result."""
        name = self.name(hint)
        self.line(f"{name} = {text}")
        return name

    @contextmanager
    def heading(self) -> Iterator[None]:
        """Emit the lines of this context at the head of the function."""
        lines, depth = self.lines, self.depth
        self.lines, self.depth = self.heads, 1
        yield
        self.lines, self.depth = lines, depth

    @abstractmethod
    def module(self, name: str) -> str:
        """Return the text of the module whose function ``name(arrays, plan, span)`` of words ends here."""

    # operations

    @abstractmethod
    def apply(self, operation: str, operands: Sequence[str], type_: Type, flag: str = "") -> str:
        """Write an operation whose operands and result are of one type.

        `flag` is one of LLVM's fast-math flags.
        """

    @abstractmethod
    def change(self, operation: str, value: str, source: Type, target: Type) -> str:
        """Write a conversion."""

    @abstractmethod
    def compare(self, relation: str, a: str, b: str, type_: Type = INDEX) -> str:
        """Return whether `a` is ``"eq"``, ``"slt"``, ``"oge"``, ``"uno"``, ... to `b`."""

    @abstractmethod
    def select(self, condition: str, a: str, b: str, type_: Type = INDEX) -> str:
        """Return `a` where `condition` holds, else `b`; the condition has as many lanes."""

    def opaque(self, value: str, type_: Type) -> str:
        """Return a vector of floats such that no later operation is joined with the one that made it."""
        return value

    @abstractmethod
    def number(self, value: Any, type_: Type) -> str:
        """Return the same number in each lane."""

    @abstractmethod
    def numbers(self, type_: Type) -> str:
        """Return 0 in the first lane of integers, and one more in each."""

    @abstractmethod
    def spread(self, scalar: str, type_: Type) -> str:
        """Return a scalar in each lane of a value of `type_`."""

    @abstractmethod
    def first(self, vector: str, type_: Type) -> str:
        """Return the first lane of a vector of `type_`."""

    @abstractmethod
    def last(self, vector: str, type_: Type) -> str:
        """Return the last lane of a vector of `type_`."""

    @abstractmethod
    def slide(self, vector: str, before: str, by: int, type_: Type) -> str:
        """Return a vector's lanes moved up by so many, after those of `before`, a vector of equal numbers."""

    @abstractmethod
    def across(self, operation: str, vector: str, type_: Type, flag: str = "") -> str:
        """Return the lanes of a vector of `type_`, folded by an operation into one number."""

    @abstractmethod
    def mask(self, count: str, lanes: int) -> str:
        """Return bits of which the first `count` are set."""

    # memory

    @abstractmethod
    def view(self, element: str, address: str) -> str:
        """Return the elements from `address` on, for `load` and `store`."""

    @abstractmethod
    def load(self, view: str, i: str, type_: Type, mask: str = "", name: str = "") -> str:
        """Load the memory from element `i` on; 0 in lanes that `mask` leaves out."""

    @abstractmethod
    def store(self, value: str, view: str, i: str, type_: Type, mask: str = "") -> None:
        """Write to memory from element `i` on, the lanes that `mask` has."""

    @abstractmethod
    def gather(self, addresses: str, type_: Type, mask: str) -> str:
        """Load the memory at each of the addresses, words; 0 in lanes that `mask` leaves out."""

    def gather_near(self, start: str, offsets: str, type_: Type, mask: str) -> str:
        """Load the memory so many bytes, integers of 32 bits, behind an address; see `gather`."""
        words = Type("i64", type_.lanes)
        wide = self.change("sext", offsets, Type("i32", type_.lanes), words)
        first = self.spread(self.change("bitcast", start, INDEX, WORD), words)
        return self.gather(self.apply("add", (wide, first), words), type_, mask)

    @abstractmethod
    def call(self, function: str, *operands: str) -> None:
        """Call a function of `copies.c`."""

    @abstractmethod
    def fence(self) -> None:
        """Make earlier stores, also those past the caches, visible before later ones."""

    # structure

    @abstractmethod
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

    @abstractmethod
    def when(
        self,
        condition: str,
        then: Callable[[], Sequence[str] | None],
        otherwise: Sequence[Carried] = (),
    ) -> list[str]:
        """Write a branch; returns what `then` does where it is taken, and else the values of `otherwise`."""

    # arithmetic of places

    def index(self, value: int) -> str:
        """Return a place that is known."""
        return self.number(value, INDEX)

    def add(self, a: str, b: str) -> str:
        """Return ``a + b``."""
        zero = self.index(0)
        if zero in (a, b):
            return a if b == zero else b
        return self.apply("add", (a, b), INDEX)

    def sub(self, a: str, b: str) -> str:
        """Return ``a - b``."""
        return a if b == self.index(0) else self.apply("sub", (a, b), INDEX)

    def mul(self, a: str, b: str) -> str:
        """Return ``a * b``."""
        one = self.index(1)
        if one in (a, b):
            return a if b == one else b
        return self.apply("mul", (a, b), INDEX)

    def div(self, a: str, b: str) -> str:
        """Return ``a // b`` of positions, which are at least 0, by lengths, which are more."""
        return self.apply("udiv", (a, b), INDEX)

    def rem(self, a: str, b: str) -> str:
        """Return ``a % b`` of positions, likewise."""
        return self.apply("urem", (a, b), INDEX)

    def least(self, a: str, b: str) -> str:
        """Return the smaller of two."""
        return self.apply("smin", (a, b), INDEX)

    def greatest(self, a: str, b: str) -> str:
        """Return the greater of two."""
        return self.apply("smax", (a, b), INDEX)

    def both(self, a: str, b: str) -> str:
        """Return whether two bits are set."""
        return self.apply("and", (a, b), BIT)
