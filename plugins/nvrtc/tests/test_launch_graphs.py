"""Kernels in a row as one graph of launches, on a driver that takes notes: nodes, order, new addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mgb_cuda.testing import stub
from mgb_cuda.testing.launched import forked
from mgb_nvrtc import compiler

pytest.importorskip("mgb_conformance.standin", reason="mgb-conformance is not installed")
MISSING = compiler.missing() or stub.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

#: What every script begins with: a step of five kernels that wait for each other, each of one launch.
SETUP = """
import json
import numpy as np
from mgb_conformance import standin
cupy = standin.install(1)
import mgb, mgb.functional as F
from mgb import Tensor
from mgb.jit import trace
from mgb_cuda.testing.stub import Notes

notes = Notes()

def step(x):
    for _ in range(2):
        x = x - x.mean(axis=0, keepdims=True)
        x = x / x.sum(axis=1, keepdims=True)
    return x - x.mean(axis=0, keepdims=True)

def array():
    return Tensor(np.ones((24, 36), np.float32), device="gpu0")

def call(f, x):
    'A call whose result is kept, and what the driver was told; addresses by the order of their first use.'
    notes.watch(32)
    kept.append(f(x))
    names = {x._data.data.ptr: "argument", kept[-1]._array().data.ptr: "result"}
    found, library = notes.launches(), notes.library
    words = [np.frombuffer(n["parameters"], np.uint64, 4).tolist() for n in found]
    return {
        "launches": [[n["name"], n["grid"], n["block"], n["shared"], n["stream"]] for n in found],
        "words": [[names.setdefault(w, len(names)) for w in row] for row in words],
        "graphs": sorted({n["graph"] for n in found}), "starts": library.stub_graph_launches(),
        "updates": library.stub_updates(), "live": library.stub_live_graphs(),
    }

kept = []
"""


def run(folder: Path, script: str, **variables: str) -> Any:
    """The JSON that `script` prints, where the driver is the stub."""
    return forked(folder, SETUP, script, **({"MGB_JIT_BACKEND": "nvrtc"} | variables))


def is_alone(call: Any) -> bool:
    """Were the kernels started one by one?"""
    return call["graphs"] == [0] and call["starts"] == 0


def is_graph(call: Any) -> bool:
    """Was a graph started, and nothing else?"""
    return len(call["graphs"]) == 1 and call["graphs"] != [0] and call["starts"] == 1


def told(call: Any) -> Any:
    """Return the arguments of the kernels of a call, wherever its arrays lie."""
    return call["launches"], call["words"]


class TestNodes:
    def test_graph_launches_match_separate_launches(self, stub_folder: Path) -> None:
        script = """
f, g, x = trace(step), trace(step, cuda_graph=False), array()
print(json.dumps([[call(t, x) for _ in range(7)][1:] for t in (f, g)]))
"""
        automatic, never = run(stub_folder, script)
        words = automatic[0]["words"]
        assert len(words) == 5 and words[0][0] == "argument" and words[-1][-1] == "result"
        assert all(map(is_alone, never)) and is_alone(automatic[0]) and is_graph(automatic[-1])
        assert all(told(c) == told(never[0]) for c in automatic + never)

    def test_only_changed_addresses_are_updated(self, stub_folder: Path) -> None:
        """Three kernels read the argument, the last one writes the result; temporaries stay."""
        script = """
f, x, y = trace(step, cuda_graph=True), array(), array()
f(x); call(f, x)
print(json.dumps([call(f, x), call(f, y), call(f, y)]))
"""
        found = run(stub_folder, script)
        assert all(map(is_graph, found)) and all(told(c) == told(found[0]) for c in found)
        assert [c["updates"] for c in found] == [1, 4, 1]
        assert len({str(c["graphs"]) for c in found}) == 1, "one graph serves all calls"

    def test_graph_runs_on_the_current_stream(self, stub_folder: Path) -> None:
        script = """
f, x = trace(step, cuda_graph=True), array()
f(x)
stream = cupy.cuda.Stream()
with stream:
    found = call(f, x)
print(json.dumps([[n[-1] for n in found["launches"]] == 5 * [stream.ptr], found["starts"]]))
"""
        assert run(stub_folder, script) == [True, 1]

    def test_scratch_memory_is_allocated_per_call(self, stub_folder: Path) -> None:
        script = """
def two_stages(x):
    return x - x.sum(axis=1, keepdims=True) * 1e-6, (x * 2).sum(axis=1)
f = trace(two_stages, cuda_graph=True)
x = Tensor(np.ones((2, 1_000_000), np.float32), device="gpu0")
asked, alloc = [], cupy.cuda.alloc
cupy.cuda.alloc = lambda n: asked.append(alloc(n)) or asked[-1]
f(x)
found = []
for _ in range(3):
    notes.watch(64)
    f(x)
    launches = notes.launches()
    words = set(np.frombuffer(launches[0]["parameters"], np.uint64).tolist())
    found.append([len(launches), notes.library.stub_graph_launches(), asked[-1].ptr in words])
print(json.dumps(found))
"""
        for count, starts, is_there in run(stub_folder, script):
            assert count >= 2 and starts <= 1 and is_there


class TestWhenItPays:
    def test_graph_is_not_used_for_few_launches(self, stub_folder: Path) -> None:
        script = """
def few(x):
    x = x - x.mean(axis=0, keepdims=True)
    return x / x.sum(axis=1, keepdims=True)
f, x = trace(few), array()
print(json.dumps([call(f, x) for _ in range(8)][1:]))
"""
        found = run(stub_folder, script)
        assert 1 < len(found[0]["words"]) < 4 and all(map(is_alone, found))

    def test_graph_is_not_used_while_most_addresses_change(self, stub_folder: Path) -> None:
        """Four of five launches have an array that is another one in each call."""
        script = """
f, held = trace(step), [array() for _ in range(8)]
print(json.dumps([call(f, x) for x in held][1:]))
"""
        assert all(map(is_alone, run(stub_folder, script)))

    def test_graph_is_used_once_addresses_are_stable(self, stub_folder: Path) -> None:
        script = """
f, x = trace(step), array()
print(json.dumps([call(f, x) for _ in range(8)][1:]))
"""
        starts = [c["starts"] for c in run(stub_folder, script)]
        assert starts == sorted(starts) and starts[:3] == [0, 0, 0] and starts[-1] == 1

    def test_each_thread_has_its_own_graph(self, stub_folder: Path) -> None:
        script = """
import threading
f = trace(step, cuda_graph=True, without_host=True)
xs = [array() for _ in range(8)]
for x in xs:
    f(x)
notes.watch(64)
def work(x):
    for _ in range(3):
        f(x)
threads = [threading.Thread(target=work, args=(x,)) for x in xs]
[t.start() for t in threads]; [t.join() for t in threads]
print(json.dumps([notes.library.stub_graph_launches(), notes.library.stub_live_graphs() % 2]))
"""
        assert run(stub_folder, script) == [24, 0]

    def test_graphs_are_freed_with_the_function(self, stub_folder: Path) -> None:
        script = """
import gc
f, x = trace(step, cuda_graph=True), array()
f(x); before = call(f, x)["live"]
del f
mgb.memory.empty_cache(); gc.collect()
print(json.dumps([before, notes.library.stub_live_graphs()]))
"""
        assert run(stub_folder, script) == [2, 0]


class TestRefusals:
    SCRIPT = """
import logging
said = []
class Listener(logging.Handler):
    def emit(self, record):
        said.append([record.levelname, record.getMessage()])
logging.getLogger("mgb.cuda").addHandler(Listener())
f, x = trace(step, cuda_graph=True), array()
BEFORE
f(x)
found = [call(f, x), call(f, x)]
print(json.dumps([found, said]))
"""

    @pytest.mark.parametrize(
        ("name", "graphs"), [("cuGraphCreate", 0), ("cuGraphExecKernelNodeSetParams", 1)]
    )
    def test_driver_without_graph_calls_falls_back_with_a_warning(
        self, stub_folder: Path, name: str, graphs: int
    ) -> None:
        found, said = run(stub_folder, self.SCRIPT.replace("BEFORE", ""), MGB_STUB_LACKS=name)
        assert [is_graph(c) for c in found] == [k < graphs for k in range(2)]
        assert told(found[0]) == told(found[1])
        assert found[0]["words"][0][0] == "argument" and found[0]["words"][-1][-1] == "result"
        ((level, text),) = said
        assert level == "WARNING" and "started one by one" in text and name in text

    def test_driver_that_rejects_graphs_falls_back_with_a_warning(self, stub_folder: Path) -> None:
        script = self.SCRIPT.replace("BEFORE", "notes.library.stub_refuse_graphs(801)")
        found, said = run(stub_folder, script)
        assert all(map(is_alone, found)) and len(found[0]["words"]) == 5
        assert len(said) == 1 and "CUDA_ERROR_NOT_SUPPORTED" in said[0][1]

    def test_capturing_stream_gets_separate_kernel_launches(self, stub_folder: Path) -> None:
        script = """
f, x = trace(step, cuda_graph=True), array()
f(x)
found = []
with cupy.cuda.Stream():  # the default stream cannot capture, and is not asked
    for capturing in (0, 1, 0):
        notes.library.stub_capture(capturing)
        found.append(call(f, x))
print(json.dumps(found))
"""
        first, captured, last = run(stub_folder, script)
        assert is_graph(first) and is_alone(captured) and is_graph(last)
        assert told(captured) == told(first) == told(last)

    def test_failed_launch_reports_why_and_function_stays_usable(self, stub_folder: Path) -> None:
        script = """
f, x = trace(step, cuda_graph=True), array()
f(x); call(f, x)
notes.library.stub_fail(700)
try:
    call(f, x)
except Exception as error:
    said = str(error)
notes.library.stub_fail(0)
found = call(f, x)
print(json.dumps([said, found]))
"""
        said, found = run(stub_folder, script)
        assert "ILLEGAL_ADDRESS" in said and "restart" in said
        assert is_graph(found) and found["words"][-1][-1] == "result"
