"""The peers: how each takes arrays, compiles a function, says that it is done, and gives values back."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arrays import Array, Arrays
from .case import Stateful


class Peer:
    """One way to run a case; this one is NumPy, whose arrays and functions need no preparation.

    Attributes
    ----------
    name : str
        In tables and in ``--peers``.
    dialect : str
        Which of a case's `ways` it takes.
    requires : tuple of str
        Distributions, each also the name of the module that it brings.
    """

    name = "numpy"
    dialect = "numpy"
    requires: tuple[str, ...] = ("numpy",)

    def probe(self) -> str | None:
        """Return None when it can run here, else why not and what to type."""
        absent = [name for name in self.requires if importlib.util.find_spec(name) is None]
        return f"not installed: pip install {' '.join(absent)}" if absent else None

    @property
    def version(self) -> str:
        """The versions of what it requires."""
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in self.requires)

    def put(self, array: Array) -> Any:
        """Return the array as the peer wants it; memory may be shared, inputs are only read."""
        return array

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function in its fastest form; compiling may happen in its first call."""
        return function

    def ready(self, value: Any) -> Any:
        """Wait until `value` (a value or a tuple of them) is computed, and return it."""
        return value

    def get(self, value: Any) -> Any:
        """Return `value`, or each of a tuple, as NumPy arrays."""
        return tuple(map(self.get, value)) if isinstance(value, tuple | list) else self._array(value)

    def _array(self, value: Any) -> Array:
        return np.asarray(value)

    def prepare(self, way: Any, arrays: Arrays) -> Callable[[], Any]:
        """Return the call that is timed: it runs `way` on these inputs to its end and returns its value."""
        if isinstance(way, Stateful):
            return way.build(self, arrays)
        function, ready = self.compile(way), self.ready
        values = [self.put(array) for array in arrays]
        if type(self).ready is Peer.ready:  # nothing to wait for: nothing to pay
            return functools.partial(function, *values)
        return lambda: ready(function(*values))


class Numexpr(Peer):
    """numexpr, into a ready `out`."""

    name = dialect = "numexpr"
    requires = ("numexpr",)


@dataclass(frozen=True)
class Loop:
    """A way for Numba: `function(*outputs, *inputs)` is a loop; `outputs(*inputs)` makes arrays to fill."""

    function: Callable[..., Any]
    outputs: Callable[..., Sequence[Array]]
    parallel: bool = True


class Numba(Peer):
    """Loops written by hand, over all cores, into ready outputs."""

    name = dialect = "numba"
    requires = ("numba",)
    fastmath = False

    def loop(self, function: Callable[..., Any], parallel: bool) -> Callable[..., Any]:
        """Compile one loop; a small one is quicker on one core."""
        import numba

        compile_ = numba.njit(parallel=parallel, fastmath=self.fastmath, error_model="numpy")
        compiled: Callable[..., Any] = compile_(function)
        return compiled

    def compile(self, function: Any) -> Callable[..., Any]:
        loop = self.loop(function.function, function.parallel)
        made: list[Sequence[Array]] = []

        def call(*arrays: Array) -> Any:
            if not made:
                made.append(tuple(function.outputs(*arrays)))
            loop(*made[0], *arrays)
            return made[0]

        return call


class NumbaFastmath(Numba):
    """The same loops with leave to reorder and to ignore NaN, which mgb does not take."""

    name = "numba_fastmath"
    fastmath = True


class Jax(Peer):
    """`jax.jit` on the CPU."""

    name = dialect = "jax"
    requires = ("jax", "jaxlib")

    def put(self, array: Array) -> Any:
        import jax

        return jax.block_until_ready(jax.device_put(array))

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import jax

        return jax.jit(function)

    def ready(self, value: Any) -> Any:
        for part in value if isinstance(value, tuple | list) else (value,):
            part.block_until_ready()  # the function over trees costs a small call more than its work
        return value


class Torch(Peer):
    """PyTorch, op by op."""

    name = dialect = "torch"
    requires = ("torch",)

    def put(self, array: Array) -> Any:
        import torch

        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        return torch.no_grad()(self.jit(function))

    def jit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as `compile` would have it, but with gradients."""
        return function

    def _array(self, value: Any) -> Array:
        value = value.detach()
        return (
            value.float().numpy()
            if value.element_size() == 2 and value.is_floating_point()
            else value.numpy()
        )


class TorchCompile(Torch):
    """`torch.compile`, for the one shape that is timed; it calls a C++ compiler."""

    name = "torch_compile"

    def probe(self) -> str | None:
        if not any(map(shutil.which, ("g++", "clang++", "c++"))):
            return "needs a C++ compiler: apt install g++"
        return super().probe()

    def jit(self, function: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        torch._dynamo.reset()
        compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
        return compiled


class TorchForeach(Torch):
    """PyTorch's optimizers that go through all tensors op by op; `torch` itself stands for the fused ones."""

    name = dialect = "torch_foreach"


class Halide(Peer):
    """A way gives ``schedule(*buffers) -> call``: a pipeline scheduled by hand and compiled once."""

    name = dialect = "halide"
    requires = ("halide",)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        calls: list[Callable[[], Any]] = []

        def call(*arrays: Array) -> Any:
            if not calls:
                calls.append(function(*arrays))
            return calls[0]()

        return call


class Mgb(Peer):
    """mgb with one backend, as users write it: ``@trace(without_host=True)``.

    Parameters
    ----------
    backend : str
        Its name.
    without_host : bool
        False: the Python body runs in each call.
    """

    dialect = "mgb"
    requires = ("mgb",)

    def __init__(self, backend: str, without_host: bool = True) -> None:
        self.backend = backend.lower()
        self.without_host = without_host
        self.name = f"mgb:{self.backend}" + ("" if without_host else " replay")

    def probe(self) -> str | None:
        from mgb.backends.plugins import status

        found = {entry.name: entry for entry in status()}
        if self.backend not in found:
            return f"no backend of this name is installed; there are {', '.join(found)}"
        if found[self.backend].problem:
            return found[self.backend].problem
        if "cpu" not in found[self.backend].devices:
            return f"takes arrays of a GPU alone: mgb bench --suite gpu --backend {self.backend}"
        return None

    def put(self, array: Array) -> Any:
        import mgb

        return mgb.tensor(array)

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self.trace(function)

    def trace(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """Return `mgb.jit.trace` with this peer's backend; `options` go to it."""
        from mgb.jit import trace

        options = {"run_body": not self.without_host, **options}
        traced: Callable[..., Any] = trace(function, backend=self.backend, **options)
        return traced

    def _array(self, value: Any) -> Array:
        array: Array = value.numpy()
        return array


#: Every peer but mgb itself, in the order of the tables.
PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(),
        Numexpr(),
        Numba(),
        NumbaFastmath(),
        Jax(),
        Torch(),
        TorchForeach(),
        TorchCompile(),
        Halide(),
    )
}


def default_backends() -> list[str]:
    """Return the backends that ``MGB_JIT_BACKEND`` names, or the one that mgb would choose for the CPU."""
    named = [name.strip() for name in os.environ.get("MGB_JIT_BACKEND", "").split(",") if name.strip()]
    if named:
        return named
    from mgb.backends.plugins import status

    runs = [entry for entry in status() if not entry.problem and "cpu" in entry.devices]
    return [max(runs, key=lambda entry: entry.priority).name]


def choose(backends: Sequence[str], peers: Sequence[str]) -> tuple[dict[str, Peer], dict[str, str]]:
    """Return the peers that can run here, mgb first, and for the others the reason.

    Parameters
    ----------
    backends : sequence of str
        Of mgb; none means `default_backends`.
    peers : sequence of str
        Names in `PEERS`; none means all.

    Returns
    -------
    pair of dict
        name -> Peer, and name -> why it is missing.

    Raises
    ------
    KeyError
        A name is not in `PEERS`.
    """
    wanted: list[Peer] = [Mgb(name) for name in backends or default_backends()]
    wanted += [PEERS[name] for name in peers or PEERS]
    reasons = {peer.name: peer.probe() for peer in wanted}
    here = {peer.name: peer for peer in wanted if reasons[peer.name] is None}
    return here, {name: reason for name, reason in reasons.items() if reason is not None}
