"""Data sets that workers in other processes find too."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

Pair = namedtuple("Pair", "x y")


class Squares:
    """Samples of a nest of kinds; at `wrong` one fails."""

    def __init__(self, length: int, wrong: int = -1) -> None:
        self.length, self.wrong = length, wrong

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, place: int) -> Any:
        if place == self.wrong:
            raise ValueError("no such image")
        return {
            "pair": Pair(np.full((2, 3), place, np.float32), place),
            "name": f"n{place}",
            "all": [place * 0.5],
        }
