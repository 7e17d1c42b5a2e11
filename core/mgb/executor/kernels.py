"""From a fusion group to its kernel: compiled once, found again in memory or on disk."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import astuple, dataclass
from functools import cache as once
from pathlib import Path
from typing import Any

from .. import codegen, ops, passes
from ..backends import API_VERSION, Backend, Kernel, Specialize, plugins
from ..backends.answers import answer, check_kernel
from ..codegen import structure_key
from ..errors import CompileError, ForkedProcessError, MeshError
from ..ir import Graph
from ..ir.graph import digest
from ..runtime import cache, config, forking
from .options import Options
from .resized import plain_graph

_log = logging.getLogger("mgb.backend")

#: Numbers of outputs, each with that of the input whose memory it may take.
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Stats:
    """Where the kernels of this process came from.

    Attributes
    ----------
    compiles, memory_hits, disk_hits : int
    seconds : float
        Spent in backends, compiling.
    """

    compiles: int = 0
    memory_hits: int = 0
    disk_hits: int = 0
    seconds: float = 0.0

    def __add__(self, other: Stats) -> Stats:
        return Stats(
            self.compiles + other.compiles,
            self.memory_hits + other.memory_hits,
            self.disk_hits + other.disk_hits,
            self.seconds + other.seconds,
        )


class Counted:
    """The statistics that a ``with counting()`` collects, in `total`."""

    def __init__(self) -> None:
        self.total = Stats()


#: Kernels are found under the group as it was cut and under their key. Groups, and kernels of backends that
#: compile for one shape, are new with each shape that a program ever sees.
_MOST = 4096

_lock = forking.lock()
_counting = forking.lock()
_kernels: dict[tuple[Backend, str], Kernel] = {}  # the newest; a program keeps its own
_busy: dict[tuple[Backend, str], Any] = {}
_stats = Stats()
_counted: ContextVar[Counted | None] = ContextVar("mgb_counted_kernels", default=None)


def stats() -> Stats:
    """Return the counts so far."""
    return _stats


@contextmanager
def counting() -> Iterator[Counted]:
    """Count how kernels are come by in this context: for one function among many."""
    counted = Counted()
    token = _counted.set(counted)
    try:
        yield counted
    finally:
        _counted.reset(token)


def kernel_for(graph: Graph, backend: Backend, replaces: Pairs = ()) -> Kernel:
    """Return the kernel of a fusion group.

    Parameters
    ----------
    graph : Graph
        As the fusion detector cut it; it is lowered here.
    backend : Backend
        Who compiles it.
    replaces : tuple of (int, int)
        As `plan.replacements` gives them.

    Returns
    -------
    Kernel
        The same object for equal graphs, or graphs of equal structure where the backend serves all sizes.

    Raises
    ------
    CompileError
        The backend failed; the message has its name, its error and the graph.
    BackendContractError
        It did not return a `Kernel`.
    ForkedProcessError
        This is a child of a process whose threads are wanted.
    """
    if graph.sizes is not None:  # its key says nothing: what is decided in lowering it are guards
        lowered = passes.lower(graph, backend.traits)
        if backend.traits.specialize is Specialize.SIZES:
            return _compile(lowered, backend, replaces)
        key = (backend, kernel_key(lowered, backend, replaces))
        return _found(plain_graph(lowered), key, key, replaces)
    asked = (
        backend,
        f"{answer(backend, 'version', str)} {graph.key} {replaces or ''}",
    )  # layers that are alike need not be lowered each
    kernel = _kernels.get(asked)
    if kernel is not None:
        _count(memory_hits=1)
        return kernel
    graph = passes.lower(graph, backend.traits)
    return _found(graph, (backend, kernel_key(graph, backend, replaces)), asked, replaces)


def _found(graph: Graph, key: tuple[Backend, str], asked: tuple[Backend, str], replaces: Pairs) -> Kernel:
    """Return the kernel of a lowered graph with this `key`, kept as what was `asked` for too."""
    with _lock:
        kernel = _kernels.get(key)
        if kernel is not None:
            _count(memory_hits=1)
            _kernels[asked] = kernel
            return kernel
        busy = _busy.setdefault(key, forking.lock())
    with busy:
        try:
            kernel = _kernels.get(key)
            if kernel is None:
                kernel = _load_or_compile(graph, *key, replaces)
            else:
                _count(memory_hits=1)
            _keep(kernel, asked, key)
        finally:
            _busy.pop(key, None)
    return kernel


def _keep(kernel: Kernel, *keys: tuple[Backend, str]) -> None:
    with _lock:
        for key in keys:
            _kernels[key] = kernel
        while len(_kernels) > _MOST:
            del _kernels[next(iter(_kernels))]


def kernel_key(graph: Graph, backend: Backend, replaces: Pairs = ()) -> str:
    """Return the cache key of a kernel: backend, its version, and everything that it specializes for.

    Processor, flags, toolchain and the backend's own sources are in ``backend.version()``.
    """
    exact = backend.traits.specialize in (Specialize.SHAPE, Specialize.SIZES)
    what = (graph.key if exact else structure_key(graph)) + str(replaces or "")
    who = (backend.name, answer(backend, "version", str), str(API_VERSION), backend.traits.specialize.value,
           sources(*_PRINTING))  # fmt: skip
    return hashlib.sha256("\n".join((*who, what)).encode()).hexdigest()


def program_key(
    graph: Graph, backend: Backend | None, options: Options, updates: Mapping[int, int]
) -> str | None:
    """Return the cache key of the steps of a program; None where they depend on more, or are few."""
    own = all(node.op.infer.__module__.startswith("mgb.") for node in graph.nodes)
    if backend is None or backend.traits.hands_over or not own or options.memory is not None:
        return None
    if len(graph.nodes) < _LEAST or graph.sizes is not None or config.VERIFY.on() or not config.CACHE.on():
        return None
    places = [f"{node.spec.device} {node.source}" for node in (*graph.inputs, *graph.nodes)]
    traits = [sorted(map(str, v)) if isinstance(v, frozenset) else v for v in astuple(backend.traits)]
    who = [backend.name, answer(backend, "version", str), repr(traits), sources(*_DECIDING)]
    what = [graph.key, *places, repr(options), repr(sorted(updates.items()))]
    return digest("\n".join([*who, *what]).encode())


#: Nodes of the smallest graph whose steps are kept.
_LEAST = 24

#: What decides the steps.
_ROOMS = ("backends", "codegen", "executor", "fusion", "ir", "loops", "ops", "passes", "tensor")
_DECIDING = [Path(ops.__path__[0]).with_name(room) for room in _ROOMS]

#: What backends print with.
_PRINTING = tuple(Path(package.__path__[0]) for package in (codegen, ops))


def sources(*folders: Path) -> str:
    """Return a digest of the Python sources in `folders`: kernels that others printed are compiled again."""
    return " ".join(map(_sources, folders))


@once
def _sources(folder: Path) -> str:
    files = sorted(folder.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file())).hexdigest()


def forget() -> None:
    """Drop every kernel from memory; those on disk stay."""
    global _stats
    with _lock:
        _kernels.clear()
        _stats = Stats()


def _load_or_compile(graph: Graph, backend: Backend, key: str, replaces: Pairs) -> Kernel:
    kernel = _load(graph, backend, key, replaces)
    if kernel is not None:
        return kernel
    with cache.lock(backend.name, key) as alone:
        kernel = _load(graph, backend, key, replaces)  # another process may have been faster
        if kernel is not None:
            return kernel
        kernel = _compile(graph, backend, replaces)
        blob = saved(kernel, backend) if alone else None
        if blob is not None:
            cache.store(backend.name, key, blob)
    return kernel


def saved(kernel: Kernel, backend: Backend) -> bytes | None:
    """Serialize `kernel` by its `backend`; None if it cannot: the logger ``mgb.backend`` has the reason.

    A kernel that cannot be kept can be run all the same.
    """
    try:
        blob = backend.save(kernel)
        return None if blob is None else bytes(memoryview(blob))
    except Exception as error:
        _log.warning(
            "a kernel of backend %r runs, but cannot be kept and will be compiled again: %s: %s",
            backend.name,
            type(error).__name__,
            error,
        )
        return None


def _load(graph: Graph, backend: Backend, key: str, replaces: Pairs) -> Kernel | None:
    blob = cache.load(backend.name, key)
    if blob is None:
        return None
    try:
        with forking.undivided(_work_of(backend)):
            kernel = backend.load(graph, blob)
    except ForkedProcessError:
        raise
    except Exception:  # the backend's way to say: compile again
        return None
    check_kernel(backend, "load", kernel, (len(graph.inputs), len(graph.outputs)), replaces)
    _count(disk_hits=1)
    return kernel


def _compile(graph: Graph, backend: Backend, replaces: Pairs) -> Kernel:
    start = time.perf_counter()
    try:
        with forking.undivided(_work_of(backend)):
            kernel = backend.compile_over(graph, replaces) if replaces else backend.compile(graph)
    except (ForkedProcessError, MeshError, MemoryError):
        raise
    except Exception as error:
        raise CompileError(
            f"backend {backend.name!r} failed to compile a graph that its traits accept: "
            f"{type(error).__name__}: {error}\n{graph}"
        ) from error
    seconds = time.perf_counter() - start
    method = "compile_over" if replaces else "compile"
    check_kernel(backend, method, kernel, (len(graph.inputs), len(graph.outputs)), replaces)
    _count(compiles=1, seconds=seconds)
    plugins.manager.hook.mgb_compiled(backend=backend, graph=graph, kernel=kernel, seconds=seconds)
    return kernel


def _work_of(backend: Backend) -> str:
    return f"the compiler of backend {backend.name!r}"


def _count(**more: Any) -> None:
    """Add to the counts."""
    global _stats
    added = Stats(**more)
    with _counting:
        _stats = _stats + added
    counted = _counted.get()
    if counted is not None:
        counted.total = counted.total + added
