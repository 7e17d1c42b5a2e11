"""What lives between the calls of bodies that write it, and whether a trace leaves it as eager code does."""

from __future__ import annotations

import functools
import linecache
import textwrap
from collections.abc import Callable
from typing import Any

import mgb.module as M
import numpy as np
from mgb import Tensor, jit, tensor

ZERO = np.zeros(3, np.float32)


class State:
    """What lives between calls."""

    total = 0

    def __init__(self) -> None:
        self.h, self.c = tensor(ZERO), tensor(ZERO + 1)
        self.n, self.lr, self.k, self.flag, self.mode = 0, 1.0, 3, False, "a"
        self.table: dict[Any, Any] = {"a": tensor(ZERO), "b": tensor(ZERO + 2), "list": [], "n": 0, "lr": 0.5}
        self.row = [tensor(ZERO), tensor(ZERO + 3)]
        self.numbers: list[Any] = [0, 2.0]
        self.inner: Any = None
        self.maybe: Any = None
        self.seen: Any = ()
        self.pair: Any = (tensor(ZERO), tensor(ZERO + 1))


class Slotted:
    __slots__ = ("h", "n")

    def __init__(self) -> None:
        self.h, self.n = tensor(ZERO), 0


class Computed:
    """Its attributes are properties."""

    def __init__(self) -> None:
        self._h, self._n, self.sets = tensor(ZERO), 0, 0

    @property
    def h(self) -> Any:
        return self._h

    @h.setter
    def h(self, value: Any) -> None:
        self.sets += 1
        self._h = value

    @property
    def n(self) -> Any:
        return self._n

    @n.setter
    def n(self, value: Any) -> None:
        self.sets += 1
        self._n = value


class Layer(M.Module):
    """A Module of a user's, whose attributes are those of Modules."""

    def __init__(self) -> None:
        super().__init__()
        self.h, self.n = tensor(ZERO), 0

    def forward(self) -> None: ...


class Notified(State):
    """It sees what is set."""

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value * 2 if name in ("h", "n") else value)


def values(thing: Any) -> Any:
    """What stands in an object, with the types of plain values."""
    if isinstance(thing, (list, tuple)):
        return [type(thing).__name__, *map(values, thing)]
    if isinstance(thing, dict):
        return {key: values(value) for key, value in thing.items()}
    if isinstance(thing, (Slotted, Layer)):
        return [values(thing.h), values(thing.n)]
    if isinstance(thing, (State, Computed)):
        return values(vars(thing))
    return np.array(thing) if isinstance(thing, Tensor) else (type(thing).__name__, thing)


def alike(one: Any, other: Any) -> bool:
    """Are these `values` the same? Those of Tensors up to rounding, and so keys in their order."""
    if isinstance(one, dict):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.shape == other.shape and bool(np.allclose(one, other, rtol=1e-5))
    return type(one) is type(other) and one == other


def bodies(text: str, space: dict[str, Any], takes: str = "s, x") -> dict[str, Callable[[Any, Any], Any]]:
    """Functions of a state and a Tensor, from a table: ``### name``, then what the body does."""
    found: dict[str, Any] = {}
    file = f"<bodies of {space['__name__']}>"
    blocks = {name: lines for name, _, lines in (b.partition("\n") for b in text.split("\n### ")[1:])}
    code = "\n".join(
        f"def {name.split()[0]}({takes}):\n{textwrap.indent(lines, '    ')}" for name, lines in blocks.items()
    )
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    exec(compile(code, file, "exec"), space, found)
    return {name: found[name.split()[0]] for name in blocks}


def check(
    body: Callable[[Any, Any], Any],
    make: Callable[[], Any],
    disturb: Callable[[Any, int], None],
    arguments: Callable[[int], Any] = lambda call: ZERO + call + 0.5,
    **options: Any,
) -> None:
    """A trace of `body` gives and leaves what eager code does, whatever others `disturb` between calls."""
    one, other = make(), make()
    traced = jit.trace(functools.partial(body, one), **options)
    for call in range(16):
        x = tensor(arguments(call))
        got, wanted = traced(x), body(other, x)
        assert alike(values(got), values(wanted)), f"call {call}"
        assert (got is one.h) == (wanted is other.h), f"call {call}"
        assert alike(values(one), values(other)), f"call {call}"
        disturb(one, call)
        disturb(other, call)


def runs(body: Callable[[Any, Any], Any], state: Any, calls: int = 20) -> tuple[int, list[str]]:
    """How often `body` runs in so many calls of a trace, and why it does again."""
    traced = jit.trace(functools.partial(body, state))
    for call in range(calls):
        traced(tensor(ZERO + call))
    stats = traced.stats()
    return stats["body_runs"], stats["reasons"]
