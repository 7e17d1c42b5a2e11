"""Reading machine code: written down here, so that no tool is needed; and what fits on a multiprocessor."""

from __future__ import annotations

import _ctypes
from pathlib import Path

import pytest
from mgb_cuda import image, occupancy, sass

LISTING = """
.text.mgb_0:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   IMAD.WIDE R2, R0, 0x4, R2 ;
        /*0020*/               @P0 BRA `(.L_x_2) ;
.L_x_1:
        /*0030*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0040*/                   LDG.E.128 R8, desc[UR4][R2.64+0x800] ;
        /*0050*/                   FADD R12, R4, R8 ;
        /*0060*/               @P1 BRA `(.L_x_3) ;
        /*0070*/                   CALL.REL.NOINC `($slow) ;
.L_x_3:
        /*0080*/                   LDL R13, [R1] ;
        /*0090*/               @P2 BRA `(.L_x_1) ;
.L_x_2:
        /*00a0*/                   STG.E.64 desc[UR4][R2.64], R12 ;
        /*00b0*/                   EXIT ;
$slow:
        /*00c0*/                   RET.REL.NODEC R2 `(mgb_0) ;
.L_x_9:
        /*00d0*/                   BRA `(.L_x_9);
"""


def test_host_elf_and_ptx_are_rejected_as_images() -> None:
    with pytest.raises(ValueError, match="no image of CUDA: an ELF file for machine "):
        image.resources(Path(_ctypes.__file__).read_bytes())
    with pytest.raises(ValueError, match="this is PTX or no image at all"):
        image.resources(b".version 8.1")


def test_sass_reader_finds_the_loop_and_the_full_tile_path() -> None:
    ((name, code),) = sass._read(LISTING)
    found = sass._region(code)
    assert name == "mgb_0" and len(found.loops) == 1
    (loop,) = found.loops
    assert [i.kind for i in loop.way] == ["LDG", "LDG", "FADD", "BRA", "LDL", "BRA"], "no call"
    assert (loop.loaded, loop.stored, loop.under_way) == (32, 0, 32)
    assert [i.kind for i in found.way] == ["LDC", "IMAD", "BRA", "STG", "EXIT"]
    assert (found.loaded, found.stored) == (0, 8)
    assert sum(i.nbytes for r in found.walk() for i in r.way if i.spills) == 4


def test_loads_already_used_are_not_counted_as_in_flight() -> None:
    lines = [
        "LDG.E.64 R4, desc[UR4][R2.64]", "FADD R8, R5, R5", "LDG.E R9, desc[UR4][R2.64]",
        "LDG.E.U16 R10, desc[UR4][R2.64]", "STG.E desc[UR4][R2.64], R9", "EXIT",
    ]  # fmt: skip
    text = "\n".join([".text.k:", *(f"        /*{16 * k:04x}*/ {line} ;" for k, line in enumerate(lines))])
    ((_, code),) = sass._read(text)
    assert sass._region(code).under_way == 8


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "blocks"),
    [
        ((9, 0), 256, 32, 0, 8),  # NVIDIA's occupancy calculator says the same of all of these
        ((9, 0), 256, 41, 0, 5),
        ((9, 0), 1024, 41, 0, 1),
        ((9, 0), 1024, 32, 0, 2),
        ((9, 0), 512, 64, 0, 2),
        ((9, 0), 64, 32, 0, 32),
        ((9, 0), 128, 32, 100 << 10, 2),
        ((8, 0), 128, 32, 100 << 10, 1),
        ((8, 6), 256, 32, 0, 6),
        ((8, 9), 32, 16, 0, 24),
        ((10, 3), 256, 255, 0, 1),
    ],
)
def test_resident_blocks_per_multiprocessor(
    capability: tuple[int, int], threads: int, registers: int, shared: int, blocks: int
) -> None:
    assert occupancy.resident(capability, threads, registers, shared) == blocks


def test_ptx_is_rejected_for_register_counts() -> None:
    with pytest.raises(ValueError, match="PTX"):
        image.resources(b".version 8.1")
