"""Threads that call one launcher at once, with a kernel of a few lines in place of a backend's."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


def test_native_code_may_look_for_a_program_at_any_moment() -> None:
    """The programs were a linked list, which was a ring while one was moved to the front."""
    run(BETWEEN)


@pytest.mark.parametrize("lengths", ["RECENT + 4", "PROGRAMS + 100"])
def test_threads_call_with_more_lengths_than_are_kept(lengths: str) -> None:
    run(STRESS.replace("LENGTHS", f"({lengths})"))
