"""The sequences of ops that one function does, depending on the shapes that it is called with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from .. import forking
from ..tensor import Tensor
from .environment import Impurity
from .record import CUTS, Entry, Literal, Ref
from .tree import is_itself
from .variant import Variant
from .variants import Variants, most_like

_NOTHING: Mapping[str, Any] = MappingProxyType({})

#: The shapes of the Tensors among the arguments.
Shapes = tuple[tuple[int, ...], ...]


class Families:
    """Variants by the sequence of ops that they share. Several threads may use it at once.

    A function that does not ask for a shape may still do other ops for another one: a sum drops axes if there
    are any, the gradient of a broadcast operand is summed. Such calls are another family. Arguments of new
    shapes are taken for a call of the family that knows the nearest ones. If it turns out to do other ops,
    the next call with these shapes is recorded, or with some to which they are nearer than all known ones.
    Where shapes are known that takes several such calls running.
    """

    def __init__(self) -> None:
        self._families: tuple[Variants, ...] = ()  # the oldest first
        self._parted: dict[Shapes, int] = {}  # calls running that did other ops than their family
        self._lock = forking.lock()

    def __iter__(self) -> Iterator[Variant]:
        return (variant for family in self._families for variant in family)

    def __bool__(self) -> bool:
        return bool(self._families)

    def resized(self, leaves: Sequence[Any]) -> Variant | None:
        """A variant for arguments of other lengths, made of one that follows lengths."""
        found = (family.resized(leaves) for family in reversed(self._families))
        return next((variant for variant in found if variant is not None), None)

    def shapes(self) -> list[Shapes]:
        """The sets of shapes of arguments that are known, those of the oldest family first."""
        return list(dict.fromkeys(shapes for family in self._families for shapes in family.shapes()))

    def of(
        self, shapes: Shapes, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = _NOTHING
    ) -> tuple[Variants | None, Variant | None]:
        """The family to follow for arguments of `shapes`, and its newest variant for just these.

        Only families that found what a call with these arguments finds are asked.

        Returns
        -------
        Variants or None
            None: the call is to be recorded.
        Variant or None
            None: no call with such arguments is known.
        """
        parted = self._parted.get(shapes, 0)
        for family in reversed(self._families):
            known = family.newest(shapes)
            if known is not None and known.finds(args, kwargs):
                return (family, known) if parted < _RUNNING else (None, None)
        if parted:
            return None, None
        found = [family for family in self._families if family.oldest().finds(args, kwargs)]
        return self._likeliest(shapes, found), None

    def finds_other(self, shapes: Shapes, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Does a call with arguments of known `shapes` find otherwise what every record of such found?"""
        known = [variant for family in self._families if (variant := family.newest(shapes)) is not None]
        return bool(known) and not any(variant.finds(args, kwargs) for variant in known)

    def keep(self, shapes: Shapes, variant: Variant) -> None:
        """Add a variant that was recorded on its own, to a family that does the same ops or to a new one."""
        with self._lock:
            alike = (family for family in self._families if _are_of_one(family.oldest(), variant))
            self._keep_in(next(alike, None) or Variants(), shapes, variant)

    def grow(self, family: Variants, shapes: Shapes, variant: Variant) -> None:
        """Add a variant that grew out of one of `family`."""
        with self._lock:
            self._keep_in(family, shapes, variant)

    def _keep_in(self, family: Variants, shapes: Shapes, variant: Variant) -> None:
        self._parted.pop(shapes, None)
        family.keep(shapes, variant)
        families = [*(f for f in self._families if f is not family), family]
        while sum(map(len, families)) > most_like(variant):
            largest = max(families, key=len)
            if len(largest) > 1:
                largest.drop_oldest()
            else:
                families.remove(largest)
        self._families = tuple(families)

    def part(self, shapes: Shapes) -> None:
        """Told that a call with arguments of `shapes` did other ops than its family."""
        with self._lock:
            self._parted[shapes] = self._parted.pop(shapes, 0) + 1
            while len(self._parted) > len(self._families) + _PARTED:
                del self._parted[next(iter(self._parted))]

    def follow(self, shapes: Shapes) -> None:
        """Told that a call with arguments of `shapes`, which are known, did the ops of its family."""
        if shapes in self._parted:
            with self._lock:
                self._parted.pop(shapes, None)

    def _likeliest(self, shapes: Shapes, families: Sequence[Variants]) -> Variants | None:
        """The newest of `families` that knows the nearest shapes of the same form, else of as many axes.

        None where a call of nearer ones did other ops.
        """
        known: list[tuple[Shapes, Variants | None]]
        known = [(s, family) for family in reversed(families) for s in family.shapes()]
        known += [(s, None) for s in list(self._parted)]
        for measure in (_form, _ranks):
            wanted = measure(shapes)
            alike = [(other, family) for other, family in known if measure(other) == wanted]
            if any(family is not None for _, family in alike):
                return min(alike, key=lambda pair: _distance(pair[0], shapes))[1]
        return None


class Impure:
    """Calls whose body must run at each: those of arguments that are alike but for sizes and numbers.

    What a body writes outside it may write once, as when it makes something at its first call. So it is
    recorded again a few times, in case it is pure then.

    Attributes
    ----------
    families : Families
        What was recorded of such calls.
    calls : int
        How many there were.
    unsettled : str or None
        What the body finds that is new at each call, in words, if no record serves others for that.
    """

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.families = Families()
        self.calls = 0
        held = (leaf for leaf in leaves if not isinstance(leaf, Tensor) and not is_itself(leaf))
        self._leaves = list(held)  # whose ids stay taken
        self._attempts = 0
        self.unsettled: str | None = None
        self._next = 1
        self._reasons: frozenset[str] = frozenset()

    def may_record(self) -> bool:
        """Shall a call that does other ops than all before be recorded? Less and less, where all do."""
        if self.unsettled is None:
            return True
        due = self.calls >= self._next
        self._next = 2 * self.calls if due else self._next
        return due

    def is_due(self) -> bool:
        """Shall the next call be recorded again?"""
        return self._attempts < _ATTEMPTS and self.calls + 1 >= 1 << self._attempts

    def found(self, impurities: Sequence[Impurity]) -> bool:
        """Told why a body that was recorded must run; is that new?"""
        lasting = not all(impurity.once for impurity in impurities)
        self.calls += 1
        self._attempts = _ATTEMPTS if lasting else self._attempts + 1
        known, self._reasons = self._reasons, self._reasons.union(map(str, impurities))
        return known != self._reasons


#: How often a body that was impure is recorded: at the first call, the second, the fourth, the eighth.
_ATTEMPTS = 4

#: Sets of shapes that are remembered as those of calls to be recorded.
_PARTED = 256

#: Calls of known shapes that have to do other ops, one after the other, before one is recorded.
_RUNNING = 2


def _form(shapes: Shapes) -> list[list[int]]:
    """The axes, and which of them are broadcast or empty."""
    return [[min(length, 2) for length in shape] for shape in shapes]


def _ranks(shapes: Shapes) -> list[int]:
    return list(map(len, shapes))


def _distance(one: Shapes, other: Shapes) -> float:
    """Between shapes of as many axes: by the ratios of their lengths."""
    pairs = ((a, b) for known, new in zip(one, other) for a, b in zip(known, new))
    return sum(abs(math.log((a + 1) / (b + 1))) for a, b in pairs)


def _are_of_one(one: Variant, other: Variant) -> bool:
    """Found both the same, and have the same ops, wiring, cuts, dtypes? Shapes, constants may differ."""
    return (
        one.segments == other.segments
        and one.found == other.found
        and _types(one) == _types(other)
        and all(map(_is_same_step, one.record.entries, other.record.entries))
    )


def _types(variant: Variant) -> list[tuple[Any, str]]:
    return [(spec.dtype, spec.device) for spec in variant.record.signature]


def _is_same_step(one: Entry, other: Entry) -> bool:
    if one.op is not other.op or len(one.args) != len(other.args):
        return False
    same_cut = one.op not in CUTS or one.required == other.required
    return same_cut and all(map(_is_same_operand, one.args, other.args))


def _is_same_operand(one: Ref, other: Ref) -> bool:
    return isinstance(other, Literal) if isinstance(one, Literal) else one == other
