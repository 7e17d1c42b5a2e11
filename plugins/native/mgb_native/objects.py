"""Object files, put into memory without a compiler or a linker.

What LLVM writes for a kernel is a relocatable ELF file: sections, symbols, and places that want an address
filled in. Of each the few kinds are enough that its large code model uses, where every address is a full
word, also through a table of addresses (System V ABI, AMD64 supplement; ELF for the Arm 64-bit architecture).
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_IDENTITY = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian, version 1
_RELOCATABLE = 1
_SYMTAB, _RELA, _NOBITS, _REL = 2, 4, 8, 9
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4
_UNDEFINED = 0
_UNWINDING = ".eh_frame"  # kernels raise nothing that could pass through them
_PAGE = mmap.PAGESIZE

#: More memory than an object file of ours can ask for.
_MOST = 1 << 26


class ObjectError(Exception):
    """An object file that is damaged, for another machine, or in want of what is not here."""


def _word(old: int, value: int, place: int) -> int:
    return value % (1 << 64)


def _distance(old: int, value: int, place: int) -> int:
    return value - place


def _quarter(number: int) -> Callable[[int, int, int], int]:
    """Return 16 bits of the address in the immediate of a MOVZ or MOVK."""

    def fill(old: int, value: int, place: int) -> int:
        return old & ~(0xFFFF << 5) | (value >> 16 * number & 0xFFFF) << 5

    return fill


#: How a relocation is filled in: the field, and its new content by ``(old, value, place)``.
_Fill = tuple[struct.Struct, Callable[[int, int, int], int]]

_UNSIGNED, _LONG, _NEAR, _FAR = map(struct.Struct, ("<Q", "<I", "<i", "<q"))

#: By the name of the machine its number in the file, and by its type how a relocation is filled in.
_MACHINES: Mapping[str, tuple[int, Mapping[int, _Fill]]] = {
    "x86_64": (62, {1: (_UNSIGNED, _word), 2: (_NEAR, _distance), 24: (_FAR, _distance)}),
    "aarch64": (
        183,
        {257: (_UNSIGNED, _word)} | {k: (_LONG, _quarter((k - 263) // 2)) for k in range(263, 270)},
    ),
}

#: The relocations that need the table of addresses, full words all: where a symbol's entry is in it, how far
#: a symbol is from it, and how far it is from the place that is filled in.
_TABLED: Mapping[str, Mapping[int, str]] = {"x86_64": {27: "entry", 25: "symbol", 29: "table"}}


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int


class Loaded:
    """An object file in memory, ready to be called. The end of this object gives the memory back.

    Parameters
    ----------
    image : bytes
        The file, as the compiler wrote it. While a damaged one is loaded, nothing is written outside of its
        own memory; what its code would do is for the caller to prevent, by a checksum.
    symbols : mapping, optional
        The addresses of functions that it calls; others are looked for in the process.

    Raises
    ------
    ObjectError
        It cannot be loaded here.
    """

    def __init__(self, image: bytes, symbols: Mapping[str, int] | None = None) -> None:
        self._image = image
        self._given = symbols or {}
        self._size = 0
        try:
            self._load()
        except (struct.error, IndexError, ValueError, OverflowError) as error:
            raise ObjectError(f"the object file is damaged: {error}") from error
        del self._image, self._memory

    def __getitem__(self, symbol: str) -> int:
        """Return the address of a symbol that the file defines.

        Raises
        ------
        ObjectError
            It does not.
        """
        if symbol not in self._defined:
            raise ObjectError(f"the object file does not define {symbol}")
        return self._defined[symbol]

    def __iter__(self) -> Iterator[str]:
        """Return the symbols that the file defines."""
        return iter(self._defined)

    def stay(self) -> None:
        """Keep the memory as long as the process lives."""
        self._size = 0

    def __del__(self) -> None:
        if getattr(self, "_size", 0) and not sys.is_finalizing():  # then a thread may still run in it
            _libc().munmap(self._base, self._size)

    # the way

    def _load(self) -> None:
        identity, kind, machine, *_, start, _, _, _, _, _, count, names = _HEADER.unpack_from(self._image)
        self._fills: Mapping[int, _Fill]
        here, self._fills = _MACHINES.get(platform.machine(), (None, {}))
        self._tabled = _TABLED.get(platform.machine(), {})
        if not identity.startswith(_IDENTITY) or kind != _RELOCATABLE or machine != here:
            raise ObjectError("it is not a relocatable ELF file for this machine")
        self._sections = list(self._read_sections(start, count, names))
        entries = (r for r in self._relocations() if self._tabled.get(r[2]) == "entry")
        wanted = (symbol for _, _, _, symbol, _ in entries)
        self._entries = {symbol: 8 * k for k, symbol in enumerate(dict.fromkeys(wanted))}
        size = self._place()
        self._memory = bytearray(size)  # checked at each access, and copied when it is complete
        for number, offset in self._offsets.items():
            section = self._sections[number]
            if section.kind != _NOBITS:
                self._memory[offset : offset + section.size] = self._bytes(section)
        self._base = _map(size)
        self._size = size
        self._symbols = self._read_symbols()
        self._relocate()
        ctypes.memmove(self._base, bytes(self._memory), size)
        self._protect()

    def _read_sections(self, start: int, count: int, names: int) -> Iterator[_Section]:
        rows = [_SECTION.unpack_from(self._image, start + k * _SECTION.size) for k in range(count)]
        for name, kind, flags, _, offset, size, link, info, align, _ in rows:
            if kind != _NOBITS and offset + size > len(self._image):
                raise ObjectError(f"a section ends at byte {offset + size} of {len(self._image)}")
            if align & (align - 1) or align > _PAGE:
                raise ObjectError(f"a section has an invalid alignment {align}")
            text = self._text(rows[names][4] + name)
            yield _Section(text, kind, flags, offset, size, link, info, max(align, 1))

    def _text(self, at: int) -> str:
        return self._image[at : self._image.index(b"\0", at)].decode()

    def _bytes(self, section: _Section) -> bytes:
        return self._image[section.offset : section.offset + section.size]

    def _place(self) -> int:
        """Place sections that are executed, read and written on pages of their own; return the size."""
        sorts: dict[int, list[int]] = {_EXECUTE: [], 0: [], _WRITE: []}
        for number, section in enumerate(self._sections):
            if self._is_loaded(number):
                sort = section.flags & (_EXECUTE | _WRITE)
                if sort not in sorts:
                    raise ObjectError(
                        f"section {section.name} is both writable and executable, which is not supported"
                    )
                sorts[sort].append(number)
        self._offsets: dict[int, int] = {}
        self._spans: list[tuple[int, int, int]] = []
        end = 0
        for sort, numbers in sorts.items():
            begin = end
            for number in numbers:
                section = self._sections[number]
                self._offsets[number] = -(-end // section.align) * section.align
                end = self._offsets[number] + section.size
            if not sort:
                self._table = -(-end // 8) * 8
                end = self._table + 8 * len(self._entries)
            end = -(-end // _PAGE) * _PAGE
            self._spans.append((begin, end, sort))
        if end > _MOST:
            raise ObjectError(f"it requires {end} bytes of memory")
        return end

    def _read_symbols(self) -> list[int | str | None]:
        """Return each symbol's address, the name of an external one, None for one that is not loaded."""
        self._defined: dict[str, int] = {}
        tables = [s for s in self._sections if s.kind == _SYMTAB]
        if len(tables) != 1:
            raise ObjectError(f"it has {len(tables)} tables of symbols")
        names = self._sections[tables[0].link].offset
        found: list[int | str | None] = []
        for name, _, _, section, value, _ in _SYMBOL.iter_unpack(self._bytes(tables[0])):
            text = self._text(names + name)
            if section == _UNDEFINED:
                found.append(text)
            elif section in self._offsets:
                if value > self._sections[section].size:
                    raise ObjectError(f"{text} is at byte {value} of a section that is shorter")
                found.append(self._base + self._offsets[section] + value)
                self._defined[text] = self._base + self._offsets[section] + value
            else:
                found.append(None)
        return found

    def _relocations(self) -> Iterator[tuple[_Section, int, int, int, int]]:
        """Yield the section, the place in it, the type, the symbol and the addend of each that LLVM wrote."""
        for section in self._sections:
            if section.kind == _RELA and self._is_loaded(section.info):
                for at, info, addend in _RELOCATION.iter_unpack(self._bytes(section)):
                    yield section, at, info & 0xFFFFFFFF, info >> 32, addend

    def _is_loaded(self, number: int) -> bool:
        section = self._sections[number]
        return bool(section.flags & _ALLOC and section.name != _UNWINDING and section.size)

    def _relocate(self) -> None:
        if any(s.kind == _REL and s.info in self._offsets for s in self._sections):
            raise ObjectError("relocations without addends are not supported")
        for symbol, entry in self._entries.items():
            _UNSIGNED.pack_into(self._memory, self._table + entry, self._value(symbol))
        for section, at, kind, symbol, addend in self._relocations():
            start, size = self._offsets[section.info], self._sections[section.info].size
            field = _FAR if kind in self._tabled else self._fills[kind][0] if kind in self._fills else None
            if field is None:
                raise ObjectError(f"relocations of type {kind} are not supported")
            if at + field.size > size:
                raise ObjectError(f"a relocation is at byte {at} of a section of {size} bytes")
            place = self._base + start + at
            if kind in self._tabled:
                new = self._by_table(self._tabled[kind], symbol, place) + addend
            else:
                (old,) = field.unpack_from(self._memory, start + at)
                new = self._fills[kind][1](old, self._value(symbol) + addend, place)
            field.pack_into(self._memory, start + at, new)

    def _by_table(self, what: str, symbol: int, place: int) -> int:
        table = self._base + self._table
        if what == "table":
            return table - place
        return self._entries[symbol] if what == "entry" else self._value(symbol) - table

    def _value(self, symbol: int) -> int:
        value = self._symbols[symbol]
        if value is None:
            raise ObjectError(f"symbol {symbol} is of a section that is not loaded")
        if isinstance(value, int):
            return value
        return self._given[value] if value in self._given else _elsewhere(value)

    def _protect(self) -> None:
        rights = {
            _EXECUTE: mmap.PROT_READ | mmap.PROT_EXEC,
            0: mmap.PROT_READ,
            _WRITE: mmap.PROT_READ | mmap.PROT_WRITE,
        }
        for begin, end, sort in self._spans:
            if end > begin and _libc().mprotect(self._base + begin, end - begin, rights[sort]):
                raise ObjectError("the system does not allow a process to make memory executable")


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.munmap.restype = libc.mprotect.restype = ctypes.c_int
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def _map(size: int) -> int:
    rights, private = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = _libc().mmap(None, max(size, 1), rights, private, -1, 0)
    if base in (None, ctypes.c_void_p(-1).value):
        raise ObjectError(f"no memory for {size} bytes of code")
    return int(base)


def _elsewhere(symbol: str) -> int:
    """Return the address of a function of this process, such as ``memset``."""
    try:
        return ctypes.cast(_libc()[symbol], ctypes.c_void_p).value or 0
    except AttributeError:
        raise ObjectError(f"{symbol} is not in this process") from None
