"""Threads that have no context of their own, on a driver where a context is current in one thread alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mgb_cuda.testing import stub
from mgb_cuda.testing.launched import answer

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed: pip install cuda-bindings")
pytestmark = pytest.mark.skipif(stub.missing() is not None, reason=str(stub.missing()))

#: A device, what it launches, and a thread that runs to its end.
SETUP = """
import json, struct, threading
from mgb_cuda import LaunchError, Packet
from mgb_cuda.bindings import bindings, check
from mgb_cuda.context import Context
from mgb_cuda.driver import CudaDevice, elapsed
from mgb_cuda.testing.stub import Notes, StubArrays

notes, device = Notes(), CudaDevice(1, None, StubArrays())
(function,) = device.load(b"\\x7fELF", ["kernel"])
packets = [Packet(struct.pack("<Q", k)) for k in range(4)]
tables = [packet.table for packet in packets]
starts = [(function, (k + 1, 1), 32) for k in range(4)]
launch, sequence = device.launcher(*starts[0]), device.sequence(starts, tables)

def in_thread(function):
    found = []
    def run():
        try:
            found.append(function())
        except LaunchError as error:
            found.append(str(error))
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]

def context():
    return int(check(bindings(), bindings().cuCtxGetCurrent()))

def contexts():
    return [note["context"] for note in notes.launches()]

PRIMARY = 0x7001
"""


def run(folder: Path, script: str) -> Any:
    return answer(folder, SETUP + script, MGB_STUB_DEVICES="2")


LAUNCHES = {
    "a launch": "lambda: launch(0, tables[0])",
    "launches in a row": "lambda: sequence(0)",
    "a graph that this thread makes": "lambda: device.graph(starts, tables).run(0)",
    "a graph of another thread": "lambda: made.run(0)",
    "a graph with other parameters": "lambda: (made.update([2]), made.run(0))",
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_thread_without_a_context_uses_the_primary_context(stub_folder: Path, name: str) -> None:
    script = f"""
made = in_thread(lambda: device.graph(starts, tables))
notes.watch(8)
said = [in_thread({LAUNCHES[name]}) for _ in range(3)]
print(json.dumps([len(contexts()), set(contexts()) == {{PRIMARY}}, [s for s in said if type(s) is str]]))
"""
    each = 1 if name == "a launch" else 4
    assert run(stub_folder, script) == [3 * each, True, []]


def test_only_rejected_launches_are_retried_and_context_is_retained_once(stub_folder: Path) -> None:
    """Whatever was refused is launched again, nothing else is."""
    script = """
notes.watch(8)
found = in_thread(lambda: ([sequence(0) for _ in range(3)], context()))
grids = [note["grid"][0] for note in notes.launches()]
for _ in range(5):
    in_thread(lambda: launch(0, tables[0]))
print(json.dumps([grids, found[1] == PRIMARY, context(), notes.library.stub_retained()]))
"""
    assert run(stub_folder, script) == [[1, 2, 3, 4] * 3, True, 0, 1]


def test_context_of_another_library_is_preserved(stub_folder: Path) -> None:
    """As the CUDA runtime takes it, CuPy with it."""
    script = """
def work():
    bindings().cuCtxSetCurrent(bindings().CUcontext(0x9000))
    launch(0, tables[0]); sequence(0)
    graph = device.graph(starts, tables)
    graph.update([0]); graph.run(0)
    Context(1).ensure()
    return context()

notes.watch(8)
print(json.dumps([in_thread(work), sorted(set(contexts())), len(contexts())]))
"""
    assert run(stub_folder, script) == [0x9000, [0x9000], 9]


def test_timing_and_resource_checks_run_with_a_context(stub_folder: Path) -> None:
    script = """
notes.watch(8)
timed = in_thread(lambda: elapsed(device.context, lambda stream: launch(stream, tables[0]), 0))
checked = in_thread(lambda: (device.check(function, 32), context())[1])
print(json.dumps([type(timed).__name__, len(contexts()), checked == PRIMARY]))
"""
    assert run(stub_folder, script) == ["float", 6, True]


def test_driver_errors_are_reported_for_every_kind_of_launch(stub_folder: Path) -> None:
    script = """
graph = device.graph(starts, tables)
notes.watch(8)
found = []
for status in (201, 700):
    notes.library.stub_fail(status)
    for work in (lambda: launch(0, tables[0]), lambda: sequence(0), lambda: graph.run(0)):
        found.append(in_thread(work))
print(json.dumps(found))
"""
    said = run(stub_folder, script)
    assert ["INVALID_CONTEXT" in text for text in said] == [True] * 3 + [False] * 3
    assert all("ILLEGAL_ADDRESS" in text for text in said[3:])


def test_each_thread_has_its_own_default_stream(stub_folder: Path) -> None:
    """The handle is one, the streams are several: what is kept by handle alone is shared."""
    script = """
notes.watch(8)
for _ in range(2):
    in_thread(lambda: sequence(2))
found = notes.launches()
print(json.dumps([sorted({note["stream"] for note in found}), [note["thread"] for note in found]]))
"""
    assert run(stub_folder, script) == [[2], [1] * 4 + [2] * 4]
