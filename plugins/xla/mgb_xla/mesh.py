"""One program on all devices of a mesh: how it is compiled, and how it is called.

Each device runs the program with its own rank, under `jax.shard_map`. What goes in and out is the same on all
of them. A batch that the program takes only its rows of goes to each device in parts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from mgb.backends import Kernel, MeshError, adopter
from mgb.ir import Graph, Node

from .client import load_jax, settings
from .exchanges import AXIS, anywhere
from .program import Program
from .shapes import Value

_PREFIX = "mesh:"


def mesh_size(graph: Graph) -> int:
    """Return how many devices exchange values in `graph`; 0: it is a program of one.

    Raises
    ------
    MeshError
        Meshes of several sizes, or what leaves the program is each device's own.
    """
    sizes = {int(n.params["group"].removeprefix(_PREFIX)) for n in graph.nodes if n.op.over_mesh}
    if len(sizes) > 1:
        raise MeshError(
            f"one program has meshes of different sizes, {', '.join(map(str, sorted(sizes)))} devices: use "
            "one size"
        )
    if own := [n for n in graph.outputs if n in graph.own]:
        raise MeshError(
            f"{own[0]!r} at {own[0].source or 'no known line'} is each device's own, and leaves the program: "
            "XLA does not take all of the function, see its explain()"
        )
    return next(iter(sizes), 0)


def mesh_of(size: int) -> Any:
    """Return the first so many CPUs of this process, or all CPUs of a job of `jax.distributed`."""
    jax = load_jax()
    devices = jax.devices("cpu")
    if size > len(devices):
        raise MeshError(
            f"a mesh of {size} devices needs more than the {len(devices)} that JAX has: before JAX is first "
            "used, set "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={size}, or start {size} processes with "
            "jax.distributed.initialize"
        )
    if jax.process_count() > 1 and size < len(devices):
        raise MeshError(f"a mesh must have all {len(devices)} devices of the job, got {size}")
    return _mesh(size)


@cache
def _mesh(size: int) -> Any:
    jax = load_jax()
    return jax.sharding.Mesh(np.array(jax.devices("cpu")[:size]), (AXIS,))


def compiled(graph: Graph, options: dict[str, Any], size: int) -> Kernel:
    """Return the kernel of `graph`, made now. It is not kept on disk: it belongs to these devices."""
    jax, mesh, program = load_jax(), mesh_of(size), Program(graph, ())
    whole, cut = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec(AXIS)
    parts = [cut if _is_cut(graph, n) else whole for n in graph.inputs]
    shardings = [jax.sharding.NamedSharding(mesh, part) for part in (*parts, whole)]
    types = [*((n.spec.shape, n.spec.dtype) for n in graph.inputs), ((), np.dtype(np.int32))]

    def run(*arguments: Value) -> tuple[Value, ...]:
        values = program(*arguments)
        return (*values[:-1], anywhere(values[-1])) if program.checks else values

    function = jax.shard_map(run, mesh=mesh, in_specs=(*parts, whole), out_specs=whole, check_vma=False)
    with settings():
        specs = [jax.ShapeDtypeStruct(*kind, sharding=s) for kind, s in zip(types, shardings, strict=True)]
        lowered = jax.jit(function, keep_unused=True, out_shardings=shardings[-1]).lower(*specs)
        executable = lowered.compile(compiler_options=options)
    launcher = MeshLauncher(program, executable, shardings)
    return Kernel(launcher.run, executable.as_text(), None, launcher.results)


def _is_cut(graph: Graph, node: Node) -> bool:
    """Return whether a part of it is all that each device reads."""
    readers = graph.readers[node]
    cuts = [n.op.name == "mesh_part" and n.params["axis"] == 0 for n in readers]
    return bool(cuts) and all(cuts) and node not in graph.outputs


class MeshLauncher:
    """The function of a kernel.

    An array that a call has given is, for the next call, the array of JAX's that lies on all devices. Nobody
    may write on the one of them that NumPy sees.
    """

    def __init__(self, program: Program, compiled: Any, shardings: list[Any]) -> None:
        self._program, self._compiled, self._shardings = program, compiled, shardings
        self._one = _placed(np.asarray(1, np.int32), shardings[-1])
        self._wrap = [adopter(n.spec.shape, n.spec.dtype) for n in program.results]
        self._places = {node: k for k, node in enumerate(program.results)}

    def run(self, *arrays: Any, out: tuple[Any, ...]) -> None:
        """Fill `out`."""
        for target, value in zip(out, self.results(*arrays), strict=True):
            target[...] = value

    def results(self, *arrays: Any, spare: tuple[bool, ...] = ()) -> tuple[Any, ...]:
        """Return the results, as `mgb.backends.Kernel.results`."""
        with settings():
            given = [_placed(a, s) for a, s in zip(arrays, self._shardings, strict=False)]
            found = self._compiled(*given, self._one)
            for value in found:
                value.block_until_ready()
        if self._program.checks and np.asarray(found[-1].addressable_data(0)):
            raise IndexError("an index is out of range on a device of the mesh")
        values = [self._wrapped(k, value) for k, value in enumerate(found[: len(self._wrap)])]
        return tuple(self._of(node, arrays, values) for node in self._program.graph.outputs)

    def _of(self, node: Node, arrays: Any, values: list[Any]) -> Any:
        if node in self._places:
            return values[self._places[node]]
        return np.array(arrays[self._program.graph.inputs.index(node)])

    def _wrapped(self, k: int, value: Any) -> Any:
        here = value.addressable_data(0)
        array = self._wrap[k](here.unsafe_buffer_pointer(), here)
        array.base.everywhere = value
        array.flags.writeable = False
        return array


def _placed(array: Any, sharding: Any) -> Any:
    """Return `array` on the devices: that which a call has given is there already."""
    found = getattr(array.base, "everywhere", None)
    if found is not None and found.shape == array.shape and found.sharding == sharding:
        return found
    jax = load_jax()
    if jax.process_count() > 1:
        return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
    return jax.device_put(array, sharding)
