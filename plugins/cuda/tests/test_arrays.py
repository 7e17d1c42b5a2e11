"""Data that stays on a device is visible to every stream, whichever one it was sent on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mgb_cuda.arrays import CupyArrays

standin = pytest.importorskip(
    "mgb_conformance.standin", reason="mgb-conformance is not installed: pip install ./conformance"
)


@pytest.fixture
def cupy() -> Iterator[Any]:
    yield standin.install(2)
    standin.uninstall()


def test_constant_upload_synchronizes_its_stream(cupy: Any, monkeypatch: Any) -> None:
    done: list[Any] = []

    def copied(array: Any) -> Any:
        done.append("copy")
        return copy(array)

    copy = cupy.asarray
    monkeypatch.setattr(cupy, "asarray", copied)
    monkeypatch.setattr(standin.Stream, "synchronize", lambda self: done.append(self.ptr))
    arrays = CupyArrays(1)
    with cupy.cuda.Device(1), standin.Stream() as stream:
        constant = arrays.constant(np.arange(5.0))
    assert done == ["copy", stream.ptr]
    assert constant.device.id == 1 and constant.get().tolist() == [0, 1, 2, 3, 4]


def test_per_call_upload_does_not_synchronize(cupy: Any, monkeypatch: Any) -> None:
    def wait(_stream: Any) -> None:
        raise AssertionError("the host waits for the device")

    monkeypatch.setattr(standin.Stream, "synchronize", wait)
    assert CupyArrays(0).upload(np.arange(3.0)).get().tolist() == [0, 1, 2]
