"""Owners of code: libraries are mgb, its installed plugins, NumPy, Python's own; all else is a user's.

What counts is the folder that a file lies in, and where an imported module comes from. A name is anybody's: a
user's project may be called ``mgb_mine``, lie in a folder of that name, or have a module ``queue``.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from .entry_points import scanned


def _within(folder: str | Path) -> str:
    """Return the prefix of the names of files in `folder`."""
    return os.path.join(folder, "")


#: What the names of files of this package, of NumPy and of Python's library begin with.
PACKAGE = _within(Path(__file__).parents[1])
NUMPY = _within(Path(np.__file__).parent)
PYTHON = _within(Path(os.__file__).parent)


@functools.cache
def is_python(file: str) -> bool:
    """Return whether this file is one of Python's library."""
    library, installed = _python_folders()
    return file.startswith(("<frozen ", *library)) and not file.startswith(installed)


@functools.cache
def _python_folders() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the folders of Python's library, and those of installed packages, which may be inside."""
    import site  # here, as the next ones: few calls need them
    import sysconfig

    library = (PYTHON, *(_within(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")))
    sites = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages())
    return library, tuple(map(_within, sites))


@functools.cache
def is_installed(file: str) -> bool:
    """Return whether this file belongs to what has been installed, as by pip."""
    return file.startswith(_python_folders()[1])


@functools.cache
def is_plugins(file: str) -> bool:
    """Return whether this file is in the folder of an installed plugin."""
    return file.startswith(plugin_folders())


def is_library(module: str | None) -> bool:
    """Return whether it is a module of mgb, of NumPy or of Python's library, or in one of their packages."""
    top = (module or "").partition(".")[0]
    if top not in _LIBRARIES:
        return False
    file = getattr(sys.modules.get(top), "__file__", None)
    return file is None or _is_of_libraries(file)  # what is built in has none


_LIBRARIES = sys.stdlib_module_names | {"mgb", "numpy"}


@functools.cache
def _is_of_libraries(file: str) -> bool:
    return file.startswith((PACKAGE, NUMPY)) or is_python(file)


@functools.cache
def plugin_folders() -> tuple[str, ...]:
    """Return the packages of the distributions that announce plugins, and mgb's that these require.

    Who installs a distribution trusts it; a folder of that name is anybody's.
    """
    groups = (names for group in scanned().values() for names in group.values())
    announced = [point for names in groups for point in names.values()]
    packages = {point.module.partition(".")[0] for point in announced}
    names = {point.dist.name for point in announced if point.dist is not None}
    packages |= _packages({*names, "mgb-conformance"})  # its arrays stand for those of a library in C
    specs = filter(None, map(find_spec, sorted(packages)))
    return tuple(_within(folder) for spec in specs for folder in spec.submodule_search_locations or ())


def _packages(distributions: set[str]) -> set[str]:
    """Return the packages of mgb's installed distributions among these, and all that they require."""
    from importlib.metadata import PackageNotFoundError, requires

    packages, waiting, seen = set[str](), list(distributions), set[str]()
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            needed = requires(name) or ()
        except PackageNotFoundError:
            continue
        if name.startswith("mgb-"):
            packages.add(name.replace("-", "_"))
        names = (re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in needed if "extra ==" not in need)
        waiting += [name for name in names if re.match(r"mgb[-_.]", name)]
    return packages
