"""Values that change from call to call and become inputs: numbers, and captured Tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import MemberDescriptorType
from typing import Any

from ...tensor import Tensor
from ..guard import Guard, Guards
from ..numbers import Numbers
from ..source import Attribute, ObjectRef, Result, Source, is_in_argument
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
    ) -> None:
        self.numbers, self.follows = Numbers(guards), follows
        self.tensors: dict[int, tuple[Source, Tensor]] = {}
        self._guards, self._leaves, self._keep = guards, leaves, keep
        #: May the body have asked which object one is?
        self.asks_identity = True

    # numbers

    def attributes(self, holder: Any) -> set[str]:
        """Return the names of numbers of a holder that are followed, and that no code of mgb reads."""
        if any(top_of(kind) == "mgb" for kind in added_classes(type(holder))):
            return set()
        found = (source for source in self.numbers.sources() if isinstance(source, Attribute))
        return {source.name for source in found if source.of.read(self._leaves) is holder}

    # Tensors

    def is_followed(self, source: Source, tensor: Tensor, known: Source | None) -> bool:
        """Return whether `tensor`, found at `source`, is another one from call to call, and nowhere else."""
        if known is None and (source in self.follows or is_in_argument(source)):
            if isinstance(source, Attribute) and not self._is_own(source):
                return False
            self._keep(tensor, source)
            self.tensors[id(tensor)] = source, tensor
            self._guards.add(Guard(source, "type", ObjectRef(type(tensor))))
        elif id(tensor) in self.tensors and known is not None and source != known:
            self.fix_tensor(tensor)
        return self.path_to(tensor) == source

    def _is_own(self, source: Attribute) -> bool:
        """Return whether an object has the attribute itself. If its class has one, too, it has to keep it."""
        holder = source.of.read(self._leaves)
        guard = own_guard(source, holder)
        if guard is not None:
            self._guards.add(guard)
        return guard is None or guard.holds(self._leaves)

    def path_to(self, tensor: Tensor | None) -> Source | None:
        """Return where a Tensor stands that is followed; another one may stand there at a later call."""
        followed = self.tensors.get(id(tensor))
        return followed[0] if followed is not None else None

    def fix_tensor(self, tensor: Tensor) -> None:
        """Guard that a symbolic Tensor is this one."""
        source, _ = self.tensors.pop(id(tensor))
        self._guards.add(Guard(source, "is", ObjectRef(tensor)))

    def fix_tensors(self, but: Collection[int], used: Collection[int]) -> None:
        """Follow no Tensor any more whose id is not among those `but`.

        One that was found only because it stands where a body can find it, and that is not `used`, may be
        another one that looks the same, if nobody asks which one it is.
        """
        for key, (source, tensor) in list(self.tensors.items()):
            if key not in used and not self.asks_identity:
                self._guards.add(Guard(Result(look_of, source), "same", look_of(tensor)))
            elif key not in but:
                self.fix_tensor(tensor)

    def forget(self) -> None:
        """Hold nothing of the call any more."""
        self.tensors.clear()
        self._leaves = ()


def own_guard(source: Attribute, holder: Any) -> Guard | None:
    """Return a guard that an object has an attribute itself, if a class has one of that name too."""
    kinds = holder.__mro__[1:] if isinstance(holder, type) else type(holder).__mro__
    found = next((vars(kind)[source.name] for kind in kinds if source.name in vars(kind)), None)
    if found is None or type(found) is MemberDescriptorType:
        return None
    return Guard(Attribute(source.of, "__dict__"), "has", source.name)


def look_of(tensor: Tensor) -> tuple[Any, ...]:
    """Return what Python sees of a Tensor without reading its values."""
    return tensor.shape, str(tensor.dtype), str(tensor.device)
