"""Files that almost are what they say: mutations of exported and saved files, and of arrays.

They know the structure, so that they reach beyond the first check: fields keep their types, checksums are
made again, and numbers are those at which something ends.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

from ahead_files import rewrite

INTS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    64,
    255,
    256,
    -(1 << 31),
    1 << 31,
    1 << 32,
    1 << 40,
    1 << 62,
    -(1 << 62),
    (1 << 63) - 1,
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3e38, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "",
    "x",
    "y",
    "ai.mgb",
    "ai.onnx",
    "own",
    "\0",
    "é" * 40,
    "{}",
    "[",
    "x" * 5000,
    "SAME_UPPER",
    "linear",
)

Mutation = Callable[[bytes, Random], bytes]


def bytewise(data: bytes, random: Random) -> bytes:
    """Bytes flipped, cut out, doubled or replaced."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8))):
        start = random.randrange(len(changed) + 1)
        stop = min(start + random.choice((1, 1, 4, 64)), len(changed))
        part = random.choice(
            (b"", random.randbytes(stop - start), bytes(stop - start), changed[start:stop] * 2)
        )
        changed[start:stop] = part
    return bytes(changed)


def number(old: Any, random: Random) -> Any:
    """Another number of the kind of `old`."""
    if isinstance(old, float):
        return random.choice((*FLOATS, old * 2, -old))
    return random.choice((*INTS, old + 1, old - 1, -old, random.randrange(12)))


# JSON


def json_value(value: Any, random: Random) -> Any:
    """`value` with one part of it changed."""
    places = _places(value)
    parent, key = random.choice(places) if places else (None, None)
    if parent is None:
        return random.choice((None, [], {}, 7))
    old = parent[key]
    what = random.random()
    if what < 0.15:
        del parent[key]
    elif what < 0.3:
        other, place = random.choice(places)
        parent[key] = json.loads(json.dumps(other[place]))
    elif isinstance(old, bool) or old is None or what < 0.4:
        parent[key] = random.choice(
            (None, True, False, [], {}, "", 0, -1, 1 << 70, 1.5, [[]], {"float": "nan"})
        )
    elif isinstance(old, int | float):
        parent[key] = number(old, random)
    elif isinstance(old, str):
        parent[key] = random.choice((*TEXTS, *(o[k] for o, k in places if isinstance(o[k], str))))
    elif isinstance(old, list) and old:
        random.choice((old.reverse, old.pop, lambda: old.append(old[0]), lambda: random.shuffle(old)))()
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    found, stack = [], [value]
    while stack:
        top = stack.pop()
        keys = list(top) if isinstance(top, dict) else range(len(top)) if isinstance(top, list) else ()
        for key in keys:
            found.append((top, key))
            stack.append(top[key])
    return found


def _mutated_text(text: bytes, random: Random) -> bytes:
    value = json.loads(text)
    for _ in range(random.choice((1, 1, 2, 4))):
        value = json_value(value, random)
    return json.dumps(value).encode()


def exported(data: bytes, random: Random) -> bytes:
    """The text of an exported file changed, or its blobs, with checksums that fit; or any bytes."""
    what = random.random()
    if what < 0.15:
        return bytewise(data, random)
    if what < 0.75:
        return rewrite(data, lambda text: _mutated_text(text, random))
    length, _ = struct.unpack_from("<QQ", data, 16)
    start = 32 + length
    return rewrite(data[:start] + _flipped(data[start:], random), _with_checksums(data, start, random))


def _flipped(blobs: bytes, random: Random) -> bytes:
    changed = bytearray(blobs)
    for _ in range(random.choice((1, 4, 64)) if changed else 0):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def _with_checksums(data: bytes, start: int, random: Random) -> Callable[[bytes], bytes]:
    """The checksums made again, of as many bytes as the old ones were of, at places that may be others."""

    def change(text: bytes) -> bytes:
        header = json.loads(text)
        for entry in header["blobs"]:
            if random.random() < 0.3:
                entry[0] = max(0, entry[0] + random.choice((-64, 64, 128)))
            entry[2] = zlib.crc32(data[start + entry[0] :][: entry[1]])
        return json.dumps(header).encode()

    return change


def saved(data: bytes, random: Random) -> bytes:
    """A state dict: its header or its nest changed, with a checksum that fits, or any bytes."""
    if random.random() < 0.2:
        return bytewise(data, random)
    (length,) = struct.unpack_from("<Q", data)
    header, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    if random.random() < 0.3:
        rest = bytewise(rest, random)
    metadata = header.pop("__metadata__")
    nest = metadata["mgb"]
    if random.random() < 0.5:
        nest = _mutated_text(nest.encode(), random).decode()
    else:
        header = json_value(header, random)
    crc = zlib.crc32(rest, zlib.crc32((json.dumps(header) + nest).encode()))
    whole = {"mgb": nest, "crc32": str(crc)}
    if isinstance(header, dict):
        header["__metadata__"] = whole if random.random() < 0.9 else json_value(whole, random)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + rest


def arrays(data: bytes, random: Random) -> bytes:
    """A file of NumPy's: its header changed, in an archive or not, or any bytes."""
    if random.random() < 0.3:
        return bytewise(data, random)
    if not data.startswith(b"PK"):
        return _mutated_array(data, random)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(random.choice((name, "x", "é", "../x.npy")), _mutated_array(old.read(name), random))
    return out.getvalue()


def _mutated_array(data: bytes, random: Random) -> bytes:
    length = int.from_bytes(data[8:10], "little")
    header = data[10 : 10 + length].decode("latin-1")
    words = {
        "'<f4'": ("'<f8'", "'|O'", "'<U9'", "'|V5'", "[('a', '<f4')]", "'<M8[s]'", "'>i2'", "'|b1'", "7"),
        "(2, 3)": (
            "()",
            "(-1,)",
            "(1152921504606846976, 16)",
            "(0, 4611686018427387904)",
            "(2, 3, 1)",
            "2",
            "None",
        ),
        "False": ("True", "None", "0"),
    }
    for old, others in words.items():
        if random.random() < 0.5:
            header = header.replace(old, random.choice(others))
    text = header.encode("latin-1")
    return data[:8] + len(text).to_bytes(2, "little") + text + data[10 + length :]
