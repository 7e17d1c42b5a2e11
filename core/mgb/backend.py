"""What a codegen backend is; with `mgb.codegen`, `mgb.ir` and `mgb.plugins`, the public backend API."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from . import config, dtypes
from .ir import Graph, Kind
from .ownership import Adopted, Seen, adopt, adopter

__all__ = [
    "ALL_DTYPES", "API_VERSION", "MOST_THREADS", "Adopted", "Backend", "Kernel", "Scope", "Seen",
    "Specialize", "Strided", "Traits", "adopt", "adopter", "num_threads",
]  # fmt: skip

#: The version of this API. A backend built for another one is refused before any of its graphs is compiled.
API_VERSION = 1


class Scope(Enum):
    """How large a group a backend takes."""

    DOMAIN = "domain"  # one loop domain: element-wise nodes and reductions over one set of its axes
    GRAPH = "graph"  # any set of nodes it accepts, connected or not


class Specialize(Enum):
    """What a kernel is compiled for; everything else is a runtime argument."""

    SHAPE = "shape"  # the exact shapes
    NDIM = "ndim"  # the number of axes, and which of them have length 1
    NONE = "none"  # nothing but ops and dtypes; the core keeps such a kernel under the key of NDIM


class Strided(Enum):
    """Which memory layouts of its inputs a kernel reads without a copy. Outputs are always row-major."""

    CONTIGUOUS = "contiguous"
    MONOTONE = "monotone"  # strides that do not grow from axis to axis; 0 is allowed
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Traits:
    """All that the core must know of a backend before it hands it a graph.

    Attributes
    ----------
    vocabulary : frozenset of str
        Ops that it prints itself, beside ``const``, ``iota`` and ``cast``, which every backend prints. What
        is not in it is spelt out by the core. The keys of the printing table, as a rule.
    kinds : frozenset of Kind
    dtypes : frozenset of str
        Dtypes it loads and stores. Arithmetic on float16 and bfloat16 is spelt in float32 by the core: a
        kernel meets them only in inputs, outputs and casts.
    devices : frozenset of str
        ``"cpu"``, ``"gpu"``.
    scope, specialize, strided
        See `Scope`, `Specialize`, `Strided`.
    joins : bool
        It has `Backend.join`: small independent groups then share a call instead of a kernel.
    launch_graphs : bool
        Its `Backend.chain` can start kernels in a row as one graph of launches.
    hands_over : bool
        Its kernels have `Kernel.results`, which are arrays of their own: the core gives them no memory.
    products : frozenset of str
        Under `Scope.DOMAIN`, the dtypes of matrices whose product may be part of a group, if `kinds` has
        `Kind.CONTRACT` and `vocabulary` has ``matmul``: see `Backend`.
    min_ops : int
        Smaller groups run eagerly.
    max_inputs : int
        More inputs than this are split over several groups.
    ieee : bool
        NaN, infinities and -0 behave; the conformance suite checks what is claimed.
    denormals : bool
        Numbers below the smallest normal one count; otherwise they may be read and written as 0.
    priority : int
        The highest available wins on a device when the user names none.
    api_version : int
        The `API_VERSION` the backend was written for.
    """

    vocabulary: frozenset[str]
    kinds: frozenset[Kind] = frozenset({Kind.ELEMENTWISE})
    dtypes: frozenset[str] = frozenset({"float32", "bool"})
    devices: frozenset[str] = frozenset({"cpu"})
    scope: Scope = Scope.DOMAIN
    specialize: Specialize = Specialize.SHAPE
    strided: Strided = Strided.CONTIGUOUS
    joins: bool = False
    launch_graphs: bool = False
    hands_over: bool = False
    products: frozenset[str] = frozenset()
    min_ops: int = 2
    max_inputs: int = 64
    ieee: bool = True
    denormals: bool = True
    priority: int = 0
    api_version: int = API_VERSION


ALL_DTYPES = frozenset(d.name for d in dtypes.DTYPES)


#: More threads than this are never used, whatever is asked for.
MOST_THREADS = 1024


def num_threads() -> int:
    """How many threads a kernel may use: ``MGB_NUM_THREADS``, or one for each core of this process."""
    if config.NUM_THREADS.get():
        return min(config.NUM_THREADS.whole(1), MOST_THREADS)
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled Graph.

    Attributes
    ----------
    run : callable
        ``run(*arrays, out) -> None``. `arrays` are the graph's inputs; `out` is a tuple of row-major
        arrays, one for each output, which it fills. An output may be the very memory of an input of the
        same shape and dtype; otherwise memory never overlaps. It may be called from several threads at once.
    source : str
        Readable text, for `explain` and tests.
    state : object
        Whatever the backend wants to keep with it, for `Backend.save`.
    results : callable, optional
        ``results(*arrays, spare) -> tuple of arrays``: the outputs in writable row-major arrays that share
        memory with nothing else; for backends that cannot be told where to write. `adopt` makes an array of
        memory that a library has allocated.
    replaces : tuple of (int, int)
        Outputs of `results`, each with the input whose memory it may take. `spare` says for each pair whether
        it may in this call: nobody looks at that input any more. Then the result may be the very array that
        was passed, with other values; should the call fail, the array must have its old ones.
    hazards : frozenset of (int, int), optional
        Inputs, each with an output of its shape and dtype, that `run` copies when both are the same memory;
        the core has others written over. None: it does not say, and what a reduction reads stays.
    """

    run: Callable[..., None]
    source: str = ""
    state: Any = field(default=None, repr=False)
    results: Callable[..., tuple[Any, ...]] | None = None
    replaces: tuple[tuple[int, int], ...] = ()
    hazards: frozenset[tuple[int, int]] | None = None


class Backend(ABC):
    """Turns graphs into kernels. Say what you accept in `traits`; you are never given anything else.

    A graph that reaches `compile` holds only ops of the vocabulary, ``const``, ``iota`` and ``cast``. Under
    `Scope.DOMAIN` its nodes are element-wise ops, leaves and reductions; all reductions fold the same set
    of axes of one domain, every shape broadcasts to that domain, and at least one node is not a leaf.

    With the trait `products`, a group may hold one ``matmul`` of two matrices instead of reductions. Then the
    domain is the shape of its result. Element-wise nodes that lead to one operand of it, and to nothing
    else, have shapes that broadcast to that operand; all others are element-wise over the domain. Outputs
    have the domain's shape. The operands of a product of 16-bit floats are casts of such to float32, and its
    result is cast to 16 bits, for that is what the user multiplied.
    """

    name: str
    traits: Traits

    def probe(self) -> str | None:
        """Why it cannot run here, with the command that mends it; None when it can. Imports no toolchain."""
        return None

    @abstractmethod
    def compile(self, graph: Graph) -> Kernel:
        """Compile `graph`.

        Under `Specialize.NDIM` the kernel must serve every graph with the same `structure_key`: sizes and
        strides come from the arrays at run time.
        """

    def compile_over(self, graph: Graph, replaces: Sequence[tuple[int, int]]) -> Kernel:
        """As `compile`, for a graph some of whose outputs replace an input: see `Kernel.replaces`.

        Asked of backends with the trait `hands_over`, which may do without it.
        """
        return self.compile(graph)

    def join(self, kernels: Sequence[Kernel]) -> Kernel | None:
        """One kernel that does what `kernels` do, so that many small ones cost one call; None: call each.

        The kernels are independent of each other, write disjoint memory, and may be the same object several
        times. Some may write in place, as `Kernel.run` allows; none reads what another one writes.

        Returns
        -------
        Kernel or None
            ``run(*inputs of the first, *inputs of the second, ..., out=(*outputs of the first, ...))``.
        """
        return None

    def chain(
        self,
        kernels: Sequence[Kernel],
        wiring: Sequence[tuple[Sequence[int], Sequence[int]]],
        varying: Sequence[int],
        launch_graph: bool | None = None,
    ) -> Callable[[Sequence[Any]], None] | None:
        """One call for kernels that run one after the other on one device; there may be one alone.

        Parameters
        ----------
        kernels : sequence of Kernel
            Each may read what those before it write.
        wiring : sequence of (sequence of int, sequence of int)
            For each kernel the places of its inputs, and of its outputs, among the arrays of a call.
        varying : sequence of int
            Which of these arrays may have other strides in another call. All others are row-major, and every
            one always has the same shape.
        launch_graph : bool or None
            Are they to be started as one graph of launches? None: where that pays. True is given to backends
            with the trait `launch_graphs` alone.

        Returns
        -------
        callable or None
            ``chain(arrays)``, which may be called from several threads at once; None: call each kernel.
        """
        return None

    def version(self) -> str:
        """Of the backend and its toolchain: part of the key of the on-disk cache."""
        return "0"

    def save(self, kernel: Kernel) -> bytes | None:
        """The compiled code as bytes for the on-disk cache; None: it cannot be kept. Errors are logged."""
        return None

    def target(self) -> str:
        """What kernels that are saved now need where they are loaded, for `mismatch`."""
        return self.version()

    def mismatch(self, target: str) -> str | None:
        """Why kernels saved for `target`, maybe on another machine, cannot run here; None when they can.

        Imports no toolchain, and does without one: files are loaded where `probe` has an objection.
        """
        here = self.target()
        return None if target == here else f"they were compiled for {target}, here is {here}"

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        """The kernel that `save` made `blob` of, maybe elsewhere; an exception means: compile again."""
        raise NotImplementedError
