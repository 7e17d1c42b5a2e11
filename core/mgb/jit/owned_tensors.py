"""The Tensors of the layers, optimizers and other holders among the arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tensor import Tensor
from ..tensor.holding import Holder, parts_within


class OwnedTensors:
    """The Tensors of the holders among some objects.

    Parameters
    ----------
    objects : sequence
        The flattened arguments of a call.
    instance : object
        The instance of a method, or None: a holder, or an object whose attributes are Tensors and holders.

    Attributes
    ----------
    holders : list of Holder
        Also those inside others.
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
