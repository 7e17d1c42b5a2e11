"""Modules one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .module import Module


class Sequential(Module):
    """Call modules in order, each on the result of the one before.

    Parameters
    ----------
    *modules : Module, or one list or dict of them
        They are named by their place, ``"0"``, ``"1"``, ..., or by their key.
    name : str, optional

    Examples
    --------
    >>> from mgb.module import Linear, ReLU, Sequential
    >>> Sequential(Linear(2, 3), ReLU())[0]
    Linear(in_features=2, out_features=3, bias=True)
    """

    def __init__(self, *modules: Any, name: str | None = None) -> None:
        super().__init__(name)
        given = modules[0] if len(modules) == 1 and not isinstance(modules[0], Module) else modules
        named = given if isinstance(given, dict) else {str(i): module for i, module in enumerate(given)}
        self._order: list[str] = []
        for key, module in named.items():
            self._order.append(key)
            setattr(self, key, module)

    def forward(self, inp: Any) -> Any:
        """Call every module in turn."""
        for module in self:
            inp = module(inp)
        return inp

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, key) for key in self._order)

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, place: int | slice | str) -> Any:
        """Return a module by place or name; a slice gives a `Sequential` of those modules."""
        if isinstance(place, str):
            return getattr(self, place)
        if isinstance(place, slice):
            return Sequential({key: getattr(self, key) for key in self._order[place]})
        return getattr(self, self._order[place])

    def __setitem__(self, place: int | str, module: Module) -> None:
        """Put `module` in the place of another."""
        setattr(self, place if isinstance(place, str) else self._order[place], module)

    def __delitem__(self, place: int | str) -> None:
        """Leave a module out; the others keep their names."""
        key = place if isinstance(place, str) else self._order[place]
        self._order.remove(key)
        delattr(self, key)
