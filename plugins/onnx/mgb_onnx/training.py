"""Which arrays of a file are weights: those that training changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mgb import dtypes

from .expand import Key
from .operators import TABLE
from .structure import Body, Function
from .values import Host

#: Inputs that are statistics of the training data, by operator: no gradient descends along them.
_STATISTICS = {"BatchNormalization": (3, 4)}


def weights_of(body: Body, functions: Mapping[Key, Function]) -> Iterator[tuple[str, tuple[Host, bool]]]:
    """Yield the initializers that are floats of one axis at least, each with whether it is learnt.

    One that an operator wants to know in numbers, such as the scales of a Resize, is not one of them.
    """
    numbers, statistics, learnt = set[str](), set[str](), set[str]()
    for call in body.calls:
        own = (call.domain, call.operator, call.overload) in functions
        row = None if own else TABLE.get((call.domain, call.operator))
        for place, name in enumerate(call.inputs):
            if row is not None and place < len(row.kinds) and row.kinds[place] == "Host":
                numbers.add(name)
            elif not call.domain and place in _STATISTICS.get(call.operator, ()):
                statistics.add(name)
            else:
                learnt.add(name)
    for name, array in body.constants.items():
        if array.dtype in dtypes.FLOATS and array.ndim and array.size and name not in numbers:
            yield name, (array, name in learnt or name not in statistics)
