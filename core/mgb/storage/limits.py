"""The work that a file may ask for: `LoadLimits`, and the `Meter` that refuses it before it is done."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, ParamSpec, TypeVar

from ..errors import ArgumentError, LoadLimitError
from ..ir import Graph, Node, Op, input_node
from ..passes.cost import operations
from ..runtime.device import default as default_device
from ..tensor import ACTIVE, Session, Tensor, run_in, wrap
from ..tensor.apply import evaluate

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """The most that a loaded file may ask for, of loading it and of each call.

    A file is data, and a few bytes of it can ask for more than a machine has. What passes a limit is refused
    before it is computed, by a `LoadLimitError` that names the node. A call that is compiled was held to them
    when it was recorded: the compiled program counts nothing.

    Attributes
    ----------
    nodes : int
        Nodes of the file, functions and loops expanded, and the ops that they become.
    turns : int
        Turns of one loop.
    depth : int
        Functions and graphs that are open inside each other.
    elements : int
        Elements of one value. An axis of length 0 counts as one of length 1.
    bytes : int
        Bytes of all values together.
    operations : int
        Operations on numbers, as `trace.profile_table` counts them.

    Examples
    --------
    >>> LoadLimits(nodes=1000).nodes, LoadLimits().depth
    (1000, 100)
    """

    nodes: int = 500_000
    turns: int = 10_000
    depth: int = 100
    elements: int = 1 << 30
    bytes: int = 1 << 36
    operations: int = 10**13

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise ArgumentError(f"LoadLimits({field.name}={value!r}): give a whole number above 0")


#: What is allowed where nothing else is said.
DEFAULT_LIMITS = LoadLimits()

#: Elements of the largest value that is worked out before the whole of a call is known, and so measured.
MOST_FOLDED = 1 << 22


class FoldingStopped(Exception):
    """A known value is too large to be worked out now: it is part of the call."""


class Meter:
    """The resources that one load, or one call, has requested so far.

    Parameters
    ----------
    limits : LoadLimits, optional
        None: the default ones.
    reader : str
        The function of `mgb.jit` that was given them, for messages.

    Attributes
    ----------
    place : str
        The node that asks now, for messages.
    folding : bool
        Is what is computed now known before the call is?
    """

    def __init__(self, limits: LoadLimits | None = None, reader: str = "load") -> None:
        self.limits = DEFAULT_LIMITS if limits is None else limits
        if not isinstance(self.limits, LoadLimits):
            raise ArgumentError(
                f"{reader}(limits={reprlib.repr(limits)}): give mgb.jit.LoadLimits(nodes=...), or None"
            )
        self._reader = reader
        self.place = "the file"
        self.folding = False
        self._spent = {"nodes": 0, "bytes": 0, "operations": 0}

    def at_once(self) -> Meter:
        """Return a meter of the same load or call, for what is known before it."""
        found = copy(self)  # which adds to the very same sums
        found.folding = True
        return found

    def check(self, limit: str, wanted: int) -> None:
        """Refuse `wanted` if it is more than the field `limit` of the limits."""
        allowed: int = getattr(self.limits, limit)
        if wanted > allowed:
            raise LoadLimitError(self.place, limit, wanted, allowed, self._reader)

    def spend(self, limit: str, amount: int) -> None:
        """Add to what was asked for of `limit`."""
        self._spent[limit] += amount
        self.check(limit, self._spent[limit])

    def value(self, shape: Sequence[int], itemsize: int = 8) -> None:
        """Measure a value of this shape, which is about to be made."""
        elements = math.prod([max(d, 1) for d in shape])
        self.check("elements", elements)
        if self.folding and elements > MOST_FOLDED:
            raise FoldingStopped
        self.spend("bytes", elements * itemsize)

    def op(self, node: Node) -> None:
        """Measure an op, which is about to be computed."""
        self.spend("nodes", 1)
        self.value(node.spec.shape, node.spec.dtype.itemsize)
        self.spend("operations", max(operations(node), node.spec.size))

    def graph(self, graph: Graph) -> None:
        """Measure a whole graph, which is about to be computed."""
        for number, node in enumerate(graph.nodes):
            self.place = f"the graph, node {number} ({node.op.name})"
            self.op(node)


def meter() -> Meter:
    """Return the meter of the load or the call in this context.

    Outside of any, one that has the default limits.
    """
    session = ACTIVE.get()
    return session.meter if isinstance(session, _Metered) else Meter()


def metered(meter: Meter, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run ``function(*args, **kwargs)``; `meter` measures every op before it is computed, in any trace."""
    return run_in(_Metered(ACTIVE.get(), meter), function, *args, **kwargs)


def folded(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run ``function(*args, **kwargs)``, whose ops on known values are computed at once, outside any trace.

    They are measured too.

    Raises
    ------
    FoldingStopped
        One is too large.
    """
    return run_in(_Metered(None, meter().at_once()), function, *args, **kwargs)


class _AtOnce(Session[Tensor]):
    """A session of no trace: ops are computed where they stand."""

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        device = params.get("device") or (inputs[0]._device if inputs else default_device())
        return wrap(evaluate(op, [t._array() for t in inputs], params, device), device)


#: What is handed on to the session that a metered one stands around.
_HANDED_ON = [name for name in vars(Session) if not name.startswith("_") and name != "step"]


class _Metered(Session[Tensor]):
    """A session around another one, which sees all that it would see without."""

    def __init__(self, inner: Session[Tensor] | None, meter: Meter) -> None:
        while isinstance(inner, _Metered):
            inner = inner._inner
        self._inner: Session[Tensor] = _AtOnce() if inner is None else inner
        self.meter = meter
        for name in _HANDED_ON:
            setattr(self, name, getattr(self._inner, name))

    def step(self, op: Op, inputs: tuple[Tensor, ...], params: dict[str, Any]) -> Tensor:
        specs = [t.spec for t in inputs]
        self.meter.op(Node(op, tuple(map(input_node, specs)), params, op.infer(*specs, **params)))
        return self._inner.step(op, inputs, params)
