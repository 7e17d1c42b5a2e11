"""Kernels and copies in a row in native code, on arrays whose addresses change from call to call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mgb.backends import Turn, num_threads
from mgb.runtime import forking
from numpy.lib.array_utils import byte_bounds

from . import structures
from .launch import Launcher
from .native import native, note
from .plan import PARALLEL, Array
from .turns import copy_plan

#: Sets of shapes and strides that are kept for each sequence.
KEPT = 64

#: Nanoseconds of a kernel that are worth all threads: those are awake where one kernel follows another.
SHARED = 15_000

#: Nanoseconds that an element of a copy takes, roughly.
COPY = 1

#: How far NumPy looks for an element that two arrays share.
MOST_WORK = 10_000

Layout = Callable[[Sequence[Any]], Sequence[Turn]]

#: Held by who changes what is kept.
_changing = forking.lock()


class Follower:
    """The caller of a sequence: see `Backend.sequence`.

    Attributes
    ----------
    run : callable
        A function in C, which calls `slow` for arrays that do not lie as those of the call before.
    """

    def __init__(self, layout: Layout, count: int, checked: int) -> None:
        self.layout, self.checked = layout, checked
        self.made: dict[Any, _Made | None] = {}
        self.recent: _Made | None = None
        self.memory = np.zeros(ctypes.sizeof(structures.Route), np.uint8).view(_Owner)
        self.memory.owner = self
        self.route = structures.Route.from_buffer(self.memory.data)
        self._kept = self.slow
        self.route.slow, self.route.threads = id(self._kept), id(num_threads)
        self.route.array_type, self.route.count, self.route.checked = id(np.ndarray), count, checked
        self.run: Callable[..., None] = native().follower(self.memory)

    def slow(self, *arrays: Array) -> None:
        """Follow the sequence for arrays that lie in another way; Python does what native code cannot."""
        threads = num_threads()
        key = (threads, *((a.shape, a.strides) for a in arrays[: self.checked]))
        try:
            made = self.made[key]
        except KeyError:
            if len(self.made) >= KEPT:
                self.made.clear()
            made = self.made[key] = _Maker(arrays, self.checked, threads).made(self.layout(arrays))
        if made is None:
            for turn in self.layout(arrays):
                _do(turn)
            return
        native().grow(threads - 1)
        with _changing:  # what native code was told of lives until it is told of another one
            replaced, self.recent = self.recent, made
            self.route.recent = made.address
            del replaced
        native().follow(made.address, *arrays)


class _Owner(np.ndarray[Any, Any]):
    """The memory of a route; it keeps the follower alive as long as ``run`` is."""

    owner: Follower


@dataclass(eq=False)
class _Made:
    """A `structures.Sequence` and all that it points to."""

    sequence: structures.Sequence
    kept: list[Any]

    @property
    def address(self) -> int:
        return ctypes.addressof(self.sequence)


def follower(layout: Layout, count: int, checked: int) -> Callable[..., None] | None:
    """See `Backend.sequence`."""
    return Follower(layout, count, checked).run if note is None else None


def _do(turn: Turn) -> None:
    """Do one turn by Python."""
    arrays = turn.arrays[0]
    if turn.kernel is None:
        np.copyto(arrays[1], arrays[0])
    else:
        reads = turn.kernel.state.launcher.inputs
        turn.kernel.run(*arrays[:reads], out=arrays[reads:])


def _places(operands: Sequence[Array], numbers: Sequence[int], bases: Sequence[Array]) -> list[Array] | None:
    """Return for each operand the number of its base and how far behind that it begins.

    None: one does not lie in its base, as a copy that was made of it.
    """
    found = []
    for operand, number in zip(operands, numbers, strict=True):
        if number == len(bases):  # at a known address
            found.append((number, operand.ctypes.data))
            continue
        (low, high), (first, last) = byte_bounds(bases[number]), byte_bounds(operand)
        if not operand.size or not low <= first <= last <= high:
            return None
        found.append((number, operand.ctypes.data - bases[number].ctypes.data))
    return [np.array(column, np.int64) for column in zip(*found, strict=True)]


def _overlap(source: Array, target: Array) -> bool:
    try:
        return np.shares_memory(source, target, max_work=MOST_WORK)
    except np.exceptions.TooHardError:
        return True


class _Maker:
    """Makes the sequence for arrays like `bases`."""

    def __init__(self, bases: Sequence[Array], checked: int, threads: int) -> None:
        self.bases, self.checked, self.threads = bases, checked, threads
        self.programs: dict[Any, structures.Program] = {}
        self.kept: list[Any] = []
        self.work = 0.0

    def made(self, turns: Sequence[Turn]) -> _Made | None:
        """Return the sequence of these turns; None: native code cannot do one."""
        actions = (structures.Action * len(turns))()
        for action, turn in zip(actions, turns, strict=True):
            found = (self.copy if turn.kernel is None else self.launch)(action, turn)
            if found is None:
                return None
            places, steps = found
            action.count, action.addresses, action.steps = len(places), places.ctypes.data, steps.ctypes.data
            self.kept += found
        shared = any(program.threads for program in self.programs.values())
        words = [word for a in self.bases[: self.checked] for word in (a.ndim, *a.shape, *a.strides)]
        signature, sequence = np.array(words, np.int64), structures.Sequence()
        made = _Made(sequence, [actions, signature, self.programs, *self.kept])
        sequence.owner, sequence.threads = id(made), self.threads if shared else 0
        sequence.is_free = int(shared or self.work >= PARALLEL)
        sequence.signature, sequence.actions = signature.ctypes.data, ctypes.addressof(actions)
        sequence.action_count, sequence.most = len(actions), max(action.count for action in actions)
        return made

    def copy(self, action: structures.Action, turn: Turn) -> list[Array] | None:
        """Make it a copy, and return where its operands lie."""
        source, target = turn.arrays[0]
        plan = copy_plan(source, target)
        if plan is None or _overlap(source, target):
            return None
        action.function, action.plan = native().copy_rows, plan.ctypes.data
        self.kept.append(plan)
        self.work += source.size * COPY
        return _places(turn.arrays[0], turn.bases, self.bases)

    def launch(self, action: structures.Action, turn: Turn) -> list[Array] | None:
        """Make it a launch of a kernel, and return where its operands lie."""
        assert turn.kernel is not None
        launcher: Launcher = turn.kernel.state.launcher
        operands, numbers = list(turn.arrays[0]), list(turn.bases)
        if any(operands[i].ctypes.data == operands[j].ctypes.data for i, j in launcher.overlaps):
            return None
        key = (id(launcher), *((a.shape, a.strides) for a in operands))
        if key not in self.programs:
            self.programs[key] = launcher.built(operands, self.threads, SHARED)
            self.kept.append(launcher)
        program = self.programs[key]
        action.program = ctypes.addressof(program)
        self.work += sum(plan.work for plan in program.work.plans)
        operands += launcher.constants
        numbers += [len(self.bases)] * len(launcher.constants)
        order = launcher.operands
        return _places([operands[k] for k in order], [numbers[k] for k in order], self.bases)
