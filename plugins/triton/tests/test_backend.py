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
from mgb_triton import Triton, compiler
from mgb_triton.compiler import Compiled
from mgb_triton.testing.interpreter import Interpreter, missing
from triton_helpers import OnInterpreter, call, traced

needs_triton = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class WithoutCompiler(Interpreter):
    """As where kernels are loaded but nothing can be compiled."""

    def compile(self, source: str) -> bytes:
        raise RuntimeError("there is no compiler here")


@needs_triton
class TestSaved:
    def test_a_saved_kernel_runs_where_nothing_compiles(self) -> None:
        x = np.arange(1000, dtype=np.float32)
        graph = traced(lambda x: x * 2 + 1, x)
        backend, elsewhere = OnInterpreter(), OnInterpreter(WithoutCompiler())
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
        backend = OnInterpreter()
        kernel = backend.compile(graph)
        blob = backend.save(kernel)
        assert blob is not None
        call(kernel.run, graph, [column])
        again = OnInterpreter(WithoutCompiler()).load(graph, blob)
        np.testing.assert_array_equal(call(again.run, graph, [column])[0], column * 2 + 1)

    def test_constants_of_many_elements_are_operands(self) -> None:
        table, x = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)
        graph = traced(lambda x: x + table, x)
        np.testing.assert_array_equal(call(OnInterpreter().compile(graph).run, graph, [x])[0], x + table)

    def test_what_a_launch_must_know_is_kept_with_the_code(self) -> None:
        kernel = Compiled("mgb_0", 1234, 128, b"\x7fELF\0\1")
        assert Compiled.unpack(kernel.pack()) == kernel


class TestTraits:
    def test_it_serves_gpus_and_every_dtype(self) -> None:
        assert Triton.traits.devices == {"gpu"} and Triton.traits.dtypes == ALL_DTYPES

    def test_nothing_is_imported_with_it(self) -> None:
        script = (
            "import sys, mgb_triton; mgb_triton.Triton().probe(); mgb_triton.Triton().version(); "
            "print([m for m in sys.modules if m.partition('.')[0] in ('cuda', 'cupy', 'triton', 'torch')])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_without_triton_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compiler, "find_spec", lambda name: None)
        assert "pip install 'mgb-triton[cuda13]'" in str(Triton().probe())

    @pytest.mark.parametrize(("capability", "wanted"), [((8, 6), "12"), ((9, 0), "13"), ((10, 0), "13")])
    def test_a_driver_that_is_older_than_the_assembler(
        self, capability: tuple[int, int], wanted: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compiler, "missing", lambda: None)
        monkeypatch.setattr(driver, "missing", lambda: None)
        monkeypatch.setattr(driver, "current", lambda: 0)
        monkeypatch.setattr(driver, "properties", lambda _: SimpleNamespace(capability=capability))
        monkeypatch.setattr(driver, "older_than", lambda version: f"too old for {version}")
        assert Triton().probe() == f"too old for {wanted}"

    def test_machine_code_is_for_one_architecture(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Triton, "target", lambda self: "sm_90")
        assert Triton().mismatch("sm_90") is None
        assert "sm_80" in str(Triton().mismatch("sm_80"))

    def test_arrays_of_two_gpus_in_one_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def array(ordinal: int) -> Any:
            return SimpleNamespace(device=SimpleNamespace(id=ordinal))

        monkeypatch.setattr(driver, "device_count", lambda: 2)
        with pytest.raises(ValueError, match="several GPUs \\(gpu0, gpu1\\)"):
            Triton().devices([array(0), array(1)])
