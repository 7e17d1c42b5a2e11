"""The conformance suite as it runs on a GPU: arrays lie where the host's do not, and are copied to and fro.

Here they are the stand-in's, and kernels are run by the host: a sample each time, the whole in the long tier.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from mgb import Tensor, dtypes
from mgb.backends.plugins import manager
from mgb_conformance import standin
from mgb_conformance.cases import samples
from mgb_conformance.drive import Driver
from mgb_conformance.places import Gpu, Host
from mgb_conformance.test_layouts import VIEWS
from mgb_cuda.testing.conformance import Sample, tiers
from mgb_cuda.testing.host import missing
from nvrtc_as_gpu import BACKEND, Plugin

MGB_BACKEND = BACKEND.name
pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture(autouse=True, scope="module")
def cupy() -> Iterator[object]:
    """The stand-in in CuPy's place, and the backend for its arrays."""
    manager.register(Plugin, name=BACKEND.name)
    yield standin.install(1)
    manager.unregister(name=BACKEND.name)
    standin.uninstall()


class TestPlace:
    @pytest.mark.parametrize("dtype", dtypes.DTYPES, ids=str)
    @pytest.mark.parametrize("view", VIEWS)
    def test_put_preserves_layouts(self, view: str, dtype: np.dtype) -> None:
        x = VIEWS[view][0](samples(dtype.name, (6, 10)))
        there = Gpu().put(x)
        assert isinstance(there, standin.ndarray)
        assert (there.shape, there.strides, there.dtype) == (x.shape, x.strides, x.dtype)
        assert Gpu().get(there).tobytes() == x.tobytes()
        there.fill(0)
        assert x.any(), "it is a copy"

    @pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1)], ids=str)
    def test_put_and_get_of_few_elements(self, shape: tuple[int, ...]) -> None:
        x = samples("float32", shape)
        assert Gpu().get(Gpu().put(x)).tobytes() == x.tobytes()

    def test_driver_uses_the_gpu_as_default_device(self, driver: Driver) -> None:
        assert type(driver.place) is Gpu
        with driver.place.as_default():
            assert Tensor([1.0]).device == "gpu0:0"
        assert Tensor([1.0]).device == Host.device


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
class TestSample(Sample):
    pass


# Without the cache on disk: the processes that its tests start have no stand-in.
globals().update(tiers(quick={"TestContract", "TestLayouts", "TestThreads"}, without={"TestCache"}))
