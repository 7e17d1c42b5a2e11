"""The resources that a compiled kernel takes, read from its image: no tool and no driver is needed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

#: Facts of ``.nv.info``: registers of a thread, bytes of its stack; of a kernel's own, threads of a block.
_REGISTERS, _FRAME, _THREADS = 0x2F, 0x11, 0x05

#: The machine of an ELF file for NVIDIA's GPUs.
_CUDA = 190

#: A section of it that has code begins so; one with shared memory; and what the compiler itself reserves.
_CODE, _SHARED = ".text.", ".nv.shared."


@dataclass(frozen=True, slots=True)
class Resources:
    """Of one kernel.

    Attributes
    ----------
    name : str
        By which it is launched.
    registers : int
        Of a thread.
    stack : int
        Bytes of local memory of a thread: spills are there.
    shared : int
        Bytes of shared memory of a block that its text declares.
    threads : int
        That a block may have; 0: as many as there are registers for.
    """

    name: str
    registers: int
    stack: int
    shared: int
    threads: int = 0


def resources(image: bytes) -> tuple[Resources, ...]:
    """Return the resources of the kernels of an image, in its order.

    Parameters
    ----------
    image : bytes
        An ELF file for one architecture, such as NVRTC and Triton make.

    Raises
    ------
    ValueError
        It is not an image of CUDA: PTX has no registers before a driver or an assembler has compiled it, and
        code of the host is not for a GPU.
    """
    if image[:4] != b"\x7fELF":
        raise ValueError("an image for one architecture is needed (sm_90); this is PTX or no image at all")
    (machine,) = struct.unpack_from("<H", image, 18)
    if machine != _CUDA:
        raise ValueError(f"no image of CUDA: an ELF file for machine {machine}, where GPUs are {_CUDA}")
    sections = dict(_sections(image))
    symbols = _symbols(image, sections)
    facts = {kind: dict(_values(sections[".nv.info"][0], kind)) for kind in (_REGISTERS, _FRAME)}
    number = {name: k for k, name in enumerate(symbols)}
    found = []
    for section in sections:
        if section.startswith(_CODE) and (name := section.removeprefix(_CODE)) in number:
            k = number[name]
            shared = sections.get(_SHARED + name, (b"", 0))[1]
            own = sections.get(f".nv.info.{name}", (b"", 0))[0]
            threads = next((x for x, *_ in _values(own, _THREADS)), 0)
            taken = (facts[kind].get(k, 0) for kind in (_REGISTERS, _FRAME))
            found.append(Resources(name, *taken, shared, threads))
    return tuple(found)


def _sections(image: bytes) -> Iterator[tuple[str, tuple[bytes, int]]]:
    """Yield the name, the bytes and the size of each section."""
    (start,) = struct.unpack_from("<Q", image, 40)
    step, count, names = struct.unpack_from("<HHH", image, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, start + k * step) for k in range(count)]
    texts = image[heads[names][4] :]
    for name, kind, _, _, offset, size, *_ in heads:
        content = b"" if kind == 8 else image[offset : offset + size]
        yield texts[name : texts.index(b"\0", name)].decode(), (content, size)


def _symbols(image: bytes, sections: dict[str, tuple[bytes, int]]) -> list[str]:
    table, names = sections[".symtab"][0], sections[".strtab"][0]
    starts = [struct.unpack_from("<I", table, at)[0] for at in range(0, len(table), 24)]
    return [names[at : names.index(b"\0", at)].decode() for at in starts]


def _values(content: bytes, wanted: int) -> Iterator[tuple[int, ...]]:
    """Yield the attributes of one kind, as words: the number of a kernel's symbol and a value, or its own."""
    at = 0
    while at + 4 <= len(content):
        form, kind, size = struct.unpack_from("<BBH", content, at)
        at += 4
        if form != 4:  # the value stands in the head
            continue
        if kind == wanted:
            yield struct.unpack_from(f"<{size // 4}I", content, at)
        at += size


def problem(image: bytes, name: str, threads: int) -> str | None:
    """Return why no block of so many threads of a kernel can be launched from an image; None when one can."""
    known = {r.name: r for r in resources(image)}
    if name not in known:
        return f"the image has no kernel called {name}; it has {', '.join(known) or 'none'}"
    most = known[name].threads
    if most and threads > most:
        return f"a block of {threads} threads is launched of {name}, which was compiled for {most}"
    return None
