"""How many blocks of a kernel a multiprocessor has at once."""

from __future__ import annotations

from dataclasses import dataclass

#: Registers of a multiprocessor; they are given to warps by so many.
REGISTERS, PORTION = 64 << 10, 256

WARP = 32


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """Limits that all blocks on a multiprocessor share (CUDA C++ Programming Guide, by compute capability).

    Attributes
    ----------
    threads, blocks : int
        At most.
    shared : int
        Bytes of shared memory.
    """

    threads: int
    blocks: int
    shared: int


#: By compute capability; others have what the next older one has.
KNOWN = {
    (7, 5): Multiprocessor(1024, 16, 64 << 10),
    (8, 0): Multiprocessor(2048, 32, 164 << 10),
    (8, 6): Multiprocessor(1536, 16, 100 << 10),
    (8, 9): Multiprocessor(1536, 24, 100 << 10),
    (9, 0): Multiprocessor(2048, 32, 228 << 10),
    (10, 0): Multiprocessor(2048, 32, 228 << 10),
    (12, 0): Multiprocessor(1536, 24, 100 << 10),
}


def multiprocessor(capability: tuple[int, int]) -> Multiprocessor:
    """Return the multiprocessor of a GPU of this compute capability."""
    return KNOWN[max((known for known in KNOWN if known <= capability), default=min(KNOWN))]


def resident(capability: tuple[int, int], threads: int, registers: int, shared: int) -> int:
    """Return the blocks resident at once: the least of what threads, registers and shared memory allow.

    Parameters
    ----------
    capability : tuple of int
    threads : int
        Of a block.
    registers : int
        Of a thread.
    shared : int
        Bytes of a block.
    """
    has = multiprocessor(capability)
    warps = -(-threads // WARP)
    of_warp = -(-registers * WARP // PORTION) * PORTION
    # four parts of a multiprocessor have a fourth of the registers each
    by_registers = 4 * (REGISTERS // 4 // max(1, of_warp)) // warps
    by_shared = has.shared // shared if shared else has.blocks
    return min(has.blocks, has.threads // (warps * WARP), by_registers, by_shared)
