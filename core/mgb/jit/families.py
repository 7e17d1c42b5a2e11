"""The sequences of ops that one function does, depending on the shapes that it is called with."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from .record import CUTS, Entry, Literal, Ref
from .variant import Variant
from .variants import Variants, most_like

#: The shapes of the Tensors among the arguments.
Shapes = tuple[tuple[int, ...], ...]


class Families:
    """Variants by the sequence of ops that they share. Several threads may use it at once.

    A function that does not ask for a shape may still do other ops for another one: a sum drops axes if there
    are any, the gradient of a broadcast operand is summed. Such calls are another family. Arguments of new
    shapes are taken for a call of the family that is likeliest to fit; one that turns out to do other ops is
    recorded at the next call.
    """

    def __init__(self) -> None:
        self._families: tuple[Variants, ...] = ()  # the oldest first
        self._parted: dict[Shapes, None] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Variant]:
        return (variant for family in self._families for variant in family)

    def __bool__(self) -> bool:
        return bool(self._families)

    def shapes(self) -> list[Shapes]:
        """The sets of shapes of arguments that are known, those of the oldest family first."""
        return list(dict.fromkeys(shapes for family in self._families for shapes in family.shapes()))

    def of(self, shapes: Shapes) -> tuple[Variants | None, Variant | None]:
        """The family to follow for arguments of `shapes`, and its newest variant for just these.

        Returns
        -------
        Variants or None
            None: the call is to be recorded.
        Variant or None
            None: no call with such arguments is known.
        """
        for family in self._families:
            known = family.newest(shapes)
            if known is not None:
                return family, known
        return (None if shapes in self._parted else self._likeliest(shapes)), None

    def keep(self, shapes: Shapes, variant: Variant) -> None:
        """Add a variant that was recorded on its own, to a family that does the same ops or to a new one."""
        most = most_like(variant)
        with self._lock:
            self._parted.pop(shapes, None)
            alike = (family for family in self._families if _do_the_same(family.oldest(), variant))
            family = next(alike, None) or Variants()
            family.keep(shapes, variant)
            others = [f for f in self._families if f is not family]
            while others and sum(map(len, others)) + len(family) > most:
                del others[0]
            self._families = (*others, family)

    def part(self, shapes: Shapes) -> None:
        """Told that a call with arguments of `shapes`, which are not known, did other ops than its family."""
        with self._lock:
            self._parted[shapes] = None
            while len(self._parted) > len(self._families) + _PARTED:
                del self._parted[next(iter(self._parted))]

    def _likeliest(self, shapes: Shapes) -> Variants | None:
        """The newest family with arguments of the same form, else of as many axes."""
        for measure in (_form, _ranks):
            wanted = measure(shapes)
            for family in reversed(self._families):
                if any(measure(known) == wanted for known in family.shapes()):
                    return family
        return None


#: Sets of shapes that are remembered as those of calls to be recorded.
_PARTED = 256


def _form(shapes: Shapes) -> list[list[int]]:
    """The axes, and which of them are broadcast or empty."""
    return [[min(length, 2) for length in shape] for shape in shapes]


def _ranks(shapes: Shapes) -> list[int]:
    return list(map(len, shapes))


def _do_the_same(one: Variant, other: Variant) -> bool:
    """Do both records have the same ops, wiring and cuts? Shapes, parameters and constants may differ."""
    return one.segments == other.segments and all(
        map(_is_same_step, one.record.entries, other.record.entries)
    )


def _is_same_step(one: Entry, other: Entry) -> bool:
    if one.op is not other.op or len(one.args) != len(other.args):
        return False
    same_cut = one.op not in CUTS or one.required == other.required
    return same_cut and all(map(_is_same_operand, one.args, other.args))


def _is_same_operand(one: Ref, other: Ref) -> bool:
    return isinstance(other, Literal) if isinstance(one, Literal) else one == other
