"""What arguments hold: the Tensors of Modules and Optimizers, and whether these are still as they were."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..autodiff import GradManager
from ..module import Module
from ..optimizer import Optimizer
from ..tensor import Tensor

#: Numbers and the like, which are compared by value; anything else by identity.
_PLAIN = (bool, int, float, str, tuple, type(None))


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

    def guards(self) -> list[Callable[[], str | None]]:
        """Functions that say in words what has changed since now in the optimizers; None if nothing has.

        Values of Tensors, and numbers that a step asks for anew, may change.
        """
        return list(map(OptimizerGuard, self.optimizers))


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


class OptimizerGuard:
    """Whether an optimizer has the groups, parameters and fixed hyper-parameters that it had."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._groups = list(optimizer.param_groups)
        self._params = [tuple(group["params"]) for group in self._groups]
        self._fixed = [
            (group, name, value)
            for group in self._groups
            for name, value in group.items()
            if name != "params" and name not in _asked_for(optimizer, group)
        ]

    def __call__(self) -> str | None:
        optimizer = self._optimizer
        if not _same(optimizer.param_groups, self._groups):
            return f"Optimizer {type(optimizer).__name__} has other parameter groups"
        for group, params in zip(self._groups, self._params):
            if not _same(group["params"], params):
                return f"Optimizer {type(optimizer).__name__} has other parameters"
        for group, name, value in self._fixed:
            now = group.get(name)
            if now is not value and not _equal(now, value):
                return f"Optimizer {type(optimizer).__name__} was changed: {name} is {now!r:.60}"
        return None


class _Watched(dict[str, Any]):
    """A group that notes which of its items are looked at."""

    def __init__(self, group: Mapping[str, Any]) -> None:
        super().__init__(group)
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)


def _asked_for(optimizer: Optimizer, group: Mapping[str, Any]) -> set[str]:
    """The hyper-parameters of `group` that a compiled step looks up at each call."""
    watched = _Watched(group)
    for source in optimizer._live(watched).values():
        source()
    return watched.seen


def _equal(now: Any, then: Any) -> bool:
    return isinstance(now, _PLAIN) and type(now) is type(then) and now == then


def _same(now: Sequence[Any], then: Sequence[Any]) -> bool:
    return len(now) == len(then) and all(map(operator.is_, now, then))
