"""Reductions that need the result of an earlier one, and can be found in the same pass all the same.

The sum of ``exp(x - t)``, where t comes from the maximum of x, is found against the greatest x so far; the
sum of ``(x - c)**2``, where c comes from the sum of x, against the mean so far. Once t and c are known, what
was found is settled: multiplied by ``exp(m - t)`` (Milakov and Gimelshein 2018), or moved by the identity
``sum (x - c)**2 = sum (x - p)**2 - 2 (c - p) sum (x - p) + n (c - p)**2``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Node
from ..ops.bodies.transcendental import exp
from ..ops.declare import op_of
from ..ops.elementwise import square
from ..ops.primitives import mul, sub
from ..ops.reduce import reduce_max, reduce_sum
from .schedule import Pass, Schedule

_SUM, _MAX, _EXP, _SQUARE, _MUL, _SUB = map(op_of, (reduce_sum, reduce_max, exp, square, mul, sub))


@dataclass(frozen=True, slots=True)
class Online:
    """A fold of the second pass that the first can do.

    Attributes
    ----------
    fold : Node
        The ``reduce_sum``.
    value : Node
        x: the value whose elements it is about.
    shift : Node
        The row value t or c.
    maximum : Node or None
        For a sum of exponentials the fold of the first pass that is the maximum of x; None: it is a sum of
        squares.
    base : Node
        The fold of the first pass that is the maximum of x, or its sum.

    Examples
    --------
    >>> from mgb.codegen import online, schedule
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: F.softmax(x, axis=1), Spec((4, 8), np.dtype("float32")))
    >>> (found,) = online(schedule(graph))
    >>> isinstance(found, Online), found.fold, found.maximum
    (True, <reduce_sum: float32[4,1]>, <reduce_max: float32[4,1]>)
    """

    fold: Node
    value: Node
    shift: Node
    maximum: Node | None
    base: Node


def online(schedule: Schedule) -> tuple[Online, ...]:
    """Return the folds of the second pass, when the first can do all that it is for; empty otherwise.

    Examples
    --------
    >>> from mgb.codegen import schedule
    >>> from mgb.ir import Spec
    >>> from mgb.tensor.tracing import graph_of
    >>> graph = graph_of(lambda x: F.softmax(x, axis=1), Spec((4, 8), np.dtype("float32")))
    >>> [found.fold for found in online(schedule(graph))]
    [<reduce_sum: float32[4,1]>]
    """
    if len(schedule.passes) < 2:
        return ()
    first, second = schedule.passes[:2]
    if second.stores or second.keeps or second.restores:
        return ()
    found = [_online(fold, first, second) for fold in second.folds]
    return tuple(f for f in found if f is not None) if None not in found else ()


def _online(fold: Node, first: Pass, second: Pass) -> Online | None:
    if fold.op is not _SUM or fold.spec.dtype.kind != "f":
        return None
    element = fold.inputs[0]
    operands = set(element.inputs)
    is_square = element.op is _SQUARE or (element.op is _MUL and len(operands) == 1)
    if element.op is not _EXP and not is_square:
        return None
    (difference,) = operands
    if difference.op is not _SUB or difference not in second.computes:
        return None
    value, shift = difference.inputs
    wanted = _SUM if is_square else _MAX
    bases = [f for f in first.folds if f.op is wanted and f.inputs[0] is value]
    if not bases or not (shift in first.after or shift in first.folds):
        return None
    return Online(fold, value, shift, None if is_square else bases[0], bases[0])
