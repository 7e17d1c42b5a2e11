"""The launch code itself, on a driver that takes notes: names, grids, shared memory and every parameter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mgb.ops.reduce import reduce_sum
from mgb_cuda.testing import launched, stub
from mgb_cuda.testing.compiled import like
from mgb_triton import compiler
from triton_helpers import BENCH
from triton_texts import printed, ptx

MISSING = compiler.missing() or stub.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed: pip install cuda-bindings")


#: The first kernel that a process compiles takes ten times as long as the next.
FIRST = """
from mgb_triton import compiler
compiler.compile_source('''SIGNATURE = {"x": "*fp32"}
ALIGNED = []
WARPS = 4


@jit
def mgb_0(x):
    tl.store(x, 1.0)
''', 90)
"""


class TestLaunches(launched.Launches):
    bench, prepared = BENCH, FIRST
    threads, elements = 128, "variant.long"
    shares = True  # warps meet in shared memory, which a launch must give them
    toolchain = ("triton",)

    def test_parameters_are_packed_contiguously(self, stub_folder: Path) -> None:
        """And two addresses that Triton has for itself come last."""
        script = (
            launched.ONE_CALL
            + """
packing = unit.packing(plan.choice.variant)
last = struct.unpack("<QQ", note["parameters"][packing.size - 16 : packing.size])
print(json.dumps([packing.places, last]))
"""
        )
        places, last = self.run(stub_folder, script)
        assert places[:5] == [0, 8, 16, 24, 32] and places[5] == 36 and last == [0, 0]

    @pytest.mark.parametrize("dtype", ["float32", "int64"])
    def test_kernel_signature_matches_the_launch_parameters(self, dtype: str) -> None:
        """As the assembler knows them: an entry of PTX lists the type of each."""
        x, row = like(dtype, (64, 1000)), like(dtype, (1000,))
        flat = BENCH.traced(lambda x, row: x * row + x, x, row)
        folded = BENCH.traced(lambda x: x - reduce_sum(x, axis=(1,)), x)
        for text in (*printed(flat), *printed(folded)):
            found = re.findall(r"\.param \.(\w+)", ptx(text))
            signature = compiler.namespace(text)["SIGNATURE"]
            sizes = {"i32": "b32", "u32": "b32", "i64": "b64"}
            want = ["b64" if kind.startswith("*") else sizes[kind] for kind in signature.values()]
            assert [f.replace("u", "b") for f in found] == [*want, "b64", "b64"]

    def test_joined_updates_read_their_operands_from_a_table(self, stub_folder: Path) -> None:
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
        found = self.run(stub_folder, script)
        assert found["launches"] == 2 and found["blocks"] == [200, 1, 1] and all(found["table"])
        assert found["seen"] == 3 * 200
        assert found["firsts"] == [*range(200), *[1 << 31] * 56]

    @pytest.mark.parametrize(("streams", "tables"), [((9, 9, 9), 1), ((9, 8, 8, 9), 3), ((2, 2), 2)], ids=str)
    def test_operand_table_is_cached_per_stream(
        self, stub_folder: Path, streams: tuple[int, ...], tables: int
    ) -> None:
        """2 is the handle of the default stream of each thread: several streams."""
        script = f"""
made = [np.zeros(n, np.float32) for n in range(2, 12)]
joined = backend.join([backend.compile(traced(lambda p, g: p - g * 0.1, made[0], made[0]))] * 10)
sent, upload = [], arrays.upload
arrays.upload = lambda a: sent.append(upload(a)) or sent[-1]
given = [a for p in made for a in (p, p)]
notes.watch(8)
for arrays.current in {streams}:
    joined.run(*given, out=made)
used = [struct.unpack("<Q", n["parameters"][:8])[0] for n in notes.launches()]
print(json.dumps([len(sent), [n["stream"] for n in notes.launches()], len(set(used))]))
"""
        assert self.run(stub_folder, script) == [tables, list(streams), tables]

    def test_large_calls_are_measured_before_they_run(self, stub_folder: Path, tmp_path: Path) -> None:
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
        first, mine, last, same = self.run(stub_folder, script, **cache)
        assert first > 6 and mine == 1 and last and same
        assert self.run(stub_folder, script, **cache)[0] == 1

    def test_matmul_launch_gets_its_shared_memory(self, stub_folder: Path) -> None:
        script = """
from mgb_cuda import Images
from mgb_cuda.testing.bench import traced
from mgb_triton.backend import traits
from mgb_triton.matmul import Product
from mgb_triton.products import ProductUnit
from mgb.ops.images.contract import matmul
from mgb.ops.primitives import cast
a, b = np.zeros((512, 256), np.float16), np.zeros((256, 384), np.float16)
bias, out = np.zeros(384, np.float32), [np.zeros((512, 384), np.float32)]
wide = lambda x: cast(x, dtype=out[0].dtype)
graph = traced(lambda a, b, c: matmul(wide(a), wide(b)) + c, [a, b, bias], traits("gpu", True))
made = ProductUnit(Product(graph, "ieee"), device, Images("triton"))
packing = made.packing(None)
notes.watch(packing.size)
made.run(a, b, bias, out=out)
(note,) = notes.launches()
values = dict(zip(packing.names, packing.fields.unpack_from(note["parameters"], 8 * 4)))
addresses = np.frombuffer(note["parameters"], np.uint64, 4).tolist()
print(json.dumps({
    "grid": note["grid"], "block": note["block"], "shared": note["shared"], "values": values,
    "addresses": addresses == [arrays.address(x) for x in (a, b, bias, *out)],
}))
"""
        found = self.run(stub_folder, script)
        assert found["grid"] == [4 * 3, 1, 1] and found["block"] == [256, 1, 1] and found["addresses"]
        assert 32 << 10 < found["shared"] <= 227 << 10
        values = found["values"]
        names = ("m", "n", "k", "x0_0", "x1_0", "x2_0", "x2_1")
        assert [values[name] for name in names] == [512, 384, 256, 256, 384, 0, 1]


class TestErrors(launched.LaunchErrors):
    bench, prepared = BENCH, FIRST
    resource = "registers"

    def test_unsupported_gpu_error_suggests_nvrtc(self, stub_folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
try:
    backend.compile(traced(lambda x: x * 2 + 1, x))
except RuntimeError as error:
    print(json.dumps(str(error)))
"""
        assert "MGB_JIT_BACKEND=NVRTC" in self.run(stub_folder, script, MGB_STUB_CAPABILITY="75")


class TestSmallBlocks(launched.Launched):
    """A device that has less for a block than a kernel wants gets another schedule."""

    bench, prepared = BENCH, FIRST
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
    def test_device_with_less_shared_memory_gets_smaller_tiles(self, stub_folder: Path, most: int) -> None:
        long, short = self.run(stub_folder, self.SCRIPT, MGB_STUB_SHARED=str(most), MGB_TRITON_TUNE="0")
        for case in (long, short):
            assert case["all"] and case["launched"]
            for threads, shared in case["launched"]:
                assert threads == 32 * case["warps"] and shared == 128 * threads <= most
        assert long["stays"] is (most >= 128 * 512) and long["online"] is not long["stays"]
