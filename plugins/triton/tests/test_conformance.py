"""The conformance suite on the generated text, run by the interpreter: a sample, and all in the long tier."""

from __future__ import annotations

import mgb_conformance as suite
import pytest
from mgb_conformance import TestCache as TestCache
from mgb_conformance import TestContract as TestContract
from mgb_conformance import TestFusion as TestFusion
from mgb_conformance import TestLayouts as TestLayouts
from mgb_conformance.cases import elementwise
from mgb_conformance.drive import Driver
from mgb_conformance.test_elementwise import BATCHES
from mgb_triton.testing.interpreter import missing

MGB_BACKEND = "triton_interpreted"
pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class TestSample:
    @pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
    def test_every_word(self, driver: Driver, dtype: str) -> None:
        for d, name in elementwise():
            if d == dtype:
                BATCHES.ask(driver, d, name)


for _tier in set(suite.__all__) - {"TestCache", "TestContract", "TestFusion", "TestLayouts"}:
    globals()[_tier] = pytest.mark.slow(type(_tier, (getattr(suite, _tier),), {}))
