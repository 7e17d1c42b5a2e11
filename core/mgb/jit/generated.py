"""Generated functions of the flattened arguments of a call: guards, readers and whole calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from ..tensor import of_handler
from .source import Argument, Source, roots

#: What a generated function returns where a guard does not hold.
MISS = object()


class Lines:
    """The lines of a generated function with the arguments ``t0``, ``t1``, ...; each source is read once.

    Parameters
    ----------
    begun : Lines, optional
        Lines to copy to the beginning.

    Attributes
    ----------
    names : Names
        The globals of the function.
    """

    def __init__(self, begun: Lines | None = None) -> None:
        self.names, self._named = Names(), dict[int, tuple[str, Any]]()
        self._locals: dict[Source, str] = {}
        self.lines: list[str] = []
        if begun is not None:
            self.names.update(begun.names)
            self._named.update(begun._named)
            self._locals.update(begun._locals)
            self.lines.extend(begun.lines)

    def name(self, value: Any) -> str:
        """Return the global that holds `value`."""
        if id(value) not in self._named:
            self._named[id(value)] = self.names(value), value
        return self._named[id(value)][0]

    def local(self, source: Source) -> str:
        if isinstance(source, Argument):
            return source.code(self)
        if source not in self._locals:
            text = source.code(self)
            self._locals[source] = f"e{len(self._locals)}"
            self.lines.append(f"{self._locals[source]} = {text}")
        return self._locals[source]


def make_reader(sources: Sequence[Source | None]) -> Callable[[Sequence[Any]], list[Any]]:
    """Return ``read(leaves)``, which reads each of `sources`; all None if one of them is gone."""
    writer, existing = Lines(), [source for source in sources if source is not None]
    found = ["None" if source is None else writer.local(source) for source in sources]
    lines = [*writer.lines, f"return [{', '.join(found)}]"]
    read: Callable[[Sequence[Any]], list[Any]]
    read = writer.names.compile(existing, lines, f"[None] * {len(sources)}")
    return read


class Names(dict[str, Any]):
    """The globals of a generated function. Calling it with a value returns a name for the value."""

    def __init__(self) -> None:
        super().__init__(MISS=False)

    def __call__(self, value: Any) -> str:
        name = f"g{len(self)}"
        self[name] = value
        return name

    def compile(self, sources: Sequence[Source], lines: Sequence[str], otherwise: str) -> Any:
        """Compile a function of the flattened arguments with these lines, which read `sources`.

        If they raise an exception, the function returns `otherwise`; those of signal handlers it lets out.
        """
        starts = (start for source in sources for start in roots(source))
        indices = sorted({start.index for start in starts if isinstance(start, Argument)})
        given = [f"t{index} = leaves[{index}]" for index in indices]
        body = "\n".join(f"  {line}" for line in [*given, *lines])
        failing = f"  if {self(of_handler)}(error): raise\n  return {otherwise}\n"
        text = f"def made(leaves):\n try:\n{body}\n except Exception as error:\n{failing}"
        return self.define(compile(text, "<guards>", "exec"))

    def define(self, code: CodeType) -> Any:
        """Return the function ``made`` that `code` defines. Its globals are a plain dict, which is faster."""
        scope = dict(self)
        exec(code, scope)
        return scope["made"]
