"""The memory of temporaries on a GPU belongs to a stream, whose work may go on when a call has returned."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import mgb
import numpy as np
import pytest
from mgb import memory
from mgb.executor.workspaces import workspaces
from mgb.ir import Spec

standin = pytest.importorskip(
    "mgb_conformance.standin", reason="mgb-conformance is not installed: pip install ./conformance"
)


@pytest.fixture(autouse=True)
def cupy() -> Iterator[Any]:
    """Two GPUs."""
    yield standin.install(2)
    mgb.set_default_device("xpux")
    standin.uninstall()


def arenas(device: str) -> Any:
    spec = Spec((16,), np.dtype(np.float32), device)
    return workspaces(128, [(0, spec), (64, spec)], device)


def used(found: Any) -> int:
    """Where the arena lies that a call has."""
    parts = found.take()
    found.give(parts)
    return int(parts[0].data.ptr)


@pytest.mark.parametrize("device", ["gpu0:0", "gpu1:0"])
def test_each_stream_has_its_own_arena(device: str, cupy: Any) -> None:
    found = arenas(device)
    with cupy.cuda.Device(int(device[3])):
        first = used(found)
        with cupy.cuda.Stream():
            second = used(found)
            assert used(found) == second
        assert used(found) == first != second
    assert found.idle_bytes() == 2 * 128
    memory.empty_cache()
    assert found.idle_bytes() == 0


def test_arena_uses_the_stream_of_its_own_gpu(cupy: Any) -> None:
    """Whichever GPU is the current one when a call begins."""
    found = arenas("gpu1:0")
    first = used(found)
    with cupy.cuda.Stream():  # of gpu0
        assert used(found) == first
    with cupy.cuda.Device(1), cupy.cuda.Stream():
        assert used(found) != first


def test_threads_with_per_thread_default_streams_share_no_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """All these streams have one handle; what one thread has started may go on when another one begins."""
    monkeypatch.setattr(standin.State, "per_thread", True)
    found, places = arenas("gpu0:0"), []
    kept = []  # as long as its work goes on, memory that is given back serves that thread alone

    def call() -> None:
        parts = found.take()
        kept.append(parts)
        places.append(parts[0].data.ptr)
        found.give(parts)

    for _ in range(3):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert len(set(places)) == 3 and found.idle_bytes() == 0
    with standin.Stream():
        assert used(found) == used(found)


def test_concurrent_calls_share_no_arena() -> None:
    found, places, ready = arenas("gpu0:0"), [], threading.Barrier(4)

    def call() -> None:
        parts = found.take()
        places.append(parts[0].data.ptr)
        ready.wait()
        found.give(parts)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(places)) == 4 and found.idle_bytes() == 4 * 128
