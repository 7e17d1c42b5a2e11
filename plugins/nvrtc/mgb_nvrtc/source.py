"""The text of a variant: what its kernels are given, and the kernels."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mgb_cuda.frame import Frame
from mgb_cuda.variant import Kind, Variant

from .printer import Printer
from .tiles import Tiles
from .turned import Turned
from .words import conversions


def printer(variant: Variant) -> type[Printer]:
    """Return the class that prints kernels of this variant."""
    if not variant.turned:
        return Printer
    return Tiles if variant.kind is Kind.TILES else Turned


@cache
def prelude() -> str:
    """Return the functions that kernels call."""
    return Path(__file__).with_name("prelude.cuh").read_text() + conversions()


def source(frame: Frame, variant: Variant) -> str:
    """Return the kernels of `frame` for `variant`, without the prelude."""
    prints = printer(variant)(frame, variant)
    kernels = [prints.kernel(stage) for stage in (variant.stages(frame) or [None])]
    return "\n".join([*prints.types(), *(line for kernel in kernels for line in kernel), ""])


def kernel_names(frame: Frame, variant: Variant) -> tuple[str, ...]:
    """Return the kernels of `source`, in the order in which they are launched."""
    return tuple(f"mgb_{k}" for k in (variant.stages(frame) or [0]))
