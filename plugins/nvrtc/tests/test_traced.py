"""From Tensors on a GPU to kernels: traced functions whose arrays are a stand-in for CuPy's.

First with the generated text run by the host, so that the numbers count, then with the launch code on a
driver that takes notes, so that every address counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Tensor
from mgb.autodiff import GradManager
from mgb.backends.plugins import manager
from mgb.errors import DeviceMemoryError, DeviceMismatchError
from mgb.jit import trace
from mgb.optimizer import SGD
from mgb_conformance import standin
from mgb_cuda.testing import host, stub
from mgb_cuda.testing.launched import forked
from mgb_nvrtc import compiler
from nvrtc_as_gpu import BACKEND, OnGpu, Plugin

needs_compiler = pytest.mark.skipif(host.missing() is not None, reason=str(host.missing()))
NO_STUB = compiler.missing() or stub.missing()


@pytest.fixture
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-in as CuPy, with as many GPUs as the test's parameter says, and the backend for it."""
    monkeypatch.setenv("MGB_JIT_BACKEND", f"{BACKEND.name},eager")
    manager.register(Plugin, name=BACKEND.name)
    yield standin.install(getattr(request, "param", 2))
    manager.unregister(name=BACKEND.name)
    standin.uninstall()


X = np.random.default_rng(0).normal(size=(6, 40)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(40, 8)).astype(np.float32)


def layer(x: Any, w: Any, b: Any) -> Any:
    return F.softmax(F.matmul(F.tanh(x * 2 + 1), w) + b, axis=1) * 3


def wanted() -> np.ndarray:
    z = np.tanh(X.astype(np.float64) * 2 + 1) @ W + 0.5
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return 3 * e / e.sum(axis=1, keepdims=True)


def tensors(device: str) -> tuple[Tensor, ...]:
    return tuple(Tensor(a, device=device) for a in (X, W, np.full(8, 0.5, np.float32)))


@needs_compiler
@pytest.mark.parametrize("gpu", [1, 2], indirect=True)
class TestNumbers:
    @pytest.mark.parametrize("options", [{}, {"without_host": True}, {"symbolic": True}], ids=str)
    def test_matmul_between_kernels(self, gpu: Any, options: dict[str, Any]) -> None:
        device = f"gpu{standin.State.devices - 1}"
        compiled = trace(layer, **options)
        for _ in range(3):
            out = compiled(*tensors(device))
            assert out.device == f"{device}:0" and isinstance(out._data, standin.ndarray)
            np.testing.assert_allclose(out.numpy(), wanted(), rtol=2e-6, atol=1e-7)
        assert BACKEND.name in str(compiled.explain(*tensors(device)))

    def test_training_step_matches_the_cpu(self, gpu: Any) -> None:
        def losses(device: str) -> list[float]:
            net = M.Sequential(M.Conv2d(1, 4, 3, padding=1), M.BatchNorm2d(4), M.ReLU(), M.MaxPool2d(2))
            head = M.Linear(4 * 16, 5)
            rng = np.random.default_rng(5)
            params = [*net.parameters(), *head.parameters()]
            for p in params:
                p._reset(Tensor(rng.normal(size=p.shape).astype(np.float32) * 0.2, device=device))
            for t in net.buffers():
                t._reset(t.to(device))
            optimizer, manager = SGD(params, lr=0.05, momentum=0.9), GradManager().attach(params)

            @trace
            def step(x: Tensor, y: Tensor) -> Tensor:
                with manager:
                    loss = F.loss.cross_entropy(head(net(x).reshape(x.shape[0], -1)), y)
                    manager.backward(loss)
                optimizer.step().clear_grad()
                return loss

            x = Tensor(np.random.default_rng(1).normal(size=(7, 1, 8, 8)).astype(np.float32), device=device)
            y = Tensor(np.arange(7, dtype=np.int32) % 5, device=device)
            return [step(x, y).item() for _ in range(4)]

        want = losses("cpux")
        assert want[-1] < want[0]
        np.testing.assert_allclose(losses("gpu0"), want, rtol=1e-4)


def by_columns_then_rows(x: Any) -> Any:
    y = F.exp(x - x.mean(axis=0, keepdims=True))
    z = y / y.sum(axis=1, keepdims=True)
    return z - z.mean(axis=0, keepdims=True), y


def wanted_of_both(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = x.astype(np.float64)
    y = np.exp(wide - wide.mean(axis=0, keepdims=True))
    z = y / y.sum(axis=1, keepdims=True)
    return z - z.mean(axis=0, keepdims=True), y


@needs_compiler
@pytest.mark.parametrize("gpu", [1, 2], indirect=True)
class TestChains:
    """Kernels in a row are one call, with the addresses of that call, whatever the layout of its inputs."""

    @pytest.fixture
    def compiled(self, gpu: Any) -> Iterator[Any]:
        made: list[Any] = []
        with pytest.MonkeyPatch.context() as patch:
            kept = OnGpu.chain
            patch.setattr(OnGpu, "chain", lambda *a: made.append(kept(*a)) or made[-1])
            yield trace(by_columns_then_rows), made

    @staticmethod
    def check(compiled: Any, array: np.ndarray, data: Any) -> None:
        tensor = Tensor(np.zeros_like(array), device="gpu0")
        tensor._data = data
        for found, want in zip(compiled(tensor), wanted_of_both(array), strict=True):
            np.testing.assert_allclose(found.numpy(), want, rtol=2e-5, atol=1e-7)

    def test_chain_is_correct_for_many_layouts(self, gpu: Any, compiled: Any) -> None:
        function, made = compiled
        x = np.random.default_rng(4).normal(size=(24, 36)).astype(np.float32)
        turned = gpu.asarray(np.ascontiguousarray(x.T)).T
        spread = gpu.asarray(np.repeat(x, 2, axis=1))[:, ::2]
        askew = gpu.asarray(np.concatenate([x[0, :1], x.ravel()]))[1:].reshape(x.shape)
        for data in (gpu.asarray(x), turned, spread, askew, gpu.asarray(x), turned):
            self.check(function, x, data)
        assert len(made) == 1 and made[0].__self__.__class__.__name__ == "Chain"

    def test_few_long_rows_use_scratch_memory_per_call(self, gpu: Any, compiled: Any) -> None:
        function, _ = compiled
        x = np.random.default_rng(4).normal(size=(2, 70_000)).astype(np.float32)
        for _ in range(3):
            self.check(function, x, gpu.asarray(x))

    def test_concurrent_threads_do_not_share_parameters(self, gpu: Any, compiled: Any) -> None:
        function, _ = compiled
        arrays = [np.random.default_rng(k).normal(size=(24, 36)).astype(np.float32) for k in range(8)]
        self.check(function, arrays[0], gpu.asarray(arrays[0]))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda a: self.check(function, a, gpu.asarray(a)), arrays * 4))


@needs_compiler
class TestUpdates:
    def test_transposed_parameter_is_not_written_in_place(self, gpu: Any) -> None:
        """Its elements lie at the places of others of the new value, which is row-major."""
        start = np.random.default_rng(7).normal(size=(96, 96)).astype(np.float32)
        weight = Tensor(np.zeros_like(start), device="gpu0")
        weight._data = turned = gpu.asarray(np.ascontiguousarray(start.T)).T
        kept = turned.get()

        @trace(without_host=True)
        def step() -> None:
            weight._reset(weight * 0.5 + 1.0)

        want = start
        for _ in range(4):
            step()
            want = want * np.float32(0.5) + np.float32(1)
            np.testing.assert_array_equal(weight.numpy(), want)
        assert weight._data.data.ptr != turned.data.ptr
        np.testing.assert_array_equal(turned.get(), kept)


@needs_compiler
class TestRefusals:
    def test_tensors_of_two_devices_raise(self, gpu: Any) -> None:
        x, w, b = tensors("gpu0")
        with pytest.raises(DeviceMismatchError, match=r"gpu0:0 and gpu1:0.*\.to"):
            trace(layer)(x, w.to("gpu1"), b)

    def test_call_on_another_gpu_works_or_names_the_device(self, gpu: Any) -> None:
        compiled = trace(layer)
        for device in ("gpu0", "gpu1", "gpu0"):
            try:
                out = compiled(*tensors(device))
            except mgb.errors.TraceError as error:
                assert "gpu1" in str(error) and device == "gpu1"
                continue
            np.testing.assert_allclose(out.numpy(), wanted(), rtol=2e-6, atol=1e-7)

    def test_out_of_memory_leaves_the_trace_usable(self, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        compiled = trace(layer)
        arguments = tensors("gpu0")
        for _ in range(2):
            compiled(*arguments)
        monkeypatch.setattr(standin.State, "largest", 100)
        with pytest.raises(DeviceMemoryError, match=r"gpu0:0 has no memory left.*empty_cache"):
            compiled(*arguments)
        monkeypatch.setattr(standin.State, "largest", None)
        np.testing.assert_allclose(compiled(*arguments).numpy(), wanted(), rtol=2e-6, atol=1e-7)


#: What every script begins with.
SETUP = """
import json
import numpy as np
from mgb_conformance import standin
cupy = standin.install(DEVICES)
import mgb, mgb.functional as F
from mgb import Tensor
from mgb.jit import trace
from mgb_cuda.testing.stub import Notes

notes = Notes()
def pointers(note, count):
    return np.frombuffer(note["parameters"], np.uint64, count).tolist()
def at(*tensors):
    return [t._data.data.ptr for t in tensors]
"""


def run(folder: Path, script: str, devices: int = 1, **variables: str) -> Any:
    """The JSON that `script` prints, where the driver is the stub."""
    settings = {"MGB_STUB_DEVICES": str(devices), "MGB_JIT_BACKEND": "nvrtc,eager"} | variables
    return forked(folder, f"DEVICES = {devices}\n" + SETUP, script, **settings)


@pytest.mark.skipif(NO_STUB is not None, reason=str(NO_STUB))
class TestLaunches:
    def test_launches_use_the_right_addresses_and_stream(self, stub_folder: Path) -> None:
        script = """
@trace
def f(x, w, b):
    h = F.tanh(x * 2 + 1)
    y = F.matmul(h, w)
    return F.relu(y + b) * y
x, w, b = (Tensor(np.ones(s, np.float32), device="gpu0") for s in ((60, 1000), (1000, 60), (60,)))
f(x, w, b); f(x, w, b)
notes.watch(64)
stream = cupy.cuda.Stream()
with stream:
    out = f(x, w, b)
first, last = notes.launches()
print(json.dumps({
    "reads": pointers(first, 1) == at(x), "bias": at(b)[0] in pointers(last, 3),
    "writes": at(out)[0] in pointers(last, 3),
    "streams": [first["stream"], last["stream"]] == [stream.ptr] * 2,
    "device": out.device,
}))
"""
        found = run(stub_folder, script)
        assert found == {"reads": True, "bias": True, "writes": True, "streams": True, "device": "gpu0:0"}

    def test_launches_on_a_second_gpu(self, stub_folder: Path) -> None:
        script = """
f = trace(lambda x: F.exp(x) * 2 + 1)
x = Tensor(np.ones((60, 1000), np.float32), device="gpu1")
f(x)
notes.watch(64)
with cupy.cuda.Device(1), cupy.cuda.Stream() as stream:
    pass
cupy.cuda.Device(1).use(); stream.use(); cupy.cuda.Device(0).use()
out = f(x)
(note,) = notes.launches()
on_stream = note["stream"] == stream.ptr
print(json.dumps([out.device, out._data.device.id, pointers(note, 2) == at(x, out), on_stream,
                  cupy.cuda.runtime.getDevice()]))
"""
        assert run(stub_folder, script, devices=2) == ["gpu1:0", 1, True, True, 0]
