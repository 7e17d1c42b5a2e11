"""The backend object: saving, loading, several GPUs, and what is imported when."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from mgb import config
from mgb.backends import ALL_DTYPES, Kernel

from .. import driver
from .bench import call
from .suite import Suite

#: Packages of toolchains, and those that come with them.
HEAVY = ("cuda", "cupy", "nvidia", "triton", "torch")


def without_compiler(device: Any) -> Any:
    """Return `device`, as where kernels are loaded but nothing can be compiled."""

    def refuse(source: str) -> bytes:
        raise RuntimeError("there is no compiler here")

    device.compile = refuse
    return device


class Saved(Suite):
    """Kernels that are kept."""

    def here(self) -> Any:
        return self.bench.here(self.bench.device(4))

    def elsewhere(self) -> Any:
        return self.bench.here(without_compiler(self.bench.device(4)))

    def test_saved_kernel_runs_without_a_compiler(self) -> None:
        x = np.arange(1000, dtype=np.float32)
        graph, backend = self.bench.traced(lambda x: x * 2 + 1, x), self.here()
        blob = backend.save(backend.compile(graph))
        assert blob is not None
        (found,) = call(self.elsewhere().load(graph, blob).run, graph, [x])
        np.testing.assert_array_equal(found, x * 2 + 1)

    def test_later_variants_are_cached_on_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(config.CACHE_DIR.name, str(tmp_path))
        monkeypatch.setenv(config.CACHE.name, "1")
        x, column = np.arange(1000, dtype=np.float32), np.zeros((1000, 3), np.float32)[:, 0]
        graph, backend = self.bench.traced(lambda x: x * 2 + 1, x), self.here()
        kernel = backend.compile(graph)
        blob = backend.save(kernel)
        assert blob is not None
        call(kernel.run, graph, [column])
        (found,) = call(self.elsewhere().load(graph, blob).run, graph, [column])
        np.testing.assert_array_equal(found, column * 2 + 1)

    def test_array_constants_are_operands(self) -> None:
        table, x = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)
        graph = self.bench.traced(lambda x: x + table, x)
        np.testing.assert_array_equal(call(self.here().compile(graph).run, graph, [x])[0], x + table)

    def test_each_device_gets_its_own_kernels(self) -> None:
        x = np.arange(10, dtype=np.float32)
        graph, devices = self.bench.traced(lambda x: x * 2 + 1, x), [self.bench.device(4) for _ in range(2)]
        turns, backend = iter([0, 1, 0]), self.here()
        images = backend.compile(graph).state.images
        kernels = backend.kernels(graph, lambda arrays: devices[next(turns)], images)
        for _ in range(3):
            np.testing.assert_array_equal(call(kernels.run, graph, [x])[0], x * 2 + 1)
        assert len(kernels._units) == 2


class SeveralGpus(Suite):
    """Where a machine has two."""

    @pytest.fixture(autouse=True)
    def two(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(driver, "device_count", lambda: 2)

    def test_arrays_on_two_gpus_in_one_call_raise(self) -> None:
        arrays = [SimpleNamespace(device=SimpleNamespace(id=ordinal)) for ordinal in range(2)]
        with pytest.raises(ValueError, match=r"several GPUs \(gpu0, gpu1\)"):
            self.bench.backend().devices(arrays)

    def test_kernels_are_not_joined_with_several_gpus(self) -> None:
        kernel = Kernel(lambda: None, "")
        assert self.bench.backend().join([kernel]) is None


class Described(Suite):
    """Tests of the description of a backend.

    Attributes
    ----------
    package : str
        Whose import gives the backend.
    """

    package: ClassVar[str]

    def test_backend_supports_gpus_and_every_dtype(self) -> None:
        traits = self.bench.backend.traits
        assert traits.devices == {"gpu"} and traits.dtypes == ALL_DTYPES

    def test_importing_the_backend_imports_no_toolchain(self) -> None:
        script = (
            f"import sys; from mgb.backends.plugins import import_backend; import {self.package}; "
            f"backend = import_backend({self.bench.name!r}); backend.probe(); backend.version(); "
            f"print([m for m in sys.modules if m.partition('.')[0] in {HEAVY}])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_machine_code_is_for_one_architecture(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self.bench.backend, "target", lambda self: "sm_90")
        backend = self.bench.backend()
        assert backend.mismatch("sm_90") is None
        assert "sm_80" in str(backend.mismatch("sm_80"))
