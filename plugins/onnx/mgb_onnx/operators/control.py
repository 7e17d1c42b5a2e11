"""Branches and loops: a branch whose condition is known is taken at once, a loop is unrolled.

Where a condition is computed from data, its value is read, which splits the program of a trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from mgb.errors import FileFormatError, UnsupportedError
from mgb.functional import tensor as shapes
from mgb.ops.declare import normalize_axis
from mgb.storage.limits import meter
from mgb.tensor import Tensor
from mgb.tensor.apply import literal

from ..values import Value, host_of
from .elementwise import number
from .table import operator

Closure = Callable[..., tuple[Value, ...]]


def _holds(condition: Value) -> bool:
    return bool(number(host_of(condition)))


@operator("If", folds=False)
def branch(condition: Value, *, then_branch: Closure, else_branch: Closure) -> tuple[Value, ...]:
    return then_branch() if _holds(condition) else else_branch()


@operator("Loop", folds=False)
def loop(turns: Value, condition: Value, *state: Value, body: Closure, wanted: int) -> tuple[Value, ...]:
    """Return the last carried values, then for each scanned result its values of all turns, stacked."""
    most = math.inf if turns is None else int(number(host_of(turns)))
    going = condition is None or _holds(condition)
    rows: list[tuple[Value, ...]] = []
    carried, place = state, meter().place
    while going and len(rows) < most:
        meter().place = place
        meter().check("turns", len(rows) + 1)
        result = body(np.array(len(rows), np.int64), np.array(going), *carried)
        going = _holds(result[0])
        carried = result[1 : 1 + len(state)]
        rows.append(result[1 + len(state) :])
    if not rows and wanted > len(state):
        raise UnsupportedError("Loop: no turn is made, so the shape of what it scans is not known")
    return (*carried, *(stacked(column, 0) for column in zip(*rows)))


@operator("Scan", folds=False)
def scan(
    *inputs: Value,
    body: Closure,
    num_scan_inputs: int,
    wanted: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> tuple[Value, ...]:
    states = len(inputs) - num_scan_inputs
    carried, scanned = inputs[:states], inputs[states:]
    axes = scan_input_axes or (0,) * len(scanned)
    places = [normalize_axis("Scan", a, x.ndim)[0] for a, x in zip(axes, scanned)]
    turns = {x.shape[a] for x, a in zip(scanned, places)}
    if len(turns) != 1:
        raise FileFormatError(f"Scan: the scanned inputs have {sorted(turns)} elements, which differ")
    count = turns.pop()
    backwards = scan_input_directions or (0,) * len(scanned)
    meter().check("turns", count)
    rows = []
    for turn in range(count):
        at = [count - 1 - turn if b else turn for b in backwards]
        parts = [_at(x, a, i) for x, a, i in zip(scanned, places, at)]
        result = body(*carried, *parts)
        carried = result[:states]
        rows.append(result[states:])
    results = []
    for i, column in enumerate(zip(*rows)):
        turned = scan_output_directions is not None and scan_output_directions[i]
        axis = 0 if scan_output_axes is None else scan_output_axes[i]
        results.append(stacked(column[::-1] if turned else column, axis))
    return (*carried, *results)


def _at(x: Value, axis: int, place: int) -> Value:
    return x[(*(slice(None) for _ in range(axis)), place)]


def stacked(values: Sequence[Value], axis: int) -> Value:
    """Stack values of one shape along a new axis: known ones stay known."""
    if not any(isinstance(v, Tensor) for v in values):
        meter().value([len(values), *np.shape(values[0])])
        return np.stack(values, axis)
    device = next(v.device for v in values if isinstance(v, Tensor))
    tensors = [v if isinstance(v, Tensor) else literal(v, v.dtype, device) for v in values]
    return shapes.stack(tensors, axis)
