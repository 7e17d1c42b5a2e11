"""The backend MLIR_PTX: what reaches a driver, on one that takes notes; and its results, on a real GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")
pytest.importorskip("llvmlite", reason="what makes PTX is not installed: pip install llvmlite")
pytest.importorskip("mgb_cuda", reason="what launches kernels is not installed: pip install ./plugins/cuda")

from mgb.backends.plugins import import_backend
from mgb_cuda.testing import stub
from mgb_cuda.testing.launched import answer
from mgb_cuda.testing.on_gpu import see_that_there_is
from mgb_mlir import Mlir, gpu, ptx
from mgb_native.nest import SCANS
from mlir_cases import CASES, WIDE, case, check
from mlir_helpers import call, traced
from ptx_host import HostDevice, OnHost

needs_stub = pytest.mark.skipif(stub.missing() is not None, reason=str(stub.missing()))
PROBLEM = gpu.MlirPtx().probe()
on_gpu = [pytest.mark.gpu, pytest.mark.skipif(PROBLEM is not None, reason=str(PROBLEM))]

#: What every script begins with: a GPU that is the stub, and arrays that look like those of a GPU.
SETUP = """
import json, sys
sys.path.insert(0, HELPERS)
import numpy as np
import mgb.functional as F
from mgb_cuda.driver import CudaDevice
from mgb_cuda.testing.stub import Notes, StubArrays
from mgb_mlir import gpu
from mlir_helpers import traced

notes, arrays = Notes(), StubArrays()
device = CudaDevice(0, gpu.Toolchain(), arrays)

class Stubbed(gpu.GridBackend):
    name = "ptx_stubbed"
    def devices(self, arrays):
        return device

backend = Stubbed()
"""


def run(folder: Path, script: str, **variables: str) -> Any:
    """The JSON that `script` prints."""
    helpers = f"HELPERS = {str(Path(__file__).parent)!r}\n"
    return answer(folder, helpers + SETUP + script, **variables)


@needs_stub
class TestLaunches:
    def test_every_launch_parameter_reaches_the_driver(self, stub_folder: Path) -> None:
        """A stub copies the parameters from the first one's address on; they lie behind each other."""
        script = """
x, y = np.zeros((60, 1000), np.float32), np.zeros((1000,), np.float16)
graph = traced(lambda x, y: (x * y, y + 1.0), [x, y])
out = [np.zeros((60, 1000), np.float32), np.zeros(1000, np.float16)]
kernel = backend.compile(graph)
plan, _, _ = kernel.state.unit().prepare([x, y], out)
notes.watch(len(plan.content))
kernel.run(x, y, out=out)
(note,) = notes.launches()
packing = kernel.state.unit().packing(plan.choice.variant)
given = packing.fields.unpack_from(note["parameters"], packing.pointers.size)
addresses = np.frombuffer(note["parameters"], np.int64, 4).tolist()
print(json.dumps({
    "name": note["name"], "grid": note["grid"], "block": note["block"], "shared": note["shared"],
    "stream": note["stream"] == arrays.stream(), "words": dict(zip(packing.names, given, strict=True)),
    "addresses": addresses == [arrays.address(a) for a in (x, y, *out)], "places": plan.places,
}))
"""
        found = run(stub_folder, script)
        words = found["words"]
        assert found["name"] == "kernel" and found["addresses"] and found["stream"]
        assert found["grid"] == [-(-60_000 // 4 // 256), 1, 1] and found["block"] == [256, 1, 1]
        assert found["shared"] == 0
        assert found["places"] == [0, 8, 16, 24, *range(32, 32 + 4 * len(words), 4)]
        assert (words["length"], words["rows"], words["n0"], words["n1"]) == (60_000, 1, 60, 1000)
        assert words["s0_0"] == 1000 and "s1_0" not in words

    def test_short_rows_share_blocks(self, stub_folder: Path) -> None:
        script = """
x = np.zeros((300, 70), np.float32)
kernel = backend.compile(traced(lambda x: F.softmax(x, 1), [x]))
notes.watch(0)
for rows, length in ((300, 70), (7, 5000), (2, 3)):
    a = np.zeros((rows, length), np.float32)
    kernel.run(a, out=[a.copy()])
print(json.dumps([(n["grid"][0], n["block"][0]) for n in notes.launches()]))
"""
        assert run(stub_folder, script) == [[19, 128], [7, 512], [1, 128]]

    def test_loaded_image_is_ptx_for_the_gpus_architecture(self, stub_folder: Path) -> None:
        script = """
x = np.zeros(1000, np.float32)
images = []
load = device.load
device.load = lambda image, names: images.append(image.decode()) or load(image, names)
backend.compile(traced(lambda x: x * 2 + 1, [x])).run(x, out=[x.copy()])
print(json.dumps([device.properties.architecture, images]))
"""
        for capability, wanted in ((90, "sm_90"), (87, "sm_86"), (121, "sm_120")):
            here, (image,) = run(stub_folder, script, MGB_STUB_CAPABILITY=str(capability))
            assert here == f"sm_{capability}" and f".target {wanted}" in image and image.endswith("\0")

    def test_kernels_cached_on_disk_need_no_toolchain(self, stub_folder: Path, tmp_path: Path) -> None:
        """A saved kernel, and a layout that came later."""
        script = """
from pathlib import Path
x, t = np.zeros((90, 40), np.float32), np.zeros((40, 90), np.float32).T
graph = traced(lambda a, b: a + b, [x, x])
saved = Path(sys.argv[1]) / "kernel"
there = saved.exists()
kernel = backend.load(graph, saved.read_bytes()) if there else backend.compile(graph)
for a, b in ((x, x), (x, t)):
    kernel.run(a, b, out=[x.copy()])
if not there:
    saved.write_bytes(backend.save(kernel))
print(json.dumps([len(notes.launches()), sorted({"torch_mlir", "llvmlite"} & set(sys.modules))]))
"""
        text = f"HELPERS = {str(Path(__file__).parent)!r}\n" + SETUP + script
        answers = [stub.run(stub_folder, text, str(tmp_path), MGB_CACHE_DIR=str(tmp_path)) for _ in range(2)]
        assert [json.loads(a.splitlines()[-1]) for a in answers] == [[2, ["llvmlite", "torch_mlir"]], [2, []]]

    def test_probe_reports_missing_gpu_or_old_driver(self, stub_folder: Path) -> None:
        script = "print(json.dumps(gpu.MlirPtx().probe()))"
        assert run(stub_folder, script) is None or "pip install" in run(stub_folder, script)
        assert "finds no GPU" in run(stub_folder, script, MGB_STUB_DEVICES="0")
        assert "of CUDA 11.4" in run(stub_folder, script, MGB_STUB_VERSION="11040")


class TestBackend:
    def test_ptx_backend_has_its_own_device_and_op_set(self) -> None:
        assert gpu.MlirPtx.traits.devices == {"gpu"} and Mlir.traits.devices == {"cpu"}
        words = Mlir.traits.vocabulary - {"look_up", *SCANS} | {"exp", "tanh"}
        assert gpu.MlirPtx.traits.vocabulary == words
        assert isinstance(gpu.mgb_backend("mlir_ptx"), gpu.MlirPtx) and gpu.mgb_backend("mlir") is None

    def test_missing_launcher_error_names_the_install_command(self) -> None:
        script = """
import sys
sys.modules["mgb_cuda"] = None
from mgb.errors import BackendImportError
from mgb.backends.plugins import import_backend
from mgb_mlir import levels
try:
    import_backend("mlir_ptx")
except BackendImportError as error:
    print(error)
try:
    levels.lower(None, "ptx")
except ValueError as error:
    print(error)
print(import_backend("mlir").probe())
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        first, second, third = done.stdout.splitlines()
        assert "pip install 'mgb-mlir[ptx]'" in first and "pip install 'mgb-mlir[ptx]'" in second
        assert third == "None"

    def test_gpu_that_is_too_old_is_rejected(self) -> None:
        with pytest.raises(ptx.TargetError, match="sm_75 is not made here, sm_80 is the oldest"):
            gpu.nearest((7, 5))

    def test_unknown_gpu_uses_the_nearest_known_target(self, caplog: pytest.LogCaptureFixture) -> None:
        gpu.nearest.cache_clear()
        with caplog.at_level("WARNING", logger="mgb.mlir"):
            assert gpu.nearest((15, 0)) == "sm_120"
        assert "sm_150 is not known by name; its kernels are compiled for sm_120" in caplog.text

    def test_aliased_input_and_output_is_copied_when_needed(self) -> None:
        graph, (x,), _ = case("row softmax")
        (wanted,) = call(OnHost().compile(graph), graph, [x])
        kernel, own = OnHost(HostDevice(1)).compile(graph), x.copy()
        kernel.run(own, out=(own,))
        np.testing.assert_allclose(own, wanted, rtol=1e-6)

    def test_strides_that_are_not_a_multiple_of_the_element_size(self) -> None:
        """A field of a record lies at no multiple of its size."""
        records = np.zeros(50, np.dtype([("a", np.uint8), ("x", np.float32)]))
        records["x"] = np.arange(50)
        graph = traced(lambda x: x * 2.0 + 1.0, [np.zeros(50, np.float32)])
        (found,) = call(OnHost().compile(graph), graph, [records["x"]])
        np.testing.assert_array_equal(found, records["x"] * 2 + 1)


# on a GPU


@pytest.mark.parametrize("name", [pytest.param(name, marks=on_gpu) for name in CASES])
def test_gpu_results_match_numpy(name: str) -> None:
    import cupy

    graph, arrays, wanted = case(name)
    for node in (*graph.inputs, *graph.outputs):
        see_that_there_is(node.spec.dtype.name)
    out = tuple(cupy.full(o.spec.shape, 77, o.spec.dtype) for o in graph.outputs)
    import_backend("MLIR_PTX").compile(graph).run(*map(cupy.asarray, arrays), out=out)
    check(tuple(o.get() for o in out), wanted)


@pytest.mark.parametrize("transposed", [pytest.param(t, marks=on_gpu) for t in (False, True)])
def test_gpu_results_with_plain_and_transposed_input(transposed: bool) -> None:
    import cupy

    graph, _, (wanted,) = case("row softmax")
    x = cupy.asarray(np.ascontiguousarray(WIDE.T)).T if transposed else cupy.asarray(WIDE)
    out = cupy.full(WIDE.shape, 77, np.float32)
    gpu.MlirPtx().compile(graph).run(x, out=(out,))
    check((out.get(),), (wanted,))


class Elsewhere(gpu.GridBackend):
    """On a device that has no architecture of NVIDIA's."""

    name = "elsewhere"


def test_backend_for_another_device_has_a_version() -> None:
    assert "torch-mlir" in Elsewhere().version()
    assert Elsewhere().target() == Elsewhere().version()
