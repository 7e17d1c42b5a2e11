"""Kernels of groups with a product: saved, joined, chained, in place, chosen by measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from matmul_backend import BACKEND, MODES, Counting, choose, layer, lowered, near, numbers
from matmul_backend import fresh as fresh
from mgb import config, dtypes
from mgb.executor import kernels
from mgb.ir import Graph
from mgb.jit import load_compiled, trace
from mgb_triton import products, tuning
from mgb_triton.parts import Parts
from mgb_triton.testing.interpreter import Interpreter, missing
from triton_helpers import call

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


class TestKernels:
    X, W = numbers((30, 40), "float32", 0), numbers((40, 30), "float32", 1)

    def graph(self) -> Graph:
        return lowered(lambda x, w: F.relu(F.matmul(x, w) + 1), self.X, self.W)

    def want(self) -> np.ndarray:
        return np.maximum(self.X.astype(np.float64) @ self.W + 1, 0)

    def size(self) -> np.ndarray:
        return np.abs(self.X).astype(np.float64) @ np.abs(self.W) + 1

    @MODES
    def test_saved_kernel_runs_without_a_compiler(self, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
        choose(mode, monkeypatch)
        graph = self.graph()
        blob = BACKEND.save(BACKEND.compile(graph))
        assert blob is not None

        def nothing(source: str) -> bytes:
            raise AssertionError("there is no compiler here")

        device = choose("always" if mode == "always" else "no clock", monkeypatch)
        monkeypatch.setattr(device, "compile", nothing)
        monkeypatch.setenv(config.CACHE.name, "0")
        (found,) = call(BACKEND.load(graph, blob).run, graph, [self.X, self.W])
        near(found, self.want(), "float32", self.size())

    @MODES
    @pytest.mark.parametrize("which", [0, 1])
    def test_output_may_alias_an_input(self, which: int, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
        choose(mode, monkeypatch)
        x, w = numbers((70, 70), "float32", 0), numbers((70, 70), "float32", 1)
        kernel = BACKEND.compile(lowered(lambda x, w: F.matmul(x, w) + 1, x, w))
        given = [x.copy(), w.copy()]
        kernel.run(*given, out=(given[which],))
        want = x.astype(np.float64) @ w + 1
        near(given[which], want, "float32", np.abs(x).astype(np.float64) @ np.abs(w) + 1)

    @MODES
    def test_matmul_kernels_take_views(self, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
        choose(mode, monkeypatch)
        x, w = numbers((60, 90), "float32", 0)[::2, ::-1].T, numbers((30, 50), "float32", 1)[:, ::2]
        graph = lowered(lambda x, w: F.matmul(x * 2, w) + 1, x, w)
        (found,) = call(BACKEND.compile(graph).run, graph, [x, w])
        wide = 2 * x.astype(np.float64) @ w.astype(np.float64)
        near(found, wide + 1, "float32", 2 * np.abs(x).astype(np.float64) @ np.abs(w) + 1)

    @MODES
    def test_matmul_kernels_with_constants_and_iota(self, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Arrays that the graph holds are operands, an iota is where its elements are."""
        from mgb.ops.primitives import iota

        choose(mode, monkeypatch)
        table, f32 = numbers((40,), "float32", 3), dtypes.float32

        def body(x: Any, w: Any) -> Any:
            left = x + iota(shape=(30, 40), dtype=f32) * table
            right = w * iota(shape=(40, 1), dtype=f32)
            return F.matmul(left, right) + iota(shape=(30,), dtype=f32)

        graph = lowered(body, self.X, self.W)
        (found,) = call(BACKEND.compile(graph).run, graph, [self.X, self.W])
        left = self.X + np.arange(1200.0).reshape(30, 40) * table.astype(np.float64)
        right = self.W * np.arange(40.0)[:, None]
        want = left @ right + np.arange(30.0)
        near(found, want, "float32", np.abs(left) @ np.abs(right))

    def test_joined_and_chained_calls(self) -> None:
        plain = lowered(lambda x, w: x * 2 + w, self.W, self.W)
        a, b = BACKEND.compile(self.graph()), BACKEND.compile(plain)
        joined = BACKEND.join([a, b, b])
        assert joined is not None
        out = [np.empty((30, 30), np.float32), *(np.empty_like(self.W) for _ in range(2))]
        joined.run(self.X, self.W, self.W, self.W, self.W, self.W, out=out)
        near(out[0], self.want(), "float32", self.size())
        for found in out[1:]:
            np.testing.assert_allclose(found, self.W * 3, rtol=1e-6)
        chain = BACKEND.chain([b, a, b], [([1, 1], [2]), ([0, 2], [3]), ([2, 2], [4])], [0, 1])
        assert chain is not None
        arrays = [
            self.X,
            self.W,
            np.empty_like(self.W),
            np.empty((30, 30), np.float32),
            np.empty_like(self.W),
        ]
        chain(arrays)
        want = np.maximum(3 * (self.X.astype(np.float64) @ self.W) + 1, 0)
        near(arrays[3], want, "float32", 3 * self.size())
        np.testing.assert_allclose(arrays[4], self.W * 9, rtol=1e-6)
        assert BACKEND.save(a) is not None

    def test_shared_cast_is_duplicated_into_each_part(self) -> None:
        """One cast serves an operand and the rest: each part has it."""
        x = numbers((20, 20), "float16", 0)
        parts = Parts(lowered(lambda x: F.matmul(x, x) + x, x))
        assert parts.fused.left.is_empty and parts.fused.right.is_empty
        assert [n.op.name for n in parts.library.after.graph.nodes][:2] == ["cast", "cast"]
        assert parts.library.dtype == np.float16


class TestMeasured:
    def run(self, device: Interpreter, m: int = 40) -> None:
        BACKEND.device = device
        x, w = numbers((m, 50), "float32", 0), numbers((50, 30), "float32", 1)
        graph = lowered(lambda x, w: F.relu(F.matmul(x, w) + 1), x, w)
        (found,) = call(BACKEND.compile(graph).run, graph, [x, w])
        want = np.maximum(x.astype(np.float64) @ w + 1, 0)
        near(found, want, "float32", np.abs(x).astype(np.float64) @ np.abs(w) + 1)

    @pytest.fixture(autouse=True)
    def measured(self, fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(products.USE.name, "measured")
        monkeypatch.setattr(BACKEND, "device", BACKEND.device)

    def test_faster_variant_is_used_and_cached(self) -> None:
        first = Counting(1.0, 0.9, 0.5)
        self.run(first)
        assert first.asked >= 4 and first.multiplied == 1, "the library's product was tried, and no more"
        products._known.clear()  # as in another process
        second = Counting(0.1)
        self.run(second)
        assert (second.asked, second.multiplied) == (0, 0)
        third = Counting(0.1)
        self.run(third, m=400)  # of another size
        assert third.asked >= 4 and third.multiplied == 2

    def test_slightly_faster_kernel_is_not_used(self) -> None:
        device = Counting(1.0, *[0.98] * 9)
        self.run(device)
        assert device.multiplied == 2

    def test_tiles_that_do_not_fit_are_skipped(self) -> None:
        device = Counting(1.0, *[None] * 9)
        self.run(device)
        assert device.multiplied == 2

    def test_library_is_used_if_measuring_is_disabled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(tuning.SETTING.name, "0")
        device = Counting(1.0, 0.1)
        self.run(device)
        assert (device.asked, device.multiplied) == (0, 1)

    def test_measuring_preserves_overwritten_inputs(self) -> None:
        BACKEND.device = Counting(1.0, 0.5)
        x = numbers((40, 40), "float32", 0)
        given = x.copy()
        BACKEND.compile(lowered(lambda x: F.matmul(x, x) + 1, x)).run(given, out=(given,))
        near(given, x.astype(np.float64) @ x + 1, "float32", np.abs(x).astype(np.float64) @ np.abs(x) + 1)


def test_exported_matmul_kernels_load_under_every_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(BACKEND), "target", lambda self: "sm_90")
    file = tmp_path / "layer.mgb"
    trace(layer, backend=BACKEND.name).export(file, "f32[8,6]", "f32[6,5]", "f32[5]")
    x, w, b = numbers((8, 6), "float32", 0), numbers((6, 5), "float32", 1), numbers((5,), "float32", 2)
    size = np.abs(x).astype(np.float64) @ np.abs(w) + np.abs(b)
    for use in products.USES:
        monkeypatch.setenv(products.USE.name, use)
        kernels.forget()
        with kernels.counting() as counted:
            loaded = load_compiled(file)
            found = loaded(*map(mgb.Tensor, (x, w, b)))
        (found,) = found if isinstance(found, list | tuple) else (found,)
        near(found.numpy(), np.maximum(x.astype(np.float64) @ w + b, 0), "float32", size)
        assert counted.total.compiles == 0
