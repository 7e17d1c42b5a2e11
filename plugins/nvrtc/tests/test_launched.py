"""The launch code itself, on a driver that takes notes: names, grids and every parameter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mgb_cuda.testing import stub
from mgb_nvrtc import compiler

MISSING = compiler.missing() or stub.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

#: What every script begins with: a GPU that is the stub, and arrays that look like those of a GPU.
SETUP = """
import json, sys
import numpy as np
from mgb_cuda import LaunchError
from mgb_cuda.driver import CudaDevice
from mgb_cuda.testing.stub import Notes, StubArrays
from mgb_nvrtc.backend import Generated, Toolchain, traits
sys.path.insert(0, HELPERS)
from nvrtc_helpers import traced
from mgb.ops.reduce import reduce_sum

notes, arrays = Notes(), StubArrays()
device = CudaDevice(0, Toolchain(), arrays)

class Stubbed(Generated):
    name = "nvrtc_stubbed"
    traits = traits("gpu")
    def devices(self, arrays):
        return device

backend = Stubbed()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("driver")
    stub.build(found)
    return found


def run(folder: Path, script: str, **variables: str) -> Any:
    """The JSON that `script` prints."""
    helpers = f"HELPERS = {str(Path(__file__).parent)!r}\n"
    text = stub.run(folder, helpers + SETUP + script, MGB_CACHE="0", **variables)
    return json.loads(text.splitlines()[-1])


class TestLaunches:
    def test_every_parameter_arrives(self, folder: Path) -> None:
        script = """
x, y = np.zeros((60, 1000), np.float32), np.zeros((1000,), np.float16)
graph = traced(lambda x, y: (x * y, y + 1), x, y)
out = [np.zeros((60, 1000), np.float32), np.zeros(1000, np.float16)]
kernel = backend.compile(graph)
unit = kernel.state.unit()
plan, pointers, _ = unit.prepare([x, y], out)
notes.watch(len(plan.content))
kernel.run(x, y, out=out)
(note,) = notes.launches()
variant = plan.choice.variant
values = list(variant.packing(unit.frame).fields.unpack_from(note["parameters"], 8 * 4))
addresses = list(np.frombuffer(note["parameters"], np.uint64, 4).tolist())
print(json.dumps({
    "name": note["name"], "grid": note["grid"], "block": note["block"], "shared": note["shared"],
    "stream": note["stream"], "addresses": addresses == [arrays.address(a) for a in (x, y, *out)],
    "numbers": dict(zip(variant.packing(unit.frame).names, values)),
    "work": variant.lanes * variant.slots * variant.threads,
}))
"""
        found = run(folder, script)
        assert found["name"] == "mgb_0" and found["block"] == [256, 1, 1] and found["shared"] == 0
        assert found["grid"] == [-(-60_000 // found["work"]), 1, 1]
        assert found["stream"] == stub.StubArrays.current and found["addresses"]
        numbers = found["numbers"]
        assert (numbers["length"], numbers["n0"], numbers["n1"], numbers["s0_0"]) == (60_000, 60, 1000, 1000)

    def test_the_stages_of_a_row_that_blocks_share(self, folder: Path) -> None:
        script = """
x = np.zeros((2, 1_000_000), np.float32)
mean = lambda x: x - reduce_sum(x, axis=(1,)) * 1e-6
graph = traced(mean, x)
out = [np.zeros_like(x)]
kernel = backend.compile(graph)
plan, pointers, _ = kernel.state.unit().prepare([x], out)
notes.watch(len(plan.content))
kernel.run(x, out=out)
found = notes.launches()
parameters = [n["parameters"] for n in found]
addresses = np.frombuffer(parameters[0], np.uint64, 3).tolist()
print(json.dumps({
    "names": [n["name"] for n in found], "grids": [n["grid"] for n in found],
    "same": len(set(parameters)) == 1, "addresses": addresses[:2] == [arrays.address(a) for a in (x, *out)],
    "chunks": plan.choice.chunks, "scratch": plan.scratch, "part": addresses[2] % 16,
}))
"""
        found = run(folder, script)
        chunks = found["chunks"]
        assert found["names"] == ["mgb_0", "mgb_1"] and chunks > 64
        assert found["grids"] == [[2, chunks, 1]] * 2
        assert found["same"] and found["addresses"] and found["part"] == 0
        assert found["scratch"][-1] >= 2 * chunks * 4

    def test_updates_share_launches(self, folder: Path) -> None:
        script = """
step = lambda p, g: p - g * 0.1
made = [np.zeros(n, np.float32) for n in range(1, 201)]
kernel = backend.compile(traced(step, made[0], made[0]))
joined = backend.join([kernel] * 200)
notes.watch(4096)
joined.run(*(a for p in made for a in (p, p)), out=made)
found, seen = notes.launches(), []
for note in found:
    words = np.frombuffer(note["parameters"], np.uint64)
    seen += [int(w) for w in words if int(w) in {arrays.address(a) for a in made}]
print(json.dumps({
    "launches": len(found), "blocks": sum(n["grid"][0] for n in found), "seen": len(seen),
    "different": len(set(seen)),
}))
"""
        found = run(folder, script)
        assert found["launches"] <= 4 and found["blocks"] == 200
        assert found["seen"] == 3 * 200 and found["different"] == 200

    def test_a_kernel_is_loaded_once(self, folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
kernel = backend.compile(traced(lambda x: x * 2 + 1, x))
for n in (1000, 1004, 1000, 5000):
    kernel.run(np.zeros(n, np.float32), out=[np.zeros(n, np.float32)])
print(json.dumps(notes.library.stub_libraries()))
"""
        assert run(folder, script) == 1


class TestErrors:
    def test_a_failed_launch_says_why(self, folder: Path) -> None:
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
        memory, image, address = run(folder, script)
        assert "OUT_OF_MEMORY" in memory and "mgb.memory.empty_cache()" in memory
        assert "NO_BINARY_FOR_GPU" in image and "mgb cache clear" in image
        assert "ILLEGAL_ADDRESS" in address and "restart" in address

    @pytest.mark.parametrize(
        ("variables", "text"),
        [
            ({"MGB_STUB_VERSION": "11040"}, "of CUDA 11.4, 12.1 or later is needed"),
            ({"MGB_STUB_DEVICES": "0"}, "finds no GPU"),
        ],
    )
    def test_a_driver_that_will_not_do(self, folder: Path, variables: dict[str, str], text: str) -> None:
        script = "import json\nfrom mgb_cuda import driver\nprint(json.dumps(driver.missing()))"
        assert text in json.loads(stub.run(folder, script, **variables))

    def test_a_driver_that_is_older_than_the_compiler(self, folder: Path) -> None:
        script = "import json\nfrom mgb_cuda.driver import older_than\nprint(json.dumps(older_than(%r)))"
        text = json.loads(stub.run(folder, script % "13.5.37", MGB_STUB_VERSION="12040"))
        assert "of CUDA 12.4" in text and "compiler of CUDA 12, or a newer driver" in text
        for fits in ("12.9.86", "11.8.89", "none"):
            assert json.loads(stub.run(folder, script % fits, MGB_STUB_VERSION="12040")) is None

    def test_no_driver(self, tmp_path: Path) -> None:
        script = (
            "import json\nfrom mgb.plugins import import_backend\n"
            "print(json.dumps(import_backend('nvrtc').probe()))"
        )
        text = json.loads(stub.run(tmp_path, script))
        if text is None:
            pytest.skip("there is a driver here")
        assert "driver" in text and "https://" in text

    def test_an_image_for_the_nearest_gpu(self, folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
backend.compile(traced(lambda x: x * 2 + 1, x)).run(x, out=[x.copy()])
print(json.dumps(device.properties.architecture))
"""
        assert run(folder, script, MGB_STUB_CAPABILITY="99") == "sm_99"


class TestOverhead:
    def test_a_launch_takes_few_calls(self, folder: Path) -> None:
        """Of a launch in the driver's sense: one call of the driver, whatever the number of arrays."""
        script = """
x = [np.zeros(1000, np.float32) for _ in range(100)]
kernel = backend.compile(traced(lambda *xs: sum(xs[1:], xs[0]), *x))
kernel.run(*x, out=[x[0].copy()])
notes.watch(0)
for _ in range(5):
    kernel.run(*x, out=[x[0].copy()])
print(json.dumps(len(notes.launches())))
"""
        assert run(folder, script) == 5


class TestSmallBlocks:
    """A device that has less for a block than a kernel wants gets another schedule."""

    SCRIPT = """
from mgb.ops.reduce import reduce_max
from mgb.ops.transcendental import exp
def softmax(x):
    e = exp(x - reduce_max(x, axis=(1,)))
    return e / reduce_sum(e, axis=(1,))
found = []
for function, shape in ((lambda x: x * 2 + 1, (300, 1000)), (softmax, (600, 8192)), (softmax, (64, 40))):
    x = np.zeros(shape, np.float32)
    kernel = backend.compile(traced(function, x))
    unit = kernel.state.unit()
    wanted = unit.pick(steps(unit.frame, [x.shape] * len(unit.frame.arrays), [x.strides]), set(), [x], [x])
    plan, _, _ = unit.prepare([x], [x.copy()])
    notes.watch(8)
    kernel.run(x, out=[x.copy()])
    v, choice = plan.choice.variant, plan.choice
    rows = choice.numbers["rows"]
    covered = choice.blocks * (v.stride * v.slots if rows == 1 else v.rows_of_block)
    found.append({
        "wanted": wanted.variant.threads, "threads": v.threads, "stays": [wanted.variant.stays, v.stays],
        "online": v.online, "all": covered >= (x.size if rows == 1 else rows),
        "launched": [n["block"][0] for n in notes.launches()],
    })
print(json.dumps(found))
"""

    @pytest.mark.parametrize("most", [1024, 128, 32])
    def test_fewer_threads(self, folder: Path, most: int) -> None:
        script = "from mgb_cuda.steps import steps\n" + self.SCRIPT
        found = run(folder, script, MGB_STUB_THREADS=str(most))
        for case in found:
            assert case["threads"] == min(case["wanted"], most) or case["stays"] == [True, False]
            assert set(case["launched"]) == {case["threads"]} and case["threads"] <= most and case["all"]
        _, long, _ = found
        assert long["stays"] == [True, most >= long["wanted"]]
        assert long["online"] is (most < long["wanted"]), "a row that does not fit is read twice, not thrice"

    def test_no_schedule_fits(self, folder: Path) -> None:
        script = """
try:
    backend.compile(traced(lambda x: x * 2 + 1, np.zeros(1000, np.float32)))
except LaunchError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""
        name, text = run(folder, script, MGB_STUB_THREADS="16")
        assert (
            name == "ResourceError" and "a block of 256 threads" in text and "MGB_JIT_BACKEND=EAGER" in text
        )

    def test_what_the_assembler_refuses_is_a_lack_of_resources(self) -> None:
        """An array in shared memory that no block may have, as opposed to a mistake."""
        from mgb_cuda import Properties, ResourceError
        from mgb_nvrtc.backend import Toolchain

        text = 'extern "C" __global__ void f(int *p) {{ __shared__ int s[{}]; s[p[0]] = 1; p[1] = s[p[2]]; }}'
        device = Properties("sm_90", (9, 0), multiprocessors=132)
        assert Toolchain().compile(text.format(1000), device)
        with pytest.raises(ResourceError, match="shared data"):
            Toolchain().compile(text.format(100_000), device)
        with pytest.raises(compiler.NvrtcError, match="undefined"):
            Toolchain().compile(text.format("many"), device)
