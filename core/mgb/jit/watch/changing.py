"""What is another one from call to call, and is followed: numbers, and Tensors outside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ...scalars import FOLLOWED
from ...tensor import Tensor
from ..guard import Guard, Guards
from ..numbers import Numbers
from ..source import Attribute, Held, Item, Result, Source, is_in_argument
from .known import added_classes, top_of


class Changing:
    """Of one call.

    Parameters
    ----------
    guards : Guards
        Of that call.
    leaves : sequence
        Its flattened arguments.
    keep : callable
        Told of a Tensor and where it was found.
    follows : frozenset of Source
        Where numbers and Tensors are followed, because they are others from call to call.
    may_be_unused : bool
        Is what stands somewhere found whether or not the body reads it?

    Attributes
    ----------
    numbers : Numbers
        Those that are followed.
    tensors : dict
        Likewise, by their ids: where each stands, and itself.
    """

    def __init__(
        self,
        guards: Guards,
        leaves: Sequence[Any],
        keep: Callable[[Any, Source], Source],
        follows: frozenset[Source],
        may_be_unused: bool = False,
    ) -> None:
        self._may_be_unused = may_be_unused
        self.numbers, self.follows = Numbers(guards), follows
        self.tensors: dict[int, tuple[Source, Tensor]] = {}
        self._guards, self._leaves, self._keep = guards, leaves, keep
        #: May the body have asked which object one is?
        self.asks_identity = True
        self._latest: tuple[Guard, bool] | None = None  # of the number read last; was it known before?

    # numbers

    def reads(self, guard: Guard) -> None:
        """A plain value is read that has to stay, as `guard` says, unless it is a number that is followed."""
        if guard.source in self.follows and type(guard.value) in FOLLOWED:
            self._latest = guard, guard in self._guards
        self._guards.add(guard)

    def begin(self) -> None:
        """What is read next was not looked at yet."""
        self._latest = None

    def expect(self, asked: Any) -> None:
        """What is read next is the variable, attribute or element `asked`, and nothing else: see `number`."""
        if self._latest is not None:
            source = self._latest[0].source
            name = source.key if isinstance(source, Item) else getattr(source, "name", None)
            if type(name) is not type(asked) or name != asked:
                self._latest = None

    def number(self, value: Any) -> Any:
        """What was just read; what stands for it, if it is a number that is followed."""
        latest, self._latest = self._latest, None
        if latest is None or latest[0].value is not value:
            return value
        guard, was_known = latest
        if not was_known:
            self._guards.discard(guard)
        return self.numbers.at(guard.source, value)

    def attributes(self, holder: Any) -> set[str]:
        """The names of numbers of a holder that are followed, and that no code of mgb reads."""
        if any(top_of(kind) == "mgb" for kind in added_classes(type(holder))):
            return set()
        found = (source for source in self.numbers.sources() if isinstance(source, Attribute))
        return {source.name for source in found if source.of.read(self._leaves) is holder}

    # Tensors

    def is_followed(self, source: Source, tensor: Tensor, known: Source | None) -> bool:
        """Is `tensor`, which is found at `source`, another one from call to call, and found nowhere else?"""
        if known is None and (source in self.follows or is_in_argument(source)):
            self._keep(tensor, source)
            self.tensors[id(tensor)] = source, tensor
            self._guards.add(Guard(source, "type", Held(type(tensor))))
        elif id(tensor) in self.tensors and known is not None and source != known:
            self.fix_tensor(tensor)
        return self.path_to(tensor) == source

    def path_to(self, tensor: Tensor | None) -> Source | None:
        """Where a Tensor stands that is followed; another one may stand there at a later call."""
        followed = self.tensors.get(id(tensor))
        return followed[0] if followed is not None else None

    def fix_tensor(self, tensor: Tensor) -> None:
        """A Tensor that was followed has to be this one."""
        source, _ = self.tensors.pop(id(tensor))
        self._guards.add(Guard(source, "is", Held(tensor)))

    def fix_tensors(self, but: Collection[int], used: Collection[int]) -> None:
        """Follow no Tensor any more whose id is not among those `but`.

        One that was found only because it stands where a body can find it, and that is not `used`, may be
        another one that looks the same, if nobody asks which one it is.
        """
        for key, (source, tensor) in list(self.tensors.items()):
            if self._may_be_unused and key not in used and not self.asks_identity:
                self._guards.add(Guard(Result(look_of, source), "same", look_of(tensor)))
            elif key not in but:
                self.fix_tensor(tensor)

    def forget(self) -> None:
        """Hold nothing of the call any more."""
        self.tensors.clear()
        self._leaves = ()


def look_of(tensor: Tensor) -> tuple[Any, ...]:
    """What Python sees of a Tensor without looking at its values."""
    return tensor.shape, str(tensor.dtype), str(tensor.device)
