"""The parameters of a kernel, printed and packed by one list: one struct, or each on its own."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence

#: The size of each type that a parameter may have; the codes are those of `struct`.
CODES = {"pointer": "Q", "int64_t": "q", "int": "i", "uint32_t": "I"}


class Packing:
    """The layout of the parameters of a kernel.

    Parameters
    ----------
    pointers : int
        How many addresses stand in front; they change from call to call.
    fields : sequence of (type, name)
        What follows, the 8-byte types first, so that C and this agree on the places.
    apart : bool, optional
        The kernel has a parameter for each of them, not one struct of all.
    nulls : int, optional
        Null pointers after all parameters of a kernel that has them apart.

    Attributes
    ----------
    places : tuple of int
        Where each parameter of the kernel begins.
    """

    def __init__(
        self, pointers: int, fields: Sequence[tuple[str, str]], apart: bool = False, nulls: int = 0
    ) -> None:
        sizes = [struct.calcsize(CODES[kind]) for kind, _ in fields]
        assert sizes == sorted(sizes, reverse=True), "the types of 8 bytes stand in front"
        self.names = tuple(name for _, name in fields)
        self.pointers = struct.Struct(f"<{pointers}Q")
        self.fields = struct.Struct("<" + "".join(CODES[kind] for kind, _ in fields))
        used = self.pointers.size + self.fields.size
        end = -(-used // 8) * 8
        self.size = end + 8 * nulls or 8
        starts = [self.pointers.size + sum(sizes[:k]) for k in range(len(sizes))]
        each = (*range(0, self.pointers.size, 8), *starts, *range(end, end + 8 * nulls, 8))
        self.places: tuple[int, ...] = each if apart else (0,)

    def pack(self, values: Mapping[str, int]) -> bytes:
        """Return the struct, with room for the addresses."""
        packed = self.fields.pack(*(values[name] for name in self.names))
        return (bytes(self.pointers.size) + packed).ljust(self.size, b"\0")


class Packet:
    """The parameters of one call, at a fixed address.

    Parameters
    ----------
    content : bytes
        As `Packing.pack` made it.
    places : sequence of int, optional
        `Packing.places`.

    Attributes
    ----------
    buffer : bytearray
        Where addresses are packed into.
    table : int
        The address of the list of parameters, as a launch wants it.
    """

    __slots__ = ("_keep", "buffer", "table")

    def __init__(self, content: bytes, places: Sequence[int] = (0,)) -> None:
        self.buffer = bytearray(content)
        fixed = (ctypes.c_char * len(content)).from_buffer(self.buffer)  # it cannot be resized any more
        start = ctypes.addressof(fixed)
        table = (ctypes.c_void_p * len(places))(*(start + place for place in places))
        self.table = ctypes.addressof(table)
        self._keep = fixed, table
