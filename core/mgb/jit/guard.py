"""Guards: a `Guard` is one fact that must still hold for a call to skip the body, `Guards` are all."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from ..runtime.forking import cached_property
from ..tensor import of_handler
from .generated import Lines
from .source import Argument, Attribute, Grad, ObjectRef, Scope, Source, format_value, is_gone, resolve, roots

#: Types whose values never change and are compared as values.
PLAIN = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range, slice}
)
_SINGLE = frozenset({type(None), bool, type(Ellipsis), type(NotImplemented)})

#: Bytes up to which an array is compared as a whole.
LARGEST_ARRAY = 64 * 1024


def is_plain(value: Any) -> bool:
    """Check whether `value` is a number, a string or another plain value, or a tuple or frozenset of such."""
    kind = type(value)
    if kind in PLAIN:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(is_plain, value))
    if issubclass(kind, np.generic):  # `isinstance` is true for symbolic numbers
        return not (value.dtype.hasobject or kind is np.void)  # np.void may be a view of an array
    return issubclass(kind, np.dtype) and value.names is None  # names can be changed


def to_ref(value: Any) -> Any:
    """Return a plain value itself, of any other object a `ObjectRef`, which `resolve` gives back."""
    return value if is_plain(value) else ObjectRef(value)


def same(one: Any, two: Any) -> bool:
    """Check whether two plain values are interchangeable: 0.0 is not -0.0, 1 is not True, NaN is NaN."""
    if one is two:
        return True
    kind = type(two)
    if type(one) is not kind:
        return False
    if kind is tuple:
        return len(one) == len(two) and all(map(same, one, two))
    if kind is float:
        return (one == two and math.copysign(1, one) == math.copysign(1, two)) or (one != one and two != two)
    if kind is complex:
        return same(one.real, two.real) and same(one.imag, two.imag)
    if kind is frozenset:
        return bool(one == two) and {*map(type, one)} == {*map(type, two)}
    if kind is slice or kind is range:  # empty ranges are equal
        return same((one.start, one.stop, one.step), (two.start, two.stop, two.step))
    if isinstance(two, np.generic):
        return bool(one.dtype == two.dtype and one.tobytes() == two.tobytes())
    return is_plain(two) and bool(one == two)


def same_items(now: Any, then: tuple[Any, ...]) -> bool:
    """Check whether the elements, in order, are the same plain values or the `ObjectRef` objects."""
    if len(now) != len(then):
        return False
    return all(
        (value is not None and value is known.get()) if type(known) is ObjectRef else same(value, known)
        for value, known in zip(now, then, strict=True)
    )


def _bytes_of(array: np.ndarray[Any, Any]) -> bytes:
    """Return the contents of an array; of a large one a digest."""
    if array.nbytes <= LARGEST_ARRAY:
        return array.tobytes()
    return blake2b(np.ascontiguousarray(array).view(np.uint8).data).digest()


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of an array at one time."""

    shape: tuple[int, ...]
    dtype: Any
    data: bytes

    @staticmethod
    def of(array: np.ndarray[Any, Any]) -> Contents:
        """Return the current contents of `array`."""
        return Contents(array.shape, array.dtype, _bytes_of(array))

    @property
    def is_whole(self) -> bool:
        """Check whether `data` is all of the contents, rather than a digest."""
        return math.prod(self.shape) * int(self.dtype.itemsize) == len(self.data)

    def are_in(self, array: Any) -> bool:
        """Check whether `array` has these contents."""
        return (
            isinstance(array, np.ndarray)
            and array.shape == self.shape
            and array.dtype == self.dtype
            and _bytes_of(array) == self.data
        )

    def __repr__(self) -> str:
        return f"an array of {self.shape}"


@dataclass(frozen=True, slots=True)
class Test:
    """One kind of guard: how it is checked, as Python and as code, and the message when it fails."""

    holds: Callable[[Any, Any], bool]
    code: Callable[[str, Any, Scope], str]
    message: str


def _is(value: Any, held: ObjectRef) -> bool:
    return value is held.get() and (value is not None or not held.is_gone())


def _equal_code(value: str, known: Any, scope: Scope) -> str:
    if type(known) in _SINGLE:
        text = scope.name(known) if known is NotImplemented else repr(known)
        return f"{value} is {text}"
    name = scope.name(known)
    return f"({value} is {name} or {scope.name(same)}({value}, {name}))"


def _items_code(value: str, known: tuple[Any, ...], scope: Scope) -> str:
    if not known:
        return f"not len({value})"
    if all(type(part) is str for part in known):
        return f"[*{value}] == {scope.name(list(known))}"
    return f"{scope.name(same_items)}({value}, {scope.name(known)})"


def _lacks(value: Any, name: str) -> bool:
    return not hasattr(value, name)


def _without(value: Any, key: Any) -> bool:
    return resolve(key) not in value


def _key_code(key: Any, scope: Scope) -> str:
    if isinstance(key, ObjectRef):
        return f"{scope.name(key)}.get()"
    return repr(key) if type(key) is str else scope.name(key)


#: Every kind of guard. In messages `{0}` is the source, `{1}` the recorded value, `{2}` the current one.
TESTS = {
    "is": Test(_is, lambda x, v, s: v.code(x, s), "{0} is {2}, it was {1}"),
    "same": Test(same, _equal_code, "{0} is {2}, it was {1}"),
    "type": Test(
        lambda x, v: type(x) is v.get(),
        lambda x, v, s: v.code(f"type({x})", s),
        "{0} is {2}, its class was {1}",
    ),
    "length": Test(
        lambda x, v: len(x) == v, lambda x, v, s: f"len({x}) == {v}", "{0} has another length, it had {1}"
    ),
    "items": Test(same_items, _items_code, "{0} has other items"),
    "without": Test(
        _without,
        lambda x, v, s: f"{_key_code(v, s)} not in {x}",
        "{0} has {1!r} now",
    ),
    "disjoint": Test(
        lambda x, v: x.keys().isdisjoint(v),
        lambda x, v, s: f"{x}.keys().isdisjoint({s.name(v)})",
        "{0} has one of {1} now",
    ),
    "has": Test(lambda x, v: v in x, lambda x, v, s: f"{v!r} in {x}", "{0} has no {1} any more"),
    "lacks": Test(_lacks, lambda x, v, s: f"not hasattr({x}, {v!r})", "{0} has an attribute {1!r} now"),
    "array": Test(
        lambda x, v: v.are_in(x),
        lambda x, v, s: f"{s.name(v.are_in)}({x})",
        "the array {0} holds other values",
    ),
    "alias": Test(_is, lambda x, v, s: f"{x} is {s.local(v)}", "{0} is not the same object as {1} any more"),
    "apart": Test(_is, lambda x, v, s: f"{x} is not {s.local(v)}", "{0} is the same object as {1} now"),
    "a Tensor": Test(lambda x, v: x is not None, lambda x, v, s: f"{x} is not None", "{0} is None now"),
    "no Tensor": Test(lambda x, v: x is None, lambda x, v, s: f"{x} is None", "{0} is a Tensor now"),
    "different": Test(
        lambda x, v: len({*map(id, x)}) == v,
        lambda x, v, s: f"len({{*map(id, {x})}}) == {v}",
        "one object is in several places where there were different ones",
    ),
    "other than": Test(
        lambda x, v: v.isdisjoint(map(id, x)),
        lambda x, v, s: f"{s.name(v)}.isdisjoint(map(id, {x}))",
        "{0} is a Tensor that the body finds outside as well",
    ),
    "spec": Test(
        lambda x, v: x.shape == v.shape and x.dtype == v.dtype,
        lambda x, v, s: f"{x}.shape == {s.name(v.shape)} and {x}.dtype == {s.name(v.dtype)}",
        "{0} was {1}",
    ),
    "meets": Test(lambda x, v: bool(v(x)), lambda x, v, s: f"{s.name(v)}({x})", "{1}"),
}


@dataclass(frozen=True, slots=True)
class Guard:
    """One fact: the `test`, a key of `TESTS`, holds for what is at `source`, with `value`."""

    source: Source
    test: str
    value: Any

    def holds(self, leaves: Sequence[Any]) -> bool:
        """Check whether the guard holds."""
        try:
            value = self.source.read(leaves)
            if isinstance(self.value, Source):
                return (value is self.value.read(leaves)) == (self.test == "alias")
            return TESTS[self.test].holds(value, self.value)
        except Exception as error:
            if of_handler(error):
                raise
            return False

    def change(self, leaves: Sequence[Any]) -> str:
        """Describe why it does not hold."""
        try:
            now = self.source.read(leaves)
        except Exception as error:
            if of_handler(error):
                raise
            gone = "what the body found in an object is gone with it"
            return gone if is_gone(self.source) else f"{self.source} is there no more"
        if self.test == "is" and self.value.is_gone():
            return f"{self.source} is another object than before, {format_value(now)}"
        if self.test == "is" and format_value(now) == str(self.value):
            return f"{self.source} is another {format_value(now).removeprefix('a ')} than before"
        if self.test == "disjoint" and isinstance(self.source, Attribute):
            name = next(name for name in self.value if name in now)
            return f"{Attribute(self.source.of, name)} is there now"
        return TESTS[self.test].message.format(self.source, _format(self.value), format_value(now))

    def code(self, scope: Scope) -> str:
        """Return the expression that checks the guard."""
        return TESTS[self.test].code(scope.local(self.source), self.value, scope)

    @property
    def is_of_training(self) -> bool:
        """Check whether it is about training: whatever Python reads, a ``grad`` decides which ops run."""
        if isinstance(self.source, Grad):
            return self.test in ("a Tensor", "no Tensor")
        return isinstance(self.source, Attribute) and self.source.name == "__revision__"

    def key(self) -> Any:
        """Return what equal guards have in common. The values 1, True and 1.0 differ."""
        return self.source, self.test, _key(self.value)


def _key(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_key, value))
    return (type(value), repr(value)) if is_plain(value) else value


def _format(value: Any) -> str:
    return format_value(value) if is_plain(value) else str(value)


class Guards:
    """The guards of one call, in the order in which the body read."""

    def __init__(self, guards: Iterable[Guard] = ()) -> None:
        self._guards: dict[Any, Guard] = {guard.key(): guard for guard in guards}

    def add(self, *guards: Guard) -> None:
        """Add guards."""
        for guard in guards:
            self._guards.setdefault(guard.key(), guard)

    def discard(self, guard: Guard) -> None:
        """Remove a guard."""
        self._guards.pop(guard.key(), None)

    def __contains__(self, guard: Guard) -> bool:
        return guard.key() in self._guards

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._guards.values())

    def write(self, writer: Lines) -> Lines:
        """Write lines that return `MISS` where a guard does not hold. An exception counts as `MISS` too."""
        for guard in self:
            condition = guard.code(writer)
            writer.lines.append(f"if not ({condition}): return MISS")
        return writer

    @cached_property
    def lines(self) -> Lines:
        """Return the lines of these guards, which begin the functions of calls of any lengths."""
        return self.write(Lines())

    def select_training(self) -> Guards | None:
        """Return the guards of training; None if there are none."""
        found = [guard for guard in self if guard.is_of_training]
        return Guards(found) if found else None

    def depends_on_arguments(self) -> bool:
        """Check whether a guard reads an argument."""
        return any(isinstance(start, Argument) for guard in self for start in roots(guard.source))

    def hold(self, leaves: Sequence[Any]) -> bool:
        """Check whether all guards hold, except those of objects that are gone."""
        return self._check(leaves) or all(is_gone(g.source) or g.holds(leaves) for g in self)

    @cached_property
    def _check(self) -> Callable[[Sequence[Any]], bool]:
        return self.compile()

    def compile(self) -> Callable[[Sequence[Any]], bool]:
        """Return ``check(leaves)``, which checks all guards."""
        written = self.lines
        check: Callable[[Sequence[Any]], bool]
        check = written.names.compile([g.source for g in self], [*written.lines, "return True"], "False")
        return check

    def why(self, leaves: Sequence[Any], but: Collection[Source] = ()) -> str | None:
        """Describe the first guard that fails, except those of the sources in `but`; None: there is none."""
        unmet = self.unmet(leaves, but)
        return None if unmet is None else unmet.change(leaves)

    def unmet(self, leaves: Sequence[Any], but: Collection[Source] = ()) -> Guard | None:
        """Return the first guard that fails, except those of the sources in `but`; None if there is none."""
        for guard in self._guards.values():
            if not guard.holds(leaves) and guard.source not in but:
                return guard
        return None
