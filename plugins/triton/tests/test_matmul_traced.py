"""Products in traced functions, the whole way: claimed, cut, taken apart, run by the interpreter."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from matmul_backend import BACKEND, layer, near, numbers
from matmul_backend import fresh as fresh
from mgb import dtypes
from mgb.ir import Kind
from mgb.jit import trace
from mgb_triton import products
from mgb_triton.backend import Triton, text_version
from mgb_triton.testing.interpreter import missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def traced(function: Callable[..., Any], *arrays: np.ndarray) -> tuple[np.ndarray, str]:
    """The result of a function, and the explanation of what ran."""
    f = trace(function, backend=BACKEND.name)
    given = [mgb.Tensor(a, dtype=a.dtype) for a in arrays]
    f(*given)
    return f(*given).numpy(), f.explain(*given)


def kernels_of(text: str) -> list[str]:
    """The texts of kernels in an explanation."""
    return text.split("def mgb_0(")[1:]


class TestTraced:
    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    def test_fused_layer_matches_numpy(self, dtype: str) -> None:
        x, w, b = numbers((37, 50), dtype, 0), numbers((50, 21), dtype, 1), numbers((21,), dtype, 2)
        found, text = traced(layer, x, w, b)
        wide = [a.astype(np.float64) for a in (x, w, b)]
        product = wide[0] @ wide[1]
        assert found.dtype == dtypes.as_dtype(dtype)
        size = np.abs(wide[0]) @ np.abs(wide[1]) + np.abs(wide[2])
        near(found, np.maximum(product + wide[2], 0), dtype, size, product)
        assert len(kernels_of(text)) == 1 and "tl.dot" in text
        assert "contract" not in text

    def test_residual_prologue_and_transposed_weight(self) -> None:
        x, w, r = (numbers(s, "float32", i) for i, s in enumerate([(33, 40), (50, 40), (33, 50)]))

        def body(x: Any, w: Any, r: Any) -> Any:
            return F.gelu(F.matmul(F.relu(x) * 2 + 1, w * 3, transpose_b=True)) + r

        found, text = traced(body, x, w, r)
        from math import erf

        wide = [a.astype(np.float64) for a in (x, w, r)]
        left, right = np.maximum(wide[0], 0) * 2 + 1, wide[1].T * 3
        p = left @ right
        want = p * 0.5 * (1 + np.vectorize(erf)(p / np.sqrt(2))) + wide[2]
        near(found, want, "float32", np.abs(left) @ np.abs(right) + np.abs(wide[2]))
        assert len(kernels_of(text)) == 1

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_casts_before_matmul(self, dtype: str) -> None:
        x, w = numbers((20, 30), "float32", 0), numbers((30, 40), "float32", 1)

        def body(x: Any, w: Any) -> Any:
            return F.matmul(x.astype(dtype), w.astype(dtype)).astype("float32") * 2

        found, text = traced(body, x, w)
        half = dtypes.as_dtype(dtype)
        wide = [a.astype(half).astype(np.float64) for a in (x, w)]
        want = 2 * (wide[0] @ wide[1])
        near(found, want, dtype, 2 * np.abs(wide[0]) @ np.abs(wide[1]), want)
        (kernel,) = kernels_of(text)
        kind = {"float16": "tl.float16", "bfloat16": "tl.bfloat16"}[dtype]
        pattern = rf"l = tl\.where\(in_left, vl\d+, tl\.full\(\(\), 0, {kind}\)\)"
        assert re.search(pattern, kernel), "it multiplies 16 bits"

    def test_16_bit_floats_are_multiplied_in_16_bits_after_a_prologue(self) -> None:
        x, w = numbers((20, 30), "float16", 0), numbers((30, 40), "float16", 1)
        found, text = traced(lambda x, w: F.matmul(F.relu(x) * 1.5, w) + 1, x, w)
        left = (np.maximum(x.astype(np.float64), 0) * 1.5).astype(np.float16).astype(np.float64)
        right = w.astype(np.float64)
        near(found, left @ right + 1, "float16", np.abs(left) @ np.abs(right) + 1, left @ right)
        assert "tl.full((), 0, tl.float16))" in text

    def test_float32_matmul_of_16_bit_values_is_not_rounded_to_16_bits(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        x, w = (numbers(s, "float16", i) * np.float16(100) for i, s in enumerate([(20, 300), (300, 20)]))
        wide = [a.astype(np.float64) for a in (x, w)]
        found, _ = traced(lambda x, w: F.matmul(x.astype("float32"), w.astype("float32")) + 1, x, w)
        near(found, wide[0] @ wide[1] + 1, "float32", np.abs(wide[0]) @ np.abs(wide[1]))
        assert np.isfinite(found).all() and np.abs(found).max() > 65504

    @pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 40, 5), (17, 1, 5), (64, 3, 1), (130, 70, 129)])
    def test_matmul_of_various_sizes(self, sizes: tuple[int, int, int]) -> None:
        m, k, n = sizes
        x, w = numbers((m, k), "float32", 0), numbers((k, n), "float32", 1)
        found, _ = traced(lambda x, w: F.relu(F.matmul(x, w * 2) + 1), x, w)
        wide = [a.astype(np.float64) for a in (x, w)]
        want = np.maximum(2 * (wide[0] @ wide[1]) + 1, 0)
        near(found, want, "float32", 2 * np.abs(wide[0]) @ np.abs(wide[1]) + 1)

    def test_one_kernel_serves_other_sizes(self) -> None:
        f = trace(lambda x, w, b: F.relu(F.matmul(x, w) + b), backend=BACKEND.name)
        for m, k, n in ((32, 32, 32), (48, 48, 48), (7, 48, 20), (200, 5, 20), (16, 16, 16)):
            x, w, b = (
                numbers((m, k), "float32", m),
                numbers((k, n), "float32", k),
                numbers((n,), "float32", n),
            )
            for _ in range(2):
                found = f(*map(mgb.Tensor, (x, w, b))).numpy()
                wide = [a.astype(np.float64) for a in (x, w, b)]
                want = np.maximum(wide[0] @ wide[1] + wide[2], 0)
                near(found, want, "float32", np.abs(wide[0]) @ np.abs(wide[1]) + np.abs(wide[2]))

    def test_several_outputs_of_a_matmul(self) -> None:
        x, w = numbers((20, 30), "float32", 0), numbers((30, 40), "float32", 1)
        f = trace(lambda x, w: ((y := F.matmul(x, w)), F.relu(y), y * 2 < 1), backend=BACKEND.name)
        y, positive, small = (t.numpy() for t in f(mgb.Tensor(x), mgb.Tensor(w)))
        near(y, x.astype(np.float64) @ w, "float32", np.abs(x).astype(np.float64) @ np.abs(w))
        np.testing.assert_array_equal(positive, np.maximum(y, 0))
        np.testing.assert_array_equal(small, y * 2 < 1)

    def test_training_losses_do_not_depend_on_the_matmul_setting(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Forward, backward and update, with products and what stands around them in kernels."""

        def losses(use: str) -> list[float]:
            monkeypatch.setenv(products.USE.name, use)
            mgb.random.seed(0)
            net = mgb.module.Sequential(
                mgb.module.Linear(12, 16), mgb.module.ReLU(), mgb.module.Linear(16, 4)
            )
            for i, p in enumerate(net.parameters()):
                p[...] = mgb.Tensor(numbers(tuple(p.shape), "float32", i) * 0.3)
            optimizer = mgb.optimizer.SGD(net.parameters(), lr=0.1)
            manager = mgb.autodiff.GradManager().attach(net.parameters())

            @trace(backend=BACKEND.name)
            def train(x: Any, y: Any) -> Any:
                with manager:
                    loss = ((net(x) - y) ** 2).mean()
                    manager.backward(loss)
                optimizer.step().clear_grad()
                return loss

            x, y = mgb.Tensor(numbers((24, 12), "float32", 10)), mgb.Tensor(numbers((24, 4), "float32", 11))
            return [float(train(x, y).numpy()) for _ in range(4)]

        np.testing.assert_allclose(losses("always"), losses("never"), rtol=1e-4)


class TestClaims:
    def test_matmul_is_not_claimed_by_default(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(products.USE.name)
        assert Kind.CONTRACT not in BACKEND.traits.kinds and not BACKEND.traits.products
        assert not Triton.traits.products and BACKEND.version() == text_version()
        x, w, b = numbers((8, 8), "float32", 0), numbers((8, 8), "float32", 1), numbers((8,), "float32", 2)
        _, text = traced(layer, x, w, b)
        assert "tl.dot" not in text and "is of kind contract" in text

    def test_version_depends_on_the_matmul_settings(self, monkeypatch: pytest.MonkeyPatch) -> None:
        versions = set()
        for use in products.USES:
            for precision in products.PRECISIONS:
                monkeypatch.setenv(products.USE.name, use)
                monkeypatch.setenv(products.PRECISION.name, precision)
                versions.add(BACKEND.version())
        assert len(versions) == 3

    def test_precision_setting_is_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(products.PRECISION.name, "tf32")
        x = numbers((8, 8), "float32", 0)
        assert 'input_precision="tf32"' in traced(lambda x: F.matmul(x, x) + 1, x)[1]

    def test_unknown_setting_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert products.problem() is None
        monkeypatch.setenv(products.PRECISION.name, "fast")
        assert products.problem() == (
            "MGB_TRITON_PRECISION='fast' is not one of ieee, tf32; unset MGB_TRITON_PRECISION"
        )
        monkeypatch.delenv(products.PRECISION.name)
        monkeypatch.setenv(products.USE.name, "yes")
        assert "never, always; unset MGB_TRITON_MATMUL" in str(products.problem())
        assert not BACKEND.traits.products

    def test_integer_and_float64_matmul_use_the_library(self) -> None:
        for dtype in ("int32", "float64"):
            x = np.arange(16).reshape(4, 4).astype(dtype)
            found, text = traced(lambda x: F.matmul(x, x) + 1, x)
            np.testing.assert_array_equal(found, x @ x + 1)
            assert f"multiplies matrices of {dtype}" in text
