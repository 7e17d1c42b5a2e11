"""Lookups in ``sys.modules``, which other code fills all the time: each key is an item of its own.

All code that gets hold of it names it ``modules``. Where such code only looks up keys that are constants or
parameters of its function or globals, these items have to stay, and no others.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from importlib.util import resolve_name
from itertools import accumulate
from types import CodeType, FrameType

from ..source import Attribute, Cell, Global, Item, Object, ObjectRef, Source
from .names import MODULES, Names
from .protocols import Walk


def packages_of(name: str, level: int, package: str | None) -> list[str]:
    """Return a module that is imported, `level` packages up, and the packages around it, these first."""
    with suppress(ImportError):
        name = resolve_name("." * level + name, package)
    return [*accumulate(name.split("."), "{}.{}".format)]


class Modules:
    """Of one walk."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._keys: set[str] = set()
        self._asked: dict[CodeType, Collection[tuple[str, str]]] = {}
        self._is_shown = self._is_found = False
        self._absent: set[str] = set()  # what an import looks for, if it comes that far

    def imports(self, names: Iterable[tuple[str, int]], package: str | None) -> None:
        """Note that code of `package` starts which may import modules `names`, this many levels up."""
        for name, level in names:
            for part in packages_of(name, level, package):
                self._item(part)
                if part not in sys.modules:
                    self._absent.add(part)

    def ends(self) -> None:
        """Report modules that have been imported meanwhile."""
        for part in sorted(self._absent.intersection(sys.modules)):
            self._walk.report(f"imports {part}")

    def found(self, source: Source) -> None:
        """Note that ``sys.modules`` is at `source`."""
        is_named = isinstance(source, Attribute | Global | Cell) and source.name == MODULES
        self._is_found, self._is_shown = True, self._is_shown or not is_named
        self._walk.is_(source, sys.modules)
        self._look_up(self._keys)

    def reads(self, code: CodeType, names: Names) -> None:
        """Note that `code` starts, whose names are these."""
        self._keys |= names.keys
        self._is_shown = self._is_shown or names.shows_modules
        if names.asked:
            self._asked[code] = names.asked
        if self._is_found and (names.keys or names.shows_modules):
            self._look_up(names.keys)

    def asks(self, code: CodeType) -> bool:
        """Return whether it looks up what is given to it."""
        return code in self._asked

    def given(self, code: CodeType, frame: FrameType) -> None:
        """Note that `code` starts as `frame`, which has the values that it may look up."""
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
            self._walk.report("reads sys.modules")
            return
        for key in keys:
            self._item(key)

    def _item(self, key: str) -> None:
        """Guard the module at `key`, or its absence."""
        space = Object(ObjectRef(sys.modules))
        if key in sys.modules:
            self._walk.visit(Item(space, key), sys.modules[key])
        else:
            self._walk.guard(space, "without", key)
