"""`auto` among threads, tasks, generators and processes."""

from __future__ import annotations

import asyncio
import os
import queue
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from auto_sessions import BACKEND, auto
from mgb import Tensor, jit, tensor
from mgb.errors import AutoInterruptedError
from mgb.ir import Kind, Op, Spec
from mgb.tensor.apply import apply
from threads import together

# contexts


def test_async_tasks_share_a_thread() -> None:
    async def work(n: int) -> float:
        y = tensor([float(n)])
        for _ in range(5):
            y = y * 2 + 1
            await asyncio.sleep(0)
        return y.item()

    async def every() -> list[float]:
        with auto():
            return await asyncio.gather(*(work(n) for n in range(4)))

    assert asyncio.run(every()) == [32.0 * n + 31 for n in range(4)]


def test_generator_resumed_inside_and_outside_the_block() -> None:
    def numbers() -> Any:
        y = tensor([1.0])
        while True:
            y = y + 1
            yield y

    stream = numbers()
    first = next(stream)
    with auto():
        second = next(stream)
    third = next(stream)
    assert [t.item() for t in (first, second, third)] == [2.0, 3.0, 4.0]


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("after", [0, 3, 10_000])
def test_threads_have_separate_sequences(after: int, frequent_switches: None) -> None:
    hot = auto(after)

    def work(n: int) -> None:
        with hot:
            for k in range(60):
                size = 1 + (k + n) % 3
                x = tensor(np.full(size, n, np.float32))
                y = (x * 2 + k) - x
                y += 1.0
                assert y.numpy().tolist() == [n + k + 1.0] * size

    together([lambda n=n: work(n) for n in range(8)])


@pytest.mark.parametrize("after", [0, 10_000])
def test_threads_read_values_deferred_by_another_thread(after: int, frequent_switches: None) -> None:
    """While it goes on: they compute what they ask for themselves, and disturb nothing."""
    hot = auto(after)
    made: queue.Queue[Any] = queue.Queue()
    readers = 3

    def make() -> None:
        weight = tensor(np.ones(4, np.float32))
        with hot:
            for n in range(200):
                y = weight * 2 + n
                z = y.detach() * 3
                made.put((n, y, z))
                weight += 0.0
                if n % 7 == 0:
                    assert weight.numpy()[0] == 1.0
            for _ in range(readers):
                made.put(None)

    def read() -> None:
        while (item := made.get()) is not None:
            n, y, z = item
            again = z.detach() + y
            assert z.numpy().tolist() == [3.0 * (n + 2)] * 4
            assert again.numpy().tolist() == [4.0 * (n + 2)] * 4
            assert y.numpy().tolist() == [n + 2.0] * 4

    together([make, *[read] * readers])


def test_value_outlives_the_thread_that_deferred_it() -> None:
    left: list[Tensor] = []
    hot = auto()

    def work() -> None:
        hot.__enter__()
        left.append(tensor([1.0]) + 1)
        left.append(left[0] * 3)

    together([work])
    assert left[0]._session is not None
    assert left[1].item() == 6.0 and (left[0] + left[1]).item() == 8.0


def test_trace_in_another_thread_accepts_deferred_values() -> None:
    traced = jit.trace(lambda x: x * 2 + 1, backend=BACKEND)
    with auto():
        for n in range(3):
            y = tensor([float(n)]) + 1
            results: list[float] = []
            together([lambda y=y, results=results: results.append(traced(y).item())])
            assert results == [2.0 * n + 3] and y.item() == n + 1.0


def test_copied_context_in_another_thread() -> None:
    async def work(n: int) -> float:
        y = tensor([float(n)]) + 1
        z = await asyncio.to_thread(lambda: y * 2 + 1)
        return (z + y).item()

    async def every() -> list[float]:
        with auto():
            return await asyncio.gather(*(work(n) for n in range(4)))

    assert asyncio.run(every()) == [3.0 * (n + 1) + 1 for n in range(4)]


def test_value_may_be_read_while_an_op_is_being_deferred() -> None:
    """As by a finalizer or a signal handler, which may run anywhere."""
    seen: list[float] = []
    waiting: list[Tensor] = []

    def infer(x: Spec) -> Spec:
        if waiting:
            seen.append(waiting[0].item())
            seen.append((waiting.pop() + 1).item())
        return Spec(x.shape, x.dtype)

    op = Op("same", Kind.OPAQUE, infer, lambda x: x)
    with auto(after=2):
        for n in range(5):
            y = tensor([float(n)]) * 2
            waiting.append(y)
            z = apply(op, y) + n
            waiting.clear()
            assert (z + y).item() == 5.0 * n
    assert seen[:2] == [0.0, 1.0]


def test_reading_a_value_during_its_computation_raises() -> None:
    waiting: list[Tensor] = []

    def eager(x: Any) -> Any:
        waiting.pop().numpy()
        return x

    op = Op("asks", Kind.OPAQUE, lambda x: Spec(x.shape, x.dtype), eager)
    with auto():
        y = tensor([1.0]) * 2
        z = apply(op, y)
        waiting.append(z)
        with pytest.raises(AutoInterruptedError, match="while it was computed"):
            z.numpy()
        assert y.item() == 2.0


PROGRAM = """
import sys
import threading
import numpy as np
from mgb import tensor
assert "mgb.jit" not in sys.modules
tensor(1.0)
assert "mgb.jit.deferred" in sys.modules
from mgb import jit
from mgb.jit.deferred import everywhere
def work(n, out):
    y = tensor(np.float32([n]))
    for _ in range(6):
        z = y * 2 + 1
        assert z._session is not None
        out.append(z.item())
outs = [[] for _ in range(3)]
threads = [threading.Thread(target=work, args=(n, out)) for n, out in enumerate(outs)]
[t.start() for t in threads]; [t.join() for t in threads]
assert outs == [[2 * n + 1] * 6 for n in range(3)], outs
work(3, [])
assert everywhere().stream().counts.compiled == 4
traced = jit.trace(lambda x: x * 3)
assert [traced(tensor([1.0]) + n).item() for n in range(3)] == [3, 6, 9]
import os
pending = tensor([1.0]) + 1
pid = os.fork()
if pid == 0:
    os._exit(0 if pending.item() == 2 else 1)
assert os.waitpid(pid, 0)[1] == 0 and pending.item() == 2
print("fine")
"""


def test_auto_for_the_whole_process() -> None:
    environment = {**os.environ, "MGB_JIT_AUTO": "1", "MGB_JIT_BACKEND": BACKEND}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "fine\n", done.stderr
