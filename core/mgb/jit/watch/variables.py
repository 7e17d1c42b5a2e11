"""The global variables and builtins that code reads, and what it reads of them at once."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

from ..source import Attribute, Global, Object, ObjectRef, Source
from . import pure
from .protocols import Walk

_BUILTINS = ObjectRef(vars(builtins))


def read_variables(walk: Walk, chains: Iterable[Sequence[str]], space: dict[str, Any]) -> None:
    """Read each of `chains`, a variable and the attributes that follow; `space` holds the globals."""
    module = ObjectRef(space)
    for chain in chains:
        name = chain[0]
        if name in space:
            _chain(walk, Global(module, name), space[name], chain[1:])
            continue
        walk.guard(Object(module), "without", name)
        if name in vars(builtins):
            _chain(walk, Global(_BUILTINS, name), vars(builtins)[name], chain[1:])
        else:
            walk.guard(Object(_BUILTINS), "without", name)


def _chain(walk: Walk, source: Source, value: Any, names: Sequence[str]) -> None:
    """Read a variable and these attributes at once: of a module no others can be named by that."""
    while type(value) is ModuleType and names and names[0] in vars(value):
        walk.is_(source, value)
        walk.values[source] = value
        walk.sees_numpy = walk.sees_numpy or value.__name__.startswith("numpy")
        if not pure.is_library(value.__name__):
            walk.guard(source, "type", ObjectRef(ModuleType))
        source, value, names = Attribute(Object(ObjectRef(value)), names[0]), vars(value)[names[0]], names[1:]
    walk.named(source, value)
