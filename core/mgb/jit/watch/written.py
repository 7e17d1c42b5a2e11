"""External writes of a body: the locations that have another object after it than before.

A Tensor that the body makes, or a plain value, that a body puts into a variable, an attribute or an element,
or appends to a list, is an *effect*: a call that skips the body can do that. All other writes make it run.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...ir.scalars import FOLLOWED
from ...tensor import Tensor, of_handler
from ..guard import Guard, is_plain, same
from ..numbers import Computed
from ..source import (
    MISSING,
    Attribute,
    Cell,
    Global,
    Item,
    Object,
    ObjectRef,
    Result,
    Source,
    Sources,
    is_in_argument,
    is_within,
    lookup,
    namespace,
    try_read,
)
from .impurity import Impurity
from .known import is_trusted_holder, is_users
from .protocols import Effect, Watcher
from .pure import is_library
from .undoing import itself, undo

#: What a body changes by its elements.
_CHANGED_BY_ELEMENTS = (dict, list, set, deque, bytearray, np.ndarray)


def settle(observer: Watcher) -> None:
    """Note the effects at the end of a body, and as impurities what else it has written."""
    guards = list(observer.guards)
    impurities = list(impurities_of(observer, take=True))
    if impurities and observer.refuses:
        undo(observer.walk.values, guards, observer.leaves)
    _put_in_order(observer)
    _keep_apart(observer)
    caches = observer.walk.caches
    if observer.writing.effects and any(cached.cache_info().misses > before for cached, before in caches):
        observer.impure("writes outside where lru_cache keeps a result for the first time", once=True)
    observer.walk.unread.guard_unchanged()
    for impurity in impurities:
        observer.impure(impurity.reason, None, impurity.once, (impurity.file, impurity.line), impurity.writes)


def impurities_of(observer: Watcher, take: bool = False) -> Iterator[Impurity]:
    """Report changes as reasons why the body cannot be skipped; those that are effects it may `take`."""
    reported: set[Source] = set()
    replaced: list[Source] = []  # where another tuple stands, whose parts are then others
    for source, value in list(_changed(observer)):
        reported.add(source)
        if take and any(is_within(source, whole) for whole in replaced):
            continue
        if take and _is_effect(observer, source, value):
            _write(observer, source, value)
            replaced += [source] if type(value) is tuple else []
        else:
            if take and value is not MISSING:  # no later call finds both what was there and what is
                observer.walk.guard(
                    source, *(("same", value) if is_plain(value) else ("is", ObjectRef(value)))
                )
            called = (
                _call_that_writes(observer, try_read(itself(source.of), observer.leaves))
                if isinstance(source, Item)
                else None
            )
            yield called or Impurity(_reason(source, observer), *_line(source, observer), True, True)
    for guard in list(observer.guards):
        if guard.source in reported or isinstance(guard.source, Computed) or guard.holds(observer.leaves):
            continue  # what is computed of numbers was so before the body wrote any of these
        new = _added(observer, guard) if take else None
        if new is not None and all(_is_effect(observer, source, value) for source, value in new):
            observer.writing.effects += [Effect(source, False, value) for source, value in new]
        elif not take or not _appends(observer, guard):
            yield from _of_guard(observer, guard)


def _changed(observer: Watcher) -> Iterator[tuple[Source, Any]]:
    """Yield the locations that have another object now, and that; `MISSING` where there is none."""
    for source, old in observer.walk.values.items():
        try:
            now = source.read(observer.leaves)
        except Exception as error:
            if of_handler(error):
                raise
            now = MISSING
        if not _is_same(now, old) and (now is MISSING or source.read(observer.leaves) is now):
            yield source, now  # what is made whenever it is asked for, as a bound method, has guards


def _is_same(now: Any, old: Any) -> bool:
    return same(now, old) if is_plain(old) else now is old


# effects


def _is_effect(observer: Watcher, source: Source, value: Any) -> bool:
    """Return whether a call that skips the body can write `value` at `source`."""
    if not _can_make(observer, value) or not _is_plain_write(observer, source):
        return False
    if not observer.walk.may_follow and type(value) in FOLLOWED and _is_read(observer, source):
        return False  # a counter that cannot be followed: to record it for each of its values is of no use
    if type(value) is tuple and _cannot_change(observer.walk.values.get(source)):
        return True  # what is read of it is guarded in the next one
    paths = (guard.source for guard in observer.guards if not isinstance(guard.source, Sources))
    return not any(is_within(path, source) for path in paths)


def _can_make(observer: Watcher, value: Any) -> bool:
    """Return whether a call that skips the body can make it."""
    if not observer.writing.has_effects:
        return False
    if type(value) is Tensor:
        return not namespace(value) and (observer.makes(value) or _is_named(observer, value))
    if type(value) is tuple:
        return all(_can_make(observer, part) for part in value)
    return observer.can_write(value)


def _is_named(observer: Watcher, tensor: Tensor) -> bool:
    """Return whether it was found where the body can name it, as no argument."""
    source = observer.known(tensor)
    return source is not None and not is_in_argument(source)


def _cannot_change(value: Any) -> bool:
    """Return whether nobody can have changed it before something else took its place."""
    if type(value) is tuple:
        return all(map(_cannot_change, value))
    return is_plain(value) or type(value) is Tensor


def _is_plain_write(observer: Watcher, source: Source) -> bool:
    """Return whether a body that writes at `source` does nothing else there."""
    if not isinstance(source, Item | Attribute):
        return isinstance(source, Global | Cell)
    holder = try_read(source.of, observer.leaves)
    kind = type(holder)
    if isinstance(source.of, Result):  # a copy of what is there
        return False
    if id(holder) in observer.walk.number_owners:
        return False
    if isinstance(source, Item):
        return kind in (dict, list, OrderedDict, defaultdict)
    raw, _ = lookup(kind, source.name)
    if hasattr(type(raw), "__set__") and type(raw).__name__ != "member_descriptor":
        return False
    return source.is_name and not is_users(lookup(kind, "__setattr__")[0])


def _is_read(observer: Watcher, source: Source) -> bool:
    """Return whether what stands there may be read."""
    name = getattr(source, "name", None)
    return name is None or name in observer.walk.loaded or observer.walk.is_wild


def _write(observer: Watcher, source: Source, value: Any) -> None:
    """Note an effect: what was there matters where a name that leads there is read."""
    observer.writing.effects.append(Effect(source, False, value))
    if not _is_read(observer, source):
        _drop(observer, source)


def _drop(observer: Watcher, source: Source, *tests: str) -> None:
    for guard in list(observer.guards):
        if guard.source == source and (not tests or guard.test in tests):
            observer.guards.discard(guard)


def _added(observer: Watcher, guard: Guard) -> list[tuple[Source, Any]] | None:
    """Return the attributes or elements that were not there before; None: `guard` is about something else."""
    source = guard.source
    if guard.test == "disjoint" and isinstance(source, Attribute):
        space = try_read(source, observer.leaves)
        new = [name for name in guard.value if name in space] if isinstance(space, dict) else []
        return [(Attribute(source.of, name), space[name]) for name in new] or None
    if guard.test != "items" or not isinstance(source, Result) or source.function is not list:
        return None
    mapping, before = try_read(source.of, observer.leaves), guard.value
    if not isinstance(mapping, dict) or tuple(mapping)[: len(before)] != before:
        return None
    of: Source = source.of
    if isinstance(of, Attribute) and of.name == "__dict__":
        return [(Attribute(of.of, name), mapping[name]) for name in [*mapping][len(before) :]]
    return [(Item(of, key), mapping[key]) for key in [*mapping][len(before) :] if is_plain(key)] or None


def _appends(observer: Watcher, guard: Guard) -> bool:
    """Return whether a list at a name was only appended to, which is an effect."""
    source, walk = guard.source, observer.walk
    if guard.test not in ("length", "items") or not _is_only_appended_to(observer, source):
        return False
    held = try_read(source, observer.leaves)
    if type(held) is not list:
        return False
    before = guard.value if guard.test == "length" else len(guard.value)
    if len(held) < before or not all(_can_make(observer, part) for part in held[before:]):
        return False
    if guard.test == "items" and not all(map(same, held, guard.value)):
        return False
    if any(walk.values.get(Item(source, n), held[n]) is not held[n] for n in range(before)):
        return False
    _drop(observer, source, "length", "items")
    for part in list(observer.guards):
        if is_within(part.source, source):
            observer.guards.discard(part)
    observer.writing.effects += [Effect(source, True, part) for part in held[before:]]
    return True


def _is_only_appended_to(observer: Watcher, source: Source) -> bool:
    """Return whether code at most appends to what stands at `source`, a name or an element of one."""
    walk, path = observer.walk, [source]
    if walk.is_wild or "__self__" in walk.loaded:
        return False
    while isinstance(root := path[-1], Item):
        path.append(root.of)
    aliases = (guard for guard in observer.guards if guard.test == "alias")
    if any(guard.source in path or guard.value in path for guard in aliases):
        return False
    if isinstance(root, Attribute) and is_library(type(try_read(root.of, observer.leaves)).__module__):
        return False  # whose own code reads it
    return isinstance(root, Attribute | Global | Cell) and root.name not in walk.used


def _put_in_order(observer: Watcher) -> None:
    """Write new attributes and elements in the order in which the body made them."""

    def order(effect: Effect) -> int:
        source = effect.source
        if effect.appends or not isinstance(source, Attribute | Item):
            return 0
        holder = try_read(source.of, observer.leaves)
        space = namespace(holder) if isinstance(source, Attribute) else holder
        name = source.name if isinstance(source, Attribute) else source.key
        return [*space].index(name) if isinstance(space, dict) and name in space else 0

    observer.writing.effects.sort(key=order)


def _keep_apart(observer: Watcher) -> None:
    """Guard that the object that an effect changes is not one of the others that can be named."""
    for source, appends, _ in observer.writing.effects:
        if not appends and not isinstance(source, Item | Attribute):
            continue
        written = source if appends or not isinstance(source, Item | Attribute) else source.of
        holder = try_read(written, observer.leaves)
        space = namespace(holder) or None  # which has at least what has been written
        for other, value in list(observer.walk.found()):
            if value is holder or value is space or isinstance(other, Object):
                continue
            if type(value) is type(holder):
                observer.walk.guard(written, "apart", other)
                if space and not is_trusted_holder(value):  # which one may be given of the other
                    namespaces = Attribute(written, "__dict__"), Attribute(other, "__dict__")
                    observer.walk.guard(namespaces[0], "apart", namespaces[1])
            elif space is not None and type(value) is dict:
                observer.walk.guard(Attribute(written, "__dict__"), "apart", other)


# in words


def _reason(source: Source, observer: Watcher) -> str:
    if isinstance(source, Global | Cell):
        return f"writes the variable `{source.name}` outside"
    if isinstance(source, Attribute | Item):
        holder = try_read(itself(source.of), observer.leaves)
        what = f"attribute {source.name}" if isinstance(source, Attribute) else "an element"
        return f"writes {what} of a {type(holder).__name__} from outside"
    return f"changes what it reads, or reads what is new each time: {source}"


def _of_guard(observer: Watcher, guard: Guard) -> Iterator[Impurity]:
    """Yield a guard fails: was a method called, was something added, or what else?"""
    source = guard.source.of if isinstance(guard.source, Result) else guard.source
    held = try_read(source, observer.leaves)
    called = _call_that_writes(observer, held)
    if called is not None:
        yield called
    elif added := _added(observer, guard):
        for new, _ in added:
            yield Impurity(_reason(new, observer), *_line(new, observer), True, True)
    elif isinstance(held, _CHANGED_BY_ELEMENTS):
        contents = "the elements" if isinstance(held, np.ndarray) else "the contents"
        what = "an element" if "" in observer.walk.stored else contents
        reason = f"writes {what} of a {type(held).__name__} from outside"
        yield Impurity(reason, *_line(source, observer), True, True)
    else:
        change = f"changes what it reads, or reads what is new each time: {guard.change(observer.leaves)}"
        yield Impurity(change, *_line(guard.source, observer), True, True)


def _call_that_writes(observer: Watcher, held: Any) -> Impurity | None:
    """Return the method that the body has called of `held`, and that may change it."""
    called = observer.running.lines.get(id(held))
    if called is None:
        return None
    reason = f"calls {type(held).__name__}.{called[0]} of an object from outside"
    return Impurity(reason, *called[1], True, True)


def _line(source: Source, observer: Watcher) -> tuple[str, int]:
    """Return where `source` may have been written."""
    stored = observer.walk.stored
    while True:
        name = getattr(source, "name", None)
        if name in stored:
            return stored[name]
        if isinstance(source, Item) and source.key in stored:
            return stored[source.key]
        if (line := observer.running.lines.get(id(try_read(source, observer.leaves)))) is not None:
            return line[1]
        inner = getattr(source, "of", None)
        if not isinstance(inner, Source):
            return stored.get("", observer.line)
        source = inner


def notes_of(tensor: Tensor) -> list[Any]:
    """Return the attributes that a Tensor has been given."""
    return [*namespace(tensor), *(name for name in ("name", "format") if hasattr(tensor, f"_{name}"))]
