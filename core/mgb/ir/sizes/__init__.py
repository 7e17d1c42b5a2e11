"""Lengths of axes that are followed, and what was decided by them."""

from ..scalars import Size, fixed, plain
from .holders import elements, native, pairs, settled, tuple_like
from .lengths import (
    At,
    Lengths,
    about,
    amount,
    broadcast,
    but_lengths,
    checker,
    count,
    indices,
    is_sized,
    key,
    same_shape,
    unmet,
    whole,
)
from .size import Sizes

__all__ = [
    "At",
    "Lengths",
    "Size",
    "Sizes",
    "about",
    "amount",
    "broadcast",
    "but_lengths",
    "checker",
    "count",
    "elements",
    "fixed",
    "indices",
    "is_sized",
    "key",
    "native",
    "pairs",
    "plain",
    "same_shape",
    "settled",
    "tuple_like",
    "unmet",
    "whole",
]
