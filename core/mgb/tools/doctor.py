"""`mgb doctor`: what is installed, what serves each device, where kernels are kept, and what is wrong.

A problem is one text that names the thing, why, and the command that mends it, as the errors of mgb are.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from ..backends import API_VERSION, Backend, num_threads, plugins
from ..errors import BackendError, DeviceError, MgbError
from ..runtime import cache, config, device
from ..tensor import libraries

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

#: Distributions whose versions explain most of what differs between two machines.
_DEPENDENCIES = ("mgb", "numpy", "scipy", "cupy-cuda12x", "cupy-cuda13x")


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `examine`.

    Attributes
    ----------
    facts : tuple of (str, str)
        A subject and what is to be said of it, in the order in which they are told.
    problems : tuple of str
        Each with its remedy.
    """

    facts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]


def examine() -> Report:
    """Look at this installation; nothing is changed but that the folder of the cache is made."""
    parts = [_versions(), _devices(), _backends(), _libraries(), _cache(), _threads(), _variables()]
    found = [(subject, text, is_wrong) for part in parts for subject, text, is_wrong in part]
    facts = tuple((subject, text) for subject, text, is_wrong in found if not is_wrong)
    return Report(facts, tuple(f"{subject}: {text}" for subject, text, is_wrong in found if is_wrong))


#: What brings a backend for each kind of device.
_INSTALL = {"cpu": 'pip install "mgb[cpu]"', "gpu": "mgb backends has the command for each"}

#: A subject, what is to be said of it, and whether that is a problem.
_Line = tuple[str, str, bool]


def _versions() -> Iterator[_Line]:
    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}", False
    for name in _DEPENDENCIES:
        try:
            yield name, version(name), False
        except PackageNotFoundError:
            continue
    yield "backend API", f"version {API_VERSION}", False


def _devices() -> Iterator[_Line]:
    kinds = ["cpu"]
    if _has_cupy():
        try:
            device.array_module("gpu0")
            kinds.append("gpu")
        except DeviceError as error:
            yield "device gpu", str(error), True
    for kind in kinds:
        yield from _serving(kind)


def _has_cupy() -> bool:
    from importlib.util import find_spec

    return find_spec("cupy") is not None


def _serving(kind: str) -> Iterator[_Line]:
    """Iterate over lines that name the backend for a kind of device, and the reason."""
    asked = config.BACKEND.get()
    try:
        chosen = plugins.choose_backend(kind)
    except MgbError as error:
        yield f"device {kind}", str(error), True
        return
    why = f"{config.BACKEND.name}={asked}" if asked else _why(kind, chosen)
    yield f"device {kind}", f"{chosen.name}: {why}", False
    if chosen.name == "eager" and not asked:
        yield f"device {kind}", f"no other backend runs here, so nothing is fused: {_INSTALL[kind]}", True


def _why(kind: str, chosen: Backend) -> str:
    """Return why `chosen` is the default: its priority, and what decides where others have the same."""
    priority = chosen.traits.priority
    others = [
        line.name
        for line in plugins.status()
        if line.priority == priority
        and kind in line.devices
        and not line.problem
        and line.name != chosen.name
    ]
    if not others:
        return f"priority {priority}, the highest here"
    rule = (
        "mgb's own go first" if plugins.own(chosen.name) > any(map(plugins.own, others)) else "names decide"
    )
    return f"priority {priority}, the highest here, as {', '.join(others)} too; of equal ones {rule}"


def _backends() -> Iterator[_Line]:
    for line in plugins.status():
        if line.distribution:
            text = f"{line.distribution}, for {', '.join(line.devices)}, version {line.version}"
            yield f"backend {line.name}", line.problem or text, bool(line.problem)
            if line.note:
                yield f"backend {line.name}", line.note, True


def _libraries() -> Iterator[_Line]:
    asked = config.OP_LIBRARIES.get().lower()
    try:
        for line in libraries.status():
            is_wrong = bool(line.problem) and (not asked or line.name in asked)
            yield f"op library {line.name}", line.problem or f"{line.distribution}, {line.version}", is_wrong
    except MgbError as error:
        yield "op libraries", str(error), True


def _cache() -> Iterator[_Line]:
    try:
        if not config.CACHE.on():
            yield "cache", f"off, by {config.CACHE.name}={config.CACHE.get()}", False
            return
        problem = cache.problem()
        if problem is not None:
            yield "cache", problem, True
            return
        info, damaged = cache.info(), cache.damaged()
    except MgbError as error:
        yield "cache", str(error), True
        return
    yield "cache", f"{info.folder}: {info.entries} kernels, {info.nbytes} bytes, writable", False
    if damaged:
        yield "cache", f"{damaged} damaged files in {info.folder}: mgb cache clear", True


def _threads() -> Iterator[_Line]:
    try:
        yield "threads", f"{num_threads()} of {os.cpu_count()} processors", False
    except MgbError as error:
        yield "threads", str(error), True


def variables() -> list[config.Variable]:
    """Return what the core reads of the environment, then what the installed backends read."""
    found = dict.fromkeys(config.VARIABLES)
    for name in plugins.installed():
        with suppress(BackendError):
            found.update(dict.fromkeys(plugins.import_backend(name).variables))
    return [*found]


def _variables() -> Iterable[_Line]:
    return [(v.name, os.environ[v.name], False) for v in variables() if os.environ.get(v.name)]
