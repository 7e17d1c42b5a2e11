"""The format of a model file, and the plugin that reads and writes it.

A distribution announces a plugin for each format in the entry-point group ``mgb.formats``, by the ending of
its files. A file is of the format that its ending says, else of the first one that recognizes its bytes.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from ..backends import plugins
from ..errors import ArgumentError, FileFormatError, FormatImportError
from ..runtime import forking
from ..runtime.entry_points import EntryPoints
from .model_file import Format, ModelSource

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

GROUP = "mgb.formats"

#: The endings of files whose formats this project publishes, and the extra of ``mgb`` that installs each. The
#: first one is written where nothing says another.
EXTRAS = {"onnx": "onnx"}

_POINTS = EntryPoints(GROUP, "the plugin of the format", EXTRAS)
_install = _POINTS.install


def installed() -> tuple[str, ...]:
    """Return the names of the formats that are here; imports none of them."""
    by_hand = [name for name, plugin in plugins.manager.list_name_plugin() if hasattr(plugin, "mgb_format")]
    return tuple(sorted({*by_hand, *_POINTS.announced()}))


def of_source(source: ModelSource) -> Format:
    """Return the format of a file that is to be read.

    Raises
    ------
    FileFormatError
        Neither its ending nor its bytes tell.
    FormatImportError
        As `load_format`.
    """
    ending = _ending(source.path)
    if ending in EXTRAS or ending in installed():
        return load_format(ending, str(source))
    problems: list[str] = []
    for name in installed():
        try:
            found = load_format(name, str(source))
            if found.recognizes(source.data):
                return found
        except FormatImportError as error:
            problems.append(str(error).removeprefix(f"{source}: "))
        except Exception as error:  # whatever a broken package does; the others are asked
            problems.append(str(_failure(name, "asked", error)))
    known = ", ".join(f".{name}" for name in installed()) or "none"
    missing = [f"to read .{name} files: {_install(name)}" for name in EXTRAS if name not in installed()]
    raise FileFormatError(
        f"{source}: neither its ending nor its bytes are of a format that is installed ({known}); "
        f"{'; '.join([*missing, *problems]) or 'is it the file that you meant?'}"
    )


def to_write(file: Any, wanted: str | None = None) -> Format:
    """Return the format in which a file is to be written.

    Parameters
    ----------
    file : path or file object
    wanted : str, optional
        The name of the format; None: what the ending of `file` says, if it says one.

    Raises
    ------
    ArgumentError
        No format is called `wanted`.
    FormatImportError
        As `load_format`.
    """
    path = Path(file) if isinstance(file, str | os.PathLike) else None
    known = {**dict.fromkeys(EXTRAS), **dict.fromkeys(installed())}
    if wanted is not None and (not isinstance(wanted, str) or wanted.lower() not in known):
        names = ", ".join(name.upper() for name in known)
        raise ArgumentError(f"dump_format={wanted!r}: mgb writes {names} only; leave dump_format out")
    ending = _ending(path)
    name = wanted.lower() if wanted else ending if ending in known else next(iter(known))
    return load_format(name, "the file" if path is None else str(path))


def load_format(name: str, file: str) -> Format:
    """Return the format called `name`.

    Parameters
    ----------
    name : str
        In lower case.
    file : str
        What is to be read or written, for messages.

    Raises
    ------
    FormatImportError
        Its package is not installed (the message has the command), is broken, or there are two.
    """
    if name not in installed():
        raise FormatImportError(
            f"{file}: what reads and writes .{name} files is not installed: {_install(name)}"
        )
    with forking.undivided("the import of a format"), _importing:
        try:
            return _imported(name)
        except FormatImportError as error:
            raise FormatImportError(f"{file}: {error}") from error


_importing = forking.lock()


@cache
def _imported(name: str) -> Format:
    plugin = plugins.manager.get_plugin(name)
    if not hasattr(plugin, "mgb_format"):
        plugin = _plugin(name)
    try:
        found = plugins.ask(plugin, "mgb_format", name)
    except Exception as error:
        raise _failure(name, "made", error) from error
    if not isinstance(found, Format) or getattr(found, "name", None) != name:
        raise FormatImportError(
            f"the plugin of the format {name!r} ({_POINTS.source(name)}) gave {found!r}, where its "
            "mgb_format(name) has to return a Format of that name"
        )
    return found


def _plugin(name: str) -> object:
    try:
        return plugins.load_plugin(_entry_point(name))
    except FormatImportError:
        raise
    except Exception as error:  # whatever a broken package does on import
        raise _failure(name, "imported", error) from error


def _entry_point(name: str) -> EntryPoint:
    if conflict := _POINTS.conflict(name):
        raise FormatImportError(conflict)
    return next(iter(_POINTS.announced()[name].values()))


def _failure(name: str, what: str, error: Exception) -> FormatImportError:
    return FormatImportError(_POINTS.failure(name, what, error))


def _ending(path: Path | None) -> str:
    """Return a file name's ending, in lower case and without the dot; empty where there is none."""
    return "" if path is None else path.suffix.lower().removeprefix(".")
