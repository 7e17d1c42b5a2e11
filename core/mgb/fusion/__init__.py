"""Fusion: from a Graph to the Steps of a program. `legality` says what may be one group, `detect` merges."""

from .components import taken_apart
from .copied import copied
from .detect import detect
from .draws import flat_draws
from .duplicate import duplicate
from .extents import NUMBER, number_node, place_extents
from .gathers import looked_up
from .legality import FusionConfig, accepts
from .marks import marked
from .pieces import split
from .recompute import recompute
from .recurrences import recurrences
from .rows import rows_apart
from .scatters import folded_into
from .step import Step
from .vectors import vector_products

__all__ = [
    "NUMBER",
    "FusionConfig",
    "Step",
    "accepts",
    "copied",
    "detect",
    "duplicate",
    "flat_draws",
    "folded_into",
    "looked_up",
    "marked",
    "number_node",
    "place_extents",
    "recompute",
    "recurrences",
    "rows_apart",
    "split",
    "taken_apart",
    "vector_products",
]  # fmt: skip
