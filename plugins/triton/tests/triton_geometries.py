"""Shapes that make every shape that a tile may have."""

from __future__ import annotations

from typing import Any

from mgb_cuda.testing.variants import Geometry, Variants
from triton_helpers import BENCH

GEOMETRIES: dict[str, Geometry] = {
    "many short rows": ((500, 3), (1,), 4, lambda v: v.tall > 16 and v.stays),
    "rows": ((10, 1000), (1,), 4, lambda v: v.stays and v.long == 1024 and v.lanes == 4),
    "odd rows": ((5, 1111), (1,), 4, lambda v: v.stays and v.lanes == 1),
    "one odd row": ((5003,), (0,), 4, lambda v: v.tail and v.lanes == 4),
    "few long rows": ((2, 60_000), (1,), 32, lambda v: v.stays or v.split),
    "rows too long to stay": ((3, 40_000), (1,), 1, lambda v: not v.stays and not v.split),
    "shared rows": ((2, 34_000), (1,), 8, lambda v: v.split),
    "columns": ((33, 64), (0,), 4, lambda v: v.stays and v.tall >= 16),
    "odd columns": ((40, 7), (0,), 4, lambda v: v.lanes == 1),
    "many columns": ((70, 1000), (0,), 4, lambda v: not v.split),
    "long columns": ((2500, 300), (0,), 1, lambda v: not v.stays and not v.split),
    "shared columns": ((20_000, 6), (0,), 4, lambda v: v.split),
    "both ends": ((6, 5, 80), (0, 2), 4, lambda v: v.folded == (True, False, True)),
    "the middle": ((4, 37, 6), (1,), 4, lambda v: v.folded == (False, True, False)),
}


class Tiles(Variants):
    """Tiles obey a law of Triton's."""

    bench = BENCH

    def check_variant(self, variant: Any) -> None:
        for number in (variant.tall, variant.long, variant.lanes, variant.warps):
            assert number.bit_count() == 1, f"Triton takes powers of two alone: {variant}"
