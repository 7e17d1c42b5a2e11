"""What arguments hold: the Tensors of layers, optimizers and others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..holding import Holder, parts_within
from ..tensor import Tensor


class HeldTensors:
    """What the holders among some objects hold.

    Parameters
    ----------
    objects : sequence
        The flattened arguments of a call.
    instance : object
        What the function is a method of, or None: a holder, or something whose attributes hold Tensors and
        holders.

    Attributes
    ----------
    holders : list of Holder
        Those inside others too.
    tensors : list of Tensor
        Parameters, buffers and the states of optimizers.
    """

    def __init__(self, objects: Sequence[Any], instance: Any = None) -> None:
        attributes = getattr(instance, "__dict__", {}).values()
        inside = [instance] if isinstance(instance, Holder) else list(attributes)
        roots = [o for o in (*objects, *inside) if isinstance(o, Holder)]
        found = [t for t in inside if isinstance(t, Tensor)]
        found += [part for root in roots for part in (root, *(part for _, part in parts_within(root)))]
        each = list({id(part): part for part in found}.values())
        self.holders = [part for part in each if isinstance(part, Holder)]
        self.tensors = [part for part in each if isinstance(part, Tensor)]
        self._ids = frozenset(map(id, self.tensors))

    def __contains__(self, tensor: Tensor) -> bool:
        return id(tensor) in self._ids
