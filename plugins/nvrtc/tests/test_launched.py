"""The launch code itself, on a driver that takes notes: names, grids and every parameter."""

from __future__ import annotations

from pathlib import Path

import pytest
from mgb_cuda import Properties, ResourceError
from mgb_cuda.testing import launched, stub
from mgb_nvrtc import compiler
from mgb_nvrtc.backend import Toolchain
from nvrtc_helpers import BENCH

MISSING = compiler.missing() or stub.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


class TestLaunches(launched.Launches):
    bench = BENCH
    threads, elements = 256, "variant.lanes * variant.slots * variant.threads"
    shares = False
    toolchain = ()

    def test_joined_updates_share_launches(self, stub_folder: Path) -> None:
        script = """
step = lambda p, g: p - g * 0.1
made = [np.zeros(n, np.float32) for n in range(2, 202)]
kernel = backend.compile(traced(step, made[0], made[0]))
joined = backend.join([kernel] * 200)
notes.watch(32764)
joined.run(*(a for p in made for a in (p, p)), out=made)
found, seen = notes.launches(), []
for note in found:
    words = np.frombuffer(note["parameters"][:32760], np.uint64)
    seen += [int(w) for w in words if int(w) in {arrays.address(a) for a in made}]
print(json.dumps({
    "launches": len(found), "blocks": sum(n["grid"][0] for n in found), "seen": len(seen),
    "different": len(set(seen)),
}))
"""
        found = self.run(stub_folder, script)
        assert found["launches"] <= 2 and found["blocks"] == 200
        assert found["seen"] == 3 * 200 and found["different"] == 200

    def test_launch_takes_one_driver_call_for_any_number_of_arrays(self, stub_folder: Path) -> None:
        script = """
x = [np.zeros(1000, np.float32) for _ in range(100)]
kernel = backend.compile(traced(lambda *xs: sum(xs[1:], xs[0]), *x))
kernel.run(*x, out=[x[0].copy()])
notes.watch(0)
for _ in range(5):
    kernel.run(*x, out=[x[0].copy()])
print(json.dumps(len(notes.launches())))
"""
        assert self.run(stub_folder, script) == 5


class TestErrors(launched.LaunchErrors):
    bench = BENCH
    resource = "a block of 256 threads"

    def test_unknown_gpu_loads_an_image_for_the_nearest_one(self, stub_folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
backend.compile(traced(lambda x: x * 2 + 1, x)).run(x, out=[x.copy()])
print(json.dumps(device.properties.architecture))
"""
        assert self.run(stub_folder, script, MGB_STUB_CAPABILITY="99") == "sm_99"

    def test_too_much_shared_memory_raises_resource_error(self) -> None:
        """An array in shared memory that no block may have, as opposed to a mistake."""
        text = 'extern "C" __global__ void f(int *p) {{ __shared__ int s[{}]; s[p[0]] = 1; p[1] = s[p[2]]; }}'
        device = Properties("sm_90", (9, 0), multiprocessors=132)
        assert Toolchain().compile(text.format(1000), device)
        with pytest.raises(ResourceError, match="shared data"):
            Toolchain().compile(text.format(100_000), device)
        with pytest.raises(compiler.NvrtcError, match="undefined"):
            Toolchain().compile(text.format("many"), device)


class TestSmallBlocks(launched.Launched):
    """A device that has less for a block than a kernel wants gets another schedule."""

    bench = BENCH
    SCRIPT = """
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
    def test_device_with_fewer_threads_gets_another_schedule(self, stub_folder: Path, most: int) -> None:
        found = self.run(stub_folder, self.SCRIPT, MGB_STUB_THREADS=str(most))
        for case in found:
            assert case["threads"] == min(case["wanted"], most) or case["stays"] == [True, False]
            assert set(case["launched"]) == {case["threads"]} and case["threads"] <= most and case["all"]
        _, long, _ = found
        assert long["stays"] == [True, most >= long["wanted"]]
        assert long["online"] is (most < long["wanted"]), "a row that does not fit is read twice, not thrice"
