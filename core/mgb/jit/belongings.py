"""What arguments hold: the Tensors of Modules and Optimizers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..autodiff import GradManager
from ..module import Module
from ..optimizer import Optimizer
from ..tensor import Tensor

#: What an attribute holds that belongs to its object; None may become one of the others.
_PARTS = (Tensor, Module, Optimizer, GradManager, type(None))


class Belongings:
    """What the Modules and Optimizers among some objects hold.

    Parameters
    ----------
    objects : sequence
        The flattened arguments of a call.
    instance : object
        What the function is a method of, or None: a Module, or something whose attributes hold Tensors,
        Modules and Optimizers.

    Attributes
    ----------
    modules : list of Module
        Those inside others too.
    optimizers : list of Optimizer
    tensors : list of Tensor
        Parameters, buffers and the states of optimizers.
    """

    def __init__(self, objects: Sequence[Any], instance: Any = None) -> None:
        self._instance = None if instance is None or isinstance(instance, Module) else instance
        inside = [] if self._instance is None else _parts_of(self._instance)
        every = [*objects, *([instance] if isinstance(instance, Module) else inside)]
        trees = [o for o in every if isinstance(o, Module)]
        self.optimizers = [o for o in every if isinstance(o, Optimizer)]
        self.modules = list({id(m): m for tree in trees for m in tree.modules()}.values())
        found = [t for tree in trees for t in tree.tensors()]
        found += [t for t in inside if isinstance(t, Tensor)]
        found += [t for optimizer in self.optimizers for t in _tensors_in(vars(optimizer))]
        self.tensors = list({id(t): t for t in found}.values())
        self._ids = frozenset(map(id, self.tensors))

    def __contains__(self, tensor: Tensor) -> bool:
        return id(tensor) in self._ids


def _parts_of(instance: Any) -> list[Any]:
    return [value for value in getattr(instance, "__dict__", {}).values() if isinstance(value, _PARTS)]


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """The Tensors in a nest of lists, tuples, dicts and Modules."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Module):
        yield from value.tensors()
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(part)
