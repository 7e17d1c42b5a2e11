"""Modules in lists and dicts, and the layer that flattens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..ops.methods import flatten
from ..tensor import Tensor
from .module import Module


class Flatten(Module):
    """Several axes as one; by default all but the first.

    Parameters
    ----------
    start_axis, end_axis : int
        Both are included.
    name : str, optional

    Examples
    --------
    >>> M.Flatten()(F.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_axis: int = 1, end_axis: int = -1, name: str | None = None) -> None:
        super().__init__(name)
        self.start_axis, self.end_axis = start_axis, end_axis

    def forward(self, inp: Tensor) -> Tensor:
        """Flatten."""
        return flatten(inp, self.start_axis, self.end_axis)

    def _describe(self) -> str:
        return f"start_axis={self.start_axis}, end_axis={self.end_axis}"


class ModuleList(Module):
    """Modules by number, whose parameters are found; it is not called itself.

    Parameters
    ----------
    modules : iterable of Module
        They are named by their place, ``"0"``, ``"1"``, ...
    name : str, optional

    Examples
    --------
    >>> layers = M.ModuleList([M.Linear(2, 3), M.Linear(3, 1)])
    >>> len(list(layers.parameters()))
    4
    """

    def __init__(self, modules: Iterable[Module] = (), name: str | None = None) -> None:
        super().__init__(name)
        self._count = 0
        self.extend(modules)

    def forward(self, *_inputs: Any, **_kwargs: Any) -> Any:
        """Raise: a list does not say how its modules are called."""
        raise NotImplementedError("a ModuleList is not called: call its modules, or use Sequential")

    def append(self, module: Module) -> ModuleList:
        """Put `module` at the end."""
        setattr(self, str(self._count), module)
        self._count += 1
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Put all of `modules` at the end."""
        for module in modules:
            self.append(module)
        return self

    def insert(self, place: int, module: Module) -> None:
        """Put `module` before that at `place`; later ones get other names."""
        modules = list(self)
        modules.insert(place, module)
        self._renew(modules)

    def _renew(self, modules: list[Any]) -> None:
        for place in range(len(modules), self._count):
            delattr(self, str(place))
        self._count = 0
        self.extend(modules)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, str(place)) for place in range(self._count))

    def __getitem__(self, place: int | slice) -> Any:
        """Return a module; a slice gives a `ModuleList` of those modules."""
        if isinstance(place, slice):
            return ModuleList(list(self)[place])
        return getattr(self, str(range(self._count)[place]))

    def __setitem__(self, place: int, module: Module) -> None:
        """Put `module` in the place of another."""
        setattr(self, str(range(self._count)[place]), module)

    def __delitem__(self, place: int | slice) -> None:
        """Leave modules out; later ones get other names."""
        modules = list(self)
        del modules[place]
        self._renew(modules)


class ModuleDict(Module):
    """Modules by key, whose parameters are found; it is not called itself.

    Parameters
    ----------
    modules : mapping of str to Module, or iterable of pairs
    name : str, optional

    Examples
    --------
    >>> heads = M.ModuleDict({"a": M.Linear(2, 3), "b": M.Linear(2, 1)})
    >>> heads["b"](F.ones((4, 2))).shape
    (4, 1)
    """

    def __init__(
        self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = (), name: str | None = None
    ) -> None:
        super().__init__(name)
        self._order: list[str] = []
        self.update(modules)

    def forward(self, *_inputs: Any, **_kwargs: Any) -> Any:
        """Raise: a dict does not say how its modules are called."""
        raise NotImplementedError("a ModuleDict is not called: call one of its modules")

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Take over all of `modules`."""
        for key, module in modules.items() if isinstance(modules, Mapping) else modules:
            self[key] = module

    def __setitem__(self, key: str, module: Module) -> None:
        """Put `module` under `key`, which is none of the names that a Module has."""
        if key not in self._order:
            if hasattr(self, key):
                raise KeyError(f"ModuleDict: {key!r} is a name of the ModuleDict itself")
            self._order.append(key)
        setattr(self, key, module)

    def __getitem__(self, key: str) -> Any:
        if key not in self._order:
            raise KeyError(key)
        return getattr(self, key)

    def __delitem__(self, key: str) -> None:
        self._order.remove(key)
        delattr(self, key)

    def pop(self, key: str) -> Any:
        """Leave a module out, and give it."""
        module = self[key]
        del self[key]
        return module

    def __contains__(self, key: object) -> bool:
        return key in self._order

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def keys(self) -> list[str]:
        """Return the names in the order in which they came."""
        return list(self._order)

    def values(self) -> list[Any]:
        """Return the modules."""
        return [getattr(self, key) for key in self._order]

    def items(self) -> list[tuple[str, Any]]:
        """Return names and modules."""
        return [(key, getattr(self, key)) for key in self._order]
