"""Compiled pipelines in memory: bound to the bridge, turned into bytes and back."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mgb_native.objects import Loaded, ObjectError

from .bridge import bridge
from .schedule import Form

#: The name of each compiled function; Halide adds the one that takes an array of pointers.
NAME = "mgb_kernel"

_LENGTHS = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Code:
    """A compiled pipeline.

    Attributes
    ----------
    address : int
        Of the function that takes an array of pointers to its arguments.
    order : tuple of str
        The names of the arguments.
    image : bytes
        The object file.
    schedule : str
        What it was scheduled by.
    form : Form
        The rows that it is for.
    sizes : dict or None
        The lengths of the loops that it is for, if it is not for all.
    owner : object
        Keeps the code in memory.
    """

    address: int
    order: tuple[str, ...]
    image: bytes
    schedule: str
    form: Form
    sizes: dict[str, int] | None
    owner: Any


def dump(codes: Sequence[Code]) -> bytes:
    """Return all that it takes to call these, for `load`."""
    head = json.dumps([[c.order, c.schedule, c.form, c.sizes, len(c.image)] for c in codes]).encode()
    images = b"".join(c.image for c in codes)
    parts = (head, images)
    return _LENGTHS.pack(*map(len, parts)) + b"".join(parts)


def place(
    image: bytes, order: tuple[str, ...], schedule: str, form: Form, sizes: dict[str, int] | None = None
) -> Code:
    """Return a compiled pipeline, put into memory."""
    owner = Loaded(image, bridge().symbols)
    return Code(owner[f"{NAME}_argv"], order, image, schedule, form, sizes, owner)


def load(blob: bytes) -> list[Code]:
    """Return the codes that `dump` made `blob` of; neither Halide nor a compiler is imported.

    Raises
    ------
    ObjectError
        The bytes are damaged.
    """
    try:
        at, parts = _LENGTHS.size, []
        for length in _LENGTHS.unpack_from(blob):
            parts.append(blob[at : at + length])
            at += length
        found, start = [], 0
        for order, schedule, form, sizes, length in json.loads(parts[0]):
            image = parts[1][start : start + length]
            found.append(place(image, tuple(order), str(schedule), Form(form), sizes))
            start += length
    except (struct.error, ValueError, TypeError) as error:
        raise ObjectError(f"the bytes of a kernel are damaged: {error}") from error
    return found
