"""Executables: made by XLA, saved as bytes, loaded again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mgb.backends import Kernel
from mgb.ir import Graph

from . import mesh
from .client import device, load_jax, refuse_fork, settings, sharding
from .launch import Launcher
from .program import Program, sorted_pairs

#: XLA drops a cast to a narrower dtype and back, unless it is told that somebody meant it.
OPTIONS = {"xla_allow_excess_precision": False}

#: How the object files in an executable begin.
MACHINE_CODE = b"\x7fELF"


@dataclass(frozen=True)
class Unit:
    """The state of a kernel: its program, the executable, and the bytes that it was loaded from."""

    program: Program
    compiled: Any = field(repr=False)
    payload: bytes | None = field(default=None, repr=False)


def compiled(graph: Graph, replaces: Sequence[Sequence[int]]) -> Kernel:
    """Return the kernel of `graph`, made now."""
    refuse_fork()
    if size := mesh.mesh_size(graph):
        return mesh.compiled(graph, OPTIONS, size)
    jax = load_jax()
    program = Program(graph, sorted_pairs(replaces))
    types = [*((n.spec.shape, n.spec.dtype) for n in graph.inputs), ((), np.dtype(np.int32))]
    with settings():
        specs = [jax.ShapeDtypeStruct(*kind, sharding=sharding()) for kind in types]
        function = jax.jit(program, donate_argnums=program.donated, keep_unused=bool(program.donated),
                           out_shardings=sharding())  # fmt: skip
        lowered = function.lower(*specs)
        executable = lowered.compile(compiler_options=OPTIONS)
    return _kernel(program, executable)


def saved(kernel: Kernel) -> bytes | None:
    """Return the executable of `kernel` as bytes; None where XLA cannot write it whole.

    XLA writes an executable that was itself loaded without its machine code, and what is read from that fails
    at its first call. So a loaded kernel keeps the bytes that it came from; and what JAX has found in a cache
    of its own, which the user may have turned on, is not kept here. Some orders cannot be written at all.
    """
    unit: Unit | None = kernel.state
    if unit is None:  # of a mesh
        return None
    if unit.payload is not None:
        return unit.payload
    from jax.experimental import serialize_executable

    try:
        payload: bytes = serialize_executable.serialize(unit.compiled)[0]
    except Exception:  # whatever JAX and XLA raise: the kernel is not kept, and works all the same
        return None
    return payload if MACHINE_CODE in payload else None


def loaded(graph: Graph, replaces: Sequence[Sequence[int]], payload: bytes) -> Kernel:
    """Return the kernel that `saved` wrote."""
    refuse_fork()
    program = Program(graph, sorted_pairs(replaces))
    return _kernel(program, _executable(program, payload), payload)


def _executable(program: Program, payload: bytes) -> Any:
    jax = load_jax()
    from jax.experimental import serialize_executable

    leaves = jax.tree_util.tree_structure
    ends = (
        leaves(((0,) * (len(program.graph.inputs) + 1), {})),
        leaves((0,) * (len(program.results) + program.checks)),
    )
    with settings():
        return serialize_executable.deserialize_and_load(
            payload, *ends, backend="cpu", execution_devices=[device()]
        )


def _kernel(program: Program, executable: Any, payload: bytes | None = None) -> Kernel:
    launcher = Launcher(program, executable)
    unit = Unit(program, executable, payload)
    return Kernel(launcher.run, executable.as_text(), unit, launcher.results, program.replaces)
