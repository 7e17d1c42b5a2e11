"""Files that rank 0 writes and reads for all; each rank knows how that ended."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np

from ..storage import serialization
from ..tensor.apply import literal
from . import collective
from .errors import CheckpointError
from .group import WORLD, get_rank, is_distributed
from .helper import group_barrier

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}


def save(obj: Any, f: str | os.PathLike[str]) -> None:
    """Save by rank 0, like `mgb.save`; all ranks call it, and go on when the file is there.

    The file is written when all ranks have come here, so all exchanges before it have ended well on each.
    It is replaced in one go: whatever ends the job, there is the old one or the new one, whole.

    Parameters
    ----------
    obj : nest of dict, list, tuple, Tensor, ...
        That of rank 0 is written.
    f : path

    Raises
    ------
    CheckpointError
        On the other ranks, when rank 0 could not write it; rank 0 raises what hindered it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mgb.distributed.save({"epoch": 3}, f"{folder}/state")
    ...     print(mgb.load(f"{folder}/state"))
    {'epoch': 3}
    """

    def write() -> bytes:
        serialization.save(obj, f)
        return b""

    group_barrier()
    _by_root(write, f"could not write {os.fspath(f)}")


def load(f: str | os.PathLike[str], map_location: Any = None) -> Any:
    """Load a file that rank 0 reads for all, like `mgb.load`: only its machine needs to have it.

    Parameters
    ----------
    f : path
    map_location
        As for `mgb.load`, on each rank.

    Raises
    ------
    CheckpointError
        On the other ranks, when rank 0 could not read it; rank 0 raises what hindered it.
    FileFormatError, DeviceError
        On all of them: as `mgb.load`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mgb.save({"epoch": 3}, f"{folder}/state")
    ...     print(mgb.distributed.load(f"{folder}/state"))
    {'epoch': 3}
    """

    def read() -> bytes:
        with open(f, "rb") as file:
            return file.read()

    content = io.BytesIO(_by_root(read, f"could not read {os.fspath(f)}"))
    content.name = os.fspath(f)
    return serialization.load(content, map_location)


def _by_root(work: Any, failed: str) -> bytes:
    """Call `work` on rank 0 and return its result on all ranks, or raise an error on each."""
    if not is_distributed():
        return bytes(work())
    content, error = b"", None
    if get_rank() == 0:
        try:
            content = work()
        except Exception as caught:
            content, error = f"{type(caught).__name__}: {caught}".encode(), caught
    well, length = _from_root(np.array([error is None, len(content)], np.int64))
    mine = np.frombuffer(content, np.uint8) if get_rank() == 0 else np.empty(length, np.uint8)
    content = bytes(_from_root(mine))
    if error is not None:
        raise error
    if not well:
        raise CheckpointError(f"rank 0 {failed}: {content.decode(errors='replace')}")
    return content


def _from_root(array: Any) -> Any:
    return collective.broadcast(literal(array), group=WORLD.key).numpy()
