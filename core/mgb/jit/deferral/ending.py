"""How a sequence of deferred ops is computed: op by op while it is cold, by a program once it is hot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...apply import evaluate
from ...executor import Program
from ...ir import Graph
from ..entry import Literal
from ..variant import cut_out
from .link import Link
from .operands import Ref

#: The results that were computed by the number of the op, and why others could not be.
Outcome = tuple[dict[int, Any], dict[int, BaseException]]

#: ``compile(graph, updates)``: `updates` says which outputs take the place of which inputs. None: it goes on
#: op by op.
Compile = Callable[[Graph, Mapping[int, int]], Program | None]


class Ending:
    """The results of a sequence that were alive when it ended.

    Parameters
    ----------
    sequence : sequence of Link
    outputs : frozenset of int
        Numbers of ops.
    """

    __slots__ = ("_order", "_reads", "_refused", "_sequence", "outputs", "program", "runs")

    def __init__(self, sequence: Sequence[Link], outputs: frozenset[int]) -> None:
        self._sequence = sequence
        self.outputs = tuple(sorted(outputs))
        self.runs = 0
        self.program: Program | None = None
        self._reads: tuple[int, ...] = ()
        self._order: list[tuple[Link, tuple[int, ...]]] | None = None
        self._refused = False  # no program can be made

    def compile(self, compile: Compile, replaced: Mapping[int, int]) -> None:
        """Make a program, unless `compile` gives none: then it is not asked again.

        Parameters
        ----------
        compile : callable
        replaced : mapping
            From the numbers of ops to those of the external inputs that their results replace.
        """
        if self._refused:
            return
        sequence = self._sequence
        boundary = {
            node: -1 - (link.fed - len(link.feeds) + index)
            for link in sequence
            for index, node in enumerate(link.feeds)
        }
        nodes = tuple(n for o in self.outputs if (n := sequence[o].node) is not None)
        graph, self._reads = cut_out(nodes, boundary)
        inputs = {-1 - ref: index for index, ref in enumerate(self._reads)}
        updates = {
            index: inputs[replaced[o]]
            for index, o in enumerate(self.outputs)
            if replaced.get(o) in inputs and graph.inputs[inputs[replaced[o]]].spec == nodes[index].spec
        }
        self.program = compile(graph, updates)
        self._refused = self.program is None

    def run(self, fed: list[Any]) -> Outcome:
        """Compute the results from the external inputs `fed`, which are let go of when they were used."""
        self.runs += 1
        if self.program is not None:
            arrays = [fed[-1 - r] for r in self._reads]
            try:
                return dict(zip(self.outputs, self.program.call(arrays))), {}
            except Exception:
                if not arrays and self._reads:  # some inputs have their new values
                    raise
                arrays.clear()  # which op it was, and what can be computed without it, shows below
        if self._order is None:
            self._order = order(self._sequence, self.outputs)
        return run_one_by_one(self._order, fed)


def order(sequence: Sequence[Link], outputs: Sequence[int]) -> list[tuple[Link, tuple[int, ...]]]:
    """The ops that `outputs` depend on, each with the values that nothing reads after it."""
    needed = set(outputs)
    kept = frozenset(outputs)
    found = []
    for link in reversed(sequence):
        if link.index in needed:
            reads = dict.fromkeys(_ref(a) for a in link.args if not isinstance(a, Literal))
            found.append((link, tuple(r for r in reads if r not in needed and r not in kept)))
            needed.update(reads)
    return found[::-1]


def _ref(arg: Ref) -> int:
    """An operand that is no constant as a number."""
    return arg if isinstance(arg, int) else -1 - arg.number  # type: ignore[union-attr]


def run_one_by_one(links: Sequence[tuple[Link, tuple[int, ...]]], fed: list[Any]) -> Outcome:
    """Evaluate ops in order; one that fails keeps only those from a value that depend on it."""
    values: dict[int, Any] = {-1 - n: array for n, array in enumerate(fed)}
    fed.clear()
    errors: dict[int, BaseException] = {}
    for link, done in links:
        assert link.op is not None and link.params is not None
        refs = [None if isinstance(a, Literal) else _ref(a) for a in link.args]
        cause = next((errors[r] for r in refs if r in errors), None)
        if cause is None:
            try:
                arrays = [a.array if isinstance(a, Literal) else values[_ref(a)] for a in link.args]
                device = link.spec.device if link.spec is not None else ""
                values[link.index] = evaluate(link.op, arrays, link.params, device)
            except Exception as error:
                error.add_note(_note(link))
                cause = error
        if cause is not None:
            errors[link.index] = cause
        arrays = []
        if not errors:  # then Tensors may go back to what they were
            for ref in done:
                values.pop(ref, None)
    return values, errors


def _note(link: Link) -> str:
    assert link.op is not None and link.node is not None
    return f"mgb.jit had deferred {link.op.name}, which was called at {link.node.source}"
