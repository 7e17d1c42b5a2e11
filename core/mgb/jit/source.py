"""Where something outside a body is found: a path from an argument, a variable or an object."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from inspect import unwrap
from itertools import repeat
from keyword import iskeyword
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Protocol

import numpy as np

from ..sizes import native
from ..tensor import of_handler


class Scope(Protocol):
    """A generated function that is being written."""

    def name(self, value: Any) -> str:
        """A global of it that holds `value`."""

    def local(self, source: Source) -> str:
        """A variable of it that holds what is found at `source`."""


def beginning_of(function: Callable[..., Any]) -> tuple[str, int]:
    """The file and the line where a function begins."""
    code = getattr(unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("?", 0)


def is_static(value: Any) -> bool:
    """Is it part of the program's text: a module, or a class or function of one? These stay."""
    kind = type(value)  # no user's __class__ is asked
    if issubclass(kind, (ModuleType, BuiltinFunctionType)):
        return True
    if not issubclass(kind, (type, FunctionType)):
        return False
    found: Any = sys.modules.get(value.__module__ or "")
    for part in value.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return (found.__func__ if type(found) in (staticmethod, classmethod) else found) is value


def lookup_attribute(thing: Any, name: str) -> Any:
    """As `getattr`, but a ``__getattr__`` of a user's is not called for what is gone."""
    mro = type.__getattribute__(type(thing), "__mro__")
    spaces = [type.__getattribute__(base, "__dict__") for base in mro]
    if any(isinstance(space.get("__getattr__"), FunctionType) for space in spaces):
        if not any(name in space for space in (*spaces, object.__getattribute__(thing, "__dict__"))):
            raise AttributeError(name)
    return getattr(thing, name)


def lookup_item(container: Any, key: Any) -> Any:
    """As ``container[key]``, but what is gone from a dict is not made anew, as by a `defaultdict`."""
    if issubclass(type(container), dict) and hasattr(type(container), "__missing__"):
        if not dict.__contains__(container, key):
            raise KeyError(key)
    return container[key]


def holder(value: Any) -> Callable[[], Any]:
    """What gives `value` back: held weakly where that is possible and it may go; None when it is gone."""
    if not is_static(value):
        try:
            return weakref.ref(value)
        except TypeError:
            pass
    return repeat(value).__next__


class Identity:
    """Stands for one object, whatever that is equal to, and does not keep it alive."""

    __slots__ = ("_hash", "get")

    def __init__(self, value: Any) -> None:
        self.get: Callable[[], Any] = weakref.ref(value)
        self._hash = id(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identity):
            return NotImplemented
        mine = self.get()
        return self is other or (mine is not None and mine is other.get())


class Held(Identity):
    """One object, held as `holder` says."""

    __slots__ = ()

    def __init__(self, value: Any) -> None:
        self.get, self._hash = holder(value), id(value)

    def code(self, value: str, scope: Scope) -> str:
        """The expression that says whether `value` is this object."""
        if isinstance(self.get, weakref.ref):
            return f"{value} is not None and {value} is {scope.name(self.get)}()"
        return f"{value} is {scope.name(self.get())}"

    def is_gone(self) -> bool:
        """Is there no such object any more?"""
        return isinstance(self.get, weakref.ref) and self.get() is None

    def __repr__(self) -> str:
        return "an object that is gone" if self.is_gone() else short(self.get())


#: Of these the text is shown, and of classes derived from them that of theirs; no code of a user runs.
_SHOWN = (int, float, complex, str, bytes, slice, type(None), np.generic)
_NAMED = (type, FunctionType, MethodType, BuiltinFunctionType, ModuleType, np.ufunc)


def short(value: Any) -> str:
    """A value in a message: numbers and texts themselves, of others their kind."""
    kind = type(value)
    if issubclass(kind, _SHOWN):
        text: str = native(kind).__repr__(value)
        return text if len(text) < 60 else text[:56] + "..."
    if kind is tuple or kind is frozenset:
        parts = ", ".join(map(short, value))
        parts = f"({parts}{',' * (len(value) == 1)})" if kind is tuple else f"frozenset({{{parts}}})"
        return parts if len(parts) < 60 else parts[:56] + "..."
    if issubclass(kind, _NAMED):
        return f"{kind.__name__} `{value.__name__}`"
    shape = value._tuple_shape if hasattr(kind, "_tuple_shape") else None
    return f"a {kind.__name__}" if shape is None else f"a {kind.__name__} of shape {shape}"


class Source:
    """Where something outside is found: a root, or a step from another source."""

    __slots__ = ()

    def read(self, leaves: Sequence[Any]) -> Any:
        """What is there now."""
        raise NotImplementedError

    def code(self, scope: Scope) -> str:
        """The expression that reads it; what a body can write is assigned by the same text."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Argument(Source):
    """A leaf of the flattened arguments."""

    index: int
    words: str = field(default="", compare=False)

    def read(self, leaves: Sequence[Any]) -> Any:
        return leaves[self.index]

    def code(self, scope: Scope) -> str:
        return f"t{self.index}"

    def __str__(self) -> str:
        return self.words or f"argument {self.index}"


@dataclass(frozen=True, slots=True)
class Object(Source):
    """One object, wherever it is kept."""

    thing: Held

    def read(self, leaves: Sequence[Any]) -> Any:
        value = self.thing.get()
        if value is None and self.thing.is_gone():
            raise LookupError("it is gone")
        return value

    def code(self, scope: Scope) -> str:
        get = self.thing.get
        return f"{scope.name(get)}()" if isinstance(get, weakref.ref) else scope.name(get())

    def __str__(self) -> str:
        return repr(self.thing)


@dataclass(frozen=True, slots=True)
class Cell(Source):
    """A variable of a function around the one that reads it, whose cell another source gives."""

    of: Source
    name: str

    def read(self, leaves: Sequence[Any]) -> Any:
        return self.of.read(leaves).cell_contents

    def code(self, scope: Scope) -> str:
        return f"{scope.local(self.of)}.cell_contents"

    def __str__(self) -> str:
        return f"variable `{self.name}` of the function around it"


@dataclass(frozen=True, slots=True)
class Global(Source):
    """A global variable of a module, or a builtin."""

    module: Held
    name: str

    def read(self, leaves: Sequence[Any]) -> Any:
        return self.module.get()[self.name]

    def code(self, scope: Scope) -> str:
        return f"{scope.name(self.module.get())}[{self.name!r}]"

    def __str__(self) -> str:
        return f"global `{self.name}`"


@dataclass(frozen=True, slots=True)
class Attribute(Source):
    """An attribute of what another source gives."""

    of: Source
    name: str

    def read(self, leaves: Sequence[Any]) -> Any:
        return lookup_attribute(self.of.read(leaves), self.name)

    def code(self, scope: Scope) -> str:
        of = scope.local(self.of)
        if self.is_name:
            return f"{of}.{self.name}"
        return f"getattr({of}, {self.name!r})"

    @property
    def is_name(self) -> bool:
        """Can a program say it after a dot?"""
        return self.name.isidentifier() and not iskeyword(self.name)

    def __str__(self) -> str:
        return f"`{_inner(self.of)}.{self.name}`"


@dataclass(frozen=True, slots=True)
class Item(Source):
    """An element of what another source gives; a key that is no plain value is a `Held`."""

    of: Source
    key: Any

    def read(self, leaves: Sequence[Any]) -> Any:
        key = self.key.get() if isinstance(self.key, Held) else self.key
        return lookup_item(self.of.read(leaves), key)

    def code(self, scope: Scope) -> str:
        of = scope.local(self.of)
        if isinstance(self.key, Held):
            return f"{of}[{Object(self.key).code(scope)}]"
        return f"{of}[{self.key!r}]" if type(self.key) in (int, str) else f"{of}[{scope.name(self.key)}]"

    def __str__(self) -> str:
        names = isinstance(self.of, Attribute) and self.of.name == "__dict__"
        names = names or (isinstance(self.of, Result) and self.of.function is vars)
        if names and isinstance(self.of, Attribute | Result):
            return f"`{_inner(self.of.of)}.{self.key}`"
        return f"`{_inner(self.of)}[{self.key if isinstance(self.key, Held) else short(self.key)}]`"


@dataclass(frozen=True, slots=True)
class Result(Source):
    """What a function without effects gives for what another source gives: `type`, `list`."""

    function: Callable[[Any], Any]
    of: Source

    def read(self, leaves: Sequence[Any]) -> Any:
        return self.function(self.of.read(leaves))

    def code(self, scope: Scope) -> str:
        if self.function is vars:
            return f"{scope.local(self.of)}.__dict__"
        name = self.function.__name__ if self.function in (type, list) else scope.name(self.function)
        return f"{name}({scope.local(self.of)})"

    def __str__(self) -> str:
        return f"`{self.function.__name__}({_inner(self.of)})`"


@dataclass(frozen=True, slots=True)
class Grad(Source):
    """The ``grad`` of the Tensor that another source gives."""

    of: Source

    def read(self, leaves: Sequence[Any]) -> Any:
        return self.of.read(leaves)._grad

    def code(self, scope: Scope) -> str:
        return f"{scope.local(self.of)}._grad"

    def __str__(self) -> str:
        return f"the grad of {self.of}"


@dataclass(frozen=True, slots=True)
class Sources(Source):
    """What is found at several sources, as a tuple."""

    sources: tuple[Source, ...]

    def read(self, leaves: Sequence[Any]) -> Any:
        return tuple([source.read(leaves) for source in self.sources])

    def code(self, scope: Scope) -> str:
        return f"({''.join(f'{scope.local(source)}, ' for source in self.sources)})"

    def __str__(self) -> str:
        return f"one of {', '.join(map(str, self.sources))}"


@dataclass(frozen=True, slots=True)
class Call(Source):
    """What a function that another source gives returns for plain values, however often it is asked."""

    of: Source
    args: tuple[Any, ...] = field(default=(), compare=False)
    text: str = ""  # which tells 1 from True and 1.0

    @staticmethod
    def given(of: Source, args: tuple[Any, ...]) -> Call:
        """The call of what is at `of` with `args`."""
        return Call(of, args, ", ".join(map(repr, args)))

    def read(self, leaves: Sequence[Any]) -> Any:
        return self.of.read(leaves)(*self.args)

    def code(self, scope: Scope) -> str:
        return f"{scope.local(self.of)}({f'*{scope.name(self.args)}' if self.args else ''})"

    def __str__(self) -> str:
        return f"`{_inner(self.of)}({self.text})`"


def roots(source: Source) -> Iterator[Source]:
    """Where its path starts; there are several of what is made of several."""
    parts = getattr(source, "sources", None) or getattr(source, "of", None)
    if parts is None:
        yield source
    else:
        for part in parts if isinstance(parts, tuple) else (parts,):
            yield from roots(part)


def is_in_argument(source: Source) -> bool:
    """Is it an argument, or in one, so that another one may stand there at each call?"""
    return all(isinstance(root, Argument) for root in roots(source))


def is_within(source: Source, outer: Source) -> bool:
    """Does the path of `source` go on from `outer`?"""
    parts = getattr(source, "sources", None) or (getattr(source, "of", None),)
    return any(part is not None and (part == outer or is_within(part, outer)) for part in parts)


def is_gone(source: Source) -> bool:
    """Is the object gone that its path starts at?"""
    return any(isinstance(start, Object) and start.thing.is_gone() for start in roots(source))


def found_at(source: Source, leaves: Sequence[Any] = ()) -> Any:
    """What is there now; None if there is nothing there any more."""
    try:
        return source.read(leaves)
    except Exception as error:
        if of_handler(error):
            raise
        return None


def _inner(source: Source) -> str:
    """The path's text, without the marks around it."""
    text = str(source)
    if isinstance(source, (Global, Cell)):
        return source.name
    if isinstance(source, Object):  # a class, a function or a module has a name
        return text.split("`")[1] if "`" in text else text.removeprefix("a ")
    return text[1:-1] if text.startswith("`") and text.endswith("`") else text
