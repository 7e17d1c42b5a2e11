"""The text of a program's function, line by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import NoneType
from typing import Any, ClassVar

import numpy as np

from ..backends import Backend, Kernel, Strided
from ..backends.answers import answer
from ..fusion import NUMBER, Step
from ..ir import CONST, Graph, Kind, Node, const_node
from ..ir.sizes import At, about, is_sized, plain
from ..runtime import memory
from ..runtime.device import array_module, get_device_count, is_gpu, on, out_of_memory
from ..tensor import float_errors, ignore_float_errors, restore_float_errors
from ..tensor.apply import evaluate
from .operands import begin_rule, constant, eager_rule, follows_lengths, monotone
from .overlap import UnderWay, operands_of, parted, token_of
from .parts import Part, fill_rest
from .plan import MemoryPlan, Place, device_of, replaced_by
from .routine import Recipe
from .schedule import Call, begins, is_given_memory
from .workspaces import allocator, arenas_at, spare_at, targets_at


@dataclass
class Writer:
    """Writes the function of a program."""

    splits: ClassVar[bool] = True  # is what can be begun and waited for later split so?

    graph: Graph
    plan: MemoryPlan
    backend: Backend | None
    launch_graph: bool | None = None
    lines: list[str] = field(default_factory=list)
    bound: dict[str, Any] = field(default_factory=dict)
    recipes: list[Recipe] = field(default_factory=list)
    names: dict[Node, str] = field(default_factory=dict)
    row_major: set[Node] = field(default_factory=set)
    spare: dict[Call, str] = field(default_factory=dict)
    pending: UnderWay = field(default_factory=UnderWay)
    has_eager: bool = False
    updates: bool = False  # may inputs have been written over by now?
    parameters: ClassVar[str] = "arrays"

    def __post_init__(self) -> None:
        self.device = device_of(self.graph)
        self.temporaries = self.plan.temporaries
        self.is_sized = self.graph.sizes is not None

    # the parts

    def ask_spare(self, calls: Sequence[Call]) -> None:
        """Write for each kernel with a workspace which operands may provide it."""
        for call in calls:
            places = [self.plan.places.get(call.writes[o], Place()) for o, _ in replaced_by(call)]
            positions = [place.update for place in places if place.update is not None]
            if positions:
                ask = self.made("spare", partial(spare_at, positions))
                self.line(f"s{len(self.spare)} = {ask}(arrays)")
                numbers = iter(range(len(positions)))
                flags = (
                    "False" if p.update is None else f"s{len(self.spare)}[{next(numbers)}]" for p in places
                )
                whole = len(positions) == len(places)
                self.spare[call] = f"s{len(self.spare)}" if whole else packed(flags)

    def begin(self, calls: Sequence[Call]) -> None:
        """Write the inputs, and the memory of the temporaries."""
        given = {n for call in calls if is_given_memory(call) for n in call.writes}
        updated = {n: w.update for n, w in self.plan.places.items() if w.update is not None and n in given}
        if updated:
            targets = self.made("targets", partial(targets_at, updated))
            self.line(f"{packed(self.name(n, 'o') for n in updated)} = {targets}(arrays)")
        self.line(f"{packed(self.name(n, 'x') for n in self.graph.inputs)} = arrays")
        if self.temporaries:
            self.recipes.append(partial(arenas_at, self.plan, self.device))
            targets = packed(self.name(n, "t") for n in self.temporaries)
            self.line(f"{targets} = workspace = take()")

    def call(self, call: Call) -> None:
        """Write one call, and the memory that it writes to, with its GPU as the current one."""
        begin, device = len(self.lines), call.writes[0].spec.device
        self.wait(n for step in call.steps for n in operands_of(step))
        self.prepare(call)
        self.begin_updates([call])
        self.run(call)
        self.on_its_gpu(begin, device)
        self.lines += self.pending.glance(call)

    def rows(self, calls: Sequence[Call], numbers: range) -> list[list[int]]:
        """Return the numbers of calls.

        Single kernels in a row, which a backend may start at once, together.
        """
        rows: list[list[int]] = []
        before: str | None = None
        parts = parted(calls)
        for k in numbers:
            call = calls[k]
            device = call.writes[0].spec.device if call.is_plain else None
            if device is not None and device == before:
                rows[-1].append(k)
            else:
                rows.append([k])
            before = None if parts[k] else device
        return rows

    def chained(self, calls: Sequence[Call]) -> bool:
        """Write calls of kernels as one, if the backend can; a single one costs less so as well."""
        if self.backend is None or not calls[0].is_plain:
            return False
        arrays = list(dict.fromkeys(n for call in calls for n in (*call.reads, *call.writes)))
        place = {n: i for i, n in enumerate(arrays)}
        wiring = [([place[n] for n in c.reads], [place[n] for n in c.writes]) for c in calls]
        written = self.row_major.union(*(call.writes for call in calls))
        varying = [i for i, n in enumerate(arrays) if n not in written]
        kernels = [c.kernel for c in calls if c.kernel is not None]
        args = kernels, wiring, varying, self.launch_graph
        chain = answer(self.backend, "chain", (Callable, NoneType), *args)
        if chain is None:
            return False
        begin = len(self.lines)
        self.wait(n for call in calls for n in call.reads)
        for call in calls:
            self.prepare(call)
            self.row_major.update(call.writes)
        self.begin_updates(calls)
        name = self.bind("chain", chain, unique=True)
        backend = self.backend
        if self.is_sized:  # it may remember lengths
            chains = [chain]  # that of the lengths which it was asked for is used for the first
            self.recipes.append(
                lambda at: {name: chains.pop() if chains else answer(backend, "chain", Callable, *args)}
            )
        self.line(f"{name}({packed(self.names[n] for n in arrays)})")
        self.on_its_gpu(begin, calls[0].writes[0].spec.device)
        self.lines += self.pending.glance(calls[-1])
        return True

    def lies_alike(self, node: Node) -> bool:
        """Return whether the array of a value lies alike in all calls, row-major."""
        place = self.plan.places.get(node)
        is_own = place is not None and place.part is None and place.update is None
        return is_own or node in self.row_major or self.names[node] in self.bound

    def on_its_gpu(self, begin: int, device: str) -> None:
        """Make their GPU current for the lines from `begin` on, where there are several."""
        if is_gpu(device) and len(self.lines) > begin and get_device_count("gpu") > 1:
            head = f"with {self.bind('on', on)}({device!r}):"
            self.lines[begin:] = [head, *("    " + line for line in self.lines[begin:])]

    def begin_updates(self, calls: Sequence[Call]) -> None:
        """Write empty `arrays` before the first call that may write over an input: see `Program.call`."""
        places = (self.plan.places.get(n, Place()) for call in calls for n in call.writes)
        if not self.updates and any(place.update is not None for place in places):
            self.updates = True
            self.wait(self.pending)  # what may yet fail has to come before
            self.line("arrays.clear()")

    def prepare(self, call: Call) -> None:
        """Write the memory of a call's outputs, and its inputs in a layout that its kernel can read."""
        for node in call.writes:
            self.room(node)
        if call.kernel is not None and call.steps[0].fused:
            for node in call.reads:
                self.lay_out(node)

    def room(self, node: Node) -> None:
        """Write the memory of a result that is given some."""
        place = self.plan.places.get(node)
        if place is None or node in self.names:
            return
        if place.part is not None and place.part.window is None:
            self.names[node] = self.names[place.part.whole]
        elif place.part is not None:
            self.room(place.part.whole)
            view = self.made("part", place.part.view)
            self.line(f"{self.name(node, 'o')} = {view}({self.names[place.part.whole]})")
        elif place == Place():
            self.line(f"{self.name(node, 'o')} = {self.fresh(node)}")

    def run(self, call: Call) -> None:
        """Write the call itself."""
        if call.kernel is not None:
            self.kernel(call, call.kernel)
        elif call.writes[0] in self.plan.copies:
            self.complete(call.steps[0])
        else:
            self.eager(call.steps[0])

    def kernel(self, call: Call, kernel: Kernel) -> None:
        """Write a call of a kernel."""
        if kernel.results is not None:
            self.handed(call, kernel)
            return
        args = "".join(f"{self.names[n]}, " for n in call.reads)
        out = packed(self.names[n] for n in call.writes)
        function = self.runner(kernel)
        nodes = (n for step in call.steps for n in step.graph.nodes)
        self.line(f"{function}({args}out={out}){origin(nodes)}")
        self.row_major.update(n for n in call.writes if self.plan.places[n].part is None)

    def runner(self, kernel: Kernel) -> str:
        """Return a name for what runs a kernel."""
        if self.is_sized and kernel.at is not None:
            return self.made("kernel", kernel.at)
        return self.bind("kernel", kernel.results or kernel.run, unique=True)

    def handed(self, call: Call, kernel: Kernel) -> None:
        """Write a call of a kernel that has a workspace."""
        args = [self.names[n] for n in call.reads]
        if call in self.spare:
            args.append(f"spare={self.spare[call]}")
        function = self.runner(kernel)
        out = packed(self.name(n, "h") for n in call.writes)
        nodes = (n for step in call.steps for n in step.graph.nodes)
        self.line(f"{out} = {function}({', '.join(args)}){origin(nodes)}")
        self.row_major.update(call.writes)

    def eager(self, step: Step) -> None:
        """Write a call of each op of `step` by its eager rule; constants are bound."""
        inside = dict(zip(step.graph.inputs, (self.names[n] for n in step.reads), strict=True))
        outside = dict(zip(step.graph.outputs, step.writes, strict=True))
        for node in step.graph.nodes:
            value = outside.get(node, node)
            if node.op in (CONST, NUMBER):
                inside[node] = self.names[value] = self.of_node("c", constant, node)
                continue
            args = [inside[i] for i in node.inputs]
            if self.is_known(node, value, args):
                made = evaluate(node.op, [self.bound[a] for a in args], dict(node.params))
                array = constant(const_node(made, node.spec.dtype))
                inside[node] = self.names[value] = self.bind("c", array, unique=True)
                continue
            self.has_eager |= node.op.kind is not Kind.LAYOUT
            if token_of(step) in self.pending:
                args[-1] = "None"
            if self.splits and begins(step):
                function = self.of_node(f"begin_{node.op.name}", begin_rule, node)
                self.pending[value] = f"p{len(self.names)}"
                self.line(f"{self.pending[value]} = {function}({', '.join(args)}){origin([node])}")
                self.name(value, "v")
                continue
            function = self.of_node(node.op.name, eager_rule, node)
            if value in self.plan.places:
                self.line(f"{function}({', '.join([*args, f'out={self.names[value]}'])})")
                self.row_major.add(value)
            else:
                call = f"{function}({', '.join(args)})"
                if not node.spec.shape:  # NumPy gives a number, not an array
                    call = f"{self.module(node.spec.device)}.asarray({call})"
                self.line(f"{self.name(value, 'v')} = {call}{origin([node])}")
            inside[node] = self.names[value]

    def is_known(self, node: Node, value: Node, args: Sequence[str]) -> bool:
        """Check whether an op has constants alone, and kernels alone read its result."""
        fixed = bool(args) and all(self.bound.get(arg) is not None for arg in args)
        given = is_gpu(node.spec.device) or value in (*self.graph.outputs, *self.plan.places)
        viewed = any(reader.op.kind is Kind.LAYOUT for reader in self.graph.readers.get(value, ()))
        is_small = fixed and node.spec.nbytes < memory.SMALL
        return node.op.kind is Kind.ELEMENTWISE and is_small and not given and not viewed

    def wait(self, nodes: Iterable[Node]) -> None:
        """Wait for those of these values that are under way."""
        for node, value in self.pending.ends(nodes):
            if not node.spec.shape:
                value = f"{self.module(node.spec.device)}.asarray({value})"
            self.line(f"{self.names[node]} = {value}{origin([node])}")

    def complete(self, step: Step) -> None:
        """Copy the operands of `step` that are not where they belong in its result."""
        (node,), (whole,) = step.graph.outputs, step.writes
        operands = step.outside.inputs
        windows = node.op.parts(*(i.spec.shape for i in node.inputs), **node.params) if node.op.parts else ()
        for number in self.plan.copies[whole]:
            source = self.value(operands[number])
            if windows[number] is None:
                (window,), shape = [w for w in windows if w is not None], whole.spec.shape
                fill = self.made("rest", partial(fill_rest, window, shape))
                self.line(f"{fill}({self.names[whole]}, {source})")
                continue
            view = self.made("part", Part(whole, windows[number]).view)
            self.line(f"{view}({self.names[whole]})[...] = {source}")
        part = self.plan.places[whole].part
        if part is None or (part.window is None and part.whole in self.row_major):
            self.row_major.add(whole)

    def drop(self, nodes: Sequence[Node]) -> None:
        """Let go of eager results, so that their memory can be used again."""
        self.wait(nodes)
        names = [name for n in nodes if (name := self.names.get(n)) is not None and name not in self.bound]
        if names:
            self.line(f"del {', '.join(names)}")

    def end(self) -> None:
        """Write the release of the arena, when nothing is in flight any more."""
        self.wait(self.pending)
        if self.temporaries:
            self.line("give(workspace)")

    def give_result(self) -> None:
        """Write the return of the outputs."""
        self.line(f"return {packed(self.value(n) for n in self.graph.outputs)}")

    def source(self) -> str:
        """Return the text of the function."""
        body = ["    " + line for line in self.lines]
        if self.has_eager:
            self.bind("float_errors", float_errors)
            self.bind("ignore_float_errors", ignore_float_errors)
            self.bind("restore_float_errors", restore_float_errors)
            body = [
                "    before = float_errors()",
                "    try:",
                "        ignore_float_errors()",
                *("    " + line for line in body),
                "    finally:",
                "        restore_float_errors(before)",
            ]
        if is_gpu(self.device):
            body = self.explained(body)
        return "\n".join([f"def run({self.parameters}):", *body, ""])

    def explained(self, body: list[str]) -> list[str]:
        """Return `body` with the lack of memory explained."""
        indented = ["    " + line for line in body]
        error = f"{self.bind('out_of_memory', out_of_memory)}({self.device!r}, 'a compiled call', error)"
        return [
            "    try:",
            *indented,
            "    except MemoryError as error:",
            f"        raise {error} from error",
        ]

    # the words

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append(text)

    def name(self, node: Node, letter: str) -> str:
        """Return the variable for `node`."""
        return self.names.setdefault(node, f"{letter}{len(self.names)}")

    def value(self, node: Node) -> str:
        """Return the variable for an output or an operand; bind a constant without a step, create an iota."""
        if node not in self.names and not node.inputs:
            self.eager(Step(Graph((), (node,)), (), (node,), fused=False))
        return self.names[node]

    def bind(self, name: str, value: Any, unique: bool = False) -> str:
        """Return a global name for `value`."""
        if unique:
            name = re.sub(r"\W", "_", name) + f"_{len(self.bound)}"
        self.bound[name] = value
        return name

    def made(self, name: str, rule: Callable[[At], Any]) -> str:
        """Return a global name for the value of `rule`, evaluated for each set of lengths."""
        name = self.bind(name, None, unique=True)
        self.recipes.append(lambda at: {name: rule(at)})
        return name

    def of_node(self, name: str, rule: Callable[[Node, At], Any], node: Node) -> str:
        """Return a global name for the value of `rule` for `node`, evaluated for each set of lengths."""
        if follows_lengths(node):
            return self.made(name, partial(rule, node))
        return self.bind(name, rule(node, plain), unique=True)

    def module(self, device: str) -> str:
        """Return NumPy or CuPy."""
        return self.bind("cupy" if is_gpu(device) else "numpy", array_module(device))

    def fresh(self, node: Node) -> str:
        """Return an allocation for `node`; NumPy is asked directly where the pool would ask it."""
        device = node.spec.device
        if is_gpu(device):
            empty = self.bind("gpu_empty", allocator(device))
        elif about(node.spec.nbytes) < memory.SMALL:
            empty = self.bind("small", np.empty)
        else:
            empty = self.bind("empty", memory.empty)
        dtype, shape = self.bind(node.spec.dtype.name, node.spec.dtype), node.spec.shape
        given = self.made("shape", lambda at: at(shape)) if is_sized(shape) else str(shape)
        return f"{empty}({given}, {dtype})"

    def lay_out(self, node: Node) -> None:
        """Copy a value into a layout that the backend reads, where it is not known to have one."""
        assert self.backend is not None
        strided = self.backend.traits.strided
        if strided is Strided.ANY or node in self.row_major or not node.spec.shape:
            return
        self.row_major.add(node)
        name = self.names[node]
        if name in self.bound:
            return
        if strided is Strided.CONTIGUOUS:
            copy = self.bind("contiguous", array_module(node.spec.device).ascontiguousarray)
        else:
            copy = self.bind("monotone", monotone)
        self.line(f"{name} = {copy}({name})")


def packed(names: Iterable[str]) -> str:
    """Return the text of a tuple."""
    listed = tuple(names)
    return f"({', '.join(listed)}{',' * (len(listed) == 1)})"


def origin(nodes: Iterable[Node]) -> str:
    """Return a comment that tells where the user wrote what may refuse its values: tracebacks show it."""
    places = dict.fromkeys(
        n.source for n in nodes if n.op.kind in (Kind.OPAQUE, Kind.GATHER, Kind.SCATTER) and n.source
    )
    return f"  # {', '.join(places)}" if places else ""
