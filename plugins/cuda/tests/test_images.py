"""Images: compiled once for each device and text, kept in a saved kernel and on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mgb import config
from mgb_cuda import Device, Images


class Counting(Device):
    """Counts what it compiles."""

    def __init__(self, key: str = "sm_90", toolchain: str = "1") -> None:
        self._key, self._toolchain, self.compiled = key, toolchain, 0

    def key(self) -> str:
        return self._key

    def toolchain(self) -> str:
        return self._toolchain

    def compile(self, source: str) -> bytes:
        self.compiled += 1
        return f"{self._key} {self._toolchain} {source}".encode()

    def _none(self, *_: Any) -> Any:
        raise NotImplementedError

    load = launcher = address = stream = scratch = upload = contiguous = _none


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(config.CACHE_DIR.name, str(tmp_path))
    monkeypatch.setenv(config.CACHE.name, "1")
    return tmp_path


class TestImages:
    def test_each_source_is_compiled_once_per_device_kind(self) -> None:
        first, second = Counting(), Counting("sm_80")
        images = Images("test")
        for device in (first, first, second):
            assert images.get(device, "a") == f"{device.key()} 1 a".encode()
        images.get(first, "b")
        assert (first.compiled, second.compiled) == (2, 1)

    def test_another_process_loads_images_from_disk(self) -> None:
        Images("test").get(Counting(), "a")
        again, newer = Counting(), Counting(toolchain="2")
        assert Images("test").get(again, "a") == b"sm_90 1 a"
        assert Images("test").get(newer, "a") == b"sm_90 2 a"
        assert (again.compiled, newer.compiled) == (0, 1)

    def test_first_image_is_stored_only_with_its_kernel(self, folder: Path) -> None:
        images = Images("test")
        images.get(Counting(), "a", keep=False)
        assert not [p for p in folder.rglob("*") if p.is_file()]
        loaded, elsewhere = Images("test", images.dump()), Counting(toolchain="none")
        assert loaded.get(elsewhere, "a") == b"sm_90 1 a"
        assert elsewhere.compiled == 0

    def test_corrupt_images_are_rejected(self) -> None:
        images = Images("test")
        images.get(Counting(), "a", keep=False)
        for damaged in (images.dump()[:-3], b"\xff", b'{"a": "*"}'):
            with pytest.raises(ValueError):
                Images("test", damaged)
