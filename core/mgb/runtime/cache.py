"""The on-disk cache of compiled kernels.

One entry is one file, ``<folder>/v2/<backend>/<2 hex digits>/<key>``: a header with the length of the bytes
that follow and a checksum of them, of the backend and of the key, so that a file in the place of another is
found as damage is. An entry is published by one rename, so a reader sees all of it or nothing; what is
damaged or belongs to somebody else counts as absent. A cache that cannot be used costs one warning. Other
entries, as the steps of programs, have a name with a dot in place of a backend, and are not counted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import struct
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import CacheWarning
from . import config, forking

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

try:
    import fcntl
except ImportError:  # Windows: two processes may compile the same kernel, and the last rename wins
    fcntl = None  # type: ignore[assignment]

SCHEMA = "v2"
_MAGIC = b"MGBKERN2"
_HEADER = struct.Struct("<8sQ32s")
_POLL = 0.01

_lock = forking.lock()
_usable: dict[Path, bool] = {}  # folders that were looked at
_open: dict[int, int] = {}  # lock files, by descriptor, and the thread of each


@dataclass(frozen=True, slots=True)
class Info:
    """The result of `info`.

    Attributes
    ----------
    folder : Path
    enabled : bool
        Switched on, and the folder can be used.
    entries, nbytes : int
    """

    folder: Path
    enabled: bool
    entries: int
    nbytes: int


def folder() -> Path:
    """Return where entries are kept now: ``MGB_CACHE_DIR``, or the user's cache folder."""
    named = config.CACHE_DIR.get()
    if named:
        try:
            return Path(named).expanduser()
        except RuntimeError as error:  # the user is unknown
            raise config.CACHE_DIR.error("a folder") from error
    import platformdirs

    return Path(platformdirs.user_cache_dir("mgb"))


def load(backend: str, key: str) -> bytes | None:
    """Return the bytes that were stored under `key`, or None when there are none that can be trusted."""
    path = _path(backend, key)
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            if not _is_mine(os.fstat(file.fileno())):
                return None
            return _unpack(file.read(), backend, key)
    except OSError:
        return None


def store(backend: str, key: str, blob: bytes) -> None:
    """Keep `blob` under `key` in place of what was there; a failure is a `CacheWarning`, given once."""
    path = _path(backend, key)
    if path is None:
        return
    try:
        _publish(path, _HEADER.pack(_MAGIC, len(blob), _digest(backend, key, blob)) + blob)
    except OSError as error:
        _give_up(folder(), str(error))


@contextmanager
def lock(backend: str, key: str, timeout: float = 30.0) -> Iterator[bool]:
    """Let one process at a time compile `key`.

    Parameters
    ----------
    backend : str
        Its name.
    key : str
        Hexadecimal.
    timeout : float
        Seconds to wait for the process that has it.

    Yields
    ------
    bool
        False: it was not to be had; compile, and do not store.
    """
    path = _path(backend, key)
    if path is None or fcntl is None:
        yield path is not None
        return
    path = path.with_name(f".{key}.lock")
    descriptor = _acquire(path, time.monotonic() + timeout)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            with suppress(OSError):  # whoever waits on the removed file finds the entry when it gets it
                path.unlink()
            _close(descriptor)


def info() -> Info:
    """Return where the cache is and how much is in it."""
    sizes = [size for path in _entries() if (size := _size(path)) is not None]
    return Info(folder(), _root() is not None, len(sizes), sum(sizes))


def problem() -> str | None:
    """Return why kernels cannot be kept in the folder, with what helps.

    None when they can, or shall not be.
    """
    found = _problem(folder()) if config.CACHE.on() else None
    return found and _remedied(found)


def damaged() -> int:
    """Count the untrusted entries: truncated, changed, misplaced, or of another user."""
    return sum(load(path.parent.parent.name, path.name) is None for path in _entries())


def clear() -> int:
    """Remove every entry; returns how many there were."""
    count = sum(1 for _ in _entries())
    for old in folder().glob("v[0-9]*"):
        if old.is_dir() and not old.is_symlink() and _is_mine(old.stat()):
            shutil.rmtree(old, ignore_errors=True)
    with _lock:
        _usable.clear()
    return count


# entries


def _digest(backend: str, key: str, blob: bytes) -> bytes:
    """Return the checksum of an entry, its place included; no name has a NUL in it."""
    checksum = hashlib.sha256(f"{backend}\0{key}\0".encode())
    checksum.update(blob)
    return checksum.digest()


def _unpack(content: bytes, backend: str, key: str) -> bytes | None:
    if len(content) < _HEADER.size:
        return None
    magic, length, digest = _HEADER.unpack_from(content)
    blob = content[_HEADER.size :]
    intact = magic == _MAGIC and length == len(blob) and digest == _digest(backend, key, blob)
    return blob if intact else None


def _publish(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".new", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _entries() -> Iterator[Path]:
    for path in (folder() / SCHEMA).glob("*/??/*"):
        if not any(part.startswith(".") for part in path.parts[-3:]):
            yield path


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:  # cleared in between
        return None


def _acquire(path: Path, deadline: float) -> int | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        _give_up(folder(), str(error))
        return None
    _open[descriptor] = threading.get_ident()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError:
            if time.monotonic() >= deadline:
                _close(descriptor)
                return None
            time.sleep(_POLL)


def _close(descriptor: int) -> None:
    _open.pop(descriptor, None)
    os.close(descriptor)


def _after_fork() -> None:
    """Close what other threads have open: with it a child would go on holding what they give back."""
    for descriptor in [d for d, thread in _open.items() if thread != threading.get_ident()]:
        _close(descriptor)


forking.at_fork(in_child=_after_fork)


# the folder


def _path(backend: str, key: str) -> Path | None:
    root = _root()
    return root / backend / key[:2] / key if root is not None else None


def _root() -> Path | None:
    """Return the folder of this schema, made if need be; None when the cache is off or cannot be used."""
    if not config.CACHE.on():
        return None
    base = folder()
    with _lock:
        usable = _usable.get(base)
    if usable is None:
        problem = _problem(base)
        if problem is not None:
            _give_up(base, problem)
        with _lock:
            usable = _usable.setdefault(base, problem is None)
    return base / SCHEMA if usable else None


def _problem(base: Path) -> str | None:
    """Return why `base` cannot be trusted with code that will be run."""
    root = base / SCHEMA
    try:
        base.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError):
            root.mkdir(mode=0o700)
        status = root.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return f"{root} is not a folder"
        if not _is_mine(status):
            return f"{root} belongs to another user"
        if os.name == "posix" and status.st_mode & 0o077:
            root.chmod(0o700)
        return None if os.access(root, os.W_OK) else f"{root} cannot be written to"
    except OSError as error:
        return str(error)


def _is_mine(status: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or status.st_uid == os.getuid()


def _give_up(base: Path, problem: str) -> None:
    """Work without the cache in `base` from now on, and say so once."""
    with _lock:
        told = _usable.get(base) is False
        _usable[base] = False
    if not told:
        warnings.warn(
            f"compiled kernels are not kept on disk: {_remedied(problem)}",
            CacheWarning,
            stacklevel=3,
        )


def _remedied(problem: str) -> str:
    return f"{problem}; set {config.CACHE_DIR.name} to a folder of your own, or {config.CACHE.name}=0"
