"""On a real GPU: every op of the core, traced functions, training, memory and streams, with CuPy itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb import Tensor, dtypes
from mgb.ir import CONST, Graph
from mgb.jit import trace
from mgb.ops.declare import OPS
from mgb.tensor.apply import apply
from mgb_nvrtc import Nvrtc

sys.path.append(str(Path(__file__).parents[3] / "core" / "tests" / "support"))
samples = pytest.importorskip("op_samples", reason="the tests of the core are not beside these")

PROBLEM = Nvrtc().probe()
if PROBLEM is not None:
    pytest.skip(PROBLEM, allow_module_level=True)
pytestmark = pytest.mark.gpu


def run(graph: Graph, arrays: list[Any], device: str) -> Any:
    """The first output of `graph`, op by op, on `device`."""

    def visit(node: Any, *inputs: Tensor) -> Tensor:
        if node.op is CONST:
            return Tensor(node.params["value"], node.spec.dtype, device)
        place = {"device": device} if node.op.name in ("iota", "transfer") else {}
        return apply(node.op, *inputs, **{**node.params, **place})

    (out,) = graph.fold(visit, [Tensor(a, a.dtype, device) for a in arrays])
    return out


class TestEager:
    @pytest.mark.parametrize("dtype", dtypes.DTYPES, ids=str)
    @pytest.mark.parametrize("name", sorted(OPS))
    def test_op_matches_the_cpu(self, name: str, dtype: np.dtype[Any]) -> None:
        for graph, arrays in samples.cases(OPS[name], dtype):
            want, found = run(graph, arrays, "cpu0"), run(graph, arrays, "gpu0")
            assert (found.shape, found.dtype, found.device) == (want.shape, want.dtype, "gpu0:0")
            samples.assert_close(found.numpy(), want.numpy(), str(graph))


class TestTraced:
    @pytest.mark.parametrize("options", [{}, {"without_host": True}], ids=str)
    def test_matmul_between_kernels(self, options: dict[str, Any]) -> None:
        random = np.random.default_rng(0)
        x, w, b = (random.normal(size=s).astype(np.float32) for s in ((300, 64), (64, 48), (48,)))
        layer = trace(lambda x, w, b: F.softmax(F.matmul(F.tanh(x), w) + b, axis=1), **options)
        z = np.tanh(x.astype(np.float64)) @ w + b
        e = np.exp(z - z.max(axis=1, keepdims=True))
        for _ in range(3):
            found = layer(*(Tensor(a, device="gpu0") for a in (x, w, b)))
            np.testing.assert_allclose(found.numpy(), e / e.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-6)

    def test_kernel_chain_on_another_stream(self) -> None:
        import cupy

        x = np.random.default_rng(1).normal(size=(257, 1000)).astype(np.float32)

        @trace
        def centred(x: Tensor) -> Tensor:
            y = F.exp(x - x.mean(axis=0, keepdims=True))
            return y / y.sum(axis=1, keepdims=True)

        y = np.exp(x - x.mean(axis=0, keepdims=True, dtype=np.float64))
        want = y / y.sum(axis=1, keepdims=True)
        for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
            with stream:
                for _ in range(3):
                    found = centred(Tensor(x, device="gpu0")).numpy()
            np.testing.assert_allclose(found, want, rtol=1e-5)

    def test_out_of_memory_leaves_the_trace_usable(self) -> None:
        import cupy

        double = trace(lambda x: F.exp(x) * 2 + 1)
        x = Tensor(np.zeros((1 << 20,), np.float32), device="gpu0")
        double(x)
        pool = cupy.get_default_memory_pool()
        mgb.memory.empty_cache()
        pool.free_all_blocks()
        before = pool.get_limit()
        pool.set_limit(size=pool.total_bytes() + 1)
        try:
            with pytest.raises(mgb.errors.DeviceMemoryError, match="gpu0:0 has no memory left"):
                double(x)
        finally:
            pool.set_limit(size=before)
        np.testing.assert_array_equal(double(x).numpy(), np.full(1 << 20, 3, np.float32))


def standardised(x: Tensor) -> Tensor:
    """Kernels that wait for each other, each of which folds another axis."""
    for _ in range(2):
        x = x - x.mean(axis=0, keepdims=True)
        x = x / (1 + (x * x).sum(axis=1, keepdims=True))
    return x - x.mean(axis=0, keepdims=True)


class TestLaunchGraphs:
    """The driver's own graphs give the very bits of launches one by one, wherever the arrays lie."""

    @pytest.mark.parametrize("shape", [(24, 36), (300, 1000), (2, 200_000)], ids=str)
    @pytest.mark.parametrize("wanted", [None, True])
    def test_launch_graph_gives_the_same_bits(self, shape: tuple[int, int], wanted: bool | None) -> None:
        import cupy

        random = np.random.default_rng(5)
        plain = trace(standardised, cuda_graph=False)
        graph = trace(standardised, cuda_graph=wanted)
        streams = [cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)]
        kept = []
        for call in range(12):
            array = random.normal(size=shape).astype(np.float32)
            with streams[call // 6]:
                x = Tensor(array, device="gpu0")
                found, want = graph(x), plain(x)
                kept.append((found, want, array))  # the pool must not give their memory out again
        for stream in streams:
            stream.synchronize()
        for found, want, array in kept:
            np.testing.assert_array_equal(found.numpy(), want.numpy())
            y = array.astype(np.float64)
            for _ in range(2):
                y = y - y.mean(axis=0, keepdims=True)
                y = y / (1 + (y * y).sum(axis=1, keepdims=True))
            np.testing.assert_allclose(found.numpy(), y - y.mean(axis=0), rtol=1e-3, atol=1e-5)

    def test_launch_graph_is_used(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from mgb_cuda import graphs

        started = []
        run = graphs.Graph.run
        monkeypatch.setattr(graphs.Graph, "run", lambda *a: started.append(run(*a)) or started[-1])
        function, x = (
            trace(standardised, cuda_graph=True),
            Tensor(np.ones((24, 36), np.float32), device="gpu0"),
        )
        for _ in range(4):
            function(x)
        assert started == [True] * 3 and "one by one" not in caplog.text


class TestUpdates:
    def test_parameters_are_updated_in_place_unless_aliased(self) -> None:
        start = np.random.default_rng(6).normal(size=100_000).astype(np.float32)
        weight = Tensor(start, device="gpu0")

        @trace(without_host=True)
        def step() -> None:
            weight._reset(weight * 0.5 + 1.0)

        wanted = [start]
        for _ in range(5):
            wanted.append((wanted[-1] * np.float32(0.5) + np.float32(1)).astype(np.float32))
            step()
        place = weight._data.data.ptr
        step()
        assert weight._data.data.ptr == place
        view = weight._data[1:]
        held = view.get()
        step()
        assert weight._data.data.ptr != place
        np.testing.assert_array_equal(view.get(), held)
        want = wanted[-1]
        for _ in range(2):
            want = (want * np.float32(0.5) + np.float32(1)).astype(np.float32)
        np.testing.assert_array_equal(weight.numpy(), want)


class TestSharing:
    def test_memory_is_shared_with_cupy_and_torch(self) -> None:
        import cupy

        t = Tensor(np.arange(6, dtype=np.float32), device="gpu0")
        assert cupy.asarray(t).data.ptr == cupy.from_dlpack(t).data.ptr == t._data.data.ptr
        torch = pytest.importorskip("torch", reason="torch is not installed")
        if not torch.cuda.is_available():
            pytest.skip("torch sees no GPU")
        theirs = torch.from_dlpack(t)
        assert theirs.data_ptr() == t._data.data.ptr
        theirs += 1
        torch.cuda.synchronize()
        np.testing.assert_array_equal(mgb.from_dlpack(theirs).numpy(), np.arange(1, 7))


def test_demo_runs_and_names_the_backend(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mgb.tools.cli import main

    monkeypatch.setenv("MGB_JIT_BACKEND", "nvrtc,eager")
    before = mgb.get_default_device()
    mgb.set_default_device("gpu0")
    try:
        assert main(["demo"]) == 0
    finally:
        mgb.set_default_device(before)
    assert "nvrtc" in capsys.readouterr().out.lower()
