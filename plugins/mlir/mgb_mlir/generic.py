"""The level ``linalg``: each pass over the data is one ``linalg.generic`` on tensors.

The shapes are those of the graph in hand. The region of a generic is what an innermost loop computes for one
element; a reduction is an output that does not vary along the axes it folds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mgb.codegen import EXTENT, IOTA, Pass, aligned, row_major
from mgb.ir import CONST, Node
from mgb_native.folds import held
from mgb_native.frame import Frame
from mgb_native.nest import SCALAR
from mgb_native.nest.body import Body, element, is_float, stored
from mgb_native.nest.casts import from_memory, to_memory
from mgb_native.nest.lanes import Loops, Names, Nodes, Value
from mgb_native.nest.words import fold_step, nothing

from .builder import MlirBuilder
from .dialect import tensor


def text(frame: Frame) -> str:
    """The module of the level ``linalg``."""
    return Generics(frame).text()


class Generics(Loops, MlirBuilder):
    """The generics of one group."""

    def __init__(self, frame: Frame) -> None:
        super().__init__(0)
        self.frame = frame
        self.axes = [a for a, d in enumerate(frame.schedule.shape) if d != 1]
        arrays = [o for o in frame.arrays if not o.is_output]
        self.tensors: dict[Node, str] = {o.node: f"%{o.name}" for o in arrays}
        self.arguments = ", ".join(f"%{o.name}: {self.tensor(o.node)}" for o in arrays)

    def text(self) -> str:
        """The module."""
        frame, plan = self.frame, self.frame.schedule
        self.rows(plan.before)
        for part in plan.passes:
            self.walk(part)
            self.rows(part.after)
        outputs = ", ".join(self.tensors[o] for o in frame.graph.outputs)
        types = ", ".join(self.tensor(o) for o in frame.graph.outputs)
        head = f"func.func @group({self.arguments}) -> ({types}) {{"
        lines = [head, *self.head(), *self.lines, f"  return {outputs} : {types}", "}"]
        return "\n".join(["module {", *lines, "}", ""])

    def tensor(self, node: Node) -> str:
        """The type of a value as a tensor; integers have no sign here."""
        return tensor(node).replace("ui", "i")

    def map(self, node: Node, axes: Sequence[int]) -> str:
        """Where a value has the element of a place."""
        lead = len(self.frame.span[node]) - node.spec.ndim
        span = self.frame.span[node][lead:]
        places = [f"d{axes.index(a + lead)}" if s else "0" for a, s in enumerate(span)]
        return f"affine_map<({', '.join(f'd{i}' for i in range(len(axes)))}) -> ({', '.join(places)})>"

    # generics

    def rows(self, nodes: Nodes) -> None:
        """Row values: of a group that folds, one for each row."""
        nodes = tuple(v for v in nodes if v.op is not CONST and v not in self.tensors)
        if nodes:
            axes = [a for a in self.axes if a not in self.frame.schedule.reduced]
            self.generic(nodes, nodes, (), axes)

    def walk(self, part: Pass) -> None:
        """A pass over the row."""
        self.generic(part.computes, (*part.stores, *part.keeps), part.folds, self.axes)

    def generic(self, computes: Nodes, results: Nodes, folds: Nodes, axes: list[int]) -> None:
        """Write one; `results` are values of their own for each place, `folds` reductions."""
        results = tuple(v for v in dict.fromkeys(results) if v not in self.tensors)
        outputs = (*results, *folds)
        if not outputs:
            return
        inputs = self._inputs(computes, (*results, *(f.inputs[0] for f in folds)))
        shape = self._shape_of(axes, (*inputs, *outputs))
        maps = [self.map(v, axes) for v in inputs]
        ins, types = [self.tensors[v] for v in inputs], [self.tensor(v) for v in inputs]
        if shape:
            maps.append(f"affine_map<({shape[0]}) -> ({shape[0]})>")
            ins.append(self.op(f"tensor.empty() : {shape[1]}"))
            types.append(shape[1])
        begun = ", ".join(self.begin(v, v in folds) for v in outputs)
        maps += [self.map(v, axes) for v in outputs]
        reduced = self.frame.schedule.reduced if folds else ()
        kinds = ", ".join('"reduction"' if a in reduced else '"parallel"' for a in axes)
        made = ", ".join(self.tensor(v) for v in outputs)
        result = self.name("t")
        self.line(f"{result}{f':{len(outputs)}' if len(outputs) > 1 else ''} = linalg.generic {{")
        self.line(f"    indexing_maps = [{', '.join(maps)}],")
        self.line(f"    iterator_types = [{kinds}]}}")
        if ins:
            self.line(f"    ins({', '.join(ins)} : {', '.join(types)})")
        self.line(f"    outs({begun} : {made}) {{")
        self.region(computes, inputs, bool(shape), results, folds, axes)
        self.line(f"}} -> {made if len(outputs) == 1 else f'({made})'}")
        for k, v in enumerate(outputs):
            self.tensors[v] = f"{result}#{k}" if len(outputs) > 1 else result

    def _inputs(self, computes: Nodes, ends: Nodes) -> Nodes:
        wanted = dict.fromkeys((*(i for v in computes if v.op is not EXTENT for i in v.inputs), *ends))
        return tuple(v for v in wanted if v in self.tensors and v not in computes)

    def _shape_of(self, axes: list[int], operands: Nodes) -> tuple[str, str] | None:
        """Places and type of a tensor that has the shape of the loops, where no operand does."""
        span = self.frame.span
        if all(any(span[v][a] for v in operands) for a in axes):
            return None
        shape = self.frame.schedule.shape
        places = ", ".join(f"d{i}" for i in range(len(axes)))
        return places, f"tensor<{''.join(f'{shape[a]}x' for a in axes)}i1>"

    def begin(self, node: Node, folds: bool) -> str:
        """What an output begins as."""
        type_ = self.tensor(node)
        empty = self.op(f"tensor.empty() : {type_}", "t")
        if not folds:
            return empty
        identity = nothing(Body(self, SCALAR), node, held(node))
        source = f"ins({identity} : {element(held(node))}) outs({empty} : {type_})"
        return self.op(f"linalg.fill {source} -> {type_}", "t")

    def region(
        self, computes: Nodes, inputs: Nodes, shaped: bool, results: Nodes, folds: Nodes, axes: list[int]
    ) -> None:
        """The computation for one place."""
        body, names = Body(self, SCALAR), Names()
        given = {v: self.name("e") for v in inputs}
        totals = {v: self.name("a") for v in (*results, *folds)}
        self.line("^bb0({}):".format(", ".join([
            *(f"{name}: {self.element(v)}" for v, name in given.items()),
            *([f"{self.name('s')}: i1"] if shaped else []),
            *(f"{name}: {self.element(v)}" for v, name in totals.items()),
        ])))  # fmt: skip
        self.depth += 1
        for v, name in given.items():
            names[v] = Value(self.in_(body, name, v))
        for v in (*computes, *(f.inputs[0] for f in folds)):
            self.node(v, names, axes)
        ends = [self.out(body, self.value(v, names, SCALAR), v) for v in results]
        for f in folds:
            ends.append(fold_step(body, f, totals[f], self.value(f.inputs[0], names, SCALAR), held(f)))
        types = ", ".join(self.element(v) for v in (*results, *folds))
        self.line(f"linalg.yield {', '.join(ends)} : {types}")
        self.depth -= 1

    def node(self, node: Node, names: Names, axes: list[int]) -> None:
        """Compute a value of the region."""
        if node in names or node.op is CONST:
            return
        if node.op is EXTENT:
            shape = self.frame.schedule.shape
            folds = self.frame.span[node] != self.frame.span[node.inputs[0]]
            count = math.prod(shape[a] for a in self.frame.schedule.reduced) if folds else 1
            names[node] = Value(Body(self, SCALAR).constant(float(count), held(node)))
        elif node.op is IOTA:
            names[node] = self.place(node, axes)
        else:
            for v in node.inputs:
                self.node(v, names, axes)
            self.compute([node], names, SCALAR)

    def place(self, node: Node, axes: list[int]) -> Value:
        """The row-major place of an element."""
        lead = len(self.frame.span[node]) - node.spec.ndim
        steps = aligned(row_major(node.spec.shape), len(self.frame.span[node]))
        total = self.index(0)
        for k, a in enumerate(axes):
            if self.frame.span[node][a] and a >= lead:
                total = self.add(total, self.mul(self.op(f"linalg.index {k} : index"), self.index(steps[a])))
        return self.iota(node.spec.dtype.name, total, self.index(0), False, SCALAR)

    # elements: 16-bit floats are computed with in 32 bits

    def element(self, node: Node) -> str:
        """The type of an element of a tensor."""
        return self.tensor(node).rpartition("x")[2].rpartition("<")[2].rstrip(">")

    def in_(self, body: Body, name: str, node: Node) -> str:
        """An element that is read, as it is computed with."""
        dtype = node.spec.dtype.name
        if not is_float(dtype) or stored(dtype)[0] == "f":
            return name
        return from_memory(body, body.change("bitcast", name, self.element(node), "i16"), dtype)

    def out(self, body: Body, name: str, node: Node) -> str:
        """A value as an element of a tensor."""
        dtype = node.spec.dtype.name
        if not is_float(dtype) or stored(dtype)[0] == "f":
            return name
        return body.change("bitcast", to_memory(body, name, dtype), "i16", self.element(node))
