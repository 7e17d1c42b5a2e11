"""Loops in native code: the kernels and copies of a turn, again and again without Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mgb.backends import Turn
from mgb.ir.strides import collapse

from .native import native
from .products import multiply, plan_of
from .structures import Action

#: Nanoseconds after which a loop comes back, so that Python can look for signals.
LIMIT = 50_000_000

#: Outer axes of a copy.
AXES = 3


class Turns:
    """Run `turns` in native code; see `Backend.repeat`."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.phases = len(turns[0].arrays)
        self.actions = (Action * len(turns))()
        self._kept: list[Any] = [turns]
        for action, turn in zip(self.actions, turns, strict=True):
            self._fill(action, turn)
        self._room = np.empty(max(action.count for action in self.actions), np.int64)

    def __call__(self, first: int, last: int) -> None:
        repeat, at, count = native().repeat, ctypes.addressof(self.actions), len(self.actions)
        while first < last:
            first = repeat(at, count, self.phases, first, last, LIMIT, self._room.ctypes.data)

    def _fill(self, action: Action, turn: Turn) -> None:
        if turn.kernel is None:
            constants, order = [], list(range(len(turn.steps)))
            if turn.is_product:
                plan, action.function = plan_of(*turn.arrays[0]), multiply(turn.arrays[0][0].dtype.name)
            else:
                plan, action.function = copy_plan(*turn.arrays[0]), native().copy_rows
            action.plan = plan.ctypes.data
            self._kept.append(plan)
        else:
            launcher = turn.kernel.state.launcher
            program = launcher.program(turn.arrays[0])
            constants, order = launcher.constants, launcher.operands
            action.program = ctypes.addressof(program)
            self._kept += [program, launcher]
        rows = [[a.ctypes.data for a in (*arrays, *constants)] for arrays in turn.arrays]
        addresses = np.ascontiguousarray(np.array(rows, np.int64)[:, order])
        steps = np.array([*turn.steps, *(0 for _ in constants)], np.int64)[order]
        action.count, action.addresses, action.steps = len(order), addresses.ctypes.data, steps.ctypes.data
        self._kept += [addresses, steps]


def copy_plan(source: Any, target: Any) -> Any:
    """Return the plan of a copy: rows that lie side by side in both arrays.

    None: they stand along too many axes.
    """
    loops = collapse(target.shape, [source.strides, target.strides])
    axes = list(zip(loops.shape, *loops.strides, strict=True))
    row = source.itemsize
    if axes and axes[-1][1:] == (row, row):
        row *= axes.pop()[0]
    if len(axes) > AXES:
        return None
    axes = [(1, 0, 0)] * (AXES - len(axes)) + axes
    lengths, by, to = zip(*axes, strict=True)
    return np.array([*lengths, row, *to, *by], np.int64)


def repeated(turns: Sequence[Turn]) -> Callable[[int, int], None] | None:
    """See `Backend.repeat`."""
    return None if any(t.kernel is None and t.arrays[0][0].ndim > AXES for t in turns) else Turns(turns)
