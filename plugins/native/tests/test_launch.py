"""Threads that call one launcher at once, with a kernel of a few lines in place of a backend's."""

from __future__ import annotations

import subprocess
import sys

import pytest
from mgb_native.native import note

KERNEL = """
import sys, threading, time
import numpy as np
from mgb_native.launch import PROGRAMS, RECENT, Launcher
from mgb_native.native import emit
from mgb_native.objects import Loaded
from mgb_native.plan import Plan

CODE = Loaded(emit('''
define i64 @double(ptr %arrays, ptr %plan, ptr %span) {
entry:
  %to_at = getelementptr ptr, ptr %arrays, i64 1
  %from = load ptr, ptr %arrays
  %to = load ptr, ptr %to_at
  %count = load i64, ptr %plan
  br label %walk
walk:
  %i = phi i64 [ 0, %entry ], [ %next, %step ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %step, label %done
step:
  %x_at = getelementptr i64, ptr %from, i64 %i
  %y_at = getelementptr i64, ptr %to, i64 %i
  %x = load i64, ptr %x_at
  %y = shl i64 %x, 1
  store i64 %y, ptr %y_at
  %next = add i64 %i, 1
  br label %walk
done:
  ret i64 0
}'''))

class Doubling:
    inputs, outputs, constants, hazards = 1, 1, (), ()

    def plan(self, xs, ys):
        words = np.array([xs[0].size], np.int64)
        return Plan(words, words.ctypes.data, 1, 1, 0, 0, 0.0)

    def whole(self, plan, first):
        return (CODE["double"], first, plan.address, *(0,) * 8)

launcher = Launcher([Doubling()])

def call(length):
    x = np.arange(length, dtype=np.int64)
    y = np.zeros_like(x)
    launcher.run(x, out=(y,))
    assert (y == x * 2).all(), length
"""

#: What other threads may do between any two lines of the launcher is done there by this one.
BETWEEN = """
for length in range(RECENT):
    call(length)
looks = []

def between(frame, event, argument):
    if not frame.f_code.co_filename.endswith("launch.py"):
        return None
    if event == "line":
        for length in range(RECENT):
            call(length)
        looks.append(frame.f_lineno)
    return between

arrays = [np.zeros(RECENT // 2, np.int64)] * 2
sys.settrace(between)
launcher.program(arrays)
sys.settrace(None)
assert len(looks) > 10, looks
"""

#: A signal may call the launcher between any two lines of it, with lengths that are new to it.
INSIDE = """
from weakref import WeakValueDictionary
from mgb_native import launch
turn, events, chosen, kept = 0, 0, 0, WeakValueDictionary()

class Recent(launch._Recent):
    def __init__(self, programs):
        super().__init__(programs)
        kept[self.address] = self

launch._Recent = Recent

def is_kept():
    return launcher.site.recent in kept

def inside(frame, event, argument):
    global turn, events
    if not frame.f_code.co_filename.endswith(("mgb_native/launch.py", "mgb_native/native.py")):
        return None
    if event == "line":
        assert is_kept(), "native code reads a list that was given back"
        if events == chosen:
            for turn in range(turn + 1, turn + 3):
                call(RECENT + turn)
        events += 1
    return inside

arrays = [np.zeros(RECENT // 2, np.int64)] * 2
launcher.program(arrays)
while events >= chosen:
    chosen, events = chosen + 1, 0
    sys.settrace(inside)
    launcher.program(arrays)
    sys.settrace(None)
    assert is_kept() and launcher.site.recent == launcher.recent.address
assert chosen > 20, chosen
"""

#: Threads of Python ask for threads at once; there are as many as the most that one asked for.
GROWING = """
import os
from mgb_native.native import native
before = len(os.listdir("/proc/self/task"))

def grow(count):
    for workers in range(count):
        native().grow(workers)

sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=grow, args=(k + 10,)) for k in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert native().workers() == 16
end = time.monotonic() + 20  # a thread that was joined may take a moment to leave the system's list
while len(os.listdir("/proc/self/task")) - before != 16:
    assert time.monotonic() < end, os.listdir("/proc/self/task")
"""

STRESS = """
sys.setswitchinterval(1e-6)  # the more often they change places, the more there is to find
stop, failed, calls = time.monotonic() + 3, [], []

def work(number):
    turn = 0
    try:
        while time.monotonic() < stop:
            turn += 1
            call((turn * 7 + number) % LENGTHS)
    except BaseException as error:
        failed.append(error)
    calls.append(turn)

threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not failed and min(calls) > 0, (failed, calls)
"""


def run(code: str) -> None:
    """In a process that may hang, where no exception helps, or crash."""
    subprocess.run([sys.executable, "-c", KERNEL + code], timeout=60, check=True)


def test_program_lookup_is_safe_while_programs_are_reordered() -> None:
    """The programs were a linked list, which was a ring while one was moved to the front."""
    run(BETWEEN)


def test_signal_handler_may_call_a_kernel_at_any_moment() -> None:
    """It came to a lock that its own thread held."""
    run(INSIDE)


@pytest.mark.skipif(note is not None, reason="the launcher in C was not built, and has the threads")
def test_workers_are_counted_while_several_threads_ask_for_them() -> None:
    run(GROWING)


@pytest.mark.parametrize("lengths", ["RECENT + 4", "PROGRAMS + 100"])
def test_threads_call_with_more_lengths_than_are_cached(lengths: str) -> None:
    run(STRESS.replace("LENGTHS", f"({lengths})"))
