"""The contestants of the suite for GPUs: backends of mgb under their own names, and their peers."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .gpu_cases import Case, Words


@dataclass(frozen=True)
class Way:
    """One way to run one case.

    Attributes
    ----------
    call : callable
        What is timed.
    get : callable
        Makes NumPy's array of its result.
    wait : callable
        Called with the last of several results that are timed together: for who works on a stream of its own.
    """

    call: Callable[[], Any]
    get: Callable[[Any], Any]
    wait: Callable[[Any], Any] = lambda result: None


@dataclass(frozen=True)
class Contestant:
    """One way to run every case.

    Attributes
    ----------
    name : str
    missing : callable
        Why it cannot run here, with what mends it; None when it can.
    build : callable
        ``build(case, arrays) -> Way``.
    """

    name: str
    missing: Callable[[], str | None]
    build: Callable[[Case, Sequence[Any]], Way]


class AnotherBackendError(RuntimeError):
    """Another backend ran than the one that was to be timed."""


def mgb(backend: str) -> Contestant:
    """Return one backend of mgb, which runs under its own name or not at all."""
    backend = backend.lower()

    def missing() -> str | None:
        from mgb.backends.plugins import status

        found = {entry.name: entry for entry in status()}
        if backend not in found:
            return f"no backend of this name is installed; there are {', '.join(found)}"
        if found[backend].problem:
            return found[backend].problem
        return None if "gpu" in found[backend].devices else "this backend takes no arrays of a GPU"

    def build(case: Case, arrays: Sequence[Any]) -> Way:
        import mgb
        import mgb.functional as F
        from mgb.jit import trace

        words = Words(F)
        inputs = case.views(words, [mgb.tensor(a, device="gpu0") for a in arrays])
        compiled = trace(lambda *xs: case.rule(words, *xs), without_host=True, backend=backend)
        for _ in range(2):  # the first call records
            compiled(*inputs)
        if compiled.backend != backend:
            raise AnotherBackendError(f"{compiled.backend or 'nothing compiled'} ran, not {backend}")
        return Way(lambda: compiled(*inputs), lambda t: t.numpy())

    return Contestant(f"mgb {backend}", missing, build)


def needs(*modules: str) -> str | None:
    """Return which of them are not installed, with what brings them."""
    absent = [n for n in modules if importlib.util.find_spec(n) is None]
    return f"not installed: pip install {' '.join(absent)}" if absent else None


def cupy(fused: bool) -> Contestant:
    """Run CuPy, op by op or by ``cupy.fuse``."""

    def build(case: Case, arrays: Sequence[Any]) -> Way:
        import cupy

        words = Words(cupy)
        inputs = case.views(words, [cupy.asarray(a) for a in arrays])

        def plain(*xs: Any) -> Any:
            return case.rule(words, *xs)

        function = cupy.fuse(plain) if fused else plain
        return Way(lambda: function(*inputs), cupy.asnumpy)

    return Contestant("cupy.fuse" if fused else "cupy", lambda: needs("cupy"), build)


def torch(compiled: bool) -> Contestant:
    """Run PyTorch, op by op or by ``torch.compile``, on CuPy's stream."""

    def missing() -> str | None:
        absent = needs("torch")
        if absent is not None:
            return absent
        import torch

        return (
            None if torch.cuda.is_available() else "PyTorch finds no GPU: see https://pytorch.org/get-started"
        )

    def build(case: Case, arrays: Sequence[Any]) -> Way:
        import cupy
        import torch

        words = Words(torch, "keepdim", max=lambda x: torch.amax(x, dim=-1, keepdim=True))
        inputs = case.views(words, [torch.from_numpy(a).cuda() for a in arrays])

        def plain(*xs: Any) -> Any:
            return case.rule(words, *xs)

        function = torch.compile(plain) if compiled else plain
        stream = torch.cuda.ExternalStream(cupy.cuda.get_current_stream().ptr)

        def call() -> Any:
            with torch.cuda.stream(stream):
                return function(*inputs)

        return Way(call, lambda t: t.cpu().numpy())

    return Contestant("torch.compile" if compiled else "torch", missing, build)


def jax(platform: str = "gpu") -> Contestant:
    """Run ``jax.jit``, whose stream nobody else sees: it is waited for with ``block_until_ready``."""

    def device() -> Any:
        import jax

        return jax.devices(platform)[0]

    def missing() -> str | None:
        absent = needs("jax", "jaxlib")
        if absent is not None:
            return absent
        try:
            device()
        except RuntimeError as error:
            said = str(error).splitlines()[0]
            return f"JAX finds no GPU ({said}): pip install 'jax[cuda13]' (or cuda12)"
        return None

    def build(case: Case, arrays: Sequence[Any]) -> Way:
        import jax
        import jax.numpy as jnp

        inputs = [jax.device_put(a, device()) for a in arrays]
        words = Words(jnp)
        compiled = jax.jit(lambda *xs: case.rule(words, *case.views(words, xs)))  # its arrays have no strides
        return Way(lambda: compiled(*inputs), np.asarray, lambda result: result.block_until_ready())

    return Contestant("jax", missing, build)


#: The backends of mgb that are timed when none is named, and the peers in the order of the tables.
BACKENDS = ("nvrtc", "triton")
PEERS = {peer.name: peer for peer in (torch(False), torch(True), jax(), cupy(False), cupy(True))}


def contestants(backends: Sequence[str] = (), peers: Sequence[str] = ()) -> list[Contestant]:
    """Return those that are named; all of a kind where none is.

    Raises
    ------
    ValueError
        There is no such peer.
    """
    for name in peers:
        if name not in PEERS:
            raise ValueError(f"no peer of the suite 'gpu' is called {name!r}; there are {', '.join(PEERS)}")
    return [*map(mgb, backends or BACKENDS), *(PEERS[name] for name in peers or PEERS)]
