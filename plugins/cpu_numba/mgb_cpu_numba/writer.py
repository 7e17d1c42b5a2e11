"""The lines of a kernel, and the constants and functions they name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mgb.codegen import BITCAST, CAST, combine, scalar
from mgb.ir import Node
from mgb_native.folds import held

from .words import SPELLINGS, WORDS


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a kernel.

    Attributes
    ----------
    text : str
    functions : dict
        The functions it calls beside the words: name -> (maker, arguments), see `intrinsics.MAKERS`.
    """

    text: str
    functions: dict[str, tuple[str, tuple[object, ...]]]


class Writer:
    """Writes Python.

    Parameters
    ----------
    scopes : sequence of str
        What never overlaps in memory: the inputs together, each output, each buffer.
    """

    def __init__(self, scopes: Sequence[str]) -> None:
        self.scopes = scopes
        self.lines: list[str] = []
        self.depth = 0
        self.constants: dict[str, str] = {}
        self.functions: dict[str, tuple[str, tuple[object, ...]]] = {}
        self.table = {**SPELLINGS, "const": self.constant}

    def line(self, text: str) -> None:
        """Write one line."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head`, and what follows one level deeper."""
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    def constant(self, node: Node) -> str:
        """The name of a scalar constant."""
        value = scalar(node)
        return self.literal(value.item() if node.spec.dtype.kind != "V" else float(value), held(node))

    def literal(self, value: float, dtype: str) -> str:
        """The name of a global of a NumPy type, which Numba takes as a constant of that very type."""
        return self.constants.setdefault(f"{dtype}({value!r})", f"c{len(self.constants)}")

    def function(self, name: str, maker: str, *arguments: object) -> str:
        """`name`, noted as one that a kernel calls."""
        self.functions[name] = (maker, arguments)
        return name

    def note_functions(self, node: Node, text: str) -> str:
        """`text`, the expression of `node`, with the function it calls noted."""
        if node.op in (CAST, BITCAST):
            name = text.partition("(")[0]
            self.functions[name] = (node.op.name, tuple(name.split("_")[1:]))
        return text

    def others(self, scope: str) -> tuple[str, ...]:
        """Return the scopes that an access of `scope` cannot overlap."""
        return tuple(s for s in self.scopes if s != scope)

    def load(self, scope: str, dtype: str, address: str, index: str) -> str:
        """The expression that loads an element of `scope`: a buffer, or ``"in"`` for any input."""
        name = f"load_{scope}_{dtype}" if scope == "in" else f"load_{scope}"
        function = self.function(name, "load", dtype, scope, self.others(scope))
        return f"{function}({address}, {index})"

    def store(self, name: str, dtype: str, address: str, index: str, value: str) -> None:
        """Write the statement that stores one."""
        function = self.function(f"store_{name}", "store", dtype, name, self.others(name))
        self.line(f"{function}({address}, {index}, {value})")

    def fold(self, node: Node, a: str, b: str) -> str:
        """The expression that folds two elements of reduction `node`."""
        spelling = WORDS[combine(node)]
        return spelling.format(a, b) if isinstance(spelling, str) else spelling(node, a, b)
