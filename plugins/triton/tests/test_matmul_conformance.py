"""The conformance suite's products on the generated text, one kernel each."""

from __future__ import annotations

import pytest
from matmul_backend import BACKEND
from mgb_conformance import TestProducts as _TestProducts
from mgb_conformance.drive import Driver
from mgb_triton import products
from mgb_triton.testing.interpreter import missing

MGB_BACKEND = BACKEND.name
pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(autouse=True)
def use(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(products.USE.name, "always")
    monkeypatch.setattr(driver, "_kernels", {})  # those of another setting


class TestProducts(_TestProducts):
    """Of one kernel each."""
