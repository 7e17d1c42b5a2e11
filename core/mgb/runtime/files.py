"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

#: The folders of what processes have open: Linux', and that of other Unixes.
_DESCRIPTORS = re.compile(r"/proc/(\d+|self)(/task/\d+)?/fd|/dev/fd")


def replace_file(path: Path, blobs: Iterable[Any]) -> None:
    """Write a file beside `path`, then rename it: a reader sees the old content or the new, never a part.

    A link is followed, and stays: the file that it leads to is replaced. That file keeps its permissions.
    A pipe or a device, as ``/dev/null`` or ``/dev/stdout``, is written to and not replaced.
    """
    mode, is_open = _mode_of(path), _is_descriptor(path)
    if is_open or (mode is not None and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)):
        with open(path, "ab" if is_open else "wb") as device:
            device.writelines(blobs)
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            file.writelines(blobs)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except OSError as error:
        if str(error.filename) == str(temporary):  # a name of which the user knows nothing
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _mode_of(path: Path) -> int | None:
    """Return the mode of the file that `path` leads to; None if it does not exist."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _is_descriptor(path: Path) -> bool:
    """Return whether it is, or leads to, a file that a process has open, as ``/dev/stdout`` does."""
    for _ in range(40):  # as many links as Linux follows
        if _DESCRIPTORS.fullmatch(os.path.realpath(path.parent)):
            return True
        if not path.is_symlink():
            return False
        path = path.parent / os.readlink(path)
    return False
