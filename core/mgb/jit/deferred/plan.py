"""The plan of a sequence of deferred ops: op by op at first, later by a compiled program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...executor import Program
from ...ir import Graph, Node
from ...tensor.apply import evaluate
from ..entry import Literal
from ..variant import extract_graph
from .lengths import Form, Forms, GeneralSequence, Instance
from .link import Link
from .operands import Ref

#: The computed results by the number of the op, and the errors of the others.
Outcome = tuple[dict[int, Any], dict[int, BaseException]]

#: ``compile(graph, updates)``: `updates` maps outputs to the inputs that they replace. None: run op by op.
Compile = Callable[[Graph, Mapping[int, int]], Program | None]


class SequencePlan:
    """A plan that computes the results of a sequence that were alive when it ended.

    Parameters
    ----------
    sequence : sequence of Link
    outputs : frozenset of int
        Numbers of ops.
    """

    __slots__ = (
        "_extras",
        "_form",
        "_is_rejected",
        "_reads",
        "_schedule",
        "_sequence",
        "outputs",
        "program",
        "runs",
    )

    def __init__(self, sequence: Sequence[Link], outputs: frozenset[int]) -> None:
        self._sequence = sequence
        self.outputs = tuple(sorted(outputs))
        self.runs = 0
        self.program: Program | None = None
        self._reads: tuple[int, ...] = ()
        self._schedule: list[tuple[Link, tuple[int, ...]]] | None = None
        self._is_rejected = False  # no program can be made
        self._form: tuple[Form, Instance] | None = None
        self._extras: list[Any] = []  # arrays of numbers that are inputs; they follow the external inputs

    def compile(self, compile: Compile, replaced: Mapping[int, int], forms: Forms, after: int) -> bool:
        """Compile after `after` runs, of this sequence or of others of its form; return whether that is new.

        Parameters
        ----------
        compile : callable
            If it returns None, it is not called again.
        replaced : mapping
            From the numbers of ops to those of the external inputs that their results replace.
        forms : Forms
        after : int
        """
        if self._is_rejected:
            return False
        self._form = self._form or forms.find(self._sequence, self.outputs, replaced)
        if self._form is not None:
            form, instance = self._form
            if form.runs >= after and self._adopt_general(form, instance):
                return False
            if form.runs >= after and (general := form.generalize(self._sequence, instance)) is not None:
                return self._generalize(general, instance, compile, replaced)
            form.runs += 1
        if self.runs < after:
            return False
        nodes = [link.node for link in self._sequence if link.node is not None]
        boundary = {
            node: -1 - (link.fed - len(link.feeds) + index)
            for link in self._sequence
            for index, node in enumerate(link.feeds)
        }
        self.program, self._reads = self._compile_nodes(compile, nodes, boundary, replaced)
        self._is_rejected = self.program is None
        return not self._is_rejected

    def _adopt_general(self, form: Form, instance: Instance) -> bool:
        """Use a program that serves several lengths, if one serves these."""
        for general in form.generals:
            self.program = general.program_for(self._sequence, instance)
            if self.program is not None:
                self._reads, self._extras = general.reads, general.extras(instance)
                return True
        return False

    def _generalize(
        self, general: GeneralSequence, instance: Instance, compile: Compile, replaced: Mapping[int, int]
    ) -> bool:
        """Compile a program for several lengths; if it is not resizable, it serves these alone."""
        program, general.reads = self._compile_nodes(compile, general.nodes, general.boundary, replaced)
        general.sizes.close()
        self.program, self._reads, self._extras = program, general.reads, general.extras(instance)
        self._is_rejected = program is None
        if program is not None and program.is_resizable:
            general.register(program)
        return program is not None

    def _compile_nodes(
        self,
        compile: Compile,
        made: Sequence[Node],
        boundary: Mapping[Node, int],
        replaced: Mapping[int, int],
    ) -> tuple[Program | None, tuple[int, ...]]:
        """Compile the results among the nodes `made`; return the program and the refs that it reads."""
        nodes = tuple(made[output] for output in self.outputs)
        graph, reads = extract_graph(nodes, boundary)
        inputs = {-1 - ref: index for index, ref in enumerate(reads)}
        updates = {
            index: inputs[replaced[o]]
            for index, o in enumerate(self.outputs)
            if replaced.get(o) in inputs and graph.inputs[inputs[replaced[o]]].spec == nodes[index].spec
        }
        return compile(graph, updates), reads

    def adopt(self, program: Program, reads: Sequence[int]) -> None:
        """Use a program compiled elsewhere, which reads the values at the refs `reads`."""
        self.program, self._reads = program, tuple(reads)

    def run(self, fed: list[Any], values: dict[int, Any], failed: list[Exception]) -> Outcome:
        """Compute the results from the external inputs `fed`, each of which is released after its last use.

        Parameters
        ----------
        fed : list of arrays
        values : dict
            Receives the values while ops run one by one.
        failed : list
            Receives the error of a program that failed, after which all ops run one by one.
        """
        self.runs += 1
        if self.program is not None:
            extras, own = self._extras, len(fed)
            arrays = [fed[-1 - r] if -1 - r < own else extras[-1 - r - own] for r in self._reads]
            try:
                return dict(zip(self.outputs, self.program.call(arrays))), {}
            except Exception as error:
                if not arrays and self._reads:  # some inputs are overwritten already
                    raise
                arrays.clear()  # running op by op finds the op that fails
                failed.append(error)
        if self._schedule is None:
            self._schedule = schedule(self._sequence, self.outputs)
        return run_op_by_op(self._schedule, fed, values)


def schedule(sequence: Sequence[Link], outputs: Sequence[int]) -> list[tuple[Link, tuple[int, ...]]]:
    """Return the ops that `outputs` depend on, each with the values that nothing reads after it."""
    needed = set(outputs)
    final = frozenset(outputs)
    found = []
    for link in reversed(sequence):
        if link.index in needed:
            reads = dict.fromkeys(_ref(a) for a in link.args if not isinstance(a, Literal))
            found.append((link, tuple(r for r in reads if r not in needed and r not in final)))
            needed.update(reads)
    return found[::-1]


def _ref(arg: Ref) -> int:
    """Return a non-constant operand as a number."""
    return arg if isinstance(arg, int) else -1 - arg.number  # type: ignore[union-attr]


def run_op_by_op(
    links: Sequence[tuple[Link, tuple[int, ...]]], fed: list[Any], values: dict[int, Any]
) -> Outcome:
    """Evaluate ops in order, into `values`; an error spares what does not depend on the failed op."""
    values.update((-1 - n, array) for n, array in enumerate(fed))
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
        if not errors:  # else `undo` may need the values
            for ref in done:
                values.pop(ref, None)
    return values, errors


def _note(link: Link) -> str:
    assert link.op is not None and link.node is not None
    return f"mgb.jit had deferred {link.op.name}, which was called at {link.node.source}"
