"""Graph -> Graph: what is done to a graph before and after fusion is detected."""

from .decompose import decompose
from .identities import finite_identities, own_results
from .lower import lower
from .simplify import PASSES, simplify
from .transposes import hoist_transposes
from .verify import verify
from .widen import widen

__all__ = [
    "PASSES",
    "decompose",
    "finite_identities",
    "hoist_transposes",
    "lower",
    "own_results",
    "simplify",
    "verify",
    "widen",
]
