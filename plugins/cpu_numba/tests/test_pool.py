"""The threads that take parts of a kernel: many callers, forks, exits, changing numbers of threads."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cpu_numba_helpers import BACKEND, call, traced
from mgb.ops.bodies.transcendental import exp
from mgb.ops.reduce import reduce_max, reduce_sum

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def always_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel counts as worth several threads."""
    monkeypatch.setattr("mgb_native.plan.PARALLEL", 0)
    monkeypatch.setattr("mgb_native.launch.PARALLEL", 0)


def softmax(x: Any) -> Any:
    e = exp(x - reduce_max(x, axis=(1,)))
    return e / reduce_sum(e, axis=(1,))


def true_softmax(x: Any) -> Any:
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (1, 70_000), (2, 40_000), (400, 100), (64, 4096)], ids=str)
def test_any_number_of_threads_gives_the_same_bits(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = normal(*shape)
    graph = traced(softmax, [x])
    kernel = BACKEND.compile(graph)
    results = []
    for threads in (1, 2, 3, 4, 5, 6, 7, 8, 2, 1):
        monkeypatch.setenv("MGB_NUM_THREADS", str(threads))
        results.append(call(kernel, graph, [x])[0])
    np.testing.assert_allclose(results[0], true_softmax(x), rtol=2e-5)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_thousands_of_small_calls_run_every_part_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_NUM_THREADS", "4")
    x, y = normal(40, 3), np.zeros((40, 3), np.float32)
    kernel = BACKEND.compile(traced(lambda a, b: (a + b) * 1.0, [y, x]))
    kernel.run(y, x, out=(y,))
    for _ in range(3000):
        kernel.run(y, x, out=(y,))  # in place: a part that ran twice, or never, would show
    np.testing.assert_allclose(y, x.astype(np.float64) * 3001, rtol=1e-3)


def test_concurrent_calls_from_python_threads_with_many_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGB_NUM_THREADS", "3")
    inputs = [normal(rows, columns) for rows in (1, 7, 50) for columns in (3, 90, 20_000)]
    inputs += [normal(rows, 11) for rows in range(1, 20)]
    truth = [true_softmax(x) for x in inputs]
    kernel = BACKEND.compile(traced(softmax, inputs[-1:]))
    alone = BACKEND.compile(traced(softmax, inputs[:1]))  # one row: another pattern of lengths

    def work(i: int) -> None:
        k = i % len(inputs)
        out = np.empty_like(inputs[k])
        (alone if len(out) == 1 else kernel).run(inputs[k], out=(out,))
        np.testing.assert_allclose(out, truth[k], rtol=2e-5, atol=1e-9)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(1500)))


def test_invalid_thread_count_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = normal(30, 30), np.empty((30, 30), np.float32)
    kernel = BACKEND.compile(traced(softmax, [x]))
    monkeypatch.setenv("MGB_NUM_THREADS", "2")
    kernel.run(x, out=(y,))
    monkeypatch.setenv("MGB_NUM_THREADS", "many")
    with pytest.raises(ValueError, match="many"):
        kernel.run(x, out=(y,))
    monkeypatch.setenv("MGB_NUM_THREADS", "2")
    kernel.run(x, out=(y,))
    np.testing.assert_allclose(y, true_softmax(x), rtol=2e-5)


def test_wrong_arguments_raise_type_error() -> None:
    x, y = normal(3, 4), np.empty((3, 4), np.float32)
    run = BACKEND.compile(traced(softmax, [x])).run
    for _ in range(2):
        with pytest.raises(TypeError, match="out"):
            run(x)
        with pytest.raises(TypeError, match="unexpected"):
            run(x, into=(y,), out=(y,))
        with pytest.raises(TypeError, match="arrays"):
            run(x, x, out=(y,))
        with pytest.raises(TypeError, match="arrays"):
            run(x, out=(y, y))
        run(x, out=(y,))
    np.testing.assert_allclose(y, true_softmax(x), rtol=2e-5)


def test_array_subclasses_and_lists_of_outputs_are_accepted(tmp_path: Path) -> None:
    x = np.memmap(tmp_path / "x", np.float32, "w+", shape=(30, 8))
    x[:] = normal(30, 8)
    out = np.zeros((30, 8), np.float32).view(np.recarray)
    run = BACKEND.compile(traced(softmax, [np.asarray(x)])).run
    run(x, out=[out])
    np.testing.assert_allclose(np.asarray(out), true_softmax(np.asarray(x)), rtol=2e-5)


def test_cached_launch_programs_are_bounded() -> None:
    kernel = BACKEND.compile(traced(softmax, [normal(2, 3)]))
    launcher = kernel.run.__self__.owner
    for rows in range(2, 800):
        x = np.full((rows, 3), 2, np.float32)
        out = np.empty_like(x)
        kernel.run(x, out=(out,))
        assert np.allclose(out, 1 / 3)
    assert len(launcher.programs) <= 256 and len(launcher.recent.programs) <= 8


def run_python(program: str, **environment: str) -> str:
    """Run another Python process and return its output; it must exit with 0."""
    head = f"""
        import os, sys, threading, time
        import numpy as np
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import mgb_native.launch, mgb_native.plan
        mgb_native.launch.PARALLEL = mgb_native.plan.PARALLEL = 0
        from cpu_numba_helpers import BACKEND, traced
        from mgb_native.native import native

        x = np.arange(6000, dtype=np.float32).reshape(60, 100)
        kernel = BACKEND.compile(traced(lambda a: a * 2.0 + 1.0, [x]))

        def check():
            y = np.zeros_like(x)
            kernel.run(x, out=(y,))
            assert (y == x * 2 + 1).all()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(program)],
        env={**os.environ, "MGB_NUM_THREADS": "3", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python_exits_while_workers_sleep_spin_or_work() -> None:
    run_python("check(); time.sleep(0.01)")
    run_python("check()")
    run_python(
        """
        def forever():
            while True:
                check()
        threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.2)
        """
    )


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not bind threads to cores")
def test_first_call_preserves_the_callers_cpu_affinity() -> None:
    """Once the caller was sent away in place of a worker that had not begun: in every second process."""
    for _ in range(4):
        run_python(
            """
            cores = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {0} & cores or cores)
            os.sched_setaffinity(0, cores)
            check()
            assert os.sched_getaffinity(0) == cores
            """
        )


def test_forked_child_starts_its_own_workers() -> None:
    printed = run_python(
        """
        check()
        assert native().workers() == 2
        for _ in range(3):
            child = os.fork()
            if child == 0:
                assert native().workers() == 0
                for _ in range(100):
                    check()
                assert native().workers() == 2
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            check()
        print("done")
        """
    )
    assert printed == "done\n"


def test_fork_while_other_threads_call_kernels() -> None:
    run_python(
        """
        stop = []
        def work():
            while not stop:
                check()
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                check()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.append(1)
        for t in threads:
            t.join()
        """
    )


def test_idle_workers_do_not_burn_cpu() -> None:
    printed = run_python(
        """
        check()
        time.sleep(0.05)
        start = time.process_time()
        time.sleep(0.5)
        print(time.process_time() - start)
        """
    )
    assert float(printed) < 0.1  # of the CPU; not of the clock


def test_signals_reach_python() -> None:
    run_python(
        """
        import signal
        caught = []
        signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
        check()
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGUSR1)
            check()
        assert len(caught) == 20
        """
    )


def test_workers_are_started_on_demand() -> None:
    printed = run_python(
        """
        print(native().workers())
        check()
        print(native().workers())
        os.environ["MGB_NUM_THREADS"] = "6"
        check()
        os.environ["MGB_NUM_THREADS"] = "2"
        check()
        print(native().workers())
        """
    )
    assert printed.split() == ["0", "2", "5"]
