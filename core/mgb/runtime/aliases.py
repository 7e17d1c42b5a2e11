"""Modules under other names than those of their files: public names that are short, and former ones."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class Aliases:
    """Finds modules of a package under other names; both names give the same module.

    Parameters
    ----------
    package : str
        Whose modules these are.
    public : mapping of str to str
        By a name below `package`: where the module is. What is below it has an alias, too.
    moved : mapping of str to str
        Names of before, which warn.
    """

    def __init__(self, package: str, public: Mapping[str, str], moved: Mapping[str, str]) -> None:
        self._package, self._public, self._moved = package, public, moved

    def install(self) -> None:
        """Look here first: the path of a package is that of its alias, so that Python would load twice."""
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return how to load the module called `name`; None if it is not an alias."""
        package, _, below = name.partition(".")
        if package != self._package:
            return None
        first, _, rest = below.partition(".")
        home = self._public.get(first) or self._moved.get(first)
        if home is None:
            return None
        real = ".".join(filter(None, (package, home, rest)))
        if first in self._moved:
            text = f"{name} is {real} now; the former name goes with the next release"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        loader: Any = _Loader(real)  # importlib.abc would bring 20 modules
        return ModuleSpec(name, loader, origin=real)


class _Loader:
    """Gives a module that has another name."""

    def __init__(self, real: str) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module itself, which keeps its own specification."""
        module = importlib.import_module(self._real)
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Undo what importing has changed: the module has run under its own name."""
        module.__spec__ = self._own
