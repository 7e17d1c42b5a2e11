"""The interface of a codegen backend; with `mgb.codegen`, `mgb.ir` and `mgb.plugins`, the backend API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import MeshError, VariableError
from ..ir import Graph, Kind
from ..ir.sizes import At
from ..runtime import config
from ..runtime.ownership import Adopted, Seen, adopt, adopter
from .traits import ALL_DTYPES, API_VERSION, OLDEST_API_VERSION, Scope, Specialize, Strided, Traits

__all__ = [
    "ALL_DTYPES", "API_VERSION", "MOST_THREADS", "OLDEST_API_VERSION", "Adopted", "Backend", "Kernel", "Kind",
    "MeshError", "Scope", "Seen", "Specialize", "Strided", "Traits", "Turn", "VariableError", "adopt",
    "adopter", "num_threads",
]  # fmt: skip

#: More threads than this are never used, whatever is asked for.
MOST_THREADS = 1024


def num_threads() -> int:
    """Return the number of threads for a kernel: ``MGB_NUM_THREADS``, or one for each core of the process.

    Examples
    --------
    >>> import os
    >>> 1 <= num_threads() <= max(os.cpu_count(), 1)
    True
    """
    if config.NUM_THREADS.get():
        return min(config.NUM_THREADS.whole(1), MOST_THREADS)
    return min(config.processors(), MOST_THREADS)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled Graph.

    Attributes
    ----------
    run : callable
        ``run(*arrays, out) -> None``. `arrays` are the graph's inputs; `out` is a tuple of arrays, one for
        each output, which it fills: row-major ones, but for `Traits.strided_outputs`. An output may be the
        very memory of an input of the same shape and dtype; otherwise memory never overlaps. It may be called
        from several threads at once.
    source : str or callable
        Readable text, for `explain` and tests, or what gives it: few kernels that are loaded are ever read.
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
    atomic : bool
        Whenever `run` raises, and wherever a signal interrupts it, each array of `out` is untouched or whole.
        Only such a kernel is given memory of an input to write to: what it updates is never half updated.
    at : callable, optional
        ``at(lengths) -> run``, or `results`, for other lengths than those of the graph, under
        `Specialize.SIZES`. ``lengths(value)`` is a number of the graph, or a tuple or dict that holds some,
        with the lengths that are wanted.

    Examples
    --------
    >>> def run(x, *, out):
    ...     np.negative(x, out=out[0])
    >>> kernel, y = Kernel(run, source="-x"), np.empty(2)
    >>> kernel.run(np.array([1.0, 2.0]), out=(y,))
    >>> y
    array([-1., -2.])
    """

    run: Callable[..., None]
    source: str | Callable[[], str] = ""
    state: Any = field(default=None, repr=False)
    results: Callable[..., tuple[Any, ...]] | None = None
    replaces: tuple[tuple[int, int], ...] = ()
    hazards: frozenset[tuple[int, int]] | None = None
    atomic: bool = False
    at: Callable[[At], Callable[..., Any]] | None = None

    @property
    def text(self) -> str:
        """The readable text."""
        return self.source if isinstance(self.source, str) else self.source()


@dataclass(frozen=True, eq=False, slots=True)
class Turn:
    """One operation of a loop iteration: a kernel, a copy, or a product.

    Attributes
    ----------
    kernel : Kernel or None
        Of this backend; None copies an array to another one of the same shape, or multiplies.
    arrays : tuple of tuple of arrays
        For each phase the inputs, then the outputs. Turn `t` is in phase ``t % len(arrays)``. Those of all
        phases lie alike.
    steps : tuple of int
        By how many bytes each moves from turn to turn: in turn `t` it lies ``steps[j] * (t - t % phases)``
        bytes further than that of its phase.
    is_product : bool
        The third array becomes the product of two matrices of its dtype, float32 or float64. Of the second
        and the third one the columns lie side by side. Asked of backends with the trait `repeats_products`.
    bases : tuple of int
        In a `Backend.sequence`, which has one phase and no steps: the number of the array, among those of the
        call, in whose memory each lies.

    Examples
    --------
    A copy to the next row of a stack, at each turn:

    >>> from mgb.backends import Turn
    >>> row, stack = np.ones(4, np.float32), np.zeros((3, 4), np.float32)
    >>> Turn(None, ((row, stack[0]),), (0, 16)).steps
    (0, 16)
    """

    kernel: Kernel | None
    arrays: tuple[tuple[Any, ...], ...]
    steps: tuple[int, ...]
    is_product: bool = False
    bases: tuple[int, ...] = ()


class Backend(ABC):
    """Turns graphs into kernels. Say what you accept in `traits`; you are never given anything else.

    A graph that reaches `compile` holds only ops of the vocabulary, ``const``, ``iota`` and ``cast``. Under
    `Scope.DOMAIN` its nodes are element-wise ops, leaves and reductions; all reductions fold the same set
    of axes of one domain, every shape broadcasts to that domain, and at least one node is not a leaf. With
    `Kind.SCAN` there may be scans along the one axis that is folded, in one direction. With
    `Kind.GATHER` there may be ``look_up`` too: its first operand is an input of any shape, which
    other nodes in their domain read only if its shape broadcasts. With `Kind.SCATTER` there may be outputs
    outside of the domain, into which elements of it are folded; scatters fold the axes that reductions do.

    With the trait `products`, a group may hold one ``matmul`` of two matrices instead of reductions. Then the
    domain is the shape of its result. Element-wise nodes that lead to one operand of it, and to nothing
    else, have shapes that broadcast to that operand; all others are element-wise over the domain. Outputs
    have the domain's shape. The operands of a product of 16-bit floats are casts of such to float32, and its
    result is cast to 16 bits, for that is what the user multiplied.

    Examples
    --------
    >>> from mgb.backends.plugins import load_backend
    >>> eager = load_backend("eager")
    >>> isinstance(eager, Backend), eager.name, eager.probe()
    (True, 'eager', None)
    """

    name: str
    traits: Traits
    #: Environment variables that it reads, for ``mgb env``.
    variables: tuple[config.Variable, ...] = ()

    def probe(self) -> str | None:
        """Return why it cannot run here, with the command that mends it.

        None when it can. Imports no toolchain.
        """
        return None

    def note(self) -> str | None:
        """Return what makes it slower here than it could be, with the remedy, for ``mgb doctor``; or None."""
        return None

    @abstractmethod
    def compile(self, graph: Graph) -> Kernel:
        """Compile `graph`.

        Under `Specialize.NDIM` the kernel must serve every graph with the same `structure_key`: sizes and
        strides come from the arrays at run time. Under `Specialize.SIZES` the shapes and parameters of the
        graph may hold integers that are followed; `run` is for the values that they have.
        """

    def compile_over(self, graph: Graph, replaces: Sequence[tuple[int, int]]) -> Kernel:
        """Compile like `compile`, but a graph some of whose outputs replace an input: see `Kernel.replaces`.

        Asked of backends with the trait `hands_over`, which may do without it.
        """
        return self.compile(graph)

    def join(self, kernels: Sequence[Kernel]) -> Kernel | None:
        """Return one kernel that does what `kernels` do, so that small ones cost one call; None: call each.

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
        """Return one call for kernels that run one after the other on one device; there may be one alone.

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

    def expectation(self, kernel: Kernel) -> str:
        """Return a line that predicts the kernel's performance and says so; empty: no prediction.

        For `explain`, which can wait.
        """
        return ""

    def repeat(self, turns: Sequence[Turn]) -> Callable[[int, int], None] | None:
        """Return a native loop, which runs without Python between its iterations.

        Parameters
        ----------
        turns : sequence of Turn
            Done one after the other in each turn; none writes what it reads.

        Returns
        -------
        callable or None
            ``run(first, last)`` does the turns from `first` on, before `last`, and may be interrupted by a
            signal. None: call each kernel.
        """
        return None

    def sequence(
        self,
        kernels: Sequence[Kernel],
        layout: Callable[[Sequence[Any]], Sequence[Turn]],
        count: int,
        checked: int,
    ) -> Callable[..., None] | None:
        """Return one call for kernels and copies, one after the other, on windows of the arrays of a call.

        Parameters
        ----------
        kernels : sequence of Kernel
            Those in it, as `compile` and `join` gave them.
        layout : callable
            ``layout(arrays)`` gives the turns for the arrays of a call. For others that lie alike the same
            windows, of the same bases, serve: an array that is written shares memory with no other one.
        count, checked : int
            How many arrays a call has; how many of the first ones may lie otherwise in another call.

        Returns
        -------
        callable or None
            ``run(*arrays)``, which may be called from several threads at once. Whatever ends it, each kernel
            has written its results in full, or nothing of them. None: call each kernel.
        """
        return None

    def version(self) -> str:
        """Return the version of the backend and its toolchain: part of the key of the on-disk cache."""
        return "0"

    def save(self, kernel: Kernel) -> bytes | None:
        """Return the compiled code as bytes for the on-disk cache.

        None: it cannot be kept. Errors are logged.
        """
        return None

    def target(self) -> str:
        """Return the target that kernels saved now need where they are loaded, for `mismatch`."""
        return self.version()

    def mismatch(self, target: str) -> str | None:
        """Return why kernels saved for `target` cannot run here; None if they can.

        Imports no toolchain, and does without one: files are loaded where `probe` has an objection.
        """
        here = self.target()
        return None if target == here else f"they were compiled for {target}, here is {here}"

    def load(self, graph: Graph, blob: bytes) -> Kernel:
        """Return the kernel that `save` made `blob` of, maybe elsewhere.

        An exception means: compile again.
        """
        raise NotImplementedError


def __dir__() -> list[str]:
    return __all__
