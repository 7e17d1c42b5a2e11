"""Queries of values that may contain sizes, and their values for other lengths."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import ConversionError, ShapeError
from ..scalars import HOLDING, SCALARS, Scalar, Size, Whole, fixed, mapped
from .size import Sizes, Terms, text

#: What gives values without sizes: `plain`, or a `Lengths`.
At = Callable[[Any], Any]


class Lengths:
    """Other values for the letters of `sizes`: it gives what a size, or whatever holds sizes, is with them.

    Parameters
    ----------
    sizes : Sizes
    values : sequence
        One for each letter: integers, or sizes of another `Sizes`.
    """

    def __init__(self, sizes: Sizes, values: Sequence[Any]) -> None:
        self._sizes, self.values = sizes, list(values)
        for whole, part, function in sizes.quotients:
            self.values.append(function(self.of(whole), self.of(part)))
        self._known: dict[int, Any] = {}  # by the ids of sizes, of which there is one for each polynomial

    def of(self, terms: Terms) -> Any:
        """Return the value of a polynomial for these lengths."""
        return sum(c * math.prod([self.values[i] for i in m]) for m, c in terms)

    def __call__(self, value: Any) -> Any:
        """Return `value` with other lengths: a size, or a tuple or mapping that may hold some."""
        return mapped(self._at, value)

    def _at(self, size: Size) -> Any:
        if size.follower is not self._sizes:
            return size.value  # of another recording, which is over
        known = self._known.get(id(size))
        if known is None:
            known = self._known[id(size)] = self.of(size.path)
        return known


def checker(sizes: Sizes) -> Callable[[Sequence[int]], bool]:
    """Return whether other values for the letters of `sizes` meet its guards. A function that is fast."""
    names = "".join(f"s{i}, " for i in range(sizes.count))
    lines = ["def fits(values):", f"  ({names}) = values"]
    for number, (whole, part, function) in enumerate(sizes.quotients, sizes.count):
        sign = "//" if function is operator.floordiv else "%"
        lines.append(f"  s{number} = ({text(whole)}) {sign} ({text(part)})")
    lines += [f"  if not {text(terms)} {relation} 0: return False" for terms, relation in sizes.guards]
    scope: dict[str, Any] = {}
    exec("\n".join([*lines, "  return True"]), scope)
    fits: Callable[[Sequence[int]], bool] = scope["fits"]

    def safely(values: Sequence[int]) -> bool:
        try:
            return fits(values)
        except ZeroDivisionError:
            return False

    return safely


_RELATIONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge}


def unmet(sizes: Sizes, values: Sequence[int]) -> str | None:
    """Return the line of the first guard that other values for the letters of `sizes` do not meet."""
    try:
        at = Lengths(sizes, values)
    except ZeroDivisionError:
        return None
    lines = (
        line for (terms, relation), line in sizes.guards.items() if not _RELATIONS[relation](at.of(terms), 0)
    )
    return next(lines, None)


def is_sized(value: Any) -> bool:
    """Return whether it is a size, or something that holds one."""
    kind = type(value)
    if kind is tuple or kind is dict:
        return any(map(is_sized, value if kind is tuple else value.values()))
    return kind is Size or (kind in HOLDING and any(map(is_sized, value.numbers)))


def but_lengths(number: Scalar) -> Any:
    """Return a number that is followed, fixed unless it is a length."""
    return number if type(number) is Size else number.fixed()


def about(number: Any) -> Any:
    """Return `number`, for a decision about costs alone, which then holds for lengths that are near."""
    return number.follower.judge(number.path) if type(number) is Size else number


def count(start: Any, stop: Any, step: Any) -> Any:
    """Return ``len(range(start, stop, step))``."""
    if SCALARS.isdisjoint(map(type, (start, stop, step))):
        return len(range(start, stop, step))
    if step < 0:
        start, stop, step = stop, start, -step
    if not start < stop:
        return 0
    return stop - start if step == 1 else -((start - stop) // step)


def indices(chosen: slice, length: Any) -> tuple[Any, Any, Any]:
    """Return ``chosen.indices(length)``."""
    if SCALARS.isdisjoint(map(type, (chosen.start, chosen.stop, chosen.step, length))):
        return chosen.indices(length)
    step, start, stop = map(_place, (chosen.step, chosen.start, chosen.stop))  # Python asks in this order
    step = 1 if step is None else fixed(step)
    if step == 0:
        return chosen.indices(fixed(length))  # which raises
    low, high = (0, length) if step > 0 else (-1, length - 1)
    first, last = (low, high) if step > 0 else (high, low)
    return _clipped(start, first, low, high, length), _clipped(stop, last, low, high, length), step


def _place(given: Any) -> Any:
    return given if given is None or type(given) in (Size, Whole) else operator.index(given)


def _clipped(place: Any, default: Any, low: Any, high: Any, length: Any) -> Any:
    if place is None:
        return default
    if place < 0:
        place = place + length
        return low if place < low else place
    return high if place > high else place


def key(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return a key for a dict.

    Equal keys mean equal shapes, whatever the lengths, and others may be equal too.
    """
    return tuple([d.path if type(d) is Size else d for d in shape])


def same_shape(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether two shapes are equal. Lengths are compared only where there are as many."""
    return len(one) == len(other) and one == other


def whole(number: Any, name: str = "a length") -> Any:
    """Return `number` as an int, or the size that it is.

    Parameters
    ----------
    number : int, or what has an ``__index__``, such as NumPy's integers and an integer Tensor of no axes
        What a user gave.
    name : str
        The function and its argument, for messages.

    Raises
    ------
    ConversionError
        It is not an integer: nothing is rounded.
    """
    if type(number) is Size or type(number) is int:
        return number
    try:
        return operator.index(number)
    except TypeError:
        raise ConversionError(f"{name} must be an integer, got {number!r}") from None


def amount(number: Any, name: str) -> Any:
    """Return `whole` of what cannot be negative.

    Raises
    ------
    ShapeError
        It is negative.
    """
    found = whole(number, name)
    if found < 0:
        raise ShapeError(f"{name} must be at least 0, got {found}")
    return found


def broadcast(shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...] | None:
    """Return the shape that all of `shapes` broadcast to; None where there is none."""
    longest = max(map(len, shapes), default=0)
    made = []
    for place in range(-longest, 0):
        length: Any = 1
        for shape in shapes:
            if len(shape) >= -place:
                given = shape[place]
                if given is length or (type(given) is int and given == 1):
                    continue
                if given < 0:
                    return None
                if type(given) is type(length) is Size and given == length:
                    continue  # whether they are 1 does not matter
                if length == 1 or (given == length and type(given) is int):
                    length = given
                elif given != length and given != 1:
                    return None
        made.append(length)
    return tuple(made)
