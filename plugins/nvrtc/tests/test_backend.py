"""The backend object: saving, loading, several GPUs, and what is imported when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mgb_cuda.driver as driver
import numpy as np
import pytest
from mgb import config
from mgb.backend import ALL_DTYPES
from mgb_cuda.testing.host import HostDevice, missing
from mgb_nvrtc import Nvrtc
from mgb_nvrtc.backend import Kernels
from nvrtc_helpers import OnHost, call, traced

needs_compiler = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class WithoutCompiler(HostDevice):
    """As where kernels are loaded but nothing can be compiled."""

    def compile(self, source: str) -> bytes:
        raise RuntimeError("there is no compiler here")


@needs_compiler
class TestSaved:
    def test_a_saved_kernel_runs_where_there_is_no_compiler(self) -> None:
        x = np.arange(1000, dtype=np.float32)
        graph = traced(lambda x: x * 2 + 1, x)
        backend, elsewhere = OnHost(), OnHost(WithoutCompiler())
        blob = backend.save(backend.compile(graph))
        assert blob is not None
        np.testing.assert_array_equal(call(elsewhere.load(graph, blob).run, graph, [x])[0], x * 2 + 1)

    def test_variants_that_come_later_are_on_disk(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(config.CACHE_DIR.name, str(tmp_path))
        monkeypatch.setenv(config.CACHE.name, "1")
        x = np.arange(1000, dtype=np.float32)
        graph, column = traced(lambda x: x * 2 + 1, x), np.zeros((1000, 3), np.float32)[:, 0]
        backend = OnHost()
        kernel = backend.compile(graph)
        blob = backend.save(kernel)
        assert blob is not None
        call(kernel.run, graph, [column])
        again = OnHost(WithoutCompiler()).load(graph, blob)
        np.testing.assert_array_equal(call(again.run, graph, [column])[0], column * 2 + 1)

    def test_constants_of_many_elements_are_operands(self) -> None:
        table = np.arange(12, dtype=np.float32).reshape(3, 4)
        x = np.ones((3, 4), np.float32)
        graph = traced(lambda x: x + table, x)
        kernel = OnHost().compile(graph)
        np.testing.assert_array_equal(call(kernel.run, graph, [x])[0], x + table)


class TestSeveralGpus:
    def array(self, ordinal: int) -> Any:
        return SimpleNamespace(device=SimpleNamespace(id=ordinal))

    def test_arrays_of_two_in_one_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "device_count", lambda: 2)
        with pytest.raises(ValueError, match="several GPUs \\(gpu0, gpu1\\)"):
            Nvrtc().devices([self.array(0), self.array(1)])

    def test_kernels_do_not_share_a_launch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "device_count", lambda: 2)
        assert Nvrtc().join([SimpleNamespace(source="")]) is None  # type: ignore[list-item]

    @needs_compiler
    def test_each_has_kernels_of_its_own(self) -> None:
        x = np.arange(10, dtype=np.float32)
        graph, hosts = traced(lambda x: x * 2 + 1, x), [HostDevice(), HostDevice()]
        turns = iter([0, 1, 0])
        kernels = Kernels(graph, lambda arrays: hosts[next(turns)], OnHost().compile(graph).state.images)
        for _ in range(3):
            np.testing.assert_array_equal(call(kernels.run, graph, [x])[0], x * 2 + 1)
        assert len(kernels._units) == 2


class TestTraits:
    def test_it_serves_gpus_and_every_dtype(self) -> None:
        assert Nvrtc.traits.devices == {"gpu"} and Nvrtc.traits.dtypes == ALL_DTYPES

    def test_nothing_of_cuda_is_imported_with_it(self) -> None:
        script = (
            "import sys, mgb_nvrtc; mgb_nvrtc.Nvrtc().probe(); "
            "print([m for m in sys.modules if m.partition('.')[0] in ('cuda', 'cupy', 'nvidia')])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_machine_code_is_for_one_architecture(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Nvrtc, "target", lambda self: "sm_90")
        assert Nvrtc().mismatch("sm_90") is None
        assert "sm_80" in str(Nvrtc().mismatch("sm_80"))
