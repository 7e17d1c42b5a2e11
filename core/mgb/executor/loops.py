"""Steps that repeat, or choose, programs of their own: what runs an op that holds a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..backends import Kernel
from ..fusion import Step
from ..fusion.step import make_step
from ..ir import CONST, Graph, Node
from ..ir.sizes import At, plain
from ..loops import COND, LOOPS, RESULT, SCAN, WHILE, branch_of
from .operands import constant
from .program import Program
from .resized import resized
from .scans import Scan
from .turns import Turns, Unfit, Value, borrowed, lying, rows
from .workspaces import fresh_on

Arrays = Sequence[Any]
#: From so many turns on it is worth to prepare what does them without Python.
WORTH = 16
#: For so many places of operands and results what does the turns is kept, if these have so few bytes.
KEPT, FEW = 4, 1 << 22
#: As `Kernel.run`.
Run = Callable[..., None]


def with_results(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Join each op that returns a bundle and the reads of its parts in one step, which needs no bundle."""
    parts: dict[Node, list[Node]] = {}
    for step in steps:
        for node in step.writes:
            if node.op is RESULT and node.inputs[0].op in LOOPS:
                parts.setdefault(node.inputs[0], []).append(node)
    if not parts:
        return tuple(steps)
    found = []
    for step in steps:
        (node, *others) = step.writes
        if node in parts:
            within = [n.spec.size for n in node.inputs if n.op is CONST and n not in step.reads]
            why, below = f"{node.op.name} runs graphs", max(within, default=1) + 1
            found.append(make_step([node, *parts[node]], parts[node], False, why, below))
        elif others or node.op is not RESULT or node.inputs[0] not in parts:
            found.append(step)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Loop:
    """One step of a loop.

    Attributes
    ----------
    node : Node
        The op that holds the graphs.
    wanted : tuple of int
        The places of the results that are written.
    """

    node: Node
    wanted: tuple[int, ...]

    @classmethod
    def of(cls, graph: Graph) -> _Loop:
        """Make a loop from the graph of a step."""
        node = graph.outputs[0].inputs[0]
        return cls(node, tuple(part.params["index"] for part in graph.outputs))

    @property
    def operands(self) -> tuple[Node, ...]:
        """The operands of the op, in its own order; the same value may be in several positions."""
        return self.node.inputs


def graphs_in(graph: Graph) -> list[Graph]:
    """Return the graphs that the step of `graph` runs, without what nobody wants of them."""
    loop = _Loop.of(graph)
    params = loop.node.params
    if loop.node.op is SCAN:
        return [Scan.of(loop.node, loop.wanted).graph]
    if loop.node.op is WHILE:
        return [params["test"].graph, params["body"].graph]
    return [Graph(b.graph.inputs, tuple(b.graph.outputs[n] for n in loop.wanted)) for b in params["branches"]]


def loop_kernel(graph: Graph, programs: Sequence[Program]) -> Kernel:
    """Return the kernel that runs the step of `graph`, whose bodies are `programs`."""

    def at(lengths: At) -> Run:
        return _runner(graph, [program.at(lengths) for program in programs], lengths)

    source = "\n\n".join(str(program) for program in programs)
    return Kernel(at(plain), source, tuple(programs), at=at)


def _runner(graph: Graph, programs: Sequence[Program], at: At) -> Run:
    """Return the function that runs the step of `graph` for the lengths of `at`."""
    sized = _Loop.of(graph)
    loop = replace(sized, node=resized(sized.node, at))
    place = {node: n for n, node in enumerate(graph.inputs)}
    inner = {SCAN: _scan, WHILE: _while, COND: _cond}[loop.node.op](loop, programs)
    # Constants and what is read twice stand once among what the step reads.
    constants = {n: constant(node, at) for n, node in enumerate(loop.operands) if node not in place}
    order = [place.get(node) for node in loop.operands]
    straight = order == list(range(len(graph.inputs)))

    def run(*arrays: Any, out: Arrays) -> None:
        inner([constants[n] if k is None else arrays[k] for n, k in enumerate(order)], out)

    def run_straight(*arrays: Any, out: Arrays) -> None:
        inner(list(arrays), out)

    return run_straight if straight else run


def _scan(loop: _Loop, programs: Sequence[Program]) -> Callable[[list[Any], Arrays], None]:
    """Return a function that scans.

    What is carried goes round in few places, the last of which is the result's.
    """
    scan, (program,) = Scan.of(loop.node, loop.wanted), programs
    step, length = program.call, scan.length
    fresh = [fresh_on(n.spec.device, n.spec.shape, n.spec.dtype) for n in scan.graph.outputs]
    times = range(length - 1, -1, -1) if scan.reverse else range(length)
    plans = [plan] if (plan := _turns(scan, program)) is not None else []
    prepared: dict[Any, tuple[list[list[Any]], Callable[[int, int], None]]] = {}

    def run(operands: list[Any], out: Arrays) -> None:
        outside, first, xs = scan.split(operands)
        arrays = [*operands, *out]
        where = lying(arrays) if plans and sum(a.nbytes for a in arrays) <= FEW else None
        rooms, rest = prepared.pop(where, (None, None))  # a call at the same time makes its own
        rooms = scan.rooms(fresh) if rooms is None else rooms
        places, missing = scan.places(out, rooms)
        ys = [out[k] for k in scan.rows]
        for turn, t in enumerate(times):
            if plans and turn == scan.warm:
                try:
                    rest = rest or plans[0].prepared(
                        *_values(scan, outside, first, places, xs, ys), scan.phases
                    )
                except Unfit:
                    plans.clear()
                else:
                    rest(turn, length)
                    if where is not None:
                        prepared[where] = rooms, rest
                    while len(prepared) > KEPT:
                        prepared.pop(next(iter(prepared)), None)
                    break
            carry = [c.value(turn, places, first) for c in scan.carried]
            new = [places[r][(turn + 1) % len(places[r])] for r in range(len(places))]
            step([*outside, *carry, *[x[t, ...] for x in xs]], [*new, *[y[t, ...] for y in ys]])
        for k, carried in missing:
            out[k][...] = carried.value(length, places, first)

    return run


def _turns(scan: Scan, program: Program) -> Turns | None:
    """Return the native loop that runs the iterations without Python, or None."""
    if scan.length < max(WORTH, scan.phases):
        return None
    try:
        return Turns(program, scan.next_inputs)
    except Unfit:
        return None


def _values(
    scan: Scan, outside: Arrays, first: Arrays, places: Sequence[Arrays], xs: Arrays, ys: Arrays
) -> tuple[list[Value], list[Value]]:
    """Return where the inputs and outputs of a step lie when it has been done a few times."""
    phases = scan.phases
    outside, first, xs, ys = (list(map(borrowed, arrays)) for arrays in (outside, first, xs, ys))
    places = [list(map(borrowed, around)) for around in places]
    inputs = [*(Value((a,)) for a in outside)]
    for carried in scan.carried:
        turns = range(phases, 2 * phases) if carried.root >= 0 else range(1)
        inputs.append(Value(tuple(carried.value(turn, places, first) for turn in turns)))
    new = [Value(tuple(p[(turn + 1) % len(p)] for turn in range(phases))) for p in places]
    inputs += [rows(x, scan.reverse, phases) for x in xs]
    return inputs, [*new, *(rows(y, scan.reverse, phases) for y in ys)]


def _while(loop: _Loop, programs: Sequence[Program]) -> Callable[[list[Any], Arrays], None]:
    test, step = (program.call for program in programs)
    consts = loop.node.params["consts"]
    outputs = loop.node.params["body"].graph.outputs
    spare = [fresh_on(n.spec.device, n.spec.shape, n.spec.dtype) for n in outputs]
    answer = fresh_on(programs[0].outputs[0].device, (), np.dtype(np.bool_))

    def run(operands: list[Any], out: Arrays) -> None:
        outside, carry = operands[:consts], operands[consts:]
        there = [fresh() for fresh in spare], [fresh() for fresh in spare]
        go, turn = answer(), 0
        while True:
            test([*outside, *carry], [go])
            if not go:
                break
            step([*outside, *carry], there[turn])
            carry, turn = there[turn], 1 - turn
        for to, n in zip(out, loop.wanted, strict=True):
            to[...] = carry[n]

    return run


def _cond(loop: _Loop, programs: Sequence[Program]) -> Callable[[list[Any], Arrays], None]:
    ways = [program.call for program in programs]

    def run(operands: list[Any], out: Arrays) -> None:
        index, *arrays = operands
        branch_of(index, ways)(arrays, out)

    return run
