"""Graph -> Graph: what is done to a graph before and after fusion is detected."""

from .decompose import decompose
from .lower import lower

__all__ = ["decompose", "lower"]
