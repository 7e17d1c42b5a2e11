"""What a body writes outside: what a call that skips it writes too, and what makes it run."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...scalars import fixed
from ...tensor import Tensor
from ..guard import is_plain, same
from ..source import Attribute, Cell, Global, Held, Item, Source, is_within
from ..watch.impurity import Impurity, line_of
from ..watch.protocols import Effect
from .facts import Facts
from .known import MISSING, is_users, lookup, namespace


class _Written(NamedTuple):
    """What was there before, what to say of that which was written, and its line."""

    old: Any
    reason: str
    line: tuple[str, int]


class Writing:
    """Of one call, whose other facts are `facts`.

    Attributes
    ----------
    effects : list of Effect
        Complete when the body has ended.
    has_effects : bool
        May there be any?
    things : list
        What has been changed outside.
    """

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self.effects: list[Effect] = []
        self.has_effects = False
        self.things: list[Any] = []
        self._written: dict[Source, _Written] = {}
        self._unread: set[Source] = set()  # of these, what was written by what may be an effect

    def wrote(self, thing: Any, what: str) -> None:
        """Something of `thing`, perhaps a Tensor, which tells of it, was changed."""
        if not isinstance(thing, Tensor) and not self._facts.is_made(thing):
            self.things.append(thing)
            reason = f"writes {what} of a {type(thing).__name__} from outside"
            self._facts.impure(reason, once=True, writes=True)

    def writes(
        self, thing: Any, step: Callable[[Source, Any], Source], key: Any, what: str, value: Any = MISSING
    ) -> None:
        """`value`, if it is known, is written next where `step` leads from `thing`."""
        source = self._facts.source_of(thing)
        if self._facts.is_made(thing) or (isinstance(thing, Tensor) and step is Item):
            return
        self.things.append(thing)
        reason = f"writes {what} of a {type(thing).__name__} from outside"
        if source is None:
            self._facts.impure(reason, once=True, writes=True)
        else:
            self.writes_at(step(source, key), _there(thing, step, key), reason, value)

    def writes_at(self, source: Source, old: Any, reason: str, value: Any = MISSING) -> None:
        """The same of a source where `old` is; the end shows whether it is another then."""
        is_effect = self._is_effect(source, value)
        if not is_effect:
            value = fixed(value)
        if not is_effect and (old is MISSING or (self._facts.refuses and not _is_same(value, old))):
            self._facts.impure(reason, once=True, writes=True)
        elif source not in self._written:
            if is_effect:
                self._unread.add(source)
            else:
                self._facts.found(source, old)
            self._written[source] = _Written(old, reason, line_of(sys._getframe(1)))
            self._facts.overwritten.add(source)

    def tell(self) -> None:
        """At the end: what was written and is another thing now is an impurity.

        No call finds both what was there and what is: whoever asks while a body runs that writes there again
        is told that something has changed.
        """
        for source, _, _ in self.effects:
            guards = (g for g in self._facts.guards if g.source != source or g.test != "type")
            asked = {guard.source for guard in guards}
            if source in asked or any(is_within(place, source) for place in (*asked, *self._written)):
                self._facts.impure(f"appends to {source} and reads or changes it", once=True, writes=True)
        for source, now, reason, line in self._changed():
            if self._is_effect(source, now):
                self.effects.append(Effect(source, False, now))
                continue
            self._stays(source, now)
            self._facts.impure(reason, once=True, line=line, writes=True)
        for source in self._unread.difference(effect.place for effect in self.effects):
            old, reason, line = self._written[source]
            if old is MISSING:
                self._facts.impure(reason, once=True, line=line, writes=True)
            else:
                self._stays(source, old)
        for source, appends, _ in self.effects:
            if appends:
                self._keep_apart(source)
            elif isinstance(source, Item | Attribute):
                self._keep_apart(source.of)
                holder = source.of.read(self._facts.leaves)
                if isinstance(holder, list):  # -1 and 0 may be one element
                    self._facts.fact(holder, "length", len(holder))

    def appends(self, thing: list[Any], value: Any) -> bool:
        """`value` is about to be appended to a list outside; is that an effect?"""
        source = self._facts.source_of(thing)
        if source is None or not self._is_written(value):
            return False
        self._facts.kind(thing)
        self.effects.append(Effect(source, True, value))
        return True

    def so_far(self) -> list[Impurity]:
        """What has changed something outside, with its line."""
        found = (Impurity(reason, *line, True, True) for _, _, reason, line in self._changed())
        return [*(impurity for impurity in self._facts.impurities if impurity.writes), *found]

    def _changed(self) -> Iterator[tuple[Source, Any, str, tuple[str, int]]]:
        """The sources that were written and hold another thing now."""
        for source, (old, reason, line) in self._written.items():
            try:
                now = source.read(self._facts.leaves)
            except Exception:
                now = MISSING
            if not _is_same(now, old):
                yield source, now, reason, line

    def _stays(self, source: Source, value: Any) -> None:
        self._facts.guard(source, *(("same", value) if is_plain(value) else ("is", Held(value))))

    def _keep_apart(self, written: Source) -> None:
        """The object that an effect changes has to be none of the others that the body has read."""
        holder = written.read(self._facts.leaves)
        self._facts.kind(holder)
        space = namespace(holder) if not isinstance(holder, list | dict) else None
        for other, value in self._facts.all_found():
            if other is None or value is holder or value is space:
                continue
            if type(value) is type(holder):
                self._facts.guard(written, "apart", other)
            elif space is not None and type(value) is dict:
                self._facts.guard(Attribute(written, "__dict__"), "apart", other)

    def _is_effect(self, source: Source, value: Any) -> bool:
        """Can a call that skips the body write `value` at `source`?"""
        if not self._is_written(value) or not self._is_place(source):
            return False
        return not any(is_within(guard.source, source) for guard in self._facts.guards)

    def _is_written(self, value: Any) -> bool:
        """Can a call that skips the body make it? Plain values follow from the guards."""
        if type(value) is Tensor:
            return self.has_effects and self._facts.makes(value) and not namespace(value)
        return self.has_effects and (is_plain(value) or self._facts.follows(value))

    def _is_place(self, source: Source) -> bool:
        """Is to write at `source` all that a body does which writes there?"""
        if isinstance(source, Global | Cell) or not isinstance(source, Item | Attribute):
            return isinstance(source, Global | Cell)
        kind = type(source.of.read(self._facts.leaves))
        if isinstance(source, Item):
            return kind in (dict, list, OrderedDict, defaultdict)
        return source.is_name and not is_users(lookup(kind, "__setattr__")[0])


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
