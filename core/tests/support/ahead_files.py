"""Files that `export` wrote, changed by hand: for tests of what reads them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

_HEAD = struct.Struct("<8sIIQQ")


def rewrite(content: bytes, change: Callable[[bytes], bytes], *, version: int = 1) -> bytes:
    """The file with another text, whose checksum fits."""
    magic, _, _, length, data = _HEAD.unpack_from(content)
    text = change(content[_HEAD.size : _HEAD.size + length])
    text += b" " * (-(_HEAD.size + len(text)) % 64)
    head = _HEAD.pack(magic, version, zlib.crc32(text), len(text), data)
    return head + text + content[_HEAD.size + length :]
