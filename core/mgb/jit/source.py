"""Where a body finds something outside: a path from an argument, a variable or an object."""

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

from ..ir.sizes import native
from ..tensor import of_handler


class Scope(Protocol):
    """A generated function that is being written."""

    def name(self, value: Any) -> str:
        """Return a global of it that holds `value`."""

    def local(self, source: Source) -> str:
        """Return a variable of it that holds what is at `source`."""


def find_definition(function: Callable[..., Any]) -> tuple[str, int]:
    """Return the file and the line where a function begins."""
    code = getattr(unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else ("?", 0)


def is_static(value: Any) -> bool:
    """Check whether it is a module, or a class or function that a module defines. Such objects stay."""
    kind = type(value)  # no user's __class__ is asked
    if issubclass(kind, (ModuleType, BuiltinFunctionType)):
        return True
    if not issubclass(kind, (type, FunctionType)):
        return False
    found: Any = sys.modules.get(value.__module__ or "")
    for part in value.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return (found.__func__ if type(found) in (staticmethod, classmethod) else found) is value


#: What `lookup` returns for a name that no class has.
MISSING: Any = object()


def lookup(kind: type, name: str) -> tuple[Any, type | None]:
    """Return what a class has under a name, unbound, and the class that defines it. No user code runs."""
    get = type.__getattribute__
    for base in get(kind, "__mro__"):
        space = get(base, "__dict__")
        if name in space:
            return space[name], base
    return MISSING, None


def namespace(thing: Any) -> dict[str, Any]:
    """Return the ``__dict__`` of an object; an empty dict if it has none."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def lookup_attribute(thing: Any, name: str) -> Any:
    """Look up like `getattr`, but never call what computes a missing attribute, like a ``__getattr__``."""
    kind = type(thing)
    found = lookup(kind, name)[0]
    is_computed = isinstance(lookup(kind, "__getattr__")[0], FunctionType) or _is_computed_once(found)
    if is_computed or (issubclass(kind, ModuleType) and "__getattr__" in vars(thing)):
        is_class = issubclass(kind, type)
        has = [found is not MISSING, is_class and lookup(thing, name)[0] is not MISSING]
        if name not in namespace(thing) and (_is_computed_once(found) or not any(has)):
            raise AttributeError(name)
    return getattr(thing, name)


def _is_computed_once(raw: Any) -> bool:
    """Return whether it is like a `cached_property`, beside which an object may have its own value."""
    kind = type(raw)
    return isinstance(lookup(kind, "__get__")[0], FunctionType) and lookup(kind, "__set__")[0] is MISSING


def lookup_item(container: Any, key: Any) -> Any:
    """Return ``container[key]``, but never create a missing item, as a `defaultdict` would."""
    if issubclass(type(container), dict) and hasattr(type(container), "__missing__"):
        if not dict.__contains__(container, key):
            raise KeyError(key)
    return container[key]


def weak_getter(value: Any) -> Callable[[], Any]:
    """Return a getter of `value`, if possible a weak one, which returns None when the object is gone."""
    if not is_static(value):
        try:
            return weakref.ref(value)
        except TypeError:
            pass
    return repeat(value).__next__


class Identity:
    """Equal to another one of the same object only. It does not keep the object alive."""

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


class ObjectRef(Identity):
    """One object, referenced by a getter as `weak_getter` returns."""

    __slots__ = ()

    def __init__(self, value: Any) -> None:
        self.get, self._hash = weak_getter(value), id(value)

    def code(self, value: str, scope: Scope) -> str:
        """Return the expression that checks whether `value` is this object."""
        if isinstance(self.get, weakref.ref):
            return f"{value} is not None and {value} is {scope.name(self.get)}()"
        return f"{value} is {scope.name(self.get())}"

    def is_gone(self) -> bool:
        """Check whether the object is gone."""
        return isinstance(self.get, weakref.ref) and self.get() is None

    def __repr__(self) -> str:
        return "an object that is gone" if self.is_gone() else format_value(self.get())


def resolve(value: Any) -> Any:
    """Return the object of a `ObjectRef`; any other value itself."""
    return value.get() if isinstance(value, ObjectRef) else value


#: Types that are shown by their own `repr`, also for derived classes, so that no code of the user runs.
_SHOWN = (int, float, complex, str, bytes, slice, type(None), np.generic)
_NAMED = (type, FunctionType, MethodType, BuiltinFunctionType, ModuleType, np.ufunc)


def format_value(value: Any) -> str:
    """Return a value as text for a message: numbers and strings themselves, of others their type."""
    kind = type(value)
    if issubclass(kind, _SHOWN):
        text: str = native(kind).__repr__(value)
        return text if len(text) < 60 else text[:56] + "..."
    if kind is tuple or kind is frozenset:
        parts = ", ".join(map(format_value, value))
        parts = f"({parts}{',' * (len(value) == 1)})" if kind is tuple else f"frozenset({{{parts}}})"
        return parts if len(parts) < 60 else parts[:56] + "..."
    if issubclass(kind, _NAMED):
        return f"{kind.__name__} `{value.__name__}`"
    shape = value._tuple_shape if hasattr(kind, "_tuple_shape") else None
    return f"a {kind.__name__}" if shape is None else f"a {kind.__name__} of shape {shape}"


class Source:
    """A path to something outside: a root, or a step from another source."""

    __slots__ = ()

    def read(self, leaves: Sequence[Any]) -> Any:
        """Return what is there now."""
        raise NotImplementedError

    def code(self, scope: Scope) -> str:
        """Return the expression that reads it. If a body can write it, assigning to that text writes it."""
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
    """One object, wherever it is stored."""

    thing: ObjectRef

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
    """A variable of an enclosing function. Another source is its cell."""

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

    module: ObjectRef
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
        """Check whether it can be written after a dot."""
        return self.name.isidentifier() and not iskeyword(self.name)

    def __str__(self) -> str:
        return f"`{_inner(self.of)}.{self.name}`"


@dataclass(frozen=True, slots=True)
class Item(Source):
    """An element of what another source gives. A key that is not a plain value is a `ObjectRef`."""

    of: Source
    key: Any

    def read(self, leaves: Sequence[Any]) -> Any:
        return lookup_item(self.of.read(leaves), resolve(self.key))

    def code(self, scope: Scope) -> str:
        of = scope.local(self.of)
        if isinstance(self.key, ObjectRef):
            return f"{of}[{Object(self.key).code(scope)}]"
        return f"{of}[{self.key!r}]" if type(self.key) in (int, str) else f"{of}[{scope.name(self.key)}]"

    def __str__(self) -> str:
        names = isinstance(self.of, Attribute) and self.of.name == "__dict__"
        names = names or (isinstance(self.of, Result) and self.of.function is vars)
        if names and isinstance(self.of, Attribute | Result):
            return f"`{_inner(self.of.of)}.{self.key}`"
        return (
            f"`{_inner(self.of)}[{self.key if isinstance(self.key, ObjectRef) else format_value(self.key)}]`"
        )


@dataclass(frozen=True, slots=True)
class Result(Source):
    """The result of a pure function, such as `type` or `list`, of what another source gives."""

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
    """A tuple of what several sources give."""

    sources: tuple[Source, ...]

    def read(self, leaves: Sequence[Any]) -> Any:
        return tuple([source.read(leaves) for source in self.sources])

    def code(self, scope: Scope) -> str:
        return f"({''.join(f'{scope.local(source)}, ' for source in self.sources)})"

    def __str__(self) -> str:
        return f"one of {', '.join(map(str, self.sources))}"


@dataclass(frozen=True, slots=True)
class Call(Source):
    """The result of calling what another source gives with plain values. The call has no side effects."""

    of: Source
    args: tuple[Any, ...] = field(default=(), compare=False)
    text: str = ""  # the key: it tells 1 from True and 1.0

    @staticmethod
    def given(of: Source, args: tuple[Any, ...]) -> Call:
        """Return the call of what is at `of` with `args`."""
        return Call(of, args, ", ".join(map(repr, args)))

    def read(self, leaves: Sequence[Any]) -> Any:
        return self.of.read(leaves)(*self.args)

    def code(self, scope: Scope) -> str:
        return f"{scope.local(self.of)}({f'*{scope.name(self.args)}' if self.args else ''})"

    def __str__(self) -> str:
        return f"`{_inner(self.of)}({self.text})`"


def roots(source: Source) -> Iterator[Source]:
    """Yield the roots of the path; several if it starts at several sources."""
    parts = getattr(source, "sources", None) or getattr(source, "of", None)
    if parts is None:
        yield source
    else:
        for part in parts if isinstance(parts, tuple) else (parts,):
            yield from roots(part)


def is_in_argument(source: Source) -> bool:
    """Check whether it is an argument, or inside one, so that another object may be there at each call."""
    return all(isinstance(root, Argument) for root in roots(source))


def is_within(source: Source, outer: Source) -> bool:
    """Check whether the path of `source` continues that of `outer`."""
    parts = getattr(source, "sources", None) or (getattr(source, "of", None),)
    return any(part is not None and (part == outer or is_within(part, outer)) for part in parts)


def is_gone(source: Source) -> bool:
    """Check whether the object at the root of its path is gone."""
    return any(isinstance(start, Object) and start.thing.is_gone() for start in roots(source))


def try_read(source: Source, leaves: Sequence[Any] = ()) -> Any:
    """Return what is there now; None if reading it fails."""
    try:
        return source.read(leaves)
    except Exception as error:
        if of_handler(error):
            raise
        return None


def _inner(source: Source) -> str:
    """Return the path as text, without quotes."""
    text = str(source)
    if isinstance(source, (Global, Cell)):
        return source.name
    if isinstance(source, Object):  # a class, a function or a module has a name
        return text.split("`")[1] if "`" in text else text.removeprefix("a ")
    return text[1:-1] if text.startswith("`") and text.endswith("`") else text
