"""A Program as part of a file, and back: its steps and their kernels, so that nothing is compiled again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import passes
from ..backends import Backend, Kernel
from ..backends.answers import check_kernel
from ..executor.compile import assemble
from ..executor.kernels import kernel_for, saved
from ..executor.loops import graphs_in, loop_kernel
from ..executor.program import Program
from ..executor.schedule import is_loop
from ..fusion import Step
from ..fusion.step import make_step
from ..ir import Graph, Node
from .graph_file import Reader, Writer, at


def pack(program: Program, writer: Writer, has_code: bool = True) -> dict[str, Any]:
    """Serialize the program for `unpack`; its values are numbered, inputs first, then as steps write them.

    Without code its kernels are looked up, or made again, when it is read.

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
    loops = {kernel for step, kernel in zip(program.steps, program.kernels, strict=True) if is_loop(step)}
    return {
        "inputs": writer.graph(Graph(inputs, ())),
        "graphs": [writer.graph(graph) for graph in graphs],
        "steps": steps,
        "kernels": [
            [graph, _packed(kernel, writer, has_code)]
            if kernel in loops
            else [graph, _saved(kernel, program.backend, writer) if has_code else None]
            for kernel, (_, graph) in kernels.items()
        ],
        "outputs": [numbers[n] for n in program.simplified.outputs],
    }


def _packed(loop: Kernel, writer: Writer, has_code: bool) -> list[Any]:
    """Return the programs that a loop runs."""
    programs: Sequence[Program] = loop.state
    return [pack(program, writer, has_code) for program in programs]


def _saved(kernel: Kernel, backend: Backend | None, writer: Writer) -> int | None:
    """Return the blob of a kernel.

    None where its backend gives none, and makes it again when the file is loaded.
    """
    assert backend is not None
    blob = saved(kernel, backend)
    return None if blob is None else writer.blob(blob)


def unpack(content: Any, file: Reader, recorded: Graph, backend: Backend | None, **how: Any) -> Program:
    """Return the program that `pack` wrote.

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
    **how
        The options, updates and ``into`` of `compile_program`.

    Raises
    ------
    FileFormatError
        The file is damaged.
    """
    with file.reading("the program"):
        graphs = [file.graph(g, f"the graph of step {n}") for n, g in enumerate(content["graphs"])]
        wanted = [(at(graphs, graph), blob) for graph, blob in content["kernels"]]
        inputs = file.graph(content["inputs"], "the program").inputs
    kernels = [
        _loop(graph, saved, file, backend)
        if isinstance(saved, list)
        else _loaded(graph, saved, file, backend)
        for graph, saved in wanted
    ]
    with file.reading("the program"):
        values: list[Node] = list(inputs)
        found: dict[Graph, Kernel | None] = {}
        steps = []
        for number, (graph, reads, kernel, reason) in enumerate(content["steps"]):
            with file.reading(f"step {number}"):
                of_loop = kernel is not None and isinstance(at(wanted, kernel)[1], list)
                name = None if backend is None or kernel is None or of_loop else backend.name
                step = _step(at(graphs, graph), [at(values, n) for n in reads], name, str(reason))
                found[step.graph] = None if kernel is None else at(kernels, kernel)
                values += step.writes
                steps.append(step)
        simplified = Graph(inputs, tuple([at(values, n) for n in content["outputs"]]))
        _check_ends(recorded, simplified)
        return assemble(recorded, simplified, steps, found, backend, **how)


def _loop(graph: Graph, content: list[Any], file: Reader, backend: Backend | None) -> Kernel:
    """Return a loop, of the programs that it runs."""
    with file.reading("a loop"):
        if not is_loop(make_step(graph.nodes, graph.outputs, False, "")):
            raise ValueError("it is not a loop")
        graphs = graphs_in(graph)
    programs = [unpack(c, file, g, backend, into=True) for c, g in zip(content, graphs, strict=True)]
    return loop_kernel(graph, programs)


def _loaded(graph: Graph, blob: int | None, file: Reader, backend: Backend | None) -> Kernel:
    if backend is None:
        raise ValueError("the file contains kernels but does not name their backend")
    if blob is None:
        return kernel_for(graph, backend)
    with file.reading("the program"):
        code = file.blob(blob)
    kernel = backend.load(passes.lower(graph, backend.traits), code)
    return check_kernel(backend, "load", kernel, (len(graph.inputs), len(graph.outputs)))


def _step(graph: Graph, reads: list[Node], backend: str | None, reason: str) -> Step:
    """Return a step on values of the program; it writes new ones."""
    if [n.spec for n in graph.inputs] != [n.spec for n in reads]:
        raise ValueError("the types of the values it reads differ from its graph's")

    def copy(node: Node, *inputs: Node) -> Node:
        return Node(node.op, inputs, node.params, node.spec, node.source)

    return Step(graph, tuple(reads), graph.fold(copy, reads), backend is not None, backend, reason)


def _check_ends(recorded: Graph, simplified: Graph) -> None:
    for mine, others in ((recorded.inputs, simplified.inputs), (recorded.outputs, simplified.outputs)):
        if [n.spec for n in mine] != [n.spec for n in others]:
            raise ValueError("its input or output types differ from the graph's")
