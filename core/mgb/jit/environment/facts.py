"""What one recording knows of what is outside: where it was found, what has to stay, what cannot be known."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from enum import Enum
from types import FrameType, FunctionType
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ...errors import ImpureBodyError
from ...scalars import SCALARS
from ...tensor import Tensor
from ..guard import Guard, Guards, is_plain
from ..source import Attribute, Held, Item, Object, Result, Source, is_in_argument
from ..tree import parts_of
from ..watch.changing import Changing
from ..watch.impurity import Impurity, line_of
from .known import CONTAINERS, TRANSIENT, is_heap, is_pure_library

_NOWHERE: tuple[Source | None, Callable[[], Any]] = None, lambda: None
#: At most so many impurities are told apart.
_MOST = 100

#: Containers in containers that are looked into.
_DEEP = 8

_SHOWING = (np.ndarray, np.void, memoryview)


class Facts:
    """The facts of one call.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments.
    refuses : bool
        Raise an error at the first impurity.
    follows : frozenset of Source
        Where numbers and Tensors are followed.
    """

    def __init__(self, leaves: Sequence[Any], refuses: bool, follows: frozenset[Source]) -> None:
        self.guards = Guards()
        self.changing = Changing(self.guards, leaves, self.keep, follows)
        self.impurities: list[Impurity] = []
        #: Did the body make this Tensor? Who records the ops knows.
        self.makes: Callable[[Any], bool] = lambda _: False
        self.leaves, self.refuses = leaves, refuses
        self.texts: dict[int, list[Guard]] = {}  # by the ids of those in them: that they are what they are
        self.overwritten: set[Source] = set()  # where the body has put something
        self._aliases: dict[int, dict[Source, None]] = {}  # by the ids of Tensors: where else they were found
        self._made: set[int] = set()  # ids: what is made where such an object was is made here too
        self._found: dict[int, tuple[Source | None, Callable[[], Any]]] = {}
        self._memories: dict[int, Any] = {}  # of arrays and views that were found
        self._given: set[int] = set()  # containers among the arguments

    # what is where

    def make(self, value: Any) -> None:
        """`value` was made during this call, unless it was found outside before, or shows what was."""
        is_outside = id(value) in self._found or id(value) in self._given
        if not is_outside and (memory := _memory_of(value)) is not value:
            is_outside = id(memory) in self._memories
        if not is_outside:
            self._made.add(id(value))

    def is_made(self, value: Any) -> bool:
        """Was it made during this call?"""
        if id(value) in self._made or (isinstance(value, Tensor) and self.makes(value)):
            return True
        if isinstance(value, np.ndarray) and id(value) not in self._found:
            base = value.base
            return base is not None and not isinstance(base, memoryview) and self.is_made(base)
        return isinstance(value, TRANSIENT) and self.known(value) is None

    def is_argument(self, thing: Any) -> bool:
        """Is it a container among the arguments, of which the elements are known?"""
        return id(thing) in self._given

    def known(self, value: Any) -> Source | None:
        """Where it was found already."""
        source, get = self._found.get(id(value), _NOWHERE)
        return source if get() is value else None

    def source_of(self, thing: Any) -> Source | None:
        """Where an object outside is found; None: it was made here, or is a container of arguments."""
        if id(thing) in self._given or is_plain(thing) or self.is_made(thing):
            return None
        known = self.known(thing)
        if known is None and isinstance(thing, np.ndarray) and isinstance(thing.base, np.ndarray):
            return self.source_of(self.viewed(thing))
        if known is None and isinstance(thing, CONTAINERS) and self._holds_made(thing):
            self.make(thing)  # by mgb, as the nest of parameters that `grad` hands to a function
            return None
        return known or self.keep(thing, Object(Held(thing)))

    def _holds_made(self, thing: Any, depth: int = 0) -> bool:
        """Is a Tensor of this body in it? Then so is what holds it: to put one into another is a write."""
        for part in (parts_of(thing) or ()) if depth < _DEEP else ():
            if self.makes(part) if isinstance(part, Tensor) else self._holds_made(part, depth + 1):
                return True
        return False

    def viewed(self, view: Any) -> Any:
        """The array that holds the elements of `view`: an argument, which may be one itself, or its base."""
        start, stop = byte_bounds(view)
        for leaf in self.leaves:
            if type(leaf) is np.ndarray and leaf.flags.forc and self.known(leaf) is not None:
                first, last = byte_bounds(leaf)
                if leaf is not view and first <= start and stop <= last:
                    return leaf
        return view.base

    def keep(self, value: Any, source: Source) -> Source:
        """Know that `value` was found at `source`; gives that."""
        self._made.discard(id(value))
        if (memory := _memory_of(value)) is not None:
            self._memories[id(memory)] = memory
        if type(value) is FunctionType and is_in_argument(source):  # another one has other variables
            for number, cell in enumerate(value.__closure__ or ()):
                self.keep(cell, Item(Attribute(source, "__closure__"), number))
        self._found[id(value)] = source, weakref.ref(value) if isinstance(value, Tensor) else lambda: value
        return source

    def found(self, source: Source | None, value: Any) -> None:
        """`value` was read at `source`; without one, in something that was made here."""
        source = None if source in self.overwritten else source  # which says what the body has put there
        if is_plain(value):
            if source is not None:
                self.changing.reads(Guard(source, "same", value))
            self.guards.add(*self.texts.get(id(value), ()))
            return
        known = self.known(value)
        if source is None:
            is_told = isinstance(value, Tensor)  # by who records
            if known is None and not is_told and (isinstance(value, CONTAINERS) or is_heap(type(value))):
                self.make(value)
            return
        if id(value) in self._given:
            return
        if isinstance(value, Tensor) and self.changing.is_followed(source, value, known):
            return
        if _stands_for_itself(value) and not (isinstance(value, FunctionType) and is_in_argument(source)):
            self.guard(source, "is", Held(value))
        elif known is not None and known != source:
            self.guard(source, "alias", known)
        self.meets(source, value)

    def meets(self, source: Source, value: Any) -> None:
        """`value` stands at `source`, where another may stand at a later call."""
        known = self.known(value)
        if known is None:
            self.keep(value, source)
        elif known != source and isinstance(value, Tensor):
            self._aliases.setdefault(id(value), {})[source] = None

    def same(self, tensor: Tensor) -> None:
        """What was found in several places was compared with itself: these stay the same."""
        first = self.known(tensor)
        for source in self._aliases.get(id(tensor), ()):
            if first is not None:
                self.guard(source, "alias", first)

    def looked_for(self, key: Any, thing: Any) -> None:
        """`thing` is asked for `key`, of which a Tensor equals only itself."""
        source = self.known(key) if isinstance(key, Tensor) else None
        if source is None:
            return
        if self.changing.path_to(key) is not None:
            self.changing.fix_tensor(key)
        elif not self.is_made(thing):
            self.guard(source, "is", Held(key))
        elif any(part is key for part in thing):
            self.same(key)
        else:
            others = [self.known(part) for part in thing if isinstance(part, Tensor)]
            for other in filter(None, others):
                self.guard(source, "apart", other)

    def part(self, thing: Any, step: Callable[[Source, Any], Source], key: Any, value: Any) -> None:
        """`value` was read where `step`, an `Attribute` or an `Item`, leads from `thing`."""
        source = self.source_of(thing)
        self.found(step(source, key) if source is not None else None, value)

    def all_found(self) -> list[tuple[Source | None, Any]]:
        """Everything that was found, and where."""
        return [(source, get()) for source, get in self._found.values()]

    def forget(self) -> None:
        """Hold nothing of the call any more but what its guards hold."""
        self.leaves, self._found, self._aliases = (), {}, {}
        self.changing.forget()
        self.makes = lambda _: False

    # verdicts

    def guard(self, source: Source, test: str, value: Any) -> None:
        """One more fact that has to stay."""
        self.guards.add(Guard(source, test, value))

    def fact(self, thing: Any, test: str, value: Any) -> None:
        """One more fact about `thing`, if that is outside."""
        source = self.source_of(thing)
        if source is not None:
            self.guard(source, test, value)

    def identity(self, thing: Any) -> None:
        """Which object `thing` is has to stay."""
        source = self.source_of(thing)
        if source is not None and not isinstance(source, Object):
            self.guard(source, "is", Held(thing))

    def kind(self, thing: Any) -> None:
        """The class of `thing` has to stay; a Tensor is known by itself."""
        if not isinstance(thing, Tensor):
            self.fact(thing, "type", Held(type(thing)))

    def listed(self, thing: Any) -> None:
        """The plain elements or keys of `thing`, their number and order have to stay."""
        source = self.source_of(thing)
        if source is not None:
            parts = tuple(part if is_plain(part) else Held(part) for part in thing)
            self.guard(Result(list, source), "items", parts)
            for part in thing:
                if isinstance(part, (tuple, frozenset)) and not is_plain(part) and id(part) not in self._made:
                    self.known(part) or self.keep(part, Object(Held(part)))
                elif not isinstance(part, Tensor):  # of which its source is asked
                    self.source_of(part)

    def follows(self, value: Any) -> bool:
        """Does it stand for a number that is followed here?"""
        return type(value) in SCALARS and value.follower is self.changing.numbers

    def impure(
        self,
        reason: str,
        frame: FrameType | None = None,
        once: bool = False,
        line: tuple[str, int] | None = None,
        writes: bool = False,
    ) -> None:
        """The body cannot be skipped: for what is done at `line`, or by the user's innermost `frame`."""
        impurity = Impurity(reason, *(line or line_of(frame or sys._getframe(1))), once, writes)
        if self.refuses:
            raise ImpureBodyError(
                f"the body {reason} at {impurity.file}:{impurity.line}, so it would have to run at each "
                "call: do that outside of it, or use @trace, which runs such a body"
            )
        if len(self.impurities) < _MOST and impurity not in self.impurities:
            self.impurities.append(impurity)


def _memory_of(value: Any) -> Any:
    """What holds the memory that an array or a view shows; None for what shows none."""
    if not isinstance(value, _SHOWING):
        return None
    inner = value.obj if isinstance(value, memoryview) else value.base
    if inner is None:
        return value
    return _memory_of(inner) if isinstance(inner, _SHOWING) else inner


def _stands_for_itself(value: Any) -> bool:
    """Is it known by its identity: not read further, or by others?"""
    if isinstance(value, (Tensor, Enum, type, FunctionType)):
        return True
    if isinstance(value, CONTAINERS):
        return False
    kinds = type(value).__mro__
    if not is_heap(kinds[0]) or isinstance(value, (int, float, complex, str, bytes)):
        return True
    return is_pure_library(kinds[0]) or any((kind.__module__ or "").startswith("mgb.") for kind in kinds)
