"""Kernels that are wanted by several threads, by child processes and by signals while they are compiled."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("halide", reason="Halide is not installed: pip install halide")
pytest.importorskip("mgb_halide", reason="the plugin is not installed: pip install ./plugins/halide")

WANTED_AT_ONCE = """
import threading
import numpy as np
from mgb.ops.reduce import reduce_sum
from mgb_conformance.cases import of
from mgb_halide import HalideBackend

kernel = HalideBackend().compile(of(lambda x: reduce_sum(x, axis=(0,)), np.ones((4, 5), np.float32)))
unit, make, made = kernel.state, kernel.state.make, []
together = threading.Barrier(2)

def slowly(short):
    made.append(short)
    try:
        together.wait(2)  # until both are here; one waits in vain where the other waits for its code
    except threading.BrokenBarrierError:
        pass
    return make(short)

def check(rows):
    x = np.random.default_rng(rows).random((rows, 50), np.float32)
    y = np.empty((1, 50), np.float32)
    kernel.run(x, out=(y,))
    np.testing.assert_allclose(y[0], x.sum(axis=0, dtype=np.float64), rtol=1e-6)

unit.make = slowly
for _ in range(2):  # the second time with the plans of the first
    threads = [threading.Thread(target=check, args=(rows,)) for rows in (300, 301)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    check(300)
    check(301)
assert made == [False], made
unit.codes.clear()  # nobody else holds the code
check(300)
check(301)
print("done")
"""


def test_concurrent_compilation_builds_code_once_and_keeps_its_plans() -> None:
    """The second to be done once took the place of the first, whose memory was given back under its plans."""
    done = subprocess.run([sys.executable, "-c", WANTED_AT_ONCE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "done\n", (done.returncode, done.stderr)


HELD = """
import os, signal, threading
import numpy as np
from mgb.ops.reduce import reduce_sum
from mgb_conformance.cases import of
from mgb_halide import HalideBackend

kernel = HalideBackend().compile(of(lambda x: reduce_sum(x, axis=(0,)), np.ones((4, 5), np.float32)))
unit, make = kernel.state, kernel.state.make
started, go_on = threading.Event(), threading.Event()

def slowly(short):
    started.set()
    assert go_on.wait(60), "nobody went on"
    return make(short)

def check(rows):
    x = np.random.default_rng(rows).random((rows, 50), np.float32)
    y = np.empty((1, 50), np.float32)
    kernel.run(x, out=(y,))
    np.testing.assert_allclose(y[0], x.sum(axis=0, dtype=np.float64), rtol=1e-6)

def inside(*_):
    unit.make = make
    check(301)
    kept.append(unit.codes[False])

unit.make, kept = slowly, []
thread = threading.Thread(target=check, args=(300,))
thread.start()
assert started.wait(60)
signal.alarm(30)  # to die of, where a call waits in vain
check(5)  # there is code for short columns
child = os.fork()
if not child:
    signal.alarm(30)
    unit.make = make
    check(6)
    check(300)  # nobody is compiling that here
    os._exit(0)
status = os.waitpid(child, 0)[1]
assert status == 0, status
go_on.set()
thread.join()

unit.codes.pop(False)
unit.plans.clear()
signal.signal(signal.SIGUSR1, inside)
unit.make = lambda short: (signal.raise_signal(signal.SIGUSR1), make(short))[1]
check(302)
assert kept == [unit.codes[False]]
print("done")
"""


def test_calls_of_ready_kernels_continue_during_compilation() -> None:
    """In another thread, in a child process, in what a signal calls."""
    done = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "done\n", (done.returncode, done.stderr)


THREADS = """
import threading
import mgb.functional as F
import numpy as np
from mgb import tensor
from mgb.jit import trace

@trace(without_host=True, backend="halide")
def f(x):
    y = F.exp(x * 0.5) + F.sin(x)
    return y, y.sum(), y.mean(axis=0), F.softmax(y, axis=1)

def check(x):
    y = np.exp(x * 0.5) + np.sin(x)
    e = np.exp(y - y.max(axis=1, keepdims=True))
    for got, true in zip(f(tensor(x)), (y, y.sum(), y.mean(axis=0), e / e.sum(axis=1, keepdims=True))):
        np.testing.assert_allclose(got.numpy(), true, rtol=3e-4, atol=3e-5)

together, failed = threading.Barrier(6), []

def work(number):
    together.wait(60)
    try:
        for k in range(20):
            check(every[: 100 + number + 6 * k])
            check(every)
    except BaseException as error:
        failed.append(error)

every = np.random.default_rng(0).standard_normal((700, 333)).astype(np.float32)
threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not failed, failed[0]
print("done")
"""


def test_threads_call_traced_multi_kernel_function_with_changing_sizes() -> None:
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0 and done.stdout == "done\n", (done.returncode, done.stderr)
