"""Tensors on GPUs, where a stand-in plays CuPy: making, moving, sharing, and what bad input gets."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, device, errors
from mgb.jit import trace

standin = pytest.importorskip(
    "mgb_conformance.standin", reason="mgb-conformance is not installed: pip install ./conformance"
)

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def cupy() -> Iterator[Any]:
    """Two GPUs."""
    yield standin.install(2)
    mgb.set_default_device("xpux")
    standin.uninstall()


class TestMaking:
    @pytest.mark.parametrize("make", [Tensor, mgb.tensor])
    def test_on_a_named_gpu(self, make: Any, cupy: Any) -> None:
        t = make(X, device="gpu1")
        assert (t.device, t.dtype, t.shape) == ("gpu1:0", np.float32, (3, 4))
        assert isinstance(t._data, cupy.ndarray) and t._data.device.id == 1
        np.testing.assert_array_equal(t.numpy(), X)

    def test_on_the_default_gpu(self, cupy: Any) -> None:
        assert mgb.is_cuda_available()
        mgb.set_default_device("gpu1")
        for t in (
            Tensor(X),
            F.zeros((2,)),
            F.arange(3),
            Tensor(X, device="xpux"),
            F.exp(1.0),
            mgb.random.normal(size=(2,)),
        ):
            assert t.device == "gpu1:0" and t._data.device.id == 1
        assert Tensor(X, device="cpux").device == "cpux:0"

    def test_tensor_of_a_gpu_array_is_a_copy_on_that_gpu(self, cupy: Any) -> None:
        with cupy.cuda.Device(1):
            array = cupy.asarray(X)
        t = Tensor(array)
        assert t.device == "gpu1:0" and t._data.data.ptr != array.data.ptr
        np.testing.assert_array_equal(t.numpy(), X)
        assert Tensor(array, dtype="int32").dtype == np.int32
        with cupy.cuda.Device(1):
            assert Tensor(array.astype(np.float64)).dtype == Tensor(X.astype(np.float64)).dtype

    def test_scalar_conversions(self) -> None:
        t = Tensor(X, device="gpu0")
        assert (t[2, 3].item(), float(t[1, 0]), int(t[1, 0]), bool(t[0, 0])) == (11.0, 4.0, 4, False)
        assert t.tolist() == X.tolist() and t.item(5) == 5.0 and f"{t[0, 1]:.2f}" == "1.00"
        assert "gpu0:0" in repr(t) and [row.tolist() for row in t] == X.tolist()
        assert list(range(5))[Tensor(3, dtype="int32", device="gpu0")] == 3

    def test_copies_and_pickles_stay_on_the_device(self, cupy: Any) -> None:
        t = Tensor(X, device="gpu1")
        for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
            assert other.device == "gpu1:0" and other._data.data.ptr != t._data.data.ptr
            np.testing.assert_array_equal(other.numpy(), X)


def exponential(x: Tensor) -> Tensor:
    return F.exp(x) * 2 + 1


class TestTensorsOfTheHost:
    """They stay what they are, whatever the default device becomes."""

    @pytest.mark.parametrize("default", ["cpux", "cpu0", "xpux"])
    def test_host_devices_are_interchangeable(self, default: str) -> None:
        before = Tensor(X)
        mgb.set_default_device(default)
        after = [Tensor(X), Tensor(X, device="cpux"), Tensor(X, device="cpu0"), Tensor(X, device="xpux")]
        after += [Tensor(X, device=default), Tensor(X, device=before.device), F.ones_like(before) * X]
        for t in (*after, F.ones((3, 4)) * X, [[1.0] * 4] * 3 * Tensor(X)):
            for found in (before + t, t + before, trace(lambda a, b: a + b)(before, t)):
                np.testing.assert_array_equal(found.numpy(), X + X)
        assert {t.device for t in (before, Tensor(X), F.zeros(2), mgb.random.uniform(size=(2,)))} == {
            "xpux:0"
        }

    @pytest.mark.parametrize("default", ["cpux", "gpu0"])
    def test_trace_of_host_tensors_ignores_the_default_device(self, default: str) -> None:
        x, function = Tensor(X), trace(exponential)
        want = function(x).numpy()
        mgb.set_default_device(default)
        for argument in (x, x * 1, mgb.from_dlpack(X)):
            found = function(argument)
            assert found.device == "xpux:0" and isinstance(found._data, np.ndarray)
            np.testing.assert_allclose(found.numpy(), want, rtol=1e-6)

    def test_training_step_ignores_the_default_device(self) -> None:
        from mgb.autodiff import GradManager
        from mgb.module import Linear
        from mgb.optimizer import SGD

        layer, x = Linear(4, 2), Tensor(X)
        for default in ("xpux", "cpux", "gpu0"):
            mgb.set_default_device(default)
            optimizer = SGD(layer.parameters(), lr=0.5, momentum=0.9)
            before = layer.weight.numpy().copy()
            with GradManager().attach(layer.parameters()) as manager:
                manager.backward(layer(x).sum())
            optimizer.step()
            assert layer.weight.device == "xpux:0" and isinstance(layer.weight._data, np.ndarray)
            want = before - 0.5 * X.sum(0)
            np.testing.assert_allclose(layer.weight.numpy(), want, rtol=1e-5)
            layer.weight.grad = layer.bias.grad = None

    @pytest.mark.parametrize("device", ["xpux", "cpux"])
    def test_ops_run_on_the_host_when_the_default_is_a_gpu(self, device: str) -> None:
        x = Tensor(X, device=device)
        mgb.set_default_device("gpu0")
        half = x.astype("float16")
        found = [x * 2, F.exp(x), F.softplus(x), F.gelu(x), F.softmax(x, 1), F.argmax(x, 1), F.sort(x)[1]]
        found += [F.softmax(half, 1), F.zeros_like(x), x + [1.0], copy.deepcopy(x), F.cumsum(x, 0)]
        found += [
            pickle.loads(pickle.dumps(x)),
            F.logsigmoid(x),
            F.dropout(x, 0.5),
            Tensor(X, device=x.device),
        ]
        for t in found:
            assert t.device == x.device and isinstance(t._data, np.ndarray)
            assert t.__dlpack_device__() == (1, 0)
        np.testing.assert_allclose(found[2].numpy(), np.log1p(np.exp(X.astype(np.float64))), rtol=1e-6)
        with pytest.raises(errors.DeviceMismatchError, match=f"{x.device} and gpu0:0"):
            x + Tensor(X)


class TestMoving:
    def test_move_between_all_devices(self) -> None:
        t = Tensor(X)
        for name in ("gpu0", "gpu1", "cpux", "gpu1", "xpux"):
            t = t.to(name)
            assert t.device == device.canonical(name)
            np.testing.assert_array_equal(t.numpy(), X)
        assert isinstance(t._data, np.ndarray)

    def test_gradients_return_to_the_source_device(self) -> None:
        from mgb.autodiff import GradManager

        x = Tensor(X)
        with GradManager().attach([x]) as manager:
            manager.backward((x.to("gpu0") * 3).sum())
        assert x.grad is not None and x.grad.device == "xpux:0"
        np.testing.assert_array_equal(x.grad.numpy(), np.full_like(X, 3))

    def test_move_in_a_trace(self) -> None:
        half = trace(lambda x: (x.to("gpu1") * 2).to("cpu0") + 1)
        for _ in range(3):
            out = half(Tensor(X))
            assert out.device == "cpu0:0"
            np.testing.assert_array_equal(out.numpy(), X * 2 + 1)

    def test_chains_on_two_gpus_in_one_trace(self) -> None:
        both = trace(lambda x, y: (F.exp(x) * 2 + 1, F.exp(y) * 2 + 1))
        for _ in range(3):
            found = both(Tensor(X, device="gpu0"), Tensor(X, device="gpu1"))
            assert [t.device for t in found] == ["gpu0:0", "gpu1:0"]
            for t in found:
                assert t._data.device.id == device.ordinal(t.device)
                np.testing.assert_allclose(t.numpy(), np.exp(X) * 2 + 1, rtol=1e-6)


class TestSharing:
    def test_cupy_shares_memory_without_a_copy(self, cupy: Any) -> None:
        t = Tensor(X, device="gpu0")
        for array in (cupy.asarray(t), cupy.from_dlpack(t)):
            assert array.data.ptr == t._data.data.ptr
        back = mgb.from_dlpack(cupy.asarray(t))
        assert back.device == "gpu0:0" and back._data.data.ptr == t._data.data.ptr

    def test_cuda_array_interface_shares_memory(self, cupy: Any) -> None:
        array = cupy.asarray(X)
        foreign = SimpleNamespace(__cuda_array_interface__=array.__cuda_array_interface__)
        t = mgb.from_dlpack(foreign)
        assert t._data.data.ptr == array.data.ptr and t.shape == X.shape
        assert Tensor(foreign)._data.data.ptr != array.data.ptr

    @pytest.mark.parametrize("default", ["xpux", "cpux", "gpu1"])
    def test_dlpack_shares_memory_on_the_cpu(self, default: str) -> None:
        mgb.set_default_device(default)
        t = mgb.from_dlpack(X)
        assert t.device == "xpux:0" and np.shares_memory(t.numpy(), X)
        assert t.__dlpack_device__() == (1, 0)
        assert not hasattr(t, "__cuda_array_interface__")
        assert mgb.from_dlpack(np.ones(3, np.complex64)).dtype == "complex64"

    def test_cuda_array_interface_has_the_current_stream(self, cupy: Any) -> None:
        with cupy.cuda.Stream() as stream:
            assert Tensor(X, device="gpu0").__cuda_array_interface__["stream"] == stream.ptr


class TestRefusals:
    @pytest.mark.parametrize("other", ["gpu1", "xpux"])
    def test_operands_on_two_devices_are_rejected(self, other: str) -> None:
        with pytest.raises(
            errors.DeviceMismatchError, match=rf"add: ambiguous device: gpu0:0 and {other}:0.*\.to"
        ):
            Tensor(X, device="gpu0") + Tensor(X, device=other)

    def test_missing_gpu_is_reported(self) -> None:
        with pytest.raises(errors.DeviceUnavailableError, match=r"'gpu7:0' is not there: .*gpu0 to gpu1"):
            Tensor(X, device="gpu7")

    def test_missing_default_device_is_rejected(self) -> None:
        mgb.set_default_device("gpu1")
        with pytest.raises(errors.DeviceUnavailableError, match=r"'gpu7:0' is not there"):
            mgb.set_default_device("gpu7")
        assert mgb.get_default_device() == "gpu1"

    def test_out_of_memory_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        t = Tensor(X, device="gpu0")
        monkeypatch.setattr(standin.State, "largest", X.nbytes - 1)
        with pytest.raises(
            errors.DeviceMemoryError, match=r"gpu1:0 has no memory left: .*48 bytes.*empty_cache"
        ):
            t.to("gpu1")
        with pytest.raises(errors.DeviceMemoryError, match="mul: gpu0:0 has no memory left"):
            t * 2
        with pytest.raises(MemoryError):
            Tensor(X, device="gpu0")
        monkeypatch.setattr(standin.State, "largest", None)
        np.testing.assert_array_equal((t * 2).numpy(), X * 2)

    def test_caches_are_emptied_before_out_of_memory_is_reported(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        t, given_up = Tensor(X, device="gpu0"), []

        def give_up() -> None:
            given_up.append(standin.State.largest)
            standin.State.largest = None

        monkeypatch.setattr(mgb.memory, "empty_cache", give_up)
        standin.State.largest = 1
        np.testing.assert_array_equal((t * 2).numpy(), X * 2)
        assert given_up == [1]

    def test_missing_driver_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        standin.install(0)
        monkeypatch.setattr(device, "gpu_module", None)
        with pytest.raises(errors.DeviceUnavailableError, match=r"finds no GPU.*nvidia\.com/drivers"):
            F.zeros((3,), device="gpu0") + 1
        assert mgb.get_device_count("gpu") == 0 and not mgb.is_cuda_available()


@pytest.mark.parametrize("device", ["gpu0", "gpux"])
def test_missing_cupy_is_reported_with_install_command(device: str) -> None:
    script = (
        "import sys; sys.modules['cupy'] = None; import mgb\n"
        f"try: mgb.Tensor([1.0], device={device!r})\n"
        "except mgb.errors.DeviceUnavailableError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'mgb[cuda13]'" in done.stdout
