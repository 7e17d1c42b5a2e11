"""The launch code itself, on a driver that takes notes: names, grids, shared memory and every parameter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mgb_cuda.testing import stub
from mgb_triton import compiler

MISSING = compiler.missing() or stub.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed: pip install cuda-bindings")

#: What every script begins with: a GPU that is the stub, and arrays that look like those of a GPU. The stub
#: keeps what the first parameter points to and what follows: kernels have their parameters side by side.
SETUP = """
import json, struct, sys
import numpy as np
from mgb_cuda import LaunchError
from mgb_cuda.testing.stub import Notes, StubArrays
from mgb_triton.backend import Generated, Gpu, traits
sys.path.insert(0, HELPERS)
from triton_helpers import traced
from mgb.ops.reduce import reduce_max, reduce_sum

notes, arrays = Notes(), StubArrays()
device = Gpu(0, arrays)

class Stubbed(Generated):
    name = "triton_stubbed"
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
    text = stub.run(folder, helpers + SETUP + script, **{"MGB_CACHE": "0"} | variables)
    return json.loads(text.splitlines()[-1])


class TestLaunches:
    def test_every_parameter_arrives(self, folder: Path) -> None:
        script = """
x, y = np.zeros((60, 1000), np.float32), np.zeros((1000,), np.float16)
out = [np.zeros((60, 1000), np.float32), np.zeros(1000, np.float16)]
kernel = backend.compile(traced(lambda x, y: (x * y, y + 1), x, y))
unit = kernel.state.unit()
plan, pointers, _ = unit.prepare([x, y], out)
notes.watch(len(plan.content))
kernel.run(x, y, out=out)
(note,) = notes.launches()
packing = unit.packing(plan.choice.variant)
values = list(packing.fields.unpack_from(note["parameters"], 8 * 4))
addresses = list(np.frombuffer(note["parameters"], np.uint64, 4).tolist())
print(json.dumps({
    "name": note["name"], "grid": note["grid"], "block": note["block"], "shared": note["shared"],
    "stream": note["stream"], "addresses": addresses == [arrays.address(a) for a in (x, y, *out)],
    "numbers": dict(zip(packing.names, values)), "long": plan.choice.variant.long,
    "last": list(struct.unpack("<QQ", note["parameters"][packing.size - 16 : packing.size])),
    "places": packing.places, "parameters": [p.count("ptr") for p in []],
}))
"""
        found = run(folder, script)
        assert found["name"] == "mgb_0" and found["block"] == [128, 1, 1] and found["shared"] == 0
        assert found["grid"] == [-(-60_000 // found["long"]), 1, 1]
        assert found["stream"] == stub.StubArrays.current and found["addresses"] and found["last"] == [0, 0]
        numbers = found["numbers"]
        assert (numbers["length"], numbers["n0"], numbers["n1"], numbers["s0_0"]) == (60_000, 60, 1000, 1000)
        assert found["places"][:5] == [0, 8, 16, 24, 32] and found["places"][5] == 36

    def test_the_kernel_has_the_parameters_that_a_launch_gives_it(self) -> None:
        """As the assembler knows them: an entry of PTX lists the type of each."""
        import re

        import numpy as np
        from test_compiled import like, printed

        for function, dtype in ((lambda x: x * 2 + 1, "float32"), (lambda x: x[None] + x[:, None], "int64")):
            del function
            (text,) = printed(lambda x: x * x + x, like(dtype, (64, 1000)))
            found = re.findall(r"\.param \.(\w+)", compiler.build(text, 90).asm["ptx"])
            signature = compiler.namespace(text)["SIGNATURE"]
            sizes = {"i32": "b32", "u32": "b32", "i64": "b64"}
            want = ["b64" if kind.startswith("*") else sizes[kind] for kind in signature.values()]
            assert [f.replace("u", "b") for f in found] == [*want, "b64", "b64"]
        assert np.dtype(np.int64).itemsize == 8

    def test_the_stages_of_a_row_that_programs_share(self, folder: Path) -> None:
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
        found = run(folder, script)
        chunks = found["chunks"]
        assert found["names"] == ["mgb_0", "mgb_1"] and chunks > 64
        assert found["grids"] == [[2, chunks, 1]] * 2
        assert all(found["shared"]), "warps meet in shared memory, which a launch must give them"
        assert found["same"] and found["addresses"] and found["part"] == 0
        assert found["scratch"][-1] >= 2 * chunks * 4

    def test_updates_share_a_launch_and_find_their_operands_in_a_table(self, folder: Path) -> None:
        script = """
made = [np.zeros(n, np.float32) for n in range(2, 202)]
kernel = backend.compile(traced(lambda p, g: p - g * 0.1, made[0], made[0]))
joined = backend.join([kernel] * 200)
tables, upload = [], arrays.upload
arrays.upload = lambda a: tables.append(upload(a)) or tables[-1]
notes.watch(8)
joined.run(*(a for p in made for a in (p, p)), out=made)
joined.run(*(a for p in made for a in (p, p)), out=made)
found = notes.launches()
(table,) = tables
known = {arrays.address(a) for a in made}
print(json.dumps({
    "launches": len(found), "blocks": found[0]["grid"], "block": found[0]["block"],
    "table": [struct.unpack("<Q", n["parameters"][:8])[0] == arrays.address(table) for n in found],
    "seen": sum(int(v) in known for v in table), "firsts": table[:256].tolist(),
}))
"""
        found = run(folder, script)
        assert found["launches"] == 2 and found["blocks"] == [200, 1, 1] and all(found["table"])
        assert found["seen"] == 3 * 200
        assert found["firsts"] == [*range(200), *[1 << 31] * 56]

    def test_a_kernel_is_loaded_once(self, folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
kernel = backend.compile(traced(lambda x: x * 2 + 1, x))
for n in (1000, 1004, 1000, 5000):
    kernel.run(np.zeros(n, np.float32), out=[np.zeros(n, np.float32)])
print(json.dumps(notes.library.stub_libraries()))
"""
        assert run(folder, script) == 1

    def test_large_calls_are_measured_before_they_run(self, folder: Path, tmp_path: Path) -> None:
        """The stub's clock stands still, so that the variant of the rule serves; its launch is the last."""
        script = """
x = np.zeros((512, 1024), np.float32)
out = [x.copy()]
kernel = backend.compile(traced(lambda x: x * 2 + 1, x))
notes.watch(16)
kernel.run(x, out=out)
found = [np.frombuffer(n["parameters"], np.uint64, 2).tolist() for n in notes.launches()]
into = [f[1] == arrays.address(out[0]) for f in found]
print(json.dumps([len(found), sum(into), into[-1], {f[0] for f in found} == {arrays.address(x)}]))
"""
        cache = {"MGB_CACHE_DIR": str(tmp_path), "MGB_CACHE": "1"}
        first, mine, last, same = run(folder, script, **cache)
        assert first > 6 and mine == 1 and last and same
        assert run(folder, script, **cache)[0] == 1

    def test_a_product_is_given_its_shared_memory(self, folder: Path) -> None:
        script = """
from mgb_triton.matmul import Product
a, b = np.zeros((512, 256), np.float16), np.zeros((256, 384), np.float16)
whole, bias = np.zeros((512, 384), np.float32), np.zeros(384, np.float32)
graphs = [traced(lambda x: x, a), traced(lambda x: x, b), traced(lambda p, b: p + b, whole, bias)]
made = Product(*graphs, device)
out = [whole.copy()]
notes.watch(made.packing.size)
made.run(a, b, bias, out=out)
(note,) = notes.launches()
values = dict(zip(made.packing.names, made.packing.fields.unpack_from(note["parameters"], 8 * 4)))
addresses = np.frombuffer(note["parameters"], np.uint64, 4).tolist()
print(json.dumps({
    "grid": note["grid"], "block": note["block"], "shared": note["shared"], "values": values,
    "addresses": addresses == [arrays.address(x) for x in (a, b, bias, *out)],
}))
"""
        found = run(folder, script)
        assert found["grid"] == [4 * 3, 1, 1] and found["block"] == [256, 1, 1] and found["addresses"]
        assert 32 << 10 < found["shared"] <= 227 << 10
        values = found["values"]
        assert [values[x] for x in ("m", "n", "k", "l0_0", "r0_0", "e0_0", "e0_1")] == [
            512,
            384,
            256,
            256,
            384,
            0,
            1,
        ]

    def test_a_saved_kernel_needs_no_compiler(self, folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
graph = traced(lambda x: x * 2 + 1, x)
blob = backend.save(backend.compile(graph))
device.compile = None
backend.load(graph, blob).run(x, out=[x.copy()])
print(json.dumps([n["name"] for n in notes.launches()]))
"""
        assert run(folder, script) == ["mgb_0"]

    def test_nothing_but_triton_itself_is_imported(self, folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
backend.compile(traced(lambda x: x * 2 + 1, x)).run(x, out=[x.copy()])
print(json.dumps([m for m in ("torch", "cupy", "triton") if m in sys.modules]))
"""
        assert run(folder, script) == ["triton"]


class TestErrors:
    def test_a_failed_launch_says_why(self, folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
kernel = backend.compile(traced(lambda x: x * 2 + 1, x))
kernel.run(x, out=[x.copy()])
notes.library.stub_fail(209)
try:
    kernel.run(x, out=[x.copy()])
except LaunchError as error:
    print(json.dumps(str(error)))
"""
        assert "NO_BINARY_FOR_GPU" in run(folder, script)

    def test_no_driver(self, tmp_path: Path) -> None:
        script = (
            "import json\nfrom mgb.plugins import import_backend\n"
            "print(json.dumps(import_backend('triton').probe()))"
        )
        text = json.loads(stub.run(tmp_path, script))
        if text is None:
            pytest.skip("there is a driver here")
        assert "driver" in text and "https://" in text

    def test_a_gpu_that_triton_does_not_serve(self, folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
try:
    backend.compile(traced(lambda x: x * 2 + 1, x))
except RuntimeError as error:
    print(json.dumps(str(error)))
"""
        assert "MGB_JIT_BACKEND=NVRTC" in run(folder, script, MGB_STUB_CAPABILITY="75")


class TestSmallBlocks:
    """A device that has less for a block than a kernel wants gets another schedule."""

    SCRIPT = """
from mgb_cuda import ResourceError
from mgb_triton.backend import Toolchain
from mgb_triton import compiler
from dataclasses import replace

class Greedy:
    'A compiler whose kernels take shared memory for each element of a tile.'
    version = Toolchain.version
    def compile(self, source, properties):
        found = compiler.Compiled.unpack(Toolchain().compile(source, properties))
        return replace(found, shared=128 * found.threads).pack()
device._compiler = Greedy()

def softmax(x):
    e = exp(x - reduce_max(x, axis=(1,)))
    return e / reduce_sum(e, axis=(1,))
found = []
for shape in ((600, 4096), (64, 40)):
    x = np.zeros(shape, np.float32)
    kernel = backend.compile(traced(softmax, x))
    plan, _, _ = kernel.state.unit().prepare([x], [x.copy()])
    notes.watch(8)
    kernel.run(x, out=[x.copy()])
    v = plan.choice.variant
    found.append({
        "warps": v.warps, "tile": [v.tall, v.long], "stays": v.stays, "online": v.online,
        "all": plan.choice.blocks * v.tall >= shape[0],
        "launched": [[n["block"][0], n["shared"]] for n in notes.launches()],
    })
print(json.dumps(found))
"""

    @pytest.mark.parametrize("most", [227 << 10, 64 << 10, 4 << 10])
    def test_smaller_tiles(self, folder: Path, most: int) -> None:
        script = "from mgb.ops.transcendental import exp\n" + self.SCRIPT
        long, short = run(folder, script, MGB_STUB_SHARED=str(most), MGB_TRITON_TUNE="0")
        for case in (long, short):
            assert case["all"] and case["launched"]
            for threads, shared in case["launched"]:
                assert threads == 32 * case["warps"] and shared == 128 * threads <= most
        assert long["stays"] is (most >= 128 * 512) and long["online"] is not long["stays"]

    def test_no_schedule_fits(self, folder: Path) -> None:
        script = """
try:
    backend.compile(traced(lambda x: x * 2 + 1, np.zeros(1000, np.float32)))
except LaunchError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""
        name, text = run(folder, script, MGB_STUB_THREADS="16")
        assert name == "ResourceError" and "registers" in text and "MGB_JIT_BACKEND=EAGER" in text
