"""The record of CuPy's functions, read from the installed CuPy: ``python -m mgb_conformance.standin.record``.

CuPy can be imported, and asked for its functions and their parameters, where there is neither GPU nor driver.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = Path(__file__).with_name("cupy.json")

#: Where functions are looked for, below CuPy itself.
FOLDERS = ("", "fft", "lib.stride_tricks", "linalg")


def main() -> None:
    """Rewrite `FILE`."""
    import cupy
    import cupyx.scipy.special

    found = {
        "version": cupy.__version__,
        "functions": {folder: _functions(_below(cupy, folder)) for folder in FOLDERS},
        "ufuncs": _ufuncs(cupy),
        "special": _ufuncs(cupyx.scipy.special),
        "ndarray": {name: _parameters(getattr(cupy.ndarray, name)) for name in dir(cupy.ndarray)},
    }
    FILE.write_text(json.dumps(found, separators=(",", ":"), sort_keys=True) + "\n")


def _below(module: ModuleType, folder: str) -> Any:
    found: Any = module
    for name in filter(None, folder.split(".")):
        found = getattr(found, name)
    return found


def _functions(module: Any) -> dict[str, list[str] | None]:
    """Return the parameters of each function; None where they are not known."""
    names = (n for n in dir(module) if not n.startswith("_"))
    functions = ((n, getattr(module, n)) for n in names)
    return {n: _parameters(f) for n, f in functions if inspect.isroutine(f) or type(f).__name__ == "_GUFunc"}


def _parameters(function: Any) -> list[str] | None:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return _told(inspect.getdoc(function) or "")


def _told(text: str) -> list[str] | None:
    """Return the parameters in the first line of a compiled function's text.

    ``name(self, axis=None) -> array``.
    """
    head = re.match(r"[\w.]+\((.*?)\)( ->|$)", text.partition("\n")[0])
    if head is None:
        return None
    words = (re.split(r"[=:]", part)[0].split() for part in head[1].split(","))
    return [w[-1] for w in words if w and w[-1] not in ("self", "/")]


def _ufuncs(module: Any) -> dict[str, list[str]]:
    import cupy

    return {n: list(f.types) for n in dir(module) if isinstance(f := getattr(module, n), cupy.ufunc)}


if __name__ == "__main__":
    main()
