"""The launcher in Python, where the one in C was not built: the same functions, slower, and without threads.

The parts of a program are called one after the other. What kernels call to move memory are callbacks that
copy by NumPy; an exception in one would be printed and lost.
"""

from __future__ import annotations

import _thread
import ctypes
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .structures import Action, Part, Program

_KERNEL = (ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_TURN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)

#: How a kernel is called: in a call that keeps the GIL, and in one that lets other Python threads run.
_KEPT, _FREE = ctypes.PYFUNCTYPE(*_KERNEL), ctypes.CFUNCTYPE(*_KERNEL)

_LINE = 64


def function(site: Any) -> Callable[..., None]:
    """Return the function ``run(*inputs, out)`` of a launcher: the one for calls that are not short."""
    slow: Callable[..., None] = site.owner.slow
    return slow


def launch(program: int, *arrays: Any) -> None:
    """Run the program at an address on inputs, outputs and constants."""
    made = Program.from_address(program)
    places = _words(made.operands, made.operand_count)
    operands = np.array([arrays[place].ctypes.data for place in places], np.int64)
    _undisturbed(lambda: _run(made, operands.ctypes.data))


def repeat(actions: int, count: int, phases: int, first: int, last: int, limit: int, operands: int) -> int:
    """Do turns of a loop for some time; return the turn that comes next."""
    return _undisturbed(lambda: _repeat(actions, count, phases, first, last, limit, operands))


def _repeat(actions: int, count: int, phases: int, first: int, last: int, limit: int, operands: int) -> int:
    end = time.perf_counter_ns() + limit
    room = ctypes.POINTER(ctypes.c_int64).from_buffer(ctypes.c_void_p(operands))
    turn = first
    while turn < last:
        phase = turn % phases
        for action in (Action * count).from_address(actions):
            bases = _words(action.addresses + 8 * phase * action.count, action.count)
            for k, (base, step) in enumerate(zip(bases, _words(action.steps, action.count), strict=True)):
                room[k] = base + step * (turn - phase)
            if action.program:
                _run(Program.from_address(action.program), operands)
            else:
                _TURN(action.function)(operands, action.plan)
        turn += 1
        if time.perf_counter_ns() > end:
            break
    return turn


def grow(workers: int) -> None:
    """Do nothing: there are no threads beside the callers."""


def workers() -> int:
    """Return the number of threads beside the callers."""
    return 0


def _undisturbed(work: Callable[[], int]) -> int:
    """Do `work` in another thread if this is the main one, where handlers of signals run.

    An exception that one raises would be lost in a callback, and between two parts half of a result be left.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return work()
    done, found = _thread.allocate_lock(), list[Any]()
    done.acquire()

    def body() -> None:
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)
        finally:
            done.release()

    started, raised = list[int](), None
    try:
        started.extend(map(_thread.start_new_thread, [body], [()]))  # in C: started and noted, or neither
    except BaseException as error:
        if not started:
            raise
        raised = error
    while not found:
        try:
            done.acquire()
        except BaseException as error:
            raised = error
    for error in (raised, found[0]):
        if isinstance(error, BaseException):
            raise error
    return int(found[0])


def _run(program: Program, operands: int) -> int:
    own, common = (np.empty(size + _LINE, np.uint8) for size in (program.own, program.common))
    at, shared = (-(-memory.ctypes.data // _LINE) * _LINE for memory in (own, common))
    kind = _FREE if program.threads else _KEPT
    count = _words(program.phases, program.phase_count)[-1]
    for part in (Part * count).from_address(program.parts):
        behind = shared if part.is_common else at + part.offset
        span = (ctypes.c_int64 * 8)(*part.span, at, behind)
        kind(part.kernel)(operands + 8 * part.first, part.plan, ctypes.addressof(span))
    return 0


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(address)) if count else []


# what kernels call


class _Memory:
    """Elements at an address, for NumPy."""

    def __init__(self, address: int, bits: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.__array_interface__ = {
            "data": (address, False), "typestr": "|u1" if bits == 8 else f"<u{bits // 8}", "shape": shape,
            "strides": strides, "version": 3,
        }  # fmt: skip


def _copy(bits: int, shape: tuple[int, ...], target: int, to: Any, source: int, by: Any) -> None:
    """Copy elements of so many bits between addresses; `to` and `by` are strides in bytes."""
    if min(shape) > 0:
        np.asarray(_Memory(target, bits, shape, to))[...] = np.asarray(_Memory(source, bits, shape, by))


def _ask(address: int, size: int) -> None:
    """Do nothing: a prefetch changes nothing but the time."""


def _flush(target: int, source: int, size: int) -> None:
    ctypes.memmove(target, source, size)


def _gather(bits: int, buffer: int, address: int, step: int, count: int) -> None:
    _copy(bits, (count,), buffer, (bits // 8,), address, (step,))


def _scatter(bits: int, address: int, step: int, buffer: int, count: int) -> None:
    _copy(bits, (count,), address, (step,), buffer, (bits // 8,))


def _tile(
    bits: int, buffer: int, address: int, step: int, count: int, across: int, rows: int, pitch: int
) -> None:
    size = bits // 8
    _copy(bits, (rows, count), buffer, (pitch * size, size), address, (across, step))


def _copy_rows(operands: int, plan: int) -> None:
    source, target = _words(operands, 2)
    n0, n1, n2, row, *strides = _words(plan, 10)
    _copy(8, (n0, n1, n2, row), target, (*strides[:3], 1), source, (*strides[3:], 1))


def _callback(count: int, call: Callable[..., None]) -> Any:
    """Return a C function of so many words."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * count)(call)


_SIZED = {"gather": (4, _gather), "scatter": (4, _scatter), "tile": (7, _tile)}
_callbacks = {
    "mgb_ask": _callback(2, _ask),
    "mgb_flush": _callback(3, _flush),
    "copy_rows": _callback(2, _copy_rows),
}
for _bits in (8, 16, 32, 64):
    for _name, (_count, _function) in _SIZED.items():
        _callbacks[f"mgb_{_name}_{_bits}"] = _callback(_count, partial(_function, _bits))

#: The addresses of what kernels call, by name, and of the function that copies an array in a loop.
copies = {name: ctypes.cast(made, ctypes.c_void_p).value or 0 for name, made in _callbacks.items()}
copy_rows = copies.pop("copy_rows")

#: Of the function that shares a range of numbers among threads: nobody calls it where there are none.
run_range = 0
