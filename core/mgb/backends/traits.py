"""Traits of a backend: the core queries these, and never its name."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..errors import BackendContractError
from ..ir import Kind, dtypes

#: The version of this API, and the oldest whose backends still load: docs/ir.md says what may change when.
#: A backend of another version is refused before any of its graphs is compiled.
API_VERSION = 1
OLDEST_API_VERSION = 1


class Scope(Enum):
    """The size of the groups that a backend takes.

    Attributes
    ----------
    DOMAIN
        One loop domain: element-wise nodes and reductions over one set of its axes.
    GRAPH
        Any set of nodes it accepts, connected or not.

    Examples
    --------
    >>> from mgb.backends.plugins import load_backend
    >>> load_backend("eager").traits.scope
    <Scope.GRAPH: 'graph'>
    """

    DOMAIN = "domain"
    GRAPH = "graph"


class Specialize(Enum):
    """The properties that a kernel is specialized for; everything else is a runtime argument.

    Attributes
    ----------
    SHAPE
        The exact shapes.
    SIZES
        The lengths in a graph, which may be followed ones: `Kernel.at` is told of others.
    NDIM
        The number of axes, and which of them have length 1.
    NONE
        Nothing but ops and dtypes; the core keeps such a kernel under the key of NDIM.

    Examples
    --------
    >>> from mgb.backends.plugins import load_backend
    >>> load_backend("eager").traits.specialize
    <Specialize.SIZES: 'sizes'>
    """

    SHAPE = "shape"
    SIZES = "sizes"
    NDIM = "ndim"
    NONE = "none"


class Strided(Enum):
    """The memory layouts of inputs that a kernel reads without a copy.

    Attributes
    ----------
    CONTIGUOUS
        Row-major, without gaps.
    MONOTONE
        Strides that do not grow from axis to axis; 0 is allowed.
    ANY
        Any strides, negative ones too.

    Examples
    --------
    >>> from mgb.backends.plugins import load_backend
    >>> load_backend("eager").traits.strided
    <Strided.ANY: 'any'>
    """

    CONTIGUOUS = "contiguous"
    MONOTONE = "monotone"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Traits:
    """All that the core must know of a backend before it hands it a graph.

    Where a frozenset stands any collection is taken, such as the dictionary of which it is the keys.

    Attributes
    ----------
    vocabulary : frozenset of str
        Ops that it prints itself, beside ``const``, ``iota`` and ``cast``, which every backend prints. What
        is not in it is decomposed by the core; so are casts to 16-bit floats that float32 rounds already,
        unless it has ``cast``. The keys of the printing table, as a rule. That they are ops is checked when
        the backend is loaded, for its plugin may bring some of its own.
    kinds : frozenset of Kind
    dtypes : frozenset of str
        Dtypes it loads and stores. Arithmetic on narrow floats is lowered to float32 by the core: a kernel
        meets them only in inputs, outputs and casts, which `codegen.narrowing` and `widening` spell out.
    devices : frozenset of str
        ``"cpu"``, ``"gpu"``.
    scope, specialize, strided
        See `Scope`, `Specialize`, `Strided`.
    strided_outputs : bool
        Its kernels write arrays of any strides, such as windows of a larger one; otherwise outputs are
        row-major.
    joins : bool
        It has `Backend.join`: small independent groups then share a call instead of a kernel.
    launch_graphs : bool
        Its `Backend.chain` can start kernels in a row as one graph of launches.
    repeats_products : bool
        Its `Backend.repeat` takes products of matrices.
    sequences : bool
        Its `Backend.sequence` makes kernels in a row one call.
    hands_over : bool
        Its kernels have `Kernel.results`, which are arrays of their own: the core gives them no memory.
    meshes : bool
        Its kernels run on all devices of a mesh at once, and exchange values between them: it prints every op
        that has `over_mesh`, of `group` ``"mesh:4"`` between four. What leaves a kernel is the same on all
        devices, which `compile` checks by `Graph.own`: else it raises a `MeshError`.
    products : frozenset of str
        Under `Scope.DOMAIN`, the dtypes of matrices whose product may be part of a group, if `kinds` has
        `Kind.CONTRACT` and `vocabulary` has ``matmul``: see `Backend`.
    min_ops : int
        Smaller groups run eagerly.
    max_inputs : int
        More inputs than this are split over several groups.
    short_rows : int
        Groups whose rows have so many elements or fewer come turned, with operands that are transposed views:
        for kernels that go through the last axis by vectors. Folded axes come to stand in front; one that is
        not folded before some that make a long row, if `strided_outputs` is said as well.
    ieee : bool
        NaN, infinities and -0 behave; the conformance suite checks what is claimed.
    denormals : bool
        Numbers below the smallest normal one count; otherwise they may be read and written as 0.
    priority : int
        The highest available wins on a device when the user names none; of equal ones the first by name,
        those of this project before others.
    api_version : int
        The `API_VERSION` the backend was written for, as a number: `API_VERSION` itself is that of the core
        which happens to be installed.

    Raises
    ------
    BackendContractError
        A field has a value that means nothing; the message names both and what was likely meant. Of an
        `api_version` that does not load nothing is checked, for its words are not known here.

    Examples
    --------
    >>> from mgb.backends import Kind
    >>> traits = Traits({"add", "mul", "reduce_sum"}, kinds={Kind.ELEMENTWISE, Kind.REDUCE}, api_version=1)
    >>> sorted(traits.vocabulary), sorted(traits.dtypes)
    (['add', 'mul', 'reduce_sum'], ['bool', 'float32'])
    """

    vocabulary: frozenset[str]
    kinds: frozenset[Kind] = frozenset({Kind.ELEMENTWISE})
    dtypes: frozenset[str] = frozenset({"float32", "bool"})
    devices: frozenset[str] = frozenset({"cpu"})
    scope: Scope = Scope.DOMAIN
    specialize: Specialize = Specialize.SHAPE
    strided: Strided = Strided.CONTIGUOUS
    strided_outputs: bool = False
    joins: bool = False
    launch_graphs: bool = False
    repeats_products: bool = False
    sequences: bool = False
    hands_over: bool = False
    meshes: bool = False
    products: frozenset[str] = frozenset()
    min_ops: int = 2
    max_inputs: int = 64
    short_rows: int = 0
    ieee: bool = True
    denormals: bool = True
    priority: int = 0
    api_version: int = field(kw_only=True)

    def __post_init__(self) -> None:
        _check_number(self, "api_version", 0)
        if OLDEST_API_VERSION <= self.api_version <= API_VERSION:
            _check(self)


ALL_DTYPES = frozenset(d.name for d in dtypes.DTYPES)
_KNOWN_DTYPES = frozenset(dtypes.BY_NAME)  # complex ones too, which no generated code is asked for


def _check(traits: Traits) -> None:
    """Refuse values that mean nothing; collections become frozensets."""
    _check_set(traits, "vocabulary", str)
    _check_set(traits, "kinds", Kind)
    _check_set(traits, "dtypes", str, _KNOWN_DTYPES)
    _check_set(traits, "devices", str, ("cpu", "gpu"))
    _check_set(traits, "products", str, [d.name for d in dtypes.FLOATS])
    for name, kind in (("scope", Scope), ("specialize", Specialize), ("strided", Strided)):
        if not isinstance(getattr(traits, name), kind):
            raise _refusal(name, getattr(traits, name), _members(kind))
    for name in (
        "strided_outputs", "joins", "launch_graphs", "repeats_products", "sequences", "hands_over", "meshes",
        "ieee", "denormals",
    ):  # fmt: skip
        if type(getattr(traits, name)) is not bool:
            raise _refusal(name, getattr(traits, name), ("True", "False"))
    _check_number(traits, "min_ops", 1)
    _check_number(traits, "max_inputs", 1)
    _check_number(traits, "short_rows", 0)
    _check_number(traits, "priority", None)
    _check_together(traits)


def _check_together(traits: Traits) -> None:
    """Refuse what the fields say together and no group could have."""
    for name in ("kinds", "dtypes", "devices"):
        if not getattr(traits, name):
            raise BackendContractError(f"Traits.{name} is empty: the backend would be given nothing")
    halves = sorted({d.name for d in dtypes.HALVES} & traits.dtypes)
    if halves and "float32" not in traits.dtypes:
        raise BackendContractError(
            f"Traits.dtypes has {halves[0]!r} but not 'float32', in which it is computed: add it"
        )
    if traits.products and not (Kind.CONTRACT in traits.kinds and "matmul" in traits.vocabulary):
        raise BackendContractError("Traits.products needs Kind.CONTRACT in kinds and 'matmul' in vocabulary")
    if not traits.products <= traits.dtypes:
        lacking = sorted(traits.products - traits.dtypes)[0]
        raise BackendContractError(f"Traits.products has {lacking!r}, which is not in Traits.dtypes")


def _check_set(traits: Traits, name: str, kind: type, known: Collection[str] | None = None) -> None:
    given = getattr(traits, name)
    what = "Kind" if kind is Kind else "str"
    if isinstance(given, str | bytes) or not isinstance(given, Collection):
        raise BackendContractError(f"Traits.{name} is {given!r}, not a collection of {what}")
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
        raise BackendContractError(f"Traits.{name} is {given!r}, not an int{bound}")


def _members(kind: type[Enum]) -> tuple[str, ...]:
    return tuple(map(str, kind))


def _refusal(name: str, given: Any, known: Iterable[str], verb: str = "is") -> BackendContractError:
    return BackendContractError(f"Traits.{name} {verb} {given!r}{nearest(given, known)}")


def nearest(given: Any, known: Iterable[str]) -> str:
    """Return a suggestion for an unknown name, for the end of a message.

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
    return f", not one of {', '.join(listed)}" if 0 < len(listed) <= 20 else ", which is not a known name"
