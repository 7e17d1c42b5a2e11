"""Lengths that a file leaves open: one model made of those that were written for several lengths.

What differs between these is a number in a constant (a shape, an end, a count), and is fitted by a polynomial
in the lengths with whole coefficients, of degree one in each. The file computes it from the shapes of its
inputs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from mgb.errors import UnsupportedError
from mgb.storage.model_file import Names
from onnx import helper, numpy_helper

from .export_loops import nodes_within

#: The value of each name of a length.
Lengths = Mapping[str, int]


def merged(models: Sequence[Any], lengths: Sequence[Lengths], axes: Mapping[tuple[int, int], str]) -> Any:
    """Return one model of `models`, which were written for these `lengths`.

    Parameters
    ----------
    models : sequence of onnx.ModelProto
    lengths : sequence of mapping
        For each model; all corners of a box first, and others, which test what was found.
    axes : mapping
        The names of the axes that are left open, by the place of an input and the axis.

    Raises
    ------
    UnsupportedError
        The models differ in more than numbers that follow from the lengths.
    """
    first, graph = models[0], models[0].graph
    _same_functions(models)
    for node, *others in zip(*(m.graph.node for m in models), strict=True):
        _same(f"node {node.op_type} {list(node.output)}", [node, *others])
    fit = _Fit(lengths)
    where = {name: (graph.input[place].name, axis) for (place, axis), name in reversed(list(axes.items()))}
    writer = _Lengths(graph, where)
    kept = []
    for parts in zip(*(m.graph.initializer for m in models), strict=True):
        arrays = [numpy_helper.to_array(p) for p in parts]
        if all(a.shape == arrays[0].shape and a.tobytes() == arrays[0].tobytes() for a in arrays):
            kept.append(parts[0])
            continue
        terms = fit.terms(f"the constant {parts[0].name!r}", arrays)
        inferred = _inferred(graph, parts[0].name, terms)
        if inferred is not None:
            kept.append(numpy_helper.from_array(inferred, parts[0].name))
        else:
            writer.compute(parts[0].name, terms, arrays[0].dtype)
    nodes = [*writer.nodes, *graph.node]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*kept, *writer.constants])
    for infos in itertools.chain(
        zip(*(m.graph.input for m in models)), zip(*(m.graph.output for m in models))
    ):
        _open(infos, fit)
    return first


def _same(what: str, protos: Sequence[Any]) -> None:
    if any(p != protos[0] for p in protos):
        raise UnsupportedError(
            f"{what} depends on a length in dynamic_axes, which may decide only shapes and counts: leave "
            "that axis out"
        )


def _same_functions(models: Sequence[Any]) -> None:
    """Call functions by one name, whose names tell the shapes for which they were written."""
    counts = {(len(m.graph.node), len(m.graph.initializer), len(m.functions)) for m in models}
    if len(counts) > 1:
        _same("the graph", [object(), object()])
    for model in models[1:]:
        names = {f.name: g.name for f, g in zip(model.functions, models[0].functions)}
        for proto in nodes_within([*model.graph.node, *(n for f in model.functions for n in f.node)]):
            proto.op_type = names.get(proto.op_type, proto.op_type)
        for f, g in zip(model.functions, models[0].functions):
            f.name, f.doc_string = g.name, g.doc_string
            _same(f"the function {g.name}", [g, f])


class _Fit:
    """Polynomials in the lengths."""

    def __init__(self, lengths: Sequence[Lengths]) -> None:
        names = list(lengths[0])
        self.terms_of = [c for n in range(len(names) + 1) for c in itertools.combinations(names, n)]
        rows = [[math.prod(at[n] for n in term) for term in self.terms_of] for at in lengths]
        self._matrix = np.array(rows, np.float64)

    def terms(self, what: str, arrays: Sequence[Any]) -> dict[tuple[str, ...], Any]:
        """Return the factor of each product of lengths, without those that are 0.

        Raises
        ------
        UnsupportedError
            No such polynomial gives these arrays.
        """
        if len({a.shape for a in arrays}) > 1:
            _same(what, [object(), object()])
        values = np.stack([a.astype(np.float64).reshape(-1) for a in arrays])
        corners = len(self.terms_of)
        factors = np.rint(np.linalg.solve(self._matrix[:corners], values[:corners]))
        if not np.array_equal(self._matrix @ factors, values):
            _same(what, [object(), object()])
        found = {t: f.reshape(arrays[0].shape) for t, f in zip(self.terms_of, factors) if f.any()}
        return found or {(): np.zeros(arrays[0].shape)}


def _inferred(graph: Any, name: str, terms: Mapping[tuple[str, ...], Any]) -> Any:
    """Return the shape with -1 for its one open length, where that is all that reads it.

    Readers see the rest.
    """
    readers = [n for n in nodes_within(graph.node) if name in n.input]
    constant = terms.get((), 0)
    varies = sum(abs(f) for t, f in terms.items() if t)
    alone = np.count_nonzero(varies) == 1 and all(
        n.op_type == "Reshape" and n.input[1] == name for n in readers
    )
    fixed = np.where(varies != 0, -1, constant) if alone else None
    return None if fixed is None or (fixed == 0).any() else fixed.astype(np.int64)


class _Lengths:
    """The nodes that compute what follows from the shapes of the inputs."""

    def __init__(self, graph: Any, where: Mapping[str, tuple[str, int]]) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._where = where
        taken = [n for node in nodes_within(graph.node) for n in (*node.input, *node.output)]
        self._names = Names([*taken, *(i.name for i in graph.input)])
        self._known: dict[str, str] = {}

    def _call(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        name = output or self._names.new("length")
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def _constant(self, array: Any) -> str:
        name = self._names.new("factor")
        self.constants.append(numpy_helper.from_array(np.asarray(array, np.int64), name))
        return name

    def _length(self, name: str) -> str:
        if name not in self._known:
            given, axis = self._where[name]
            shape = self._call("Shape", given, start=axis, end=axis + 1)
            self._known[name] = self._call("Squeeze", shape)
        return self._known[name]

    def compute(self, output: str, terms: Mapping[tuple[str, ...], Any], dtype: Any) -> None:
        """Give `output` the value of a polynomial."""
        total = ""
        for term, factor in terms.items():
            part = self._constant(factor)
            for name in term:
                part = self._call("Mul", part, self._length(name))
            total = self._call("Add", total, part) if total else part
        self._call("Cast", total, output=output, to=helper.np_dtype_to_tensor_dtype(dtype))


def _open(infos: Sequence[Any], fit: _Fit) -> None:
    """Give the first of the types of one value, in each model, names for lengths that differ."""
    shapes = [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in infos]
    for axis, found in enumerate(zip(*shapes, strict=True)):
        if len(set(found)) > 1:
            terms = fit.terms(f"the shape of {infos[0].name!r}", [np.array([n]) for n in found])
            dim = infos[0].type.tensor_type.shape.dim[axis]
            dim.dim_param = " + ".join(_texts(terms))


def _texts(terms: Mapping[tuple[str, ...], Any]) -> Iterator[str]:
    for term, factor in terms.items():
        number = int(factor[0])
        yield "*".join([*([] if number == 1 and term else [str(number)]), *term])
