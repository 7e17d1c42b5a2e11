"""What one recording knows: what it made, where everything else was found, what cannot be known."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from types import FrameType, FunctionType
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ...errors import ImpureBodyError
from ...scalars import SCALARS, fixed
from ...tensor import Tensor
from ..guard import Guard, Guards, is_plain, same
from ..source import (
    Attribute,
    Call,
    Cell,
    Global,
    Held,
    Item,
    Object,
    Result,
    Source,
    is_in_argument,
    is_within,
)
from ..tree import parts_of
from .armed import Armed
from .arming import Net
from .changing import Changing
from .impurity import Impurity, line_of
from .known import (
    CONTAINERS,
    MISSING,
    TRANSIENT,
    is_heap,
    is_pure_library,
    is_users,
    lookup,
    namespace,
)  # fmt: skip

_NOWHERE: tuple[Source | None, Callable[[], Any]] = None, lambda: None
#: At most so many impurities are told apart.
_MOST = 100

#: Containers in containers that are looked into.
_DEEP = 8

#: What is done with the result of a call: a function that is given it, or None.
Then = Callable[[Any], Any] | None


class _Watching(threading.local):
    watch: Watch | None = None


#: Who watches this thread.
WATCHING = _Watching()


class Watch:
    """The facts of one call; an `Observer` says what it is given. `armed` has functions run with hooks."""

    net: Net

    def __init__(
        self, leaves: Sequence[Any], refuses: bool, armed: Armed, follows: frozenset[Source] = frozenset()
    ) -> None:
        self.guards = Guards()
        self.changing = Changing(self.guards, leaves, self.keep, follows)
        self.impurities: list[Impurity] = []
        self.written: list[Any] = []  # what has been changed outside
        #: Did the body make this Tensor? Who records the ops knows.
        self.makes: Callable[[Any], bool] = lambda _: False
        self._aliases: dict[int, dict[Source, None]] = {}  # by the ids of Tensors: where else they were found
        self.pending: dict[int, Any] = {}  # by frame: what is done with the result of its call
        self.beginning: list[type] = []  # whose `__init__`, called next, has another name
        self.walked: set[Source] = set()  # Modules of which all has been read
        self.busy = False  # it is looking itself
        self.quiet: dict[int, type] = {}  # classes of mgb's that have nothing of a user's: see `reach`
        self.leaves, self._refuses, self._armed = leaves, refuses, armed
        self._made: set[int] = set()  # ids: what is made where such an object was is made here too
        self._found: dict[int, tuple[Source | None, Callable[[], Any]]] = {}
        self._memories: dict[int, Any] = {}  # of arrays and views that were found
        self._given: set[int] = set()  # containers among the arguments
        self.texts: dict[int, list[Guard]] = {}  # by the ids of those in them: that they are what they are
        self._latest: Any = None  # the array that was read last, until an op has taken it
        self._told: set[int] = set()
        self._errors, self.handled = handling_of_errors(), sys.exception()
        #: What was written: what was there before, and what to say of it, with its line.
        self._written: dict[Source, tuple[Any, str, tuple[str, int]]] = {}
        self._unread: set[Source] = set()  # of these, what was written by what may be an effect
        #: What is written outside though the body is skipped: where, is it appended there, and what.
        self.effects: list[tuple[Source, bool, Any]] = []
        self.has_effects = False  # may there be any?
        #: By the id of an array: how it was read without an op: the whole array, its source, the user's line.
        self.unaccounted: dict[int, list[tuple[Any, Any, Source, tuple[str, int]]]] = {}

    def see(self, do: Callable[..., Any], *args: Any) -> Any:
        """Have `do(watch, *args)` done; what fails in it is no failure of the body."""
        if self.busy:  # what it calls itself is called once more, natively
            return None
        self.busy = True
        try:
            return self.net.without(do, self, *args)
        except ImpureBodyError:
            raise
        except Exception as error:
            self.impure(f"could not be watched: {type(error).__name__}: {error}")
            return None
        finally:
            self.busy = False

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
        source = None if source in self._written else source  # which says what the body has put there
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

    # reads

    def once(self, thing: Any) -> bool:
        """Is it asked for the first time?"""
        first = id(thing) not in self._told
        self._told.add(id(thing))
        return first

    def reads_array(self, array: Any, whole: Any, source: Source) -> None:
        """`array`, a part of `whole`, which is found at `source`, is read: see `takes_array`."""
        line = line_of(sys._getframe(1))
        self.unaccounted.setdefault(id(array), []).append((array, whole, source, line))
        self._latest = array

    def takes_array(self, array: Any) -> Source | None:
        """An op takes `array` as an input: what was just read needs no guard. Where it is found outside."""
        source = self.known(array)
        if source is not None and self._latest is array:
            self.unaccounted[id(array)].pop()
            self._latest = None
        return source

    def forget(self) -> None:
        """Hold nothing of the call any more but what its guards hold."""
        self.leaves, self._found, self.written, self._aliases = (), {}, [], {}
        self.changing.forget()
        self.makes = lambda _: False

    def computes(self) -> None:
        """NumPy computes next; what it does with errors, where the body does not say, has to stay."""
        self.guard(Call(Object(Held(handling_of_errors))), "same", self._errors)

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
        if self._refuses:
            raise ImpureBodyError(
                f"the body {reason} at {impurity.file}:{impurity.line}, so it would have to run at each "
                "call: do that outside of it, or use @trace, which runs such a body"
            )
        if len(self.impurities) < _MOST and impurity not in self.impurities:
            self.impurities.append(impurity)

    def wrote(self, thing: Any, what: str) -> None:
        """Something of `thing`, perhaps a Tensor, which tells of it, was changed."""
        if not isinstance(thing, Tensor) and not self.is_made(thing):
            self.written.append(thing)
            self.impure(f"writes {what} of a {type(thing).__name__} from outside", once=True, writes=True)

    def writes(
        self, thing: Any, step: Callable[[Source, Any], Source], key: Any, what: str, value: Any = MISSING
    ) -> None:
        """`value`, if it is known, is written next where `step` leads from `thing`."""
        source = self.source_of(thing)
        if self.is_made(thing) or (isinstance(thing, Tensor) and step is Item):
            return
        self.written.append(thing)
        reason = f"writes {what} of a {type(thing).__name__} from outside"
        if source is None:
            self.impure(reason, once=True, writes=True)
        else:
            self.writes_at(step(source, key), _there(thing, step, key), reason, value)

    def writes_at(self, source: Source, old: Any, reason: str, value: Any = MISSING) -> None:
        """The same of a source where `old` is; the end shows whether it is another then."""
        is_effect = self._is_effect(source, value)
        if not is_effect:
            value = fixed(value)
        if not is_effect and (old is MISSING or (self._refuses and not _is_same(value, old))):
            self.impure(reason, once=True, writes=True)
        elif source not in self._written:
            if is_effect:
                self._unread.add(source)
            else:
                self.found(source, old)
            self._written[source] = old, reason, line_of(sys._getframe(1))

    def tell_written(self) -> None:
        """At the end: what was written and is another thing now is an impurity.

        No call finds both what was there and what is: whoever asks while a body runs that writes there again
        is told that something has changed.
        """
        for source, _, _ in self.effects:
            asked = {guard.source for guard in self.guards if guard.source != source or guard.test != "type"}
            if source in asked or any(is_within(place, source) for place in (*asked, *self._written)):
                self.impure(f"appends to {source} and reads or changes it", once=True, writes=True)
        for source, now, reason, line in self._changed():
            if self._is_effect(source, now):
                self.effects.append((source, False, now))
                continue
            self._stays(source, now)
            self.impure(reason, once=True, line=line, writes=True)
        for source in self._unread.difference(place for place, _, _ in self.effects):
            old, reason, line = self._written[source]
            if old is MISSING:
                self.impure(reason, once=True, line=line, writes=True)
            else:
                self._stays(source, old)
        for source, appends, _ in self.effects:
            if appends:
                self._keep_apart(source)
            elif isinstance(source, Item | Attribute):
                self._keep_apart(source.of)
                if isinstance(holder := source.of.read(self.leaves), list):  # -1 and 0 may be one element
                    self.fact(holder, "length", len(holder))

    def _keep_apart(self, written: Source) -> None:
        """The object that an effect changes has to be none of the others that the body has read."""
        holder = written.read(self.leaves)
        self.kind(holder)
        space = namespace(holder) if not isinstance(holder, list | dict) else None
        for other, get in list(self._found.values()):
            value = get()
            if other is None or value is holder or value is space:
                continue
            if type(value) is type(holder):
                self.guard(written, "apart", other)
            elif space is not None and type(value) is dict:
                self.guard(Attribute(written, "__dict__"), "apart", other)

    def _stays(self, source: Source, value: Any) -> None:
        self.guard(source, *(("same", value) if is_plain(value) else ("is", Held(value))))

    def _is_effect(self, source: Source, value: Any) -> bool:
        """Can a call that skips the body write `value` at `source`?"""
        if not self._is_written(value) or not self._is_place(source):
            return False
        return not any(is_within(guard.source, source) for guard in self.guards)

    def _is_written(self, value: Any) -> bool:
        """Can a call that skips the body make it? Plain values follow from the guards."""
        if type(value) is Tensor:
            return self.has_effects and self.makes(value) and not namespace(value)
        return self.has_effects and (is_plain(value) or self.follows(value))

    def follows(self, value: Any) -> bool:
        """Does it stand for a number that is followed here?"""
        return type(value) in SCALARS and value.follower is self.changing.numbers

    def appends(self, thing: list[Any], value: Any) -> bool:
        """`value` is about to be appended to a list outside; is that an effect?"""
        source = self.source_of(thing)
        if source is None or not self._is_written(value):
            return False
        self.kind(thing)
        self.effects.append((source, True, value))
        return True

    def _is_place(self, source: Source) -> bool:
        """Is to write at `source` all that a body does which writes there?"""
        if isinstance(source, Global | Cell) or not isinstance(source, Item | Attribute):
            return isinstance(source, Global | Cell)
        kind = type(source.of.read(self.leaves))
        if isinstance(source, Item):
            return kind in (dict, list, OrderedDict, defaultdict)
        return source.is_name and not is_users(lookup(kind, "__setattr__")[0])

    def _changed(self) -> Iterator[tuple[Source, Any, str, tuple[str, int]]]:
        """The sources that were written and hold another thing now."""
        for source, (old, reason, line) in self._written.items():
            try:
                now = source.read(self.leaves)
            except Exception:
                now = MISSING
            if not _is_same(now, old):
                yield source, now, reason, line

    def writes_so_far(self) -> list[Impurity]:
        """What has changed something outside, with its line."""
        found = (Impurity(reason, *line, True, True) for _, _, reason, line in self._changed())
        return [*(impurity for impurity in self.impurities if impurity.writes), *found]

    # watching

    def arm(self, thing: Any) -> None:
        """Watch the Python functions that `thing` is, or that its class, submodules and hooks have."""
        self._armed.arm(thing)

    def calls(self, function: Any, args: list[Any], kwargs: dict[str, Any] | None = None) -> Then:
        """`function` is about to be called."""
        raise NotImplementedError


def _is_same(now: Any, old: Any) -> bool:
    return same(now, old) if is_plain(old) else now is old


def _there(thing: Any, step: Any, key: Any) -> Any:
    """What stands in a dict, a list or among an object's own attributes; MISSING: nothing that is known."""
    if isinstance(thing, Tensor):
        return getattr(thing, key, MISSING)
    inside = namespace(thing) if step is Attribute else thing
    if isinstance(inside, dict) and is_plain(key):
        return dict.get(inside, key, MISSING)
    if isinstance(inside, list) and type(key) is int and -len(inside) <= key < len(inside):
        return inside[key]
    return MISSING


def handling_of_errors() -> tuple[Any, ...]:
    """Whether NumPy ignores, tells or raises each kind of error."""
    return tuple(np.geterr().values())


_SHOWING = (np.ndarray, np.void, memoryview)


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
