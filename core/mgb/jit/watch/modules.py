"""What code looks up in ``sys.modules``, which others fill all the time: each key is an item of its own.

All code that gets hold of it names it ``modules``. Where such code only looks up keys that are constants or
parameters of its function or globals, these items have to stay, and no others.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from importlib.util import resolve_name
from itertools import accumulate
from types import CodeType, FrameType
from typing import Protocol

from ..source import Attribute, Cell, Global, Held, Item, Object, Source
from .protocols import Places

NAME = "modules"
#: What loads a key.
KEYS = frozenset({"LOAD_CONST", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_SMALL_INT"})
_OF_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_VARIABLES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF"})
_WRITING = ("STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR")


def lookup_at(steps: Sequence[dis.Instruction], place: int) -> dis.Instruction | None:
    """What loads the key that is looked up in what is loaded at `place`; None: that is used otherwise."""
    after = [step for step in steps[place + 1 : place + 6] if step.opname != "PRECALL"]
    words = ["" if step.is_jump_target else step.opname for step in after] + [""] * 4
    if words[0] == "CONTAINS_OP":
        return _key_before(steps, place)
    if words[0] in KEYS and words[1] == "BINARY_SUBSCR":
        return after[0]
    if words[0] not in _OF_ATTRIBUTES or after[0].argval != "get" or words[1] not in KEYS:
        return None
    calls = words[2] == "CALL" or (words[2] == "LOAD_CONST" and words[3] == "CALL")
    return after[1] if calls else None


def _key_before(steps: Sequence[dis.Instruction], place: int) -> dis.Instruction | None:
    """What is loaded directly before a variable, or an attribute of a variable."""
    first = place - 1 if steps[place].opname == "LOAD_ATTR" else place
    is_reached = any(step.is_jump_target for step in steps[first : place + 1])
    is_variable = steps[first].opname in _VARIABLES and not is_reached
    return None if not is_variable or steps[first - 1].opname not in KEYS else steps[first - 1]


def is_given(code: CodeType, steps: Sequence[dis.Instruction], loaded: dis.Instruction) -> bool:
    """Is a variable that `loaded` loads a global, or a parameter of `code` that keeps its value?"""
    name: str = loaded.argval
    if loaded.opname != "LOAD_FAST":
        return loaded.opname == "LOAD_GLOBAL"
    count = code.co_argcount + code.co_kwonlyargcount
    written = (step.argval for step in steps if step.opname.startswith(_WRITING))
    return name in code.co_varnames[:count] and not any(
        name == part or (isinstance(part, tuple) and name in part) for part in written
    )


def packages_of(name: str, level: int, package: str | None) -> list[str]:
    """A module that is imported, `level` packages up, and the packages around it, these first."""
    with suppress(ImportError):
        name = resolve_name("." * level + name, package)
    return [*accumulate(name.split("."), "{}.{}".format)]


class Named(Protocol):
    """What code names, see `names.Names`."""

    keys: set[str]
    asked: set[tuple[str, str]]
    shows_modules: bool


class Modules:
    """Of one walk."""

    def __init__(self, walk: Places) -> None:
        self._walk = walk
        self._keys: set[str] = set()
        self._asked: dict[CodeType, Collection[tuple[str, str]]] = {}
        self._is_shown = self._is_found = False
        self._absent: set[str] = set()  # what an import looks for, if it comes that far

    def imports(self, names: Iterable[tuple[str, int]], package: str | None) -> None:
        """Code of `package` starts, which may import modules of these `names`, so many levels up."""
        for name, level in names:
            for part in packages_of(name, level, package):
                self._item(part)
                if part not in sys.modules:
                    self._absent.add(part)

    def ends(self) -> None:
        """What has been imported meanwhile?"""
        for part in sorted(self._absent.intersection(sys.modules)):
            self._walk.tell(f"imports {part}")

    def found(self, source: Source) -> None:
        """It stands at `source`."""
        is_named = isinstance(source, Attribute | Global | Cell) and source.name == NAME
        self._is_found, self._is_shown = True, self._is_shown or not is_named
        self._walk.is_(source, sys.modules)
        self._look_up(self._keys)

    def reads(self, code: CodeType, names: Named) -> None:
        """`code` starts, whose names are these."""
        self._keys |= names.keys
        self._is_shown = self._is_shown or names.shows_modules
        if names.asked:
            self._asked[code] = names.asked
        if self._is_found and (names.keys or names.shows_modules):
            self._look_up(names.keys)

    def asks(self, code: CodeType) -> bool:
        """Does it look up what is given to it?"""
        return code in self._asked

    def given(self, code: CodeType, frame: FrameType) -> None:
        """`code` starts as `frame`, which has the values that it may look up."""
        if code not in self._asked:
            return
        spaces = {"LOAD_FAST": frame.f_locals, "LOAD_GLOBAL": frame.f_globals}
        given = [spaces[load].get(name) for load, name in self._asked[code]]
        keys = [key for key in given if type(key) is str]
        self._is_shown = self._is_shown or len(keys) < len(given)
        self._keys.update(keys)
        if self._is_found:
            self._look_up(keys)
            self._walk.drain()

    def _look_up(self, keys: Collection[str]) -> None:
        if self._is_shown:
            self._walk.tell("reads sys.modules")
            return
        for key in keys:
            self._item(key)

    def _item(self, key: str) -> None:
        """What stands there has to stay, or to stay away."""
        space = Object(Held(sys.modules))
        if key in sys.modules:
            self._walk.place(Item(space, key), sys.modules[key])
        else:
            self._walk.guard(space, "without", key)
