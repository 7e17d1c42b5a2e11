"""Graph to ONNX: each node becomes the operator that has its meaning, or a call of a function.

`words` says which ops ONNX has a word for and in which dtypes. Every other op becomes a function of our own
domain, whose body is the op's body, or its spelling in `functions`, written out in the same way, until every
node has a word. So any runtime that knows ONNX's own operators can run the file, and a reader that knows
the op finds its name and parameters in the metadata of the function.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from mgb.errors import UnsupportedError
from mgb.ir import CONST, Graph, Node, digest, exact_text
from mgb.loops import LOOPS, RESULT
from mgb.ops.declare import OPS
from mgb.passes.merge import merge
from mgb.passes.widen import widen
from mgb.storage.model_file import Names, Style, shown
from mgb.tensor.tracing import graph_of

from .export_loops import write_loop
from .export_words import WORDS
from .functions import spelling_of
from .ours import DOMAIN, OWN_OP
from .sheet import OPSET, Sheet
from .values import NUMBER_OF

#: The format of the file, of which on functions have metadata.
IR_VERSION = 10


class GraphSheet(Sheet):
    """The nodes of a whole graph, or of the body of a function, while they are written.

    Parameters
    ----------
    library : Library
        Where functions go that the nodes call.
    names, style, inside
        As for `Sheet`.
    """

    def __init__(self, library: Library, names: Names, style: Style, inside: bool) -> None:
        super().__init__(names, style, inside)
        self.library = library
        self._node_names = Names()
        self._steps = 0
        self._around: GraphSheet | None = None

    def within(self) -> GraphSheet:
        """Return a sheet for a graph that sees the values of this one, where its constants stand."""
        made = GraphSheet(self.library, self._names, self._style, self._inside)
        made._around, made._node_names = self, self._node_names
        return made

    def new_name(self, wanted: str) -> str:
        """Return a name that nothing has, here and in the graphs around."""
        return self._names.new(wanted)

    def constant(self, array: Any) -> str:
        return super().constant(array) if self._around is None else self._around.constant(array)

    def write(self, graph: Graph, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Add the nodes of `graph` over the values `inputs`; give its results the names `outputs`."""
        named: dict[Node, str] = {}
        for node, name in zip(graph.outputs, outputs):
            if node not in graph.inputs and node.op is not CONST:
                named.setdefault(node, name)
        values = dict(zip(graph.inputs, inputs, strict=True))
        results: dict[Node, list[str]] = {}
        for node in graph.nodes:
            if node.op in LOOPS:
                start = len(self.nodes)
                results[node] = write_loop(self, node, [values[i] for i in node.inputs])
                self._describe(node, self._nodes_from(start))
                continue
            if node.op is RESULT:
                found = results[node.inputs[0]][node.params["index"]]
                if node in named:
                    found = self._call_last(self.call("Identity", found), named[node])
                values[node] = found
                continue
            values[node] = self._value(node, [values[i] for i in node.inputs], named.get(node))
        for node, name in zip(graph.outputs, outputs):
            if values[node] != name:
                self._call_last(self.call("Identity", values[node]), name)
        self.library.opset = max(self.library.opset, self.opset)

    def _value(self, node: Node, inputs: Sequence[str], wanted: str | None) -> str:
        """Add what computes `node` and return the name of its value."""
        if node.spec.dtype not in NUMBER_OF:
            raise UnsupportedError(
                f"{node.op.name} at {node.source or 'an unknown place'} gives {node.spec.dtype}, which no "
                "file of ONNX carries: compute with real and imaginary parts, or leave it out of the function"
            )
        if node.op is CONST:
            return self.constant(node.params["value"])
        start = len(self.nodes)
        found = write_word(self, node, inputs)
        if found is None:
            found = self.call(self.library.function(node), *inputs, domain=DOMAIN)
        if not self._nodes_from(start) or found not in self.nodes[-1].output:
            found = self.call("Identity", found)
        if wanted is None and self._style.value_names:
            wanted = self._names.new(shown(node.op))
        self._describe(node, self._nodes_from(start))
        return found if wanted is None else self._call_last(found, wanted)

    def _nodes_from(self, start: int) -> list[Any]:
        return [node for node in self.nodes[start:] if node.op_type != "Constant"]

    def _call_last(self, name: str, wanted: str) -> str:
        """Give the value `name` that the last node made another name."""
        last = self.nodes[-1]
        assert list(last.output) == [name]
        last.output[0] = wanted
        return wanted

    def _describe(self, source: Node, nodes: Sequence[Any]) -> None:
        """Say of nodes that were written for `source` what they come from."""
        for node in nodes:
            if self._style.node_names:
                whole = shown(source.op)
                node.name = self._node_names.new(whole if node is nodes[-1] else f"{whole}/{node.op_type}")
                node.doc_string = source.source
            if self._style.priorities:
                node.metadata_props.add(key="mgb.priority", value=str(self._steps))
        self._steps += 1


def write_word(sheet: Sheet, node: Node, inputs: Sequence[str]) -> str | None:
    """Write `node` in ONNX's own operators; None where there is none for its dtypes or parameters."""
    if OPS.get(node.op.name, node.op) is not node.op:
        return None  # a stranger of the same name
    for word in WORDS.get(node.op.name, ()):
        carried = word.carried(node)
        if carried is None:
            continue
        given = list(inputs)
        for n in word.places(node):
            dtype = node.inputs[n].spec.dtype
            given[n] = sheet.cast(given[n], carried[dtype]) if dtype in carried else given[n]
        found = word.emit(sheet, node, *given)
        return sheet.cast(found, node.spec.dtype) if word.returns(node) in carried else found
    return None


class Library:
    """The functions of a file, each for one op, its parameters and the types of its inputs."""

    def __init__(self) -> None:
        self.functions: dict[str, Any] = {}
        self.opset = OPSET
        self._open: dict[str, Node] = {}

    def function(self, node: Node) -> str:
        """Return the operator that stands for `node`; its function is written if it was not yet.

        Raises
        ------
        UnsupportedError
            ONNX has no word for the op in these dtypes, and the op no body.
        """
        specs = tuple(i.spec for i in node.inputs)
        params = ", ".join(f"{k}={exact_text(v)}" for k, v in sorted(node.params.items()))
        key = digest(f"{node.op.name}({', '.join(map(str, specs))}; {params})".encode())
        name = f"{_identifier(node.op.name)}__{key[:10]}"
        if name in self._open:
            raise UnsupportedError(f"{node.op.name}: its body calls itself on the same types, without an end")
        if name not in self.functions:  # added when it is written, so after those that it calls: some readers
            self.functions[name] = self._written(name, node)  # know only what comes before
        return name

    def _written(self, name: str, node: Node) -> Any:
        spelling = spelling_of(node)
        if spelling is None:
            types = ", ".join(str(i.spec) for i in node.inputs)
            outermost = next(iter(self._open.values()), None)
            inside = f", inside {outermost.op.name}" if outermost else ""
            why = "ONNX has no operator for this dtype; cast its operands with astype, or leave it"
            if node.op.ordered or node.op.over_mesh:
                why = "files of ONNX are for one process; leave what ranks exchange"
            raise UnsupportedError(
                f"{node.op.name}({types}){inside} at {node.source or 'an unknown place'}: {why} out of the "
                "function"
            )
        params = {k: v for k, v in node.params.items() if k != "device"}
        graph = merge(widen(graph_of(lambda *xs: spelling(*xs, **params), *(i.spec for i in node.inputs))))
        inputs = [f"x{n}" for n in range(len(node.inputs))]
        sheet = GraphSheet(self, Names([*inputs, "y"]), Style(), inside=True)
        self._open[name] = node
        sheet.write(graph, inputs, ["y"])
        del self._open[name]
        proto = onnx.helper.make_function(DOMAIN, name, inputs, ["y"], sheet.nodes, [])
        proto.doc_string = f"{node.op.name}: " + ", ".join(f"{i.spec}" for i in (*node.inputs, node))
        if OPS.get(node.op.name) is node.op:  # a reader that has the op calls it, not the body
            own = {"op": node.op.name, "params": {k: _json_of(v) for k, v in params.items()}}
            proto.metadata_props.add(key=OWN_OP, value=json.dumps(own))
        return proto

    def finished(self) -> list[Any]:
        """Return the functions, with the opsets that they are written in."""
        opsets = [onnx.helper.make_opsetid("", self.opset), onnx.helper.make_opsetid(DOMAIN, 1)]
        written = list(self.functions.values())
        for proto in written:
            del proto.opset_import[:]
            proto.opset_import.extend(opsets)
        return written


def _identifier(text: str) -> str:
    """Return `text` as ONNX requires the names of operators: letters, digits and underscores."""
    return re.sub(r"\W", "_", text)


def _json_of(value: Any) -> Any:
    """Return a parameter as JSON: tuples are lists, a dtype is ``{"dtype": name}``."""
    if isinstance(value, tuple | list):
        return [_json_of(v) for v in value]
    if isinstance(value, np.dtype):
        return {"dtype": value.name}
    plain = value.item() if isinstance(value, np.generic) else value
    if not isinstance(plain, str | int | float | bool | None):
        raise UnsupportedError(f"a parameter of type {type(value).__name__} cannot be written as JSON")
    return plain


def model_of(graph: Graph, inputs: Sequence[str], outputs: Sequence[str], style: Style, name: str) -> Any:
    """Return `graph` as an ``onnx.ModelProto``.

    Parameters
    ----------
    graph : Graph
    inputs, outputs : sequence of str
        The names of its inputs and outputs.
    style : Style
    name : str
        Of the graph in the file.

    Raises
    ------
    UnsupportedError
        ONNX cannot say what an op does in its dtypes.
    """
    library = Library()
    sheet = GraphSheet(library, Names([*inputs, *outputs]), style, inside=False)
    sheet.write(graph, inputs, outputs)
    proto = onnx.helper.make_graph(
        sheet.nodes,
        name,
        [_typed(n, i) for n, i in zip(inputs, graph.inputs)],
        [_typed(n, o) for n, o in zip(outputs, graph.outputs)],
        sheet.initializers,
    )
    functions = library.finished()
    opsets = [onnx.helper.make_opsetid("", library.opset)]
    if functions:
        opsets.append(onnx.helper.make_opsetid(DOMAIN, 1))
    return onnx.helper.make_model(
        proto, opset_imports=opsets, functions=functions, ir_version=IR_VERSION, producer_name="mgb"
    )


def _typed(name: str, node: Node) -> Any:
    return onnx.helper.make_tensor_value_info(name, NUMBER_OF[node.spec.dtype], node.spec.shape)
