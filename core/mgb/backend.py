"""What a codegen backend is; with `mgb.codegen`, `mgb.ir` and `mgb.plugins`, the public backend API."""

from __future__ import annotations

import difflib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from . import config, dtypes
from .errors import BackendTraitsError, VariableError
from .ir import Graph, Kind
from .ownership import Adopted, Seen, adopt, adopter
from .sizes import At

__all__ = [
    "ALL_DTYPES", "API_VERSION", "MOST_THREADS", "Adopted", "Backend", "Kernel", "Scope", "Seen",
    "Specialize", "Strided", "Traits", "VariableError", "adopt", "adopter", "num_threads",
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
    SIZES = "sizes"  # the lengths in a graph, which may be followed ones: `Kernel.at` is told of others
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

    Where a frozenset stands any collection is taken, such as the dictionary of which it is the keys.

    Attributes
    ----------
    vocabulary : frozenset of str
        Ops that it prints itself, beside ``const``, ``iota`` and ``cast``, which every backend prints. What
        is not in it is spelt out by the core; so are casts to 16-bit floats that float32 rounds already,
        unless it has ``cast``. The keys of the printing table, as a rule. That they are ops is checked when
        the backend is loaded, for its plugin may bring some of its own.
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
    short_folds : int
        Groups that fold rows of so many elements or fewer come turned, with the folded axes in front, and
        with operands that are transposed views: for kernels that go through the last axis by vectors.
    ieee : bool
        NaN, infinities and -0 behave; the conformance suite checks what is claimed.
    denormals : bool
        Numbers below the smallest normal one count; otherwise they may be read and written as 0.
    priority : int
        The highest available wins on a device when the user names none.
    api_version : int
        The `API_VERSION` the backend was written for, as a number: `API_VERSION` itself is that of the core
        which happens to be installed.

    Raises
    ------
    BackendTraitsError
        A field has a value that means nothing; the message names both and what was likely meant. Of another
        `api_version` nothing is checked, for the words of that version are not known here.
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
    short_folds: int = 0
    ieee: bool = True
    denormals: bool = True
    priority: int = 0
    api_version: int = field(kw_only=True)

    def __post_init__(self) -> None:
        _check_number(self, "api_version", 0)
        if self.api_version == API_VERSION:
            _check(self)


ALL_DTYPES = frozenset(d.name for d in dtypes.DTYPES)


def _check(traits: Traits) -> None:
    """Refuse values that mean nothing; collections become frozensets."""
    _check_set(traits, "vocabulary", str)
    _check_set(traits, "kinds", Kind)
    _check_set(traits, "dtypes", str, ALL_DTYPES)
    _check_set(traits, "devices", str, ("cpu", "gpu"))
    _check_set(traits, "products", str, [d.name for d in dtypes.FLOATS])
    for name, kind in (("scope", Scope), ("specialize", Specialize), ("strided", Strided)):
        if not isinstance(getattr(traits, name), kind):
            raise _refusal(name, getattr(traits, name), _members(kind))
    for name in ("joins", "launch_graphs", "hands_over", "ieee", "denormals"):
        if type(getattr(traits, name)) is not bool:
            raise _refusal(name, getattr(traits, name), ("True", "False"))
    _check_number(traits, "min_ops", 1)
    _check_number(traits, "max_inputs", 1)
    _check_number(traits, "short_folds", 0)
    _check_number(traits, "priority", None)
    _check_together(traits)


def _check_together(traits: Traits) -> None:
    """Refuse what the fields say together and no group could have."""
    for name in ("kinds", "dtypes", "devices"):
        if not getattr(traits, name):
            raise BackendTraitsError(f"Traits.{name} is empty: the backend would be given nothing")
    halves = sorted({d.name for d in dtypes.HALVES} & traits.dtypes)
    if halves and "float32" not in traits.dtypes:
        raise BackendTraitsError(f"Traits.dtypes has {halves[0]!r} and no 'float32', in which it is computed")
    if traits.products and not (Kind.CONTRACT in traits.kinds and "matmul" in traits.vocabulary):
        raise BackendTraitsError("Traits.products needs Kind.CONTRACT in kinds and 'matmul' in vocabulary")
    if not traits.products <= traits.dtypes:
        lacking = sorted(traits.products - traits.dtypes)[0]
        raise BackendTraitsError(f"Traits.products has {lacking!r}, which Traits.dtypes has not")


def _check_set(traits: Traits, name: str, kind: type, known: Collection[str] | None = None) -> None:
    given = getattr(traits, name)
    what = "Kind" if kind is Kind else "str"
    if isinstance(given, str | bytes) or not isinstance(given, Collection):
        raise BackendTraitsError(f"Traits.{name} is {given!r}, not a collection of {what}")
    for one in given:
        if not isinstance(one, kind):
            raise _refusal(name, one, _members(Kind) if kind is Kind else known or (), "has")
        if known is not None and one not in known:
            raise _refusal(name, one, known, "has")
    object.__setattr__(traits, name, frozenset(given))


def _check_number(traits: Traits, name: str, least: int | None) -> None:
    given = getattr(traits, name)
    if type(given) is not int or (least is not None and given < least):
        bound = "" if least is None else f" of at least {least}"
        raise BackendTraitsError(f"Traits.{name} is {given!r}, not an int{bound}")


def _members(kind: type[Enum]) -> tuple[str, ...]:
    return tuple(map(str, kind))


def _refusal(name: str, given: Any, known: Iterable[str], verb: str = "is") -> BackendTraitsError:
    return BackendTraitsError(f"Traits.{name} {verb} {given!r}{nearest(given, known)}")


def nearest(given: Any, known: Iterable[str]) -> str:
    """What was likely meant by a name that is none, for the end of a message.

    Parameters
    ----------
    given : object
        An Enum's members and NumPy's dtypes are looked for by their own names.
    known : iterable of str
    """
    last = {name.rpartition(".")[2].lower(): name for name in known}
    text = str(getattr(given, "__name__", given)).rpartition(".")[2].lower()
    near = difflib.get_close_matches(text, last, n=1, cutoff=0.5)
    if near and (len(last) > 4 or text == near[0]):
        meant = last[near[0]]
        return f"; did you mean {meant if '.' in meant else repr(meant)}?"
    listed = sorted(last.values())
    return (
        f", not one of {', '.join(listed)}" if 0 < len(listed) <= 20 else ", which is no name that is known"
    )


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
    atomic : bool
        Whenever `run` raises, and wherever a signal interrupts it, each array of `out` is untouched or whole.
        Only such a kernel is given memory of an input to write to: what it updates is never half updated.
    at : callable, optional
        ``at(lengths) -> run``, or `results`, for other lengths than those of the graph, under
        `Specialize.SIZES`. ``lengths(value)`` is a number of the graph, or a tuple or dict that holds some,
        with the lengths that are wanted.
    """

    run: Callable[..., None]
    source: str = ""
    state: Any = field(default=None, repr=False)
    results: Callable[..., tuple[Any, ...]] | None = None
    replaces: tuple[tuple[int, int], ...] = ()
    hazards: frozenset[tuple[int, int]] | None = None
    atomic: bool = False
    at: Callable[[At], Callable[..., Any]] | None = None


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
        strides come from the arrays at run time. Under `Specialize.SIZES` the shapes and parameters of the
        graph may hold integers that are followed; `run` is for the values that they have.
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
