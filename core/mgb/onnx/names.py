"""Names in a file: each is given once."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..ir import Op


class Names:
    """Gives names that are not taken yet: the second ``ADD`` is ``ADD[1]``.

    Parameters
    ----------
    taken : iterable of str
        What no other value may be called.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def new(self, wanted: str) -> str:
        """`wanted`, or `wanted` with the next number that makes it unique."""
        name = wanted
        while name in self._taken:
            self._counts[wanted] = self._counts.get(wanted, 0) + 1
            name = f"{wanted}[{self._counts[wanted]}]"
        self._taken.add(name)
        return name


def shown(op: Op) -> str:
    """What the result of `op` is called by default: ``ADD``, ``REDUCE_SUM``, ``CONV2D``."""
    return op.name.upper()


def identifier(text: str) -> str:
    """`text` as ONNX wants the names of operators: letters, digits and underscores."""
    return re.sub(r"\W", "_", text)
