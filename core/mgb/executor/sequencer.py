"""Writes calls in a row as one call of a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np

from ..backends import Backend
from ..backends.answers import answer
from ..ir import Node
from ..ir.sizes import At, count, plain
from ..ops.layout import slices
from .operands import eager_rule
from .parts import rest
from .schedule import Call
from .sequences import SHORTEST, Act, Layout, Slot, View, computed
from .writer import Writer


@dataclass
class Sequencer:
    """Writes calls that fit as one.

    Parameters
    ----------
    writer : Writer
    calls : sequence of Call
    needed : set of Node
        What is read behind these calls.
    """

    writer: Writer
    calls: Sequence[Call]
    needed: Set[Node]
    entries: list[View | Act] = field(default_factory=list)
    slots: dict[Node, Slot] = field(default_factory=dict)

    def write(self, backend: Backend) -> bool:
        """Write one call for all, if the backend has it and it is worth one."""
        writer = self.writer
        kernels = list(dict.fromkeys(c.kernel for c in self.calls if c.kernel is not None))
        if not kernels or sum(c.kernel is not None or bool(computed(c)) for c in self.calls) < SHORTEST:
            return False
        writer.wait(n for call in self.calls for n in call.reads)
        for call in self.calls:
            self.add(call)
        arrays = list(dict.fromkeys(n for n in self.slots.values() if isinstance(n, Node)))
        arrays.sort(key=writer.lies_alike)
        checked = sum(not writer.lies_alike(n) for n in arrays)
        entries = tuple(self.entries)

        def asked(at: At) -> Any:
            layout = Layout(entries, tuple(arrays), at)
            kinds = (Callable, NoneType)
            return answer(backend, "sequence", kinds, kernels, layout, len(arrays), checked)

        if (made := asked(plain)) is None:
            return False
        name = (
            writer.made("sequence", asked) if writer.is_sized else writer.bind("sequence", made, unique=True)
        )
        writer.begin_updates(self.calls)
        writer.line(f"{name}({', '.join(writer.names[n] for n in arrays)})  # {self.contents()}")
        self.expose()
        writer.lines += writer.pending.glance(self.calls[-1])
        return True

    def contents(self) -> str:
        """Return in words what is in it."""
        acts = [entry for entry in self.entries if isinstance(entry, Act)]
        copies = sum(act.kernel is None for act in acts)
        return f"kernels: {len(acts) - copies}, copies: {copies}"

    # what is in it

    def add(self, call: Call) -> None:
        """Add one call."""
        if call.kernel is not None:
            writes = tuple(map(self.room, call.writes))
            self.entries.append(Act(call.kernel, (*map(self.slot, call.reads), *writes)))
        elif call.writes[0] in self.writer.plan.copies:
            self.room(call.writes[0])
            self.complete(call)
        elif nodes := computed(call):
            outside = dict(zip(call.steps[0].graph.inputs, call.reads, strict=True))
            for node in nodes:
                operand = self.slot(outside.get(node.inputs[0], node.inputs[0]))
                self.slots[node] = self.view(partial(eager_rule, node), operand)
            self.slots[call.writes[0]] = self.slots[call.steps[0].graph.outputs[0]]
        else:
            self.writer.eager(call.steps[0])

    def complete(self, call: Call) -> None:
        """Add the copies of operands that are not where they belong in the result: see `Writer.complete`."""
        (node,), (whole,) = call.steps[0].graph.outputs, call.writes
        assert node.op.parts is not None
        windows = node.op.parts(*(i.spec.shape for i in node.inputs), **node.params)
        for number in self.writer.plan.copies[whole]:
            value, window = call.steps[0].outside.inputs[number], windows[number]
            source, target = self.slot(value), self.slots[whole]
            if window is None:
                (window,), shape = [w for w in windows if w is not None], whole.spec.shape
                for cut in rest(window, shape):
                    self.copy(self.cut(source, cut), self.cut(target, cut))
                continue
            shape = tuple(count(*w) for w in window)
            if value.spec.shape != shape:
                source = self.view(partial(_broadcast, shape), source)
            self.copy(source, self.cut(target, slices(window)))

    def copy(self, source: Slot, target: Slot) -> None:
        """Add a copy."""
        self.entries.append(Act(None, (source, target)))

    def cut(self, of: Slot, cut: tuple[slice, ...]) -> Slot:
        """Add a window."""
        return self.view(lambda at: itemgetter(cut), of)

    def view(self, rule: Callable[[At], Callable[[Any], Any]], of: Slot) -> Slot:
        """Add a view."""
        self.entries.append(View(rule, of, len(self.entries)))
        return len(self.entries) - 1

    def slot(self, node: Node) -> Slot:
        """Return what stands for a value: an array of the call, if nothing is known of it yet."""
        if node not in self.slots:
            self.writer.value(node)
            self.slots[node] = node
        return self.slots[node]

    def room(self, node: Node) -> Slot:
        """Return what stands for a result; memory of its own comes with the call."""
        if node in self.slots:
            return self.slots[node]
        part = None if node in self.writer.names else self.writer.plan.places[node].part
        if part is None:
            self.writer.room(node)
            self.slots[node] = node
        else:
            whole = self.room(part.whole)
            self.slots[node] = whole if part.window is None else self.view(part.view, whole)
        return self.slots[node]

    # what is known behind it

    def expose(self) -> None:
        """Write names for what later calls read: views are made again."""
        writer = self.writer
        for call in self.calls:
            if call.kernel is not None or call.writes[0] in writer.plan.copies:
                writer.row_major.update(n for n in call.writes if writer.plan.places[n].part is None)
        makers = {n: call for call in self.calls for n in call.writes}
        for node in makers:
            if node in self.needed:
                self.name(node, makers)

    def name(self, node: Node, makers: Mapping[Node, Call]) -> None:
        """Write the name of a value."""
        writer = self.writer
        if node in writer.names:
            return
        slot, place = self.slots.get(node), writer.plan.places.get(node)
        if isinstance(slot, Node):
            writer.names[node] = writer.names[slot]
            return
        if place is not None and place.part is not None:
            self.name(place.part.whole, makers)
            writer.room(node)
            return
        for operand in makers[node].reads:
            if operand in makers:
                self.name(operand, makers)
        writer.eager(makers[node].steps[0])


def _broadcast(shape: tuple[int, ...], _: At) -> Callable[[Any], Any]:
    return partial(np.broadcast_to, shape=shape)
