"""What has to be as it was outside for a body to be skipped: a `Guard` is one fact, `Guards` are a call's."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import CodeType
from typing import Any

import numpy as np

from ..forking import cached_property
from ..tensor import of_handler
from .source import Argument, Attribute, Grad, Held, Scope, Source, is_gone, roots, short

#: Types whose values never change and are compared as values.
PLAIN = frozenset(
    {int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range, slice}
)
_SINGLE = frozenset({type(None), bool, type(Ellipsis), type(NotImplemented)})

#: What a generated function returns where a guard does not hold.
MISS = object()

#: Bytes up to which an array is compared as a whole.
LARGEST_ARRAY = 64 * 1024


def is_plain(value: Any) -> bool:
    """Is it a number, a text or such, or a tuple or frozenset of them?"""
    kind = type(value)
    if kind in PLAIN:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(is_plain, value))
    if issubclass(kind, np.generic):  # not what says that it is one, as a number that is followed does
        return not (value.dtype.hasobject or kind is np.void)  # which may show what is in an array
    return issubclass(kind, np.dtype)


def same(one: Any, two: Any) -> bool:
    """Are two plain values the same in every way? 0.0 is not -0.0, 1 is not True, NaN is NaN."""
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
    """Are the elements, in their order, plain values that are the same, or the `Held` objects?"""
    if len(now) != len(then):
        return False
    return all(
        (value is not None and value is known.get()) if type(known) is Held else same(value, known)
        for value, known in zip(now, then, strict=True)
    )


def _bytes_of(array: np.ndarray[Any, Any]) -> bytes:
    """What it holds; of a large one a digest."""
    if array.nbytes <= LARGEST_ARRAY:
        return array.tobytes()
    return blake2b(np.ascontiguousarray(array).view(np.uint8).data).digest()


@dataclass(frozen=True, slots=True)
class Contents:
    """What an array held."""

    shape: tuple[int, ...]
    dtype: Any
    data: bytes

    @staticmethod
    def of(array: np.ndarray[Any, Any]) -> Contents:
        """As it is now."""
        return Contents(array.shape, array.dtype, _bytes_of(array))

    @property
    def is_whole(self) -> bool:
        """Is it all that the array held, and no digest?"""
        return math.prod(self.shape) * int(self.dtype.itemsize) == len(self.data)

    def are_in(self, array: Any) -> bool:
        """Does `array` hold them?"""
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
    """One kind of fact: how it is asked, interpreted and as code, and what is said when it does not hold."""

    holds: Callable[[Any, Any], bool]
    code: Callable[[str, Any, Scope], str]
    words: str


def _is(value: Any, held: Held) -> bool:
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
    return (key.get() if isinstance(key, Held) else key) not in value


def _key_code(key: Any, scope: Scope) -> str:
    if isinstance(key, Held):
        return f"{scope.name(key)}.get()"
    return repr(key) if type(key) is str else scope.name(key)


#: Every kind of fact. `{0}` is the source, `{1}` what was there, `{2}` what is there now.
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
        "one Tensor stands for other arguments than recorded",
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
        """Does it, now?"""
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
        """Why it does not, in words."""
        try:
            now = self.source.read(leaves)
        except Exception as error:
            if of_handler(error):
                raise
            gone = "what the body found in an object is gone with it"
            return gone if is_gone(self.source) else f"{self.source} is there no more"
        if self.test == "is" and self.value.is_gone():
            return f"{self.source} is another object than before, {short(now)}"
        if self.test == "is" and short(now) == str(self.value):
            return f"{self.source} is another {short(now).removeprefix('a ')} than before"
        if self.test == "disjoint" and isinstance(self.source, Attribute):
            name = next(name for name in self.value if name in now)
            return f"{Attribute(self.source.of, name)} is there now"
        return TESTS[self.test].words.format(self.source, _said(self.value), short(now))

    def code(self, scope: Scope) -> str:
        """The expression that asks."""
        return TESTS[self.test].code(scope.local(self.source), self.value, scope)

    @property
    def is_of_training(self) -> bool:
        """Has a Tensor a ``grad``, what is trained: does other ops follow from it whatever Python reads?"""
        if isinstance(self.source, Grad):
            return self.test in ("a Tensor", "no Tensor")
        return isinstance(self.source, Attribute) and self.source.name == "__revision__"

    def key(self) -> Any:
        """What equal guards have in common; 1, True and 1.0 differ."""
        return self.source, self.test, _key(self.value)


def _key(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_key, value))
    return (type(value), repr(value)) if is_plain(value) else value


def _said(value: Any) -> str:
    return short(value) if is_plain(value) else str(value)


class Lines:
    """The lines of a function that has the arguments as ``t0``, ``t1``...; what several ask for is read once.

    Parameters
    ----------
    begun : Lines, optional
        The first of them are its lines; it stays as it is.

    Attributes
    ----------
    names : Names
        The globals of that function.
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
        """The global that has `value`."""
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


class Guards:
    """The guards of one call, in the order in which the body read."""

    def __init__(self, guards: Iterable[Guard] = ()) -> None:
        self._guards: dict[Any, Guard] = {guard.key(): guard for guard in guards}

    def add(self, *guards: Guard) -> None:
        """More of them."""
        for guard in guards:
            self._guards.setdefault(guard.key(), guard)

    def discard(self, guard: Guard) -> None:
        """One less."""
        self._guards.pop(guard.key(), None)

    def __contains__(self, guard: Guard) -> bool:
        return guard.key() in self._guards

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._guards.values())

    def __len__(self) -> int:
        return len(self._guards)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Guards) and self._guards.keys() == other._guards.keys()

    __hash__ = None  # type: ignore[assignment]

    def write(self, writer: Lines) -> Lines:
        """As lines that return `MISS` where a guard does not hold; what they raise means that too."""
        for guard in self:
            condition = guard.code(writer)
            writer.lines.append(f"if not ({condition}): return MISS")
        return writer

    @cached_property
    def lines(self) -> Lines:
        """What `write` writes first in a function, for all functions that begin so: calls of any lengths."""
        return self.write(Lines())

    def of_training(self) -> Guards | None:
        """Those that say which ops a body does whatever Python reads; None where there are none."""
        found = [guard for guard in self if guard.is_of_training]
        return Guards(found) if found else None

    def asks_arguments(self) -> bool:
        """Is one about an argument?"""
        return any(isinstance(start, Argument) for guard in self for start in roots(guard.source))

    def hold(self, leaves: Sequence[Any]) -> bool:
        """Do all? What is gone is not asked for."""
        return self._check(leaves) or all(is_gone(g.source) or g.holds(leaves) for g in self)

    @cached_property
    def _check(self) -> Callable[[Sequence[Any]], bool]:
        return self.compile()

    def compile(self) -> Callable[[Sequence[Any]], bool]:
        """``check(leaves)``: do all hold?"""
        written = self.lines
        check: Callable[[Sequence[Any]], bool]
        check = written.names.compile([g.source for g in self], [*written.lines, "return True"], "False")
        return check

    def why(self, leaves: Sequence[Any], but: Collection[Source] = ()) -> str | None:
        """The first that does not hold, in words; None where all do, `but` for those of these sources."""
        unmet = self.unmet(leaves, but)
        return None if unmet is None else unmet.change(leaves)

    def unmet(self, leaves: Sequence[Any], but: Collection[Source] = ()) -> Guard | None:
        """The first that does not hold; None where all do, `but` for those of these sources."""
        for guard in self._guards.values():
            if not guard.holds(leaves) and guard.source not in but:
                return guard
        return None


def reader_of(sources: Sequence[Source | None]) -> Callable[[Sequence[Any]], list[Any]]:
    """``read(leaves)``: what is found at each of `sources`, None where that is none; or where one is gone."""
    writer, wanted = Lines(), [source for source in sources if source is not None]
    found = ["None" if source is None else writer.local(source) for source in sources]
    lines = [*writer.lines, f"return [{', '.join(found)}]"]
    read: Callable[[Sequence[Any]], list[Any]]
    read = writer.names.compile(wanted, lines, f"[None] * {len(sources)}")
    return read


class Names(dict[str, Any]):
    """The globals of a generated function; called with a value it gives that a name."""

    def __init__(self) -> None:
        super().__init__(MISS=False)

    def __call__(self, value: Any) -> str:
        name = f"g{len(self)}"
        self[name] = value
        return name

    def compile(self, sources: Sequence[Source], lines: Sequence[str], otherwise: str) -> Any:
        """A function of the flattened arguments with these lines, which may read `sources`.

        Whatever exception they raise, it returns `otherwise`; those of signal handlers are no failure.
        """
        starts = (start for source in sources for start in roots(source))
        indices = sorted({start.index for start in starts if isinstance(start, Argument)})
        given = [f"t{index} = leaves[{index}]" for index in indices]
        body = "\n".join(f"  {line}" for line in [*given, *lines])
        failing = f"  if {self(of_handler)}(error): raise\n  return {otherwise}\n"
        text = f"def made(leaves):\n try:\n{body}\n except Exception as error:\n{failing}"
        return self.made_by(compile(text, "<guards>", "exec"))

    def made_by(self, code: CodeType) -> Any:
        """The function ``made`` that `code` defines; globals of a class of their own are slow to read."""
        scope = dict(self)
        exec(code, scope)
        return scope["made"]
