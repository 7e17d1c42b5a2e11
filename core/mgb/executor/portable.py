"""A Program as part of a file, and back: its steps and their kernels, so that nothing is compiled again."""

from __future__ import annotations

from typing import Any

from .. import passes
from ..answers import check_kernel
from ..backend import Backend, Kernel
from ..fusion import Step
from ..graph_file import Reader, Writer
from ..ir import Graph, Node
from .compile import assemble
from .kernels import kernel_for, saved
from .program import Program


def pack(program: Program, writer: Writer) -> dict[str, Any]:
    """What `unpack` makes the program of; its values are numbered, inputs first, then as steps write them.

    Raises
    ------
    ExportError
        A parameter of an op is nothing that a file can hold.
    """
    inputs = program.simplified.inputs
    numbers = {node: number for number, node in enumerate(inputs)}
    graphs: dict[Graph, int] = {}
    kernels: dict[Kernel, tuple[int, int]] = {}  # by kernel: its place, and one of its graphs
    steps = []
    for step, kernel in zip(program.steps, program.kernels, strict=True):
        graph = graphs.setdefault(step.graph, len(graphs))
        place = None if kernel is None else kernels.setdefault(kernel, (len(kernels), graph))[0]
        steps.append([graph, [numbers[n] for n in step.reads], place, step.reason])
        numbers |= {node: len(numbers) + k for k, node in enumerate(step.writes)}
    return {
        "inputs": writer.graph(Graph(inputs, ())),
        "graphs": [writer.graph(graph) for graph in graphs],
        "steps": steps,
        "kernels": [
            [graph, _saved(kernel, program.backend, writer)] for kernel, (_, graph) in kernels.items()
        ],
        "outputs": [numbers[n] for n in program.simplified.outputs],
    }


def _saved(kernel: Kernel, backend: Backend | None, writer: Writer) -> int | None:
    """The blob of a kernel; None where its backend gives none, and makes it again when the file is loaded."""
    assert backend is not None
    blob = saved(kernel, backend)
    return None if blob is None else writer.blob(blob)


def unpack(content: Any, file: Reader, recorded: Graph, backend: Backend | None) -> Program:
    """The program that `pack` wrote.

    Parameters
    ----------
    content : JSON
        What `pack` gave.
    file : Reader
        Where it stood.
    recorded : Graph
        What the program computes.
    backend : Backend or None
        Whose kernels they are; what it raises when it loads one is passed on.

    Raises
    ------
    GraphFileError
        The file is damaged.
    """
    with file.reading("the program"):
        graphs = [file.graph(g, f"the graph of step {n}") for n, g in enumerate(content["graphs"])]
        wanted = [
            (_at(graphs, graph), None if blob is None else file.blob(blob))
            for graph, blob in content["kernels"]
        ]
        inputs = file.graph(content["inputs"], "the program").inputs
    kernels = [_loaded(graph, blob, backend) for graph, blob in wanted]
    with file.reading("the program"):
        values: list[Node] = list(inputs)
        found: dict[Graph, Kernel | None] = {}
        steps = []
        for number, (graph, reads, kernel, reason) in enumerate(content["steps"]):
            with file.reading(f"step {number}"):
                name = backend.name if backend is not None and kernel is not None else None
                step = _step(_at(graphs, graph), [_at(values, n) for n in reads], name, str(reason))
                found[step.graph] = None if kernel is None else _at(kernels, kernel)
                values += step.writes
                steps.append(step)
        simplified = Graph(inputs, tuple([_at(values, n) for n in content["outputs"]]))
        _check_ends(recorded, simplified)
        return assemble(recorded, simplified, steps, found, backend)


def _loaded(graph: Graph, blob: bytes | None, backend: Backend | None) -> Kernel:
    if backend is None:
        raise ValueError("there are kernels, and no backend whose they are")
    if blob is None:
        return kernel_for(graph, backend)
    kernel = backend.load(passes.lower(graph, backend.traits), blob)
    return check_kernel(backend, "load", kernel, (len(graph.inputs), len(graph.outputs)))


def _step(graph: Graph, reads: list[Node], backend: str | None, reason: str) -> Step:
    """A step on values of the program; it writes new ones."""
    if [n.spec for n in graph.inputs] != [n.spec for n in reads]:
        raise ValueError("it reads values of other types than its graph")

    def copy(node: Node, *inputs: Node) -> Node:
        return Node(node.op, inputs, node.params, node.spec, node.source)

    return Step(graph, tuple(reads), graph.fold(copy, reads), backend is not None, backend, reason)


def _check_ends(recorded: Graph, simplified: Graph) -> None:
    for mine, others in ((recorded.inputs, simplified.inputs), (recorded.outputs, simplified.outputs)):
        if [n.spec for n in mine] != [n.spec for n in others]:
            raise ValueError("it takes or gives other types than the graph")


def _at(values: list[Any], number: Any) -> Any:
    if type(number) is not int or not 0 <= number < len(values):
        raise ValueError(f"{number!r} is no number of {len(values)}")
    return values[number]
