"""Libraries that implement ops: the seam between an op's rule over NumPy, which defines it, and faster code.

A distribution announces an `OpLibrary` in the entry-point group ``mgb.op_libraries``. An op that libraries
may implement has a `Rule` as its eager rule: it asks them once for each layout of the operands, and keeps
the answer. So eager evaluation and compiled programs both get the library, and name none.
"""

from __future__ import annotations

import functools
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import LibraryError
from ..ir import Spec
from ..ir.sizes import plain
from ..runtime import config, forking
from ..runtime.device import is_gpu
from ..runtime.entry_points import EntryPoints, version_problem
from ..runtime.memory import Array, empty

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "API_VERSION",
    "Layout",
    "LibraryError",
    "OpLibrary",
    "Rule",
    "Status",
    "empty",
    "forget",
    "status",
]

GROUP = "mgb.op_libraries"

_POINTS = EntryPoints(GROUP, "library", {})

#: The version of this API; a library written for another one is left out.
API_VERSION = 1

#: Layouts for which one `Rule` keeps an implementation.
KEPT = 512

_log = logging.getLogger("mgb.libraries")

Implementation = Callable[..., Array | None]


@dataclass(frozen=True, slots=True)
class Layout:
    """The properties of an operand that an implementation may rely on.

    Attributes
    ----------
    shape : tuple of int
    strides : tuple of int
        In bytes.
    dtype : np.dtype
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def row_major(cls, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Layout:
        """Return the layout of a new array."""
        strides = (dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return cls(shape, tuple(strides), dtype)

    @property
    def is_row_major(self) -> bool:
        """Return whether the operand lies as a new array would."""
        expected = self.dtype.itemsize
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True


class OpLibrary(ABC):
    """A library that implements ops of the core on NumPy arrays.

    Attributes
    ----------
    name : str
        Lower case; what ``MGB_OP_LIBRARIES`` lists.
    ops : frozenset of str
        Names of the ops that it may implement.
    api_version : int
        The `API_VERSION` it was written for, as a number: `API_VERSION` itself is that of the running core.
    """

    name: str
    ops: frozenset[str]
    api_version: int

    def probe(self) -> str | None:
        """Return why it cannot run here, with the command that mends it; None when it can."""
        return None

    def version(self) -> str:
        """Return the version of the library itself."""
        return ""

    @abstractmethod
    def implement(
        self, op: str, operands: Sequence[Layout], output: Spec, params: Mapping[str, Any]
    ) -> Implementation | None:
        """Return a function for operands of exactly these layouts, or None where NumPy is as good.

        It takes the operands, returns a new array, row-major or without gaps in another order of the axes
        (`empty` gives memory), or None for values that it leaves to NumPy, never changes an operand, raises
        `LibraryError` with the name of the op when the library fails, and may be called from several threads
        at once.

        Parameters
        ----------
        op : str
            One of `ops`.
        operands : sequence of Layout
            They fit each other, and none is empty.
        output : Spec
            The shape and dtype that the op gives.
        params : mapping
            The op's parameters by name.
        """


class Rule:
    """The eager rule of an op that libraries may implement.

    Parameters
    ----------
    op : str
        The name of the op.
    rule : callable
        ``(*arrays, **params) -> array`` over NumPy arrays, or any others with its interface: it serves
        what no library takes.
    infer : callable
        The op's ``infer``.
    """

    def __init__(self, op: str, rule: Callable[..., Any], infer: Callable[..., Spec]) -> None:
        functools.update_wrapper(self, rule)
        self.op, self.rule, self.infer = op, rule, infer
        self.found: dict[Any, Callable[..., Any]] = {}
        _rules.append(self)

    def __call__(self, *arrays: Any, **params: Any) -> Any:
        out = self._of(arrays, params)(*arrays)
        return self.rule(*arrays, **params) if out is None else out

    def by_library(self, *arrays: Any, **params: Any) -> Any:
        """Return the result of a library for these operands; None if no library takes them."""
        found = self._of(arrays, params)
        return None if isinstance(found, _Fallback) else found(*arrays)

    def _of(self, arrays: Sequence[Any], params: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the implementation for operands laid out like these."""
        key = (*[(type(a), a.shape, a.strides, a.dtype) for a in arrays], *params.items())
        return self.found.get(key) or self._find(key, arrays, params)

    def bound(self, **params: Any) -> Callable[..., Any]:
        """Return the rule with parameters, for NumPy's arrays of the same shapes and dtypes in each call."""
        kept: dict[tuple[tuple[int, ...], ...], Callable[..., Any]] = {}

        def call(*arrays: Any) -> Any:
            key = tuple([a.strides for a in arrays])
            found = kept.get(key)
            if found is None:
                if len(kept) >= KEPT:
                    kept.clear()
                found = kept[key] = self._of(arrays, params)
            out = found(*arrays)
            return self.rule(*arrays, **params) if out is None else out

        return call

    def is_served(self, *operands: Spec, **params: Any) -> bool:
        """Return whether a library would take new arrays like these.

        Extents of 0 count as 1: what a function chooses by the answer is part of its trace, which arrays of
        other shapes must fit. For the same reason a library answers by dtypes and parameters alone for an op
        that is asked about.
        """
        if any(is_gpu(o.device) for o in operands):
            return False
        layouts = [Layout.row_major(tuple(max(1, d) for d in plain(o.shape)), o.dtype) for o in operands]
        key = (*[(np.ndarray, o.shape, o.strides, o.dtype) for o in layouts], *params.items())
        found = self.found.get(key) or self._keep(key, self._offer(layouts, params), params)
        return not isinstance(found, _Fallback)

    def _find(self, key: Any, arrays: Sequence[Any], params: Mapping[str, Any]) -> Callable[..., Any]:
        offer: Callable[..., Any] | None = None
        if all(type(a) is np.ndarray and a.size for a in arrays):
            offer = self._offer([Layout(a.shape, a.strides, a.dtype) for a in arrays], params)
        return self._keep(key, offer, params)

    def _offer(self, layouts: Sequence[Layout], params: Mapping[str, Any]) -> Callable[..., Any] | None:
        """Return the implementation of the first library that takes the operands, or None."""
        output = self.infer(*(Spec(o.shape, o.dtype) for o in layouts), **params)
        with forking.undivided("a library of ops"):
            able = (library for library in _chosen() if self.op in library.ops)
            offers = (library.implement(self.op, layouts, output, params) for library in able)
            return next((offer for offer in offers if offer is not None), None)

    def _keep(
        self, key: Any, offer: Callable[..., Any] | None, params: Mapping[str, Any]
    ) -> Callable[..., Any]:
        if len(self.found) >= KEPT:
            self.found.clear()
        found = self.found[key] = _Fallback(self.rule, **params) if offer is None else offer
        return found


class _Fallback(functools.partial[Any]):
    """The rule over NumPy, where no library takes the operands."""


_rules: list[Rule] = []


def forget() -> None:
    """Ask the libraries again, and read ``MGB_OP_LIBRARIES`` again; implementations in use live on."""
    _chosen.cache_clear()
    for rule in _rules:
        rule.found.clear()


@dataclass(frozen=True, slots=True)
class Status:
    """One line of `status`: a library, where it comes from, and why it is not used, if it is not."""

    name: str
    distribution: str
    ops: tuple[str, ...] = ()
    version: str = ""
    problem: str = ""


def status() -> tuple[Status, ...]:
    """Return every library that is installed, in the order in which they are asked; imports them all.

    Raises
    ------
    VariableError
        ``MGB_OP_LIBRARIES`` names a library that is not installed.
    """
    wanted = _wanted()
    return tuple(_status(point, wanted) for point in _ordered(wanted))


def _status(point: EntryPoint, wanted: Sequence[str]) -> Status:
    distribution = point.dist.name if point.dist is not None else point.value
    try:
        library = _loaded(point)
        problem = _problem(library)
        version = "" if problem else library.version()
    except Exception as error:  # whatever a broken package does on import
        message = _POINTS.failure(point.name, "imported", error, distribution)
        return Status(point.name, distribution, problem=message)
    if not problem and wanted and point.name.lower() not in wanted:
        problem = f"left out by {config.OP_LIBRARIES.name}={config.OP_LIBRARIES.get()}"
    return Status(library.name, distribution, tuple(sorted(library.ops)), version, problem)


@cache
def _chosen() -> tuple[OpLibrary, ...]:
    """Return the libraries to ask, in order."""
    able = []
    for point, line in zip(_ordered(_wanted()), status(), strict=True):
        if line.problem:
            _log.info("%s (%s) is not used: %s", line.name, line.distribution, line.problem)
        else:
            able.append(_loaded(point))
    return tuple(able)


#: What ``MGB_OP_LIBRARIES`` says for no library at all.
_NONE = "none"


def _wanted() -> tuple[str, ...]:
    """Return the names that ``MGB_OP_LIBRARIES`` lists; empty: all.

    Raises
    ------
    VariableError
        It names a library that is not installed.
    """
    listed = (name.strip().lower() for name in config.OP_LIBRARIES.get().split(","))
    wanted = tuple(name for name in listed if name)
    installed = sorted({point.name.lower() for point in _entry_points()})
    if wanted == (_NONE,) or set(wanted) <= set(installed):
        return wanted
    here = (
        f"some of those installed, {', '.join(installed)}, or" if installed else "(no library is installed)"
    )
    raise config.OP_LIBRARIES.error(f"{here} {_NONE}")


def _ordered(wanted: Sequence[str]) -> list[EntryPoint]:
    place = {name: k for k, name in enumerate(wanted)}
    return sorted(_entry_points(), key=lambda p: (place.get(p.name.lower(), len(place)), p.name))


def _entry_points() -> tuple[EntryPoint, ...]:
    return tuple(point for points in _POINTS.announced().values() for point in points.values())


@cache
def _loaded(point: EntryPoint) -> OpLibrary:
    library = point.load()
    if not isinstance(library, OpLibrary):
        raise TypeError(f"{point.value} is {library!r}, not an OpLibrary")
    return library


def _problem(library: OpLibrary) -> str:
    return version_problem(getattr(library, "api_version", None), API_VERSION) or library.probe() or ""
