"""The launch code itself, on a driver that takes notes: names, grids, and every parameter."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest

from . import stub
from .forks import Forks
from .suite import Suite

#: One call, and what the driver noted of its launch.
ONE_CALL = """
x, y = np.zeros((60, 1000), np.float32), np.zeros((1000,), np.float16)
out = [np.zeros((60, 1000), np.float32), np.zeros(1000, np.float16)]
kernel = backend.compile(traced(lambda x, y: (x * y, y + 1), x, y))
unit = kernel.state.unit()
plan, pointers, _ = unit.prepare([x, y], out)
notes.watch(len(plan.content))
kernel.run(x, y, out=out)
(note,) = notes.launches()
"""

#: What scripts have in common: what they import, before there is a driver.
IMPORTS = """
import json, struct, sys
import numpy as np
from mgb.ops.reduce import reduce_max, reduce_sum
from mgb.ops.bodies.transcendental import exp
from mgb_cuda import LaunchError
from mgb_cuda.steps import steps
from mgb_cuda.testing.stub import Notes, StubArrays
sys.path.insert(0, FOLDER)
from MODULE import BENCH
"""

#: What each of them begins with: a GPU that is the stub, and arrays that look like those of a GPU. The stub
#: keeps what the first parameter points to and what follows: kernels have their parameters side by side.
SETUP = """
notes, arrays = Notes(), StubArrays()
device = BENCH.driver(arrays)
backend, traced = BENCH.given(device), BENCH.traced

def softmax(x):
    e = exp(x - reduce_max(x, axis=(1,)))
    return e / reduce_sum(e, axis=(1,))
"""

#: Nothing is taken from the disk.
WITHOUT_CACHE = {"MGB_CACHE": "0"}


def answer(folder: Path, script: str, **variables: str) -> Any:
    """Return the JSON that `script` prints last, in a new process with the stub driver in `folder`."""
    return _last(stub.run(folder, script, **WITHOUT_CACHE | variables))


def forked(folder: Path, prepared: str, script: str, **variables: str) -> Any:
    """Return it from a process that is forked from one which has run `prepared`."""
    return _last(_forks(folder, prepared).run(script, **WITHOUT_CACHE | variables))


@cache
def _forks(folder: Path, prepared: str) -> Forks:
    return Forks(prepared, LD_LIBRARY_PATH=str(folder))


def _last(text: str) -> Any:
    return json.loads(text.splitlines()[-1])


class Launched(Suite):
    """Scripts in a process of their own, where the driver is the stub.

    Attributes
    ----------
    prepared : str
        What they have in common beside `IMPORTS`: it may compile something, but has no driver.
    """

    prepared: ClassVar[str] = ""

    @property
    def imports(self) -> str:
        """`IMPORTS` of this backend."""
        helpers = self.bench.helpers
        return IMPORTS.replace("FOLDER", repr(str(helpers.parent))).replace("MODULE", helpers.stem)

    def run(self, folder: Path, script: str, **variables: str) -> Any:
        """Run `script` after `IMPORTS` and `SETUP` and return its output."""
        return forked(folder, self.imports + self.prepared, SETUP + script, **variables)


class Launches(Launched):
    """Tests of the calls that reach the driver.

    Attributes
    ----------
    threads : int
        In a block of a small element-wise kernel.
    elements : str
        How many elements such a block has, from its ``variant``.
    shares : bool
        Is the memory that threads share given by a launch?
    toolchain : tuple of str
        What is imported of PyTorch, CuPy and Triton.
    """

    threads: ClassVar[int]
    elements: ClassVar[str]
    shares: ClassVar[bool]
    toolchain: ClassVar[tuple[str, ...]]

    def test_every_launch_parameter_reaches_the_driver(self, stub_folder: Path) -> None:
        script = (
            ONE_CALL
            + """
variant = plan.choice.variant
packing = unit.packing(variant)
values = list(packing.fields.unpack_from(note["parameters"], 8 * 4))
addresses = list(np.frombuffer(note["parameters"], np.uint64, 4).tolist())
print(json.dumps({
    "name": note["name"], "grid": note["grid"], "block": note["block"], "shared": note["shared"],
    "stream": note["stream"], "addresses": addresses == [arrays.address(a) for a in (x, y, *out)],
    "numbers": dict(zip(packing.names, values)), "elements": ELEMENTS,
}))
"""
        )
        found = self.run(stub_folder, script.replace("ELEMENTS", self.elements))
        assert found["name"] == "mgb_0" and found["block"] == [self.threads, 1, 1] and found["shared"] == 0
        assert found["grid"] == [-(-60_000 // found["elements"]), 1, 1]
        assert found["stream"] == stub.StubArrays.current and found["addresses"]
        numbers = found["numbers"]
        assert (numbers["length"], numbers["n0"], numbers["n1"], numbers["s0_0"]) == (60_000, 60, 1000, 1000)

    def test_split_row_reduction_launches_two_stages(self, stub_folder: Path) -> None:
        script = """
x = np.zeros((2, 1_000_000), np.float32)
out = [np.zeros_like(x)]
kernel = backend.compile(traced(lambda x: x - reduce_sum(x, axis=(1,)) * 1e-6, x))
plan, pointers, _ = kernel.state.unit().prepare([x], out)
notes.watch(len(plan.content))
kernel.run(x, out=out)
found = notes.launches()
parameters = [n["parameters"] for n in found]
addresses = np.frombuffer(parameters[0], np.uint64, 3).tolist()
print(json.dumps({
    "names": [n["name"] for n in found], "grids": [n["grid"] for n in found],
    "shared": [n["shared"] for n in found], "same": len(set(parameters)) == 1,
    "addresses": addresses[:2] == [arrays.address(a) for a in (x, *out)],
    "chunks": plan.choice.chunks, "scratch": plan.scratch, "part": addresses[2] % 16,
}))
"""
        found = self.run(stub_folder, script)
        chunks = found["chunks"]
        assert found["names"] == ["mgb_0", "mgb_1"] and chunks > 64
        assert found["grids"] == [[2, chunks, 1]] * 2
        assert [size > 0 for size in found["shared"]] == [self.shares] * 2
        assert found["same"] and found["addresses"] and found["part"] == 0
        assert found["scratch"][-1] >= 2 * chunks * 4

    def test_kernel_is_loaded_once(self, stub_folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
kernel = backend.compile(traced(lambda x: x * 2 + 1, x))
for n in (1000, 1004, 1000, 5000):
    kernel.run(np.zeros(n, np.float32), out=[np.zeros(n, np.float32)])
print(json.dumps(notes.library.stub_libraries()))
"""
        assert self.run(stub_folder, script) == 1

    def test_recompiled_kernel_is_not_loaded_again(self, stub_folder: Path) -> None:
        """Check that nothing is unloaded: a graph that a user has captured may launch it."""
        script = """
x = np.zeros(1000, np.float32)
for _ in range(3):
    backend.compile(traced(lambda x: x * 2 + 1, x)).run(x, out=[x.copy()])
print(json.dumps([notes.library.stub_libraries(), len(notes.launches())]))
"""
        assert self.run(stub_folder, script) == [1, 3]

    def test_stream_capture_is_detected(self, stub_folder: Path) -> None:
        script = """
device, found = backend.device, []
for status in (0, 1):
    notes.library.stub_capture(status)
    for arrays.current in (0x6000, 0):
        found.append(device.is_capturing())
print(json.dumps(found))
"""
        assert self.run(stub_folder, script) == [False, False, True, False]

    def test_saved_kernel_needs_no_compiler(self, stub_folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
graph = traced(lambda x: x * 2 + 1, x)
blob = backend.save(backend.compile(graph))
device.compile = None
backend.load(graph, blob).run(x, out=[x.copy()])
print(json.dumps([n["name"] for n in notes.launches()]))
"""
        assert self.run(stub_folder, script) == ["mgb_0"]

    def test_only_the_toolchain_is_imported(self, stub_folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
backend.compile(traced(lambda x: x * 2 + 1, x)).run(x, out=[x.copy()])
print(json.dumps([m for m in ("torch", "cupy", "triton") if m in sys.modules]))
"""
        assert answer(stub_folder, self.imports + SETUP + script) == list(self.toolchain)


class LaunchErrors(Launched):
    """Tests of the errors of a launch.

    Attributes
    ----------
    resource : str
        What the error about blocks that a device has too few threads for says of a kernel.
    """

    resource: ClassVar[str]

    def test_failed_launch_error_states_the_cause(self, stub_folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
kernel = backend.compile(traced(lambda x: x * 2 + 1, x))
kernel.run(x, out=[x.copy()])
found = []
for status in (2, 209, 700, 0):
    notes.library.stub_fail(status)
    try:
        kernel.run(x, out=[x.copy()])
    except LaunchError as error:
        found.append(str(error))
print(json.dumps(found))
"""
        memory, image, address = self.run(stub_folder, script)
        assert "OUT_OF_MEMORY" in memory and "mgb.memory.empty_cache()" in memory
        assert "NO_BINARY_FOR_GPU" in image and "mgb cache clear" in image
        assert "ILLEGAL_ADDRESS" in address and "restart" in address

    def test_probe_reports_a_missing_driver(self, tmp_path: Path) -> None:
        script = f"""
import json
from mgb.backends.plugins import import_backend
print(json.dumps(import_backend({self.bench.name!r}).probe()))
"""
        text = answer(tmp_path, script)
        if text is None:
            pytest.skip("there is a driver here")
        assert "driver" in text and "https://" in text

    def test_compile_raises_resource_error_if_no_schedule_fits(self, stub_folder: Path) -> None:
        script = """
try:
    backend.compile(traced(lambda x: x * 2 + 1, np.zeros(1000, np.float32)))
except LaunchError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""
        name, text = self.run(stub_folder, script, MGB_STUB_THREADS="16")
        assert name == "ResourceError" and self.resource in text and "MGB_JIT_BACKEND=EAGER" in text
