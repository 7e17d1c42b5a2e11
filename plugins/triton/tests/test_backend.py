"""The backend object: saving, loading, several GPUs, and what is imported when."""

from __future__ import annotations

from types import SimpleNamespace

import mgb_cuda.driver as driver
import pytest
from mgb_cuda.testing import backends
from mgb_triton import Triton, compiler
from mgb_triton.compiler import Compiled
from mgb_triton.testing.interpreter import missing
from triton_helpers import BENCH


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
class TestSaved(backends.Saved):
    bench = BENCH

    def test_launch_metadata_is_packed_with_the_code(self) -> None:
        kernel = Compiled("mgb_0", 1234, 128, b"\x7fELF\0\1")
        assert Compiled.unpack(kernel.pack()) == kernel


class TestSeveralGpus(backends.SeveralGpus):
    bench = BENCH


class TestTraits(backends.Described):
    bench = BENCH
    package = "mgb_triton"

    def test_missing_triton_message_names_the_install_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(compiler, "find_spec", lambda name: None)
        assert "pip install 'mgb-triton[cuda13]'" in str(Triton().probe())

    @pytest.mark.parametrize(("capability", "wanted"), [((8, 6), "12"), ((9, 0), "13"), ((10, 0), "13")])
    def test_driver_older_than_the_assembler_is_reported(
        self, capability: tuple[int, int], wanted: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compiler, "missing", lambda: None)
        monkeypatch.setattr(driver, "missing", lambda: None)
        monkeypatch.setattr(driver, "current", lambda: 0)
        monkeypatch.setattr(driver, "properties", lambda _: SimpleNamespace(capability=capability))
        monkeypatch.setattr(driver, "older_than", lambda version: f"too old for {version}")
        assert Triton().probe() == f"too old for {wanted}"
