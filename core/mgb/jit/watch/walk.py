"""The walk: each location outside that code which runs can name, with what was there before it could write.

A location that has another object after the body was written by it; later calls need all as they were.
"""

from __future__ import annotations

import abc
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from ...ir.scalars import SCALARS
from ...tensor import Tensor
from ...tensor.holding import Holder
from ..array_proxy import ArrayProxy
from ..guard import Guard, Guards, is_plain
from ..source import (
    Argument,
    Attribute,
    Call,
    Cell,
    Item,
    Object,
    ObjectRef,
    Result,
    Source,
    is_in_argument,
)
from . import kinds, known, pure
from .bearer import Bearer
from .changing import Changing
from .holder_attributes import attributes_read
from .modules import Modules
from .names import Names, codes_in, names_of
from .unread import Unread
from .variables import read_variables

_ERRORS = frozenset({"TypeError", "AttributeError", "Exception", "BaseException", "hasattr", "getattr"})
#: Locations that one walk visits at most.
LARGEST = 20_000


class Walk:
    """Of one call.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.
    follows : frozenset of Source
        Where another Tensor may stand at each call.
    report : callable
        Told why the body cannot be skipped.

    Attributes
    ----------
    guards : Guards
    values : dict
        What was found at each source.
    names : set of str
        The attributes that code which runs can name.
    loaded : set of str
        Those names that it reads; others it only writes.
    used : set of str
        Those of which it does more than to append to what stands there.
    may_follow : bool
        May a later call be noted for any number, or array, where this one finds one?
    stored : dict
        By names: the code that writes there, and its line.
    asks_identity : bool
        May code compare things by ``is``?
    """

    def __init__(
        self, leaves: Sequence[Any], follows: frozenset[Source], report: Callable[[str], object]
    ) -> None:
        self.guards = Guards()
        self.changing = Changing(self.guards, leaves, self._keep, follows)
        self.leaves, self.report = leaves, report
        self.values: dict[Source, Any] = {}
        self.names: set[str] = set()
        self.loaded: set[str] = set()
        self.used: set[str] = set()
        self.stored: dict[str, tuple[str, int]] = {}
        self.is_wild = False
        self.may_follow = True
        self.is_over = self._was_wild = False
        self.caches: list[tuple[Any, int]] = []  # functions made by `lru_cache`, and how often these missed
        self.number_owners: set[int] = set()  # the ids of what live numbers are read from
        self.makes: Callable[[Any], bool] = lambda _: False
        #: By the ids of Tensors among the arguments that stand elsewhere, too.
        self.also: set[int] = set()
        self.fixed: set[int] = set()  # the ids of what is the same object at each call
        self.sees_numpy = False
        self.tells_addresses = False  # of objects, in texts or by their hashes
        self.given: dict[int, type] = {}  # by their ids the classes of containers among the arguments
        #: By the ids of objects: where each was found first, and itself.
        self.kept: dict[int, tuple[Source, Callable[[], Any]]] = {}
        self._waiting: list[tuple[Source, Any]] = []
        self._bearers: list[Bearer] = []
        self.spaces: list[tuple[Any, tuple[str, ...]]] = []  # what has attributes, and which it had
        self._ran: set[tuple[CodeType, int]] = set()  # with the ids of the globals that it had
        self._inner: set[CodeType] = set()  # that those which ran make
        self._functions: dict[CodeType, list[tuple[Source, FunctionType]]] = {}
        self._visited_holders: set[int] = set()
        self._nans: list[Source] = []
        self._compares = self.asks_identity = False
        self.identified: set[str] = set()  # names that code compares by ``is``
        self._active: set[int] = set()
        self.unread, self.modules = Unread(self), Modules(self)
        self.handles_errors = False  # may a call have failed, before the function began?

    # locations

    def guard(self, source: Source, test: str, value: Any) -> None:
        """Add one more guard."""
        self.guards.add(Guard(source, test, value))

    def is_(self, source: Source, value: Any) -> None:
        """Guard the identity of this object."""
        self.fixed.add(id(value))
        if isinstance(source, Object):
            return
        self.guards.add(Guard(source, "is", ObjectRef(value)))

    def where(self, value: Any) -> Source | None:
        """Return where it was found."""
        found = self.kept.get(id(value))
        return found[0] if found is not None and found[1]() is value else None

    def _keep(self, value: Any, source: Source) -> Source:
        get = weakref.ref(value) if issubclass(type(value), Tensor) else lambda: value
        self.kept[id(value)] = source, get
        return source

    def meets(self, source: Source, value: Any) -> None:
        """Visit `value` at `source`, as the core says."""
        first = self.where(value)
        if first is None:
            self._keep(value, source)
        elif issubclass(type(value), Tensor) and isinstance(first, Argument):
            self.also.add(id(value))

    def visit(self, source: Source, value: Any) -> None:
        """Visit `value` at `source`, and what can be named from it."""
        if self.is_over or source in self.values or len(self.values) > LARGEST:
            return
        self.values[source] = value
        if type(value) is ArrayProxy:
            self._keep(value.array, source)
            return
        if value is sys.modules:
            return self.modules.found(source)
        if type(value) in SCALARS:  # what is asked of it is a guard
            if value.path != source:  # a later call may find two numbers
                self.guard(source, "same", value.fixed())
            return
        if self.unread.holds_back(source, value):
            return
        if len(self.values) > LARGEST:
            self.report(f"can reach more than {LARGEST} places")
        self.sees_numpy = self.sees_numpy or kinds.is_of_numpy(value)
        if is_plain(value):
            if isinstance(value, float) and value != value:
                self._nans.append(source)
            if not isinstance(source, Argument):
                self.guard(source, "same", value)
            return
        if issubclass(type(value), Tensor) and self.makes(value):
            return
        first = self.where(value)
        if issubclass(type(value), Tensor) and self.changing.is_followed(source, value, first):
            return self.bear(source, value)
        if first is None or first == source:
            self._keep(value, source)
            self._waiting.append((source, value))
        elif id(value) not in self.given:
            if isinstance(first, Argument) or isinstance(value, np.ndarray):
                self.also.add(id(value))
            if kinds.stays_itself(value) and not is_in_argument(source):
                self.is_(source, value)
                if isinstance(value, FunctionType) and is_in_argument(first):
                    self.is_(first, value)
            elif isinstance(first, Object):
                self.is_(source, value)
            else:
                self.guard(source, "alias", first)

    def named(self, source: Source, value: Any) -> None:
        """Visit `value` at `source`, where code finds it by its name alone."""
        self.unread.named.add(source)
        self.visit(source, value)

    def argument(self, source: Argument, leaf: Any, is_taken: bool = False) -> None:
        """Visit a leaf of the arguments: a Tensor is not external state, but may have been given attributes.

        Of an array that an op of mgb's takes, what it holds need not stay.
        """
        if is_taken:
            self._keep(leaf, source)
            return
        if issubclass(type(leaf), Tensor) and self.where(leaf) is None:
            self._keep(leaf, source)
            self._waiting.append((source, leaf))
        elif not issubclass(type(leaf), Tensor):
            self.visit(source, leaf)

    def drain(self) -> None:
        """Go on until nothing is left."""
        while self._waiting:
            kinds.look(self, *self._waiting.pop())

    # attributes

    def bear(self, source: Source, thing: Any) -> None:
        """Note that attributes of `thing`, which is at `source`, can be named."""
        bearer = Bearer(self, source, thing)
        self.spaces.append((thing, bearer.before))
        self._bearers.append(bearer)
        bearer.read(self.names, self.is_wild)

    def goes_wild(self) -> None:
        """Note that any attribute of anything may be read next."""
        if not self.is_wild:
            self.is_wild = True
            self._name(())

    def add_names(self, names: Iterable[str]) -> None:
        """Note that these attributes can be named."""
        self.loaded |= set(names)
        self.used |= set(names)
        self._name(names)

    def _name(self, names: Iterable[str]) -> None:
        new = set(names) - self.names
        self.names |= new
        if self.is_over:
            self._waiting.clear()
            return
        self.unread.again()
        self.drain()
        if new or self.is_wild != self._was_wild:
            self._was_wild = self.is_wild
            for bearer in list(self._bearers):
                bearer.read(new, self.is_wild)
            self.drain()

    def visit_holder(self, holder: Any) -> None:
        """Visit all that is in a holder, and in those in it, since it may be read."""
        waiting = [holder]
        while waiting:
            one = waiting.pop()
            if id(one) in self._visited_holders:
                continue
            self._visited_holders.add(id(one))
            source = self.where(one)
            source = source if source is not None and is_in_argument(source) else Object(ObjectRef(one))
            names = attributes_read(one)
            self.guard(Result(attributes_read, source), "items", tuple(names))
            self.loaded.update(names)
            for name in names:
                self.visit(Attribute(source, name), vars(one)[name])
            waiting += [part for _, part in one.__parts__() if isinstance(part, Holder)]
        self.drain()

    # code

    def function(self, source: Source, function: FunctionType) -> None:
        """Note that `function`, which `source` gives, can be called: its surroundings count once it is."""
        code = function.__code__
        self._functions.setdefault(code, []).append((source, function))
        is_closure = function.__closure__ and pure.is_trusted(code) and not pure.is_of_library(function)
        if (code, id(function.__globals__)) in self._ran or is_closure:
            self.activate(source, function)

    def starts(self, code: CodeType, space: dict[str, Any]) -> bool:
        """Note that `code` with the globals `space` starts; return False if nothing led to such a one."""
        if (code, id(space)) in self._ran:
            return True
        self._ran.add((code, id(space)))
        names = names_of(code)
        self._inner.update(codes_in(code))
        for source, function in self._functions.get(code, ()):
            self.activate(source, function)
        self._note_writes(code, names)
        read_variables(self, names.chains, space)
        self.modules.imports(names.imports, space.get("__package__"))
        self.modules.reads(code, names)
        if names.denied:
            self.report(f"asks for {sorted(names.denied)[0]}")
        if names.is_wild and not pure.is_tame(code):
            self.goes_wild()
        self._name(names.attributes)
        return code in self._functions or code in self._inner

    def has_run(self, code: CodeType, space: dict[str, Any]) -> bool:
        """Return whether it has started before, with these globals."""
        return (code, id(space)) in self._ran

    def _note_writes(self, code: CodeType, names: Names) -> None:
        self.loaded |= names.loaded
        self.used |= names.used
        can_handle = names.handles_errors or code.co_name == "__exit__"
        self.handles_errors |= can_handle or bool(names.loaded & _ERRORS)
        self.tells_addresses |= names.makes_texts
        calls_is = not names.loaded.isdisjoint(("is_", "is_not"))
        self._compares |= names.compares or calls_is
        self.asks_identity |= names.asks_identity or calls_is
        self.identified |= names.identified
        if names.asks_classes:
            self.asks_classes()
        for name, line in names.stored.items():
            self.stored.setdefault(name, (code.co_filename, line))
        if names.elements is not None:
            self.stored.setdefault("", (code.co_filename, names.elements))

    def activate(self, source: Source, function: FunctionType) -> None:
        """Visit a function that runs: guard what is in its closure and its defaults."""
        if id(function) in self._active:
            return
        self._active.add(id(function))
        self.guard(Attribute(source, "__code__"), "is", ObjectRef(function.__code__))
        in_argument = is_in_argument(source)
        if in_argument:
            self.is_(Attribute(source, "__globals__"), function.__globals__)
        for number, (name, cell) in enumerate(
            zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        ):
            around = Item(Attribute(source, "__closure__"), number)
            held: Source = around if in_argument else Object(ObjectRef(cell))
            if known.is_empty(cell):
                self.guard(Result(known.is_empty, held), "same", True)
            else:
                self.named(Cell(held, name), cell.cell_contents)
        for name in ("__defaults__", "__kwdefaults__"):
            if getattr(function, name) is not None or in_argument:
                self.visit(Attribute(source, name), getattr(function, name))

    def asks_classes(self) -> None:
        """Note that the class of something is checked, which a class may have registered since."""
        self.guard(Call(Object(ObjectRef(abc.get_cache_token))), "same", abc.get_cache_token())

    # the end

    def ends(self) -> None:
        """Check what only the end of the body decides: absent names, NaNs, addresses, identities."""
        for source, function in [each for found in self._functions.values() for each in found]:
            if self.handles_errors and not pure.is_librarys(function.__code__):
                self.activate(source, function)
        for source in self._nans if self._compares else ():
            if is_in_argument(source):
                self.report(f"can reach {source}, which is NaN, known by its identity")
            else:
                self.is_(source, self.values[source])
        self.modules.ends()
        if self.tells_addresses:
            self._addresses()
        asks = self._compares or self.tells_addresses or "id" in self.loaded
        self.changing.asks_identity = asks or self.is_wild
        self.unread.ends()
        self.drain()
        self.asks_identity |= self.is_wild
        for bearer in self._bearers:
            bearer.ends()

    def _addresses(self) -> None:
        """Guard the identity of objects that show their address."""
        for source, value in list(self.found()):
            kind: Any = type(value)
            says = kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__
            if issubclass(kind, Tensor):
                continue
            if known.is_heap(kind) and (says or kind.__hash__ is object.__hash__):
                self.is_(source, value)

    def found(self) -> Iterator[tuple[Source, Any]]:
        """Iterate over the objects found, each with its first location."""
        for source, get in self.kept.values():
            if (value := get()) is not None:
                yield source, value

    def outside(self) -> Iterator[tuple[Source, Any]]:
        """Yield the same, but for arguments."""
        return (found for found in self.found() if not isinstance(found[0], Argument))

    def release(self) -> None:
        """Keep no Tensor alive."""
        self.values.clear()
        self._bearers.clear()
        self.spaces = []
        self._functions.clear()
        self.kept = {key: (source, known.weakly(get)) for key, (source, get) in self.kept.items()}

    def forget(self) -> None:
        """Hold nothing of the call but what its guards hold."""
        self.leaves, self.kept = (), {}
        self.changing.forget()
        self.makes = lambda _: False
