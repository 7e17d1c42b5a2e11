"""Executables: made by XLA, saved as bytes, loaded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mgb.backend import Kernel
from mgb.ir import Graph

from .client import load_jax, sharding, wide
from .launch import Launcher
from .program import Program, sorted_pairs

#: XLA drops a cast to a narrower dtype and back, unless it is told that somebody meant it.
OPTIONS = {"xla_allow_excess_precision": False}


@dataclass(frozen=True)
class Unit:
    """What a kernel keeps: its program, and the executable."""

    program: Program
    compiled: Any = field(repr=False)


def compiled(graph: Graph, replaces: Sequence[Sequence[int]]) -> Kernel:
    """The kernel of `graph`, made now."""
    jax = load_jax()
    program = Program(graph, sorted_pairs(replaces))
    types = [*((n.spec.shape, n.spec.dtype) for n in graph.inputs), ((), np.dtype(np.int32))]
    with wide():
        specs = [jax.ShapeDtypeStruct(*kind, sharding=sharding()) for kind in types]
        function = jax.jit(program, donate_argnums=program.donated, keep_unused=bool(program.donated),
                           out_shardings=sharding())  # fmt: skip
        lowered = function.lower(*specs)
        executable = lowered.compile(compiler_options=OPTIONS)
    return _kernel(program, executable)


def saved(kernel: Kernel) -> bytes:
    """The executable of `kernel` as bytes."""
    from jax.experimental import serialize_executable

    payload: bytes = serialize_executable.serialize(kernel.state.compiled)[0]
    return payload


def loaded(graph: Graph, replaces: Sequence[Sequence[int]], payload: bytes) -> Kernel:
    """The kernel that `saved` wrote."""
    jax = load_jax()
    from jax.experimental import serialize_executable

    program = Program(graph, sorted_pairs(replaces))
    leaves = jax.tree_util.tree_structure
    ends = (
        leaves(((0,) * (len(graph.inputs) + 1), {})),
        leaves((0,) * (len(program.results) + program.checks)),
    )
    with wide():
        executable = serialize_executable.deserialize_and_load(payload, *ends, backend="cpu")
    return _kernel(program, executable)


def _kernel(program: Program, executable: Any) -> Kernel:
    launcher = Launcher(program, executable)
    return Kernel(
        launcher.run, executable.as_text(), Unit(program, executable), launcher.results, program.replaces
    )
