"""Shapes that make threads share the work in each way that there is."""

from __future__ import annotations

from ..variant import Kind
from .variants import Geometry

GEOMETRIES: dict[str, Geometry] = {
    "thread for a row": ((500, 3), (1,), 4, lambda v: v.team <= 4 and v.kind is Kind.ROWS),
    "part of a warp": ((60, 40), (1,), 4, lambda v: 1 < v.team < 32 and v.across > 1),
    "a warp": ((10, 1000), (1,), 512, lambda v: v.team >= 32),
    "a block": ((3, 4096), (1,), 512, lambda v: v.team > 32),
    "odd rows": ((5, 1111), (1,), 4, lambda v: v.lanes == 1),
    "one odd row": ((100_003,), (0,), 4, lambda v: v.tail and v.lanes == 4),
    "few long rows": ((2, 60_000), (1,), 4, lambda v: v.split and v.kind is Kind.ROWS),
    "a row too long to stay": ((6, 40_000), (1,), 1, lambda v: not v.stays and not v.split),
    "columns": ((33, 64), (0,), 4, lambda v: v.kind is Kind.COLUMNS and v.lanes == 4),
    "odd columns": ((40, 7), (0,), 4, lambda v: v.kind is Kind.COLUMNS and v.lanes == 1),
    "many columns": ((70, 3000), (0,), 4, lambda v: v.kind is Kind.COLUMNS and not v.split),
    "long columns": ((20_000, 6), (0,), 4, lambda v: v.kind is Kind.COLUMNS and v.split),
    "both ends": ((6, 5, 80), (0, 2), 4, lambda v: v.folded == (True, False, True)),
    "the middle": ((4, 37, 6), (1,), 4, lambda v: v.folded == (False, True, False)),
}
