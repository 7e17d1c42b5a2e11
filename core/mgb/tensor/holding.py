"""Protocols of objects that contain Tensors, as layers and optimizers do, and the compiler's data in them.

Here also a module of mgb says of its functions what the tracer, which looks into none of them, has to know:
its variable ``__tracing__`` maps the name of a function or class, or ``"*"`` for all, to one of

* ``"impure"``: it changes or reads what no guard tells;
* ``"changes"``: it changes its object in a way that is not a value of a Tensor;
* ``"tells"``: this method tells the session itself which `Holder` it works with;
* ``"computes"``: it only computes with the numbers that it takes, and keeps none;
* ``"elementwise"``: likewise, and what it takes are operands of ops, whose errors explain themselves;
* ``"watched"``, of all: the module is written as by a user.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from types import ModuleType
from typing import Any

from ..runtime import device, precision
from . import Tensor

#: Among the attributes of a `Holder`.
_ATTRIBUTE = "_kept_calls"

#: Types of values in which nothing is.
PLAIN = frozenset({type(None), bool, int, float, str, bytes})

#: Settings that decide which ops a body records: a module of mgb, with a variable's name or a function of it.
SETTINGS: list[tuple[ModuleType, str | Callable[[Any], Any]]] = [
    (device, "_default"),
    (precision, precision.current),
]

#: Functions that give Tensors which each compiled call carries on though no argument holds them.
STATES: list[Callable[[], Iterable[Tensor]]] = []


class Holder(ABC):
    """An object with Tensors that a traced function works with: it says what is in it, and what decides.

    A class need not derive from this: one that has all three is taken as such. What `mgb` has of that kind,
    Modules, Optimizers and GradManagers, derives from it, and so holds what is compiled for it.

    Attributes
    ----------
    __revision__ : object
        A plain value, such as a number, which is another one after each change that `__decides__` does not
        show. None: there is none.
    """

    __revision__: Any = None

    @abstractmethod
    def __parts__(self) -> Iterable[tuple[str, Any]]:
        """Return the Tensors, holders and functions that it works with, by dotted names.

        None inside holders.
        """

    @abstractmethod
    def __decides__(self) -> Iterable[Any]:
        """Return what the ops of a recorded call depend on: an attribute's name, or a path.

        A path is a tuple: the name of an attribute, then keys and places in what stands there. A function in
        it is given what the path leads to so far; it has no effects. What stands at the end is compared
        before each compiled call: plain values by value, other objects by identity, and of a list, a dict or
        a set also what stands in it. A key that is not there has to stay away.
        """

    @classmethod
    def __subclasshook__(cls, kind: type) -> Any:
        if cls is not Holder:
            return NotImplemented
        names = ("__parts__", "__decides__", "__revision__")
        return all(any(name in vars(base) for base in kind.__mro__) for name in names) or NotImplemented

    def __getstate__(self) -> Any:
        """Return the state without what is stored here: copies and pickles have none of it."""
        state = super().__getstate__()
        if isinstance(state, tuple):  # of a class with __slots__
            attributes, slots = state
            return _without_holdings(attributes), slots
        return _without_holdings(state)


def _without_holdings(state: Any) -> Any:
    if not isinstance(state, dict) or _ATTRIBUTE not in state:
        return state
    return {name: value for name, value in state.items() if name != _ATTRIBUTE}


class Holdings(weakref.WeakKeyDictionary[Any, dict[Hashable, Any]]):
    """The data attached to each object; a class may have a ``__getstate__`` of its own."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Holdings, ()

    def __deepcopy__(self, memo: Any) -> Holdings:
        return Holdings()


def holdings_of(holder: Holder) -> Holdings:
    """Return the data attached to `holder`; it is released with it, though it may refer to it."""
    held: Holdings = vars(holder).setdefault(_ATTRIBUTE, Holdings())
    return held


def attributes_of(holder: Any) -> list[str]:
    """Return the names of its attributes, but for what is held here."""
    return [name for name in vars(holder) if name != _ATTRIBUTE]


def inside(
    name: str,
    value: Any,
    check: Callable[[Any, Any], object] = lambda *_: None,
    within: tuple[Any, ...] = (),
    in_order: bool = True,
) -> Iterator[tuple[str, Any]]:
    """Yield the Tensors, holders and functions in `value`, a nest of lists, tuples and dicts, by dotted name.

    `check` is told of each key under which there is one, and of that. Keys come sorted, or with `in_order`
    False as they stand.
    """
    if type(value) in PLAIN:
        return
    if isinstance(value, Tensor) or callable(value):
        yield name, value
    elif any(value is outer for outer in within):
        return  # it stands in itself
    elif isinstance(value, dict):
        for key in sorted(value) if in_order and all(type(key) is str for key in value) else list(value):
            for found in inside(f"{name}.{key}", value[key], check, (*within, value), in_order):
                check(key, found[1])
                yield found
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from inside(f"{name}.{place}", item, check, (*within, value), in_order)
    elif isinstance(value, Holder):
        yield name, value


def parts_within(holder: Any, prefix: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield `__parts__` of `holder` and of all holders in it, each part once, with dotted names."""
    seen = {id(holder)} if seen is None else seen
    for name, part in holder.__parts__():
        if id(part) not in seen:
            seen.add(id(part))
            yield prefix + name, part
            if isinstance(part, Holder):
                yield from parts_within(part, f"{prefix}{name}.", seen)
