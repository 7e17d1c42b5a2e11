"""The launcher on a driver that takes notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mgb_cuda.testing import stub
from mgb_cuda.testing.launched import answer

pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed: pip install cuda-bindings")
pytestmark = pytest.mark.skipif(stub.missing() is not None, reason=str(stub.missing()))


SETUP = """
import json, struct
from mgb_cuda import LaunchError, Packet, Packing
from mgb_cuda.driver import CudaDevice, device_count, missing, properties
from mgb_cuda.testing.stub import Notes, StubArrays

notes, device = Notes(), CudaDevice(0, None, StubArrays())
"""


def run(folder: Path, script: str, **variables: str) -> Any:
    return answer(folder, SETUP + script, **variables)


class TestDriver:
    def test_launch_arguments_reach_the_driver(self, stub_folder: Path) -> None:
        script = """
functions = device.load(b"\\x7fELF", ["one", "two"])
packing = Packing(2, [("int64_t", "a"), ("int", "b"), ("uint32_t", "c")])
packet = Packet(packing.pack({"a": -5, "b": -6, "c": 7}))
packing.pointers.pack_into(packet.buffer, 0, 0x1000, 0x2000)
notes.watch(packing.size)
for function, grid in zip(functions, [(3, 1), (2, 65535)]):
    device.launcher(function, grid, 96)(0x77, packet.table)
found = notes.launches()
for note in found:
    note["parameters"] = struct.unpack_from("<QQqiI", note["parameters"])
print(json.dumps(found))
"""
        first, second = run(stub_folder, script)
        assert (first["name"], second["name"]) == ("one", "two")
        assert (first["grid"], second["grid"]) == ([3, 1, 1], [2, 65535, 1])
        for note in (first, second):
            assert note["block"] == [96, 1, 1] and note["stream"] == 0x77 and note["shared"] == 0
            assert note["parameters"] == [0x1000, 0x2000, -5, -6, 7]

    def test_device_properties_are_read_from_the_driver(self, stub_folder: Path) -> None:
        script = (
            "print(json.dumps([properties(0).capability, properties(0).multiprocessors, device_count()]))"
        )
        found = run(stub_folder, script, MGB_STUB_CAPABILITY="86", MGB_STUB_DEVICES="2")
        assert found == [[8, 6], 132, 2]

    def test_image_rejected_by_the_driver_raises(self, stub_folder: Path) -> None:
        script = """
try:
    device.load(b"no image", ["f"])
except LaunchError as error:
    print(json.dumps(str(error)))
"""
        assert "CUDA_ERROR_INVALID_IMAGE" in run(stub_folder, script)

    def test_packets_do_not_share_parameter_memory(self, stub_folder: Path) -> None:
        """Two packets are never at one address, and their tables point to their own bytes."""
        script = """
import ctypes
packets = [Packet(struct.pack("<Q", k)) for k in range(50)]
seen = []
for packet in packets:
    at = ctypes.c_void_p.from_address(packet.table).value
    seen.append(ctypes.c_uint64.from_address(at).value)
print(json.dumps(seen))
"""
        assert run(stub_folder, script) == list(range(50))


class TestMissing:
    """A driver that will not do."""

    @pytest.mark.parametrize(
        ("variables", "text"),
        [
            ({"MGB_STUB_VERSION": "11040"}, "of CUDA 11.4, 12.1 or later is needed"),
            ({"MGB_STUB_DEVICES": "0"}, "finds no GPU"),
        ],
    )
    def test_missing_driver_message_names_the_requirement(
        self, stub_folder: Path, variables: dict[str, str], text: str
    ) -> None:
        script = "import json\nfrom mgb_cuda import driver\nprint(json.dumps(driver.missing()))"
        assert text in answer(stub_folder, script, **variables)

    def test_driver_older_than_the_compiler_is_reported(self, stub_folder: Path) -> None:
        script = "import json\nfrom mgb_cuda.driver import older_than\nprint(json.dumps(older_than(%r)))"
        text = answer(stub_folder, script % "13.5.37", MGB_STUB_VERSION="12040")
        assert "of CUDA 12.4" in text and "compiler of CUDA 12, or a newer driver" in text
        for fits in ("12.9.86", "11.8.89", "none"):
            assert answer(stub_folder, script % fits, MGB_STUB_VERSION="12040") is None
