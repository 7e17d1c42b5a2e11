"""The pipeline, in one column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from .. import passes
from ..backends import Backend, Kernel, Scope, Specialize, plugins
from ..errors import CompileError, UnsupportedError
from ..fusion import (
    FusionConfig,
    Step,
    copied,
    detect,
    duplicate,
    flat_draws,
    folded_into,
    looked_up,
    marked,
    place_extents,
    recompute,
    recurrences,
    rows_apart,
    split,
    taken_apart,
    vector_products,
)
from ..fusion.step import is_copied, make_step
from ..ir import Graph
from ..ir.sizes import checker
from ..runtime import config
from ..runtime.device import device_type
from .collector import resting
from .generate import generate
from .kernels import Pairs, kernel_for
from .loops import graphs_in, loop_kernel, with_results
from .options import DEFAULT, Options
from .overlap import begun_early
from .plan import plan_memory, replacements
from .program import Program
from .remat.peak import Arrangement
from .remat.rematerialize import rematerialize
from .repeats import write_repeats
from .resized import Stages, plain_graph
from .schedule import is_loop, schedule
from .sequences import in_rows
from .short_rows import turn_short_rows


def compile_program(
    graph: Graph, options: Options = DEFAULT, updates: Mapping[int, int] | None = None, into: bool = False
) -> Program:
    """Compile a graph.

    Parameters
    ----------
    graph : Graph
        What was recorded, gradients included. Where it holds sizes, the program may serve other lengths too.
    options : Options
        How far to go.
    updates : mapping, optional
        From the positions of outputs to the positions of the inputs that they replace: parameters, as a rule.
        Such an output may be written over its input; see `Program.call`.
    into : bool
        It is called with arrays for its results, which share no memory with what it is given.

    Returns
    -------
    Program

    Raises
    ------
    BackendError
        No backend, it failed, or it does not make the graph of launches that was asked for.
    GraphError
        With ``MGB_VERIFY=1``: a graph breaks the rules of the IR.
    MemoryBudgetError
        The threshold of ``options.memory`` cannot be met.
    """
    one_shape = graph.sizes is not None and not _is_resizable(graph, options)
    if one_shape:
        graph = plain_graph(graph)
    _verify(graph)
    simplified = passes.own_results(graph, _simplify(graph, options), updates or ())
    _verify(simplified)
    backend = backend_for(graph, options)
    simplified = _duplicate(simplified, backend, options)
    _verify(simplified)
    steps = _steps(simplified, backend, options)
    replaces = _replacements(simplified, steps, backend, options, updates or {})
    kernels = _kernels(steps, backend, replaces) | _loops(steps, options)
    return assemble(graph, simplified, steps, kernels, backend, options, updates, one_shape, into)


@resting()
def assemble(
    graph: Graph,
    simplified: Graph,
    steps: Sequence[Step],
    kernels: Mapping[Graph, Kernel | None],
    backend: Backend | None,
    options: Options = DEFAULT,
    updates: Mapping[int, int] | None = None,
    one_shape: bool = False,
    into: bool = False,
) -> Program:
    """Return the program of steps whose kernels are there.

    Parameters
    ----------
    graph, simplified : Graph
        What was recorded, and what `steps` compute.
    steps : sequence of Step
        Each after those that it reads.
    kernels : mapping
        By the graph of a step; None where it runs eagerly.
    backend : Backend or None
        Whose kernels they are.
    options, updates, into
        As for `compile_program`.
    one_shape : bool
        Were there sizes, of which nothing is known?

    Returns
    -------
    Program

    Raises
    ------
    MemoryBudgetError
        The threshold of ``options.memory`` cannot be met.
    """
    arrange = _Arranger(simplified, kernels, updates or {}, backend, parts=options.memory is None)
    plain = found = arrange(begun_early(steps) if options.memory is None else steps)
    if options.memory is not None:
        found = rematerialize(plain, arrange.updated, options.memory, arrange)
    routine = generate(simplified, found.calls, found.plan, backend, options, into)
    return Program(
        Stages(graph, simplified, found.steps, found.calls, found.plan),
        routine,
        tuple(kernels[step.graph] for step in found.steps),
        backend,
        None if found is plain else plain.peak,
        None if one_shape else _guards(graph, into),
    )


def _guards(graph: Graph, is_inside: bool) -> Callable[[Sequence[int]], bool]:
    """Return whether a decision holds for arguments of other lengths; nothing in a loop is asked."""
    sizes = graph.sizes
    if sizes is None or is_inside:
        return lambda values: True  # they are none of its business, or guards of the whole program
    sizes.close()
    return checker(sizes)


class _Arranger:
    """Schedules steps of `graph` and plans their memory; steps that run again share a kernel."""

    def __init__(
        self,
        graph: Graph,
        kernels: Mapping[Graph, Kernel | None],
        updates: Mapping[int, int],
        backend: Backend | None,
        parts: bool,  # may a value be written into a larger one? The search for less memory takes them apart.
    ) -> None:
        self.graph, self.kernels, self.updates, self.backend = graph, kernels, updates, backend
        self.writer = backend if parts else None
        self.updated = {graph.outputs[o]: graph.inputs[i] for o, i in updates.items()}

    def __call__(self, steps: Sequence[Step]) -> Arrangement:
        kernels = [self.kernels[step.graph] for step in steps]
        calls = schedule(steps, kernels, self.updated, self.backend)
        plan = plan_memory(self.graph, calls, self.updates, self.writer)
        return Arrangement(self.graph, tuple(steps), calls, plan)


def _verify(graph: Graph) -> None:
    if config.VERIFY.on():
        passes.verify(graph)


@resting()
def _simplify(graph: Graph, options: Options) -> Graph:
    skipped = set()
    if options.fuse_dimshuffle is False:
        skipped.add(passes.hoist_transposes)
    if not options.fast_math:
        skipped.add(passes.finite_identities)
    return passes.simplify(graph, options.opt_level, frozenset(skipped))


def backend_for(graph: Graph, options: Options) -> Backend | None:
    """Return the backend that compiles `graph`; None where nothing is fused."""
    nodes = (*graph.outputs, *graph.inputs)
    kind = device_type(nodes[0].spec.device if nodes else "xpux:0")
    found = plugins.choose_backend(kind, options.backend) if options.fuses else None
    if found is not None and kind == "cpu":
        plugins.warn_of_none(found, options.backend)
    if options.launch_graph and (found is None or not found.traits.launch_graphs):
        named = f"opt_level={options.opt_level}" if found is None else f"backend {found.name!r}"
        raise UnsupportedError(
            f"cuda_graph=True: {named} makes no graph of launches on the {kind}; leave cuda_graph out, or "
            "take opt_level=3, Tensors on a GPU and a backend for GPUs: `python -m mgb backends` lists them"
        )
    return found


def _allowed(options: Options) -> FusionConfig:
    at_3 = options.opt_level >= 3
    return FusionConfig(
        reduce=at_3 if options.fuse_reduce is None else options.fuse_reduce,
        dimshuffle=at_3 if options.fuse_dimshuffle is None else options.fuse_dimshuffle,
    )


@resting()
def _duplicate(graph: Graph, backend: Backend | None, options: Options) -> Graph:
    if backend is None or backend.traits.scope is Scope.GRAPH:  # of all that it takes, nothing waits
        return graph
    graph = recurrences(graph, backend.traits)
    graph = vector_products(graph, backend.traits, _allowed(options))
    graph = looked_up(graph, backend.traits, _allowed(options))
    graph = marked(graph, backend.traits, _allowed(options))
    graph = folded_into(graph, backend.traits, _allowed(options))
    graph = rows_apart(graph, backend.traits, _allowed(options))
    graph = split(graph, backend.traits, _allowed(options))
    graph = taken_apart(place_extents(graph), backend.traits, _allowed(options))
    graph = flat_draws(graph, backend.traits, _allowed(options))
    graph = copied(graph, backend.traits, _allowed(options))
    return duplicate(graph, backend.traits, _allowed(options))


@resting()
def _steps(graph: Graph, backend: Backend | None, options: Options) -> tuple[Step, ...]:
    if backend is None:
        return with_results(_one_by_one(graph, f"opt_level is {options.opt_level}"))
    groups = recompute(graph, detect(graph, backend.traits, _allowed(options)), backend.traits)
    found = turn_short_rows(graph, groups, backend.traits)
    if options.memory is None:
        found = write_repeats(found, backend.traits)
    found = in_rows(found, backend.traits)
    return with_results(tuple(_given_to(backend, s, options) if s.fused else s for s in found))


def _given_to(backend: Backend, step: Step, options: Options) -> Step:
    """Return a group that `backend` compiles.

    With fast math 16-bit floats keep the digits of float32 in it.
    """
    graph = passes.widen(step.graph, rounds=False) if options.fast_math else step.graph
    return replace(step, graph=graph, backend=backend.name)


def _one_by_one(graph: Graph, reason: str) -> tuple[Step, ...]:
    kept = frozenset(graph.outputs)
    return tuple(make_step([n], [n], False, reason) for n in graph.nodes if not is_copied(n) or n in kept)


def _replacements(
    graph: Graph,
    steps: Sequence[Step],
    backend: Backend | None,
    options: Options,
    updates: Mapping[int, int],
) -> Mapping[Graph, Pairs]:
    """Return the replacements by step; none unless kernels of the backend hand over their memory."""
    if backend is None or not backend.traits.hands_over or options.memory is not None:
        return {}
    return replacements(graph, steps, updates)


def _kernels(
    steps: Sequence[Step], backend: Backend | None, replaces: Mapping[Graph, Pairs]
) -> dict[Graph, Kernel | None]:
    return {step.graph: _kernel(step, backend, replaces.get(step.graph, ())) for step in steps}


def _loops(steps: Sequence[Step], options: Options) -> dict[Graph, Kernel | None]:
    """Return the kernels of loops: what they repeat goes the same way as everything."""
    inside = replace(options, memory=None, profiling=False, launch_graph=None)
    return {
        step.graph: loop_kernel(
            step.graph, [compile_program(g, inside, into=True) for g in graphs_in(step.graph)]
        )
        for step in steps
        if is_loop(step)
    }


def _is_resizable(graph: Graph, options: Options) -> bool:
    """Return whether one program may serve other lengths: not if kernels or reports are about these."""
    if options.memory is not None or options.profiling:
        return False
    backend = backend_for(graph, options)
    return backend is None or backend.traits.specialize is not Specialize.SHAPE


def _kernel(step: Step, backend: Backend | None, replaces: Pairs) -> Kernel | None:
    if not step.fused:
        return None
    assert backend is not None
    try:
        return kernel_for(step.graph, backend, replaces)
    except CompileError as error:
        places = dict.fromkeys(n.source for n in step.graph.nodes if n.source)
        raise CompileError(f"{error}\n  compiled for: {', '.join(places)}") from error.__cause__
