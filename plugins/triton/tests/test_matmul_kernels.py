"""Kernels of groups with a product: saved, joined, chained, in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from matmul_backend import BACKEND, layer, lowered, near, numbers
from matmul_backend import fresh as fresh
from mgb import config, dtypes
from mgb.executor import kernels
from mgb.ir import Graph
from mgb.jit import load_compiled, trace
from mgb_triton import products
from mgb_triton.matmul import Product
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

    def test_saved_kernel_runs_without_a_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        graph = self.graph()
        blob = BACKEND.save(BACKEND.compile(graph))
        assert blob is not None

        def nothing(source: str) -> bytes:
            raise AssertionError("there is no compiler here")

        device = Interpreter()
        monkeypatch.setattr(BACKEND, "device", device)
        monkeypatch.setattr(device, "compile", nothing)
        monkeypatch.setenv(config.CACHE.name, "0")
        (found,) = call(BACKEND.load(graph, blob).run, graph, [self.X, self.W])
        near(found, self.want(), "float32", self.size())

    @pytest.mark.parametrize("which", [0, 1])
    def test_output_may_alias_an_input(self, which: int, monkeypatch: pytest.MonkeyPatch) -> None:
        x, w = numbers((70, 70), "float32", 0), numbers((70, 70), "float32", 1)
        kernel = BACKEND.compile(lowered(lambda x, w: F.matmul(x, w) + 1, x, w))
        given = [x.copy(), w.copy()]
        kernel.run(*given, out=(given[which],))
        want = x.astype(np.float64) @ w + 1
        near(given[which], want, "float32", np.abs(x).astype(np.float64) @ np.abs(w) + 1)

    def test_matmul_kernels_take_views(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x, w = numbers((60, 90), "float32", 0)[::2, ::-1].T, numbers((30, 50), "float32", 1)[:, ::2]
        graph = lowered(lambda x, w: F.matmul(x * 2, w) + 1, x, w)
        (found,) = call(BACKEND.compile(graph).run, graph, [x, w])
        wide = 2 * x.astype(np.float64) @ w.astype(np.float64)
        near(found, wide + 1, "float32", 2 * np.abs(x).astype(np.float64) @ np.abs(w) + 1)

    def test_matmul_kernels_with_constants_and_iota(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Arrays that the graph holds are operands, an iota is where its elements are."""
        from mgb.ops.primitives import iota

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

    def test_products_are_joined_and_chained_with_other_kernels(self) -> None:
        plain = lowered(lambda x: x * 2 + 1, self.X)
        a, b = BACKEND.compile(self.graph()), BACKEND.compile(plain)
        joined = BACKEND.join([a, b, b])
        assert joined is not None and BACKEND.save(a) is not None
        product, *rest = (np.empty(s, np.float32) for s in ((30, 30), (30, 40), (30, 40)))
        joined.run(self.X, self.W, self.X, self.X, out=(product, *rest))
        near(product, self.want(), "float32", self.size())
        for found in rest:
            np.testing.assert_array_equal(found, self.X * 2 + 1)
        chain = BACKEND.chain([b, a], [([0], [2]), ([2, 1], [3])], [0, 1, 3])
        assert chain is not None
        chain([self.X, self.W, np.empty((30, 40), np.float32), product])
        x = (self.X * 2 + 1).astype(np.float64)
        near(product, np.maximum(x @ self.W + 1, 0), "float32", np.abs(x) @ np.abs(self.W) + 1)

    def test_shared_cast_is_duplicated_into_each_part(self) -> None:
        """One cast serves an operand and the rest: each part has it."""
        x = numbers((20, 20), "float16", 0)
        made = Product(lowered(lambda x: F.matmul(x, x) + x, x), "ieee")
        assert not made.left.nodes and not made.right.nodes
        assert "cast" in [n.op.name for n in made.after.nodes]

    def test_product_without_elements_to_sum_is_zero(self) -> None:
        """Also by a kernel that was made for others."""
        kernel = BACKEND.compile(self.graph())
        out = np.full((30, 30), 77, np.float32)
        kernel.run(np.empty((30, 0), np.float32), np.empty((0, 30), np.float32), out=(out,))
        np.testing.assert_array_equal(out, 1)


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
