"""Fusion: from a Graph to the Steps of a program. `legality` says what may be one group, `detect` merges."""

from .detect import detect
from .draws import flat_draws
from .duplicate import duplicate
from .extents import NUMBER, number_node, place_extents
from .legality import FusionConfig, accepts
from .recompute import recompute
from .step import Step

__all__ = [
    "NUMBER",
    "FusionConfig",
    "Step",
    "accepts",
    "detect",
    "duplicate",
    "flat_draws",
    "number_node",
    "place_extents",
    "recompute",
]  # fmt: skip
