"""Children of a process whose other threads hold locks, compile, record and multiply at the fork."""

from __future__ import annotations

import gc
import os
import re
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from mgb import errors, tensor
from mgb import functional as F
from mgb.executor.collector import resting
from mgb.jit import partial_trace, trace
from mgb.runtime import cache, forking
from mgb.tensor import active_trace

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork"),
]

#: Seconds after which a child counts as one that waits for ever.
LIMIT = 120


@pytest.fixture(autouse=True)
def quick_to_compile(monkeypatch) -> None:
    monkeypatch.setenv("MGB_JIT_BACKEND", "eager")


def start(check: Callable[[], object]) -> int:
    """A child that calls `check` and ends, whatever it waits for."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.alarm(LIMIT)
        check()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def end_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_child(check: Callable[[], object]) -> None:
    assert end_of(start(check)) == 0


@contextmanager
def elsewhere(work: Callable[[threading.Event, threading.Event], object]) -> Iterator[threading.Event]:
    """Run ``work(there, go_on)`` in a thread until it has set `there`; it ends when `go_on` is set."""
    there, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=work, args=(there, go_on))
    thread.start()
    assert there.wait(LIMIT)
    try:
        yield go_on
    finally:
        go_on.set()
        thread.join()


def holding(context) -> Callable[[threading.Event, threading.Event], None]:
    """What enters `context` and stays in it."""

    def work(there: threading.Event, go_on: threading.Event) -> None:
        with context:
            there.set()
            go_on.wait(LIMIT)

    return work


# the mechanism


def test_lock_of_another_thread_is_free_in_the_child() -> None:
    lock = forking.lock()

    def check() -> None:
        for _ in range(2):
            with lock, lock:
                pass

    with elsewhere(holding(lock)):
        in_child(check)
        assert not lock.acquire(blocking=False)  # of the parent's nothing has changed
    in_child(check)


def test_lock_of_the_forking_thread_stays_locked_in_the_child() -> None:
    lock = forking.lock()

    def check() -> None:
        taken = []
        thread = threading.Thread(target=lambda: taken.append(lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        assert taken == [False]
        lock.release()

    with lock:
        in_child(check)


def test_fork_waits_for_undivided_sections() -> None:
    done: list[str] = []

    def work(there: threading.Event, go_on: threading.Event) -> None:
        with forking.undivided("a test"):
            there.set()
            go_on.wait(LIMIT)
            with forking.undivided("a test within"):
                done.append("all of it")

    def check() -> None:
        assert done == ["all of it"]
        with forking.undivided("a test"):
            pass

    with elsewhere(work) as go_on:
        threading.Timer(0.05, go_on.set).start()
        in_child(check)


def test_fork_waits_for_short_calls() -> None:
    there, go_on, done = threading.Event(), threading.Event(), []

    @forking.short_call
    def call() -> None:
        there.set()
        go_on.wait(LIMIT)
        done.append("all of it")

    thread = threading.Thread(target=call)
    thread.start()
    assert there.wait(LIMIT)
    threading.Timer(0.05, go_on.set).start()
    in_child(lambda: (done == ["all of it"] or 1 / 0, call(), len(done) == 2 or 1 / 0))
    thread.join()


def test_child_raises_for_sections_interrupted_by_the_fork(monkeypatch) -> None:
    monkeypatch.setattr(forking, "PATIENCE", 0.05)

    def check() -> None:
        text = "a compiler.*get_context.*spawn"
        with pytest.raises(errors.ForkedProcessError, match=text), forking.undivided("another"):
            pass
        with pytest.raises(errors.ForkedProcessError, match=text):
            trace(lambda x: x * 2.0 + 1.5, symbolic=True)(tensor([1.0, 2.0]))

    with elsewhere(holding(forking.undivided("a compiler"))):
        in_child(check)
    with forking.undivided("another"):
        pass
    in_child(lambda: holding(forking.undivided("another")))


def test_threads_fork_concurrently() -> None:
    children: list[int] = []

    def work() -> None:
        for _ in range(3):
            with forking.undivided("a test"):
                pass
            children.append(start(lambda: forking.undivided("a test").__enter__()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [end_of(child) for child in children] == [0] * 12


def test_resource_used_before_the_fork_raises_in_the_child() -> None:
    used: list[int] = []
    resource = forking.Resource("a test", lambda: bool(used))
    try:
        in_child(resource.check)
        used.append(1)
        resource.check()

        def check() -> None:
            with pytest.raises(errors.ForkedProcessError, match=f"after a test had run in process {parent}"):
                resource.check()

        parent = os.getpid()
        in_child(check)
    finally:
        forking._resources.remove(resource)


def test_child_computes_a_cached_property_of_another_thread() -> None:
    there, go_on = threading.Event(), threading.Event()

    class Slow:
        @forking.cached_property
        def value(self) -> int:
            if threading.current_thread() is thread:
                there.set()
                go_on.wait(LIMIT)
            return 3

    slow = Slow()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert there.wait(LIMIT)
    in_child(lambda: slow.value == 3 or 1 / 0)
    go_on.set()
    thread.join()
    assert slow.value == 3


# what uses it


def test_garbage_collector_works_in_the_child() -> None:
    def check() -> None:
        assert gc.isenabled()
        with resting():
            assert not gc.isenabled()
        assert gc.isenabled()

    def check_within() -> None:
        assert not gc.isenabled()

    assert gc.isenabled()
    with elsewhere(holding(resting())):
        in_child(check)
        assert not gc.isenabled()
        with resting():
            in_child(check_within)
    assert gc.isenabled()


def test_child_does_not_inherit_lock_files(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MGB_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MGB_CACHE", "1")
    held = cache.lock("b", "ab" * 32)
    with elsewhere(holding(held)):
        (path,) = tmp_path.rglob(".*.lock")
        reading, writing = os.pipe()
        child = start(lambda: (os.write(writing, b"!"), signal.pause()))
        assert os.read(reading, 1)  # the child exists before it has put anything away
        os.link(path, tmp_path / "same")  # the file itself: what holds it removes its name
    os.replace(tmp_path / "same", path)
    with cache.lock("b", "ab" * 32, timeout=0) as alone:
        os.kill(child, signal.SIGTERM)
        assert alone
    assert end_of(child) == -signal.SIGTERM
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("decorate", [trace, trace(without_host=True), partial_trace])
def test_fork_while_another_thread_records_a_function(decorate, monkeypatch) -> None:
    recording, go_on = threading.Event(), threading.Event()

    def wait(phase, info) -> None:
        """The garbage collector calls it in the body, which has no part in that."""
        if threading.current_thread() is not threading.main_thread() and active_trace() is not None:
            recording.set()
            go_on.wait(LIMIT)

    def body(x):
        y = x * 2.0
        return y + sum([part[0][0] for part in [[[0.03125]] for _ in range(32)]])

    traced = decorate(body)
    assert traced(tensor([3.0])).item() == 7
    thread = threading.Thread(target=lambda: traced(tensor([[3.0, 4.0]])))
    often = gc.get_threshold()
    gc.callbacks.append(wait)
    gc.set_threshold(1)
    try:
        thread.start()
        assert recording.wait(LIMIT)
    finally:
        gc.set_threshold(*often)
        gc.callbacks.remove(wait)

    def check() -> None:
        for value in (3.0, 4.0):
            assert traced(tensor([value])).item() == 2 * value + 1
            assert traced(tensor([[value, 1.0]])).numpy().tolist() == [[2 * value + 1, 3.0]]
            assert traced(tensor([[[value]]])).item() == 2 * value + 1

    in_child(check)
    go_on.set()
    thread.join()
    check()


def test_fork_in_a_body_that_is_being_recorded() -> None:
    children: list[int] = []

    @trace
    def forks(x):
        y = x * 2.0
        children.append(os.fork())
        return y + 1.0

    here = os.getpid()
    try:
        assert forks(tensor([3.0])).item() == 7
    finally:
        if os.getpid() != here:
            os._exit(0 if children == [0] else 1)
    assert [end_of(child) for child in children] == [0]


IMAGES, KERNELS = np.ones((2, 3, 40, 40), np.float32), np.ones((8, 3, 3, 3), np.float32)
MATRIX = np.ones((300, 300), np.float32)


def products() -> None:
    """Large enough for the threads of whatever library computes them."""
    assert F.matmul(tensor(MATRIX), tensor(MATRIX)).numpy()[7, 9] == 300
    wide = tensor(MATRIX, dtype="float64")
    assert F.matmul(wide, wide).numpy()[7, 9] == 300
    assert F.conv2d(tensor(IMAGES), tensor(KERNELS)).numpy()[1, 7, 30, 30] == 27
    q = tensor(np.ones((2, 4, 64, 32), np.float32))
    np.testing.assert_allclose(F.scaled_dot_product_attention(q, q, q).numpy(), 1, rtol=1e-6)


def test_child_runs_products_and_convolutions_after_the_parent() -> None:
    products()
    for _ in range(2):
        in_child(products)
        products()  # the parent's threads are there again


def test_child_runs_products_while_other_threads_multiply() -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            products()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        children = [start(products) for _ in range(5)]
        assert [end_of(child) for child in children] == [0] * 5
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_all_locks_are_created_by_the_forking_module() -> None:
    package = Path(forking.__file__).parents[1]
    plugins = (package.parent.parent / "plugins").glob("*/mgb_*/*.py")
    sources = {path: path.read_text() for path in (*package.rglob("*.py"), *plugins)}
    assert len(sources) > 300
    other = r"\b(R?Lock|Condition|Semaphore|Barrier)\(\)|register_at_fork|from functools import .*cached_prop"
    found = {path.relative_to(package.parent.parent) for path in sources if re.search(other, sources[path])}
    assert found == {Path("core/mgb/runtime/forking.py")}
