"""The owner of each code object that runs, cached, and the code whose events can be disabled."""

from __future__ import annotations

import collections
import enum
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType
from typing import Any

from . import known, pure

_IMPORTS = "<frozen importlib._bootstrap>"
#: Whose methods in C change nothing, but for these names, which read what others have.
_UNCHANGING = frozenset({str, bytes, int, float, tuple, frozenset})
FORMATS = frozenset({"format", "format_map"})
#: The methods of containers that leave them as they are. What the body makes of these is its own.
READING: dict[type, frozenset[str]] = {
    **{kind: known.READS[kind] for kind in (list, dict, set, collections.deque, bytearray)},
    **dict.fromkeys((collections.OrderedDict, collections.defaultdict), known.READS[dict]),
}


class Kind(enum.Enum):
    """The owner of a code object."""

    IMPORTS = "Python's, which imports a module"
    TRUSTED = "a library's, and taken as a pure function of its arguments"
    TAME = "a library's, which computes names that others name as well"
    LIBRARYS = "a library's"
    USERS = "a user's"


#: What code is of that is not watched.
_TRUSTED = (Kind.TRUSTED, Kind.IMPORTS)


def _kind_of(code: CodeType) -> Kind:
    if code.co_filename == _IMPORTS:
        return Kind.IMPORTS
    if pure.is_trusted(code):
        return Kind.TRUSTED
    if pure.is_tame(code):
        return Kind.TAME
    return Kind.LIBRARYS if pure.is_librarys(code) else Kind.USERS


class Codes:
    """Of one call. Code objects are known by their ids: to hash one reads all that it consists of.

    Attributes
    ----------
    quiet : dict
        By the ids of code objects of which no further start has to be told: their globals.
    """

    def __init__(self) -> None:
        self.quiet: dict[int, dict[str, Any]] = {}
        self._seen: dict[int, dict[str, Any]] = {}
        self._kinds: dict[int, Kind] = {}
        self._alive: list[Any] = []
        self._pure: set[Any] = set()
        self._said: set[tuple[str, int, int]] = set()
        #: May a module be being imported?
        self.imports = False

    def forget(self) -> None:
        """Hold nothing of the call."""
        for kept in (self.quiet, self._seen, self._kinds, self._alive, self._pure, self._said):
            kept.clear()

    def kind(self, code: CodeType) -> Kind:
        """Return the owner of `code`."""
        kind = self._kinds.get(id(code))
        if kind is None:
            kind = self._kinds[id(code)] = _kind_of(code)
            self._alive.append(code)
        return kind

    def is_seen(self, frame: FrameType) -> bool:
        """Return whether the code of `frame` has run before, with the same globals."""
        return self._seen.get(id(frame.f_code)) is frame.f_globals

    def sees(self, frame: FrameType) -> None:
        """Note that code has started: no further start has to be reported, except of an ``__init__``."""
        code = frame.f_code
        self._alive.append(code)
        self._seen[id(code)] = frame.f_globals
        if code.co_name != "__init__":
            self.quiet[id(code)] = frame.f_globals

    def is_within_trusted(self, frame: FrameType | None) -> bool:
        """Return whether `frame` is of trusted code, or of Python's library that such code has called."""
        kinds = self._kinds
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(id(code)) or self.kind(code)
            if kind is Kind.USERS:
                return False
            if kind in _TRUSTED:
                return True
            frame = frame.f_back
        return False

    def is_import(self, frame: FrameType | None) -> bool:
        """Return whether a module is being imported. None is until code of Python's starts that does so."""
        while self.imports and frame is not None:
            if frame.f_globals.get("__name__") == "mgb.jit.watch.observer":
                break
            if self.kind(frame.f_code) is Kind.IMPORTS:
                return True
            frame = frame.f_back
        self.imports = False
        return False

    def is_pure(self, function: Any, kind: type, code: CodeType) -> bool:
        """Return whether a function in C that `code` calls, or a method of a `kind`, needs no report."""
        if self._kinds.get(id(code)) is Kind.TRUSTED:
            return True
        if type(function) is not BuiltinFunctionType:
            return False
        if kind in _UNCHANGING:
            return function.__name__ not in FORMATS
        return kind is ModuleType and function in self._pure

    def says_nothing(self, function: Any) -> None:
        """Note that nothing is known of a function in C, whoever calls it."""
        if type(getattr(function, "__self__", None)) is ModuleType:
            self._pure.add(function)

    def is_said(self, why: str, frame: FrameType) -> bool:
        """Return whether this has been said of the same place. From now on it has."""
        here = why, id(frame.f_code), frame.f_lasti
        if here in self._said:
            return True
        self._alive.append(frame.f_code)
        self._said.add(here)
        return False
