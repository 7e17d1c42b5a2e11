"""Products with what stands before and after them, against NumPy in float64, and as machine code."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from mgb.ir import Spec
from mgb.ir.dtypes import as_dtype
from mgb.ops.activations import gelu, relu
from mgb.ops.images.contract import matmul
from mgb.ops.primitives import cast, maximum
from mgb.passes.lower import lower
from mgb.tensor.tracing import graph_of
from mgb_cuda import Images, ResourceError
from mgb_cuda.generated import usual
from mgb_triton import compiler
from mgb_triton.backend import traits
from mgb_triton.matmul import Form, Product
from mgb_triton.products import ProductUnit
from mgb_triton.testing.interpreter import Interpreter, missing
from mgb_triton.tiles import Tiles

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

F32 = np.dtype(np.float32)

#: The size of one unit in the last place.
EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.dtype(dtype))


def same(x: Any) -> Any:
    return x


def product(
    a: np.ndarray, b: np.ndarray, *rest: np.ndarray, after: Any = same, before: Any = same,
    transposed: tuple[bool, bool] = (False, False), precision: str = "ieee",
) -> ProductUnit:  # fmt: skip
    """The kernel of ``after(before(a) @ b, *rest)``, whose product is in float32."""
    flips = dict(zip(("transpose_a", "transpose_b"), transposed, strict=True))

    def body(a: Any, b: Any, *rest: Any) -> Any:
        return after(matmul(cast(before(a), dtype=F32), cast(b, dtype=F32), **flips), *rest)

    graph = lower(graph_of(body, *(Spec(x.shape, x.dtype) for x in (a, b, *rest))), traits("cpu", True))
    return ProductUnit(Product(graph, precision), Interpreter(), Images("triton"))


def fixed(monkeypatch: pytest.MonkeyPatch, *sizes: int) -> None:
    """Let every product be cut so."""
    monkeypatch.setattr("mgb_triton.matmul.tiles_for", lambda *given: Tiles(*sizes))


def run(made: ProductUnit, *arrays: np.ndarray) -> np.ndarray:
    spec = made.frame.graph.outputs[0].spec
    out = np.full(spec.shape, 77, spec.dtype)
    made.run(*arrays, out=[out])
    return out


def text_of(made: ProductUnit) -> str:
    """The text for row-major arrays of the shapes of the graph."""
    return made.source(usual(made)[1].variant)


def wanted(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The product, and how far from it sums in float32 may be."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    return x @ y, (2 * np.sqrt(x.shape[1]) + 2) * 2.0**-24 * (np.abs(x) @ np.abs(y))


class TestProducts:
    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
    @pytest.mark.parametrize("sizes", [(32, 64, 32), (33, 65, 31), (1, 100, 7), (130, 3, 129)])
    def test_matmul_matches_numpy(self, sizes: tuple[int, int, int], dtype: str) -> None:
        m, k, n = sizes
        a, b = numbers((m, k), dtype, 0), numbers((k, n), dtype, 1)
        want, bound = wanted(a, b)
        assert (np.abs(run(product(a, b), a, b) - want) <= bound).all()

    def test_matmul_with_many_tiles_in_groups(self, monkeypatch: pytest.MonkeyPatch) -> None:
        a, b = numbers((170, 40), "float32", 0), numbers((40, 100), "float32", 1)
        want, bound = wanted(a, b)
        for group in (1, 3, 8):
            fixed(monkeypatch, 16, 16, 16, 4, group)
            found = run(product(a, b), a, b)
            assert (np.abs(found - want) <= bound).all()

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_matmul_with_bias_activation_residual_and_cast(self, dtype: str) -> None:
        a, b = numbers((40, 50), dtype, 0), numbers((50, 30), dtype, 1)
        bias, residual = numbers((30,), dtype, 2), numbers((40, 30), dtype, 3)

        def after(p: Any, bias: Any, residual: Any) -> Any:
            total = maximum(p + cast(bias, dtype=F32), 0) + cast(residual, dtype=F32)
            return cast(total, dtype=residual.dtype)

        found = run(product(a, b, bias, residual, after=after), a, b, bias, residual)
        want, bound = wanted(a, b)
        want = np.maximum(want + bias.astype(float), 0) + residual.astype(float)
        assert found.dtype == np.dtype(dtype)
        assert (np.abs(found.astype(float) - want) <= 2 * bound + EPS[dtype] * np.abs(want) + 1e-6).all()

    def test_prologue_does_not_change_the_zero_padding(self) -> None:
        """Elements beyond the end stay 0 whatever the prologue makes of them."""
        a, b = numbers((20, 35), "float32", 0), numbers((35, 20), "float32", 1)
        want, bound = wanted(a * 2 + 1, b)
        assert (np.abs(run(product(a, b, before=lambda x: x * 2 + 1), a, b) - want) <= 2 * bound).all()

    def test_matmul_of_views(self) -> None:
        a, b = numbers((50, 40), "float32", 0).T, numbers((100, 30), "float32", 1)[::2]
        want, bound = wanted(a, b)
        assert (np.abs(run(product(a, b), a, b) - want) <= bound).all()

    @pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
    def test_matmul_with_64_bit_offsets(
        self, transposed: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Product, "is_wide", lambda self, values: True)
        a, b = numbers((40, 50), "float32", 0), numbers((50, 30), "float32", 1)
        given = [x.T.copy() if flip else x for x, flip in zip((a, b), transposed, strict=True)]
        made = product(*given, transposed=transposed)
        want, bound = wanted(a, b)
        assert (np.abs(run(made, *given) - want) <= bound).all()
        assert "tl.int64" in text_of(made)

    def test_large_strides_select_64_bit_offsets(self) -> None:
        made = product(*(numbers((16, 16), "float32", i) for i in range(2))).frame
        values = dict(made.sizes) | {f"{o.name}_{axis}": 16 for o in made.arrays for axis in (0, 1)}
        assert not made.is_wide(values)
        assert made.is_wide(values | {"x1_0": -(1 << 27)})
        assert made.is_wide(values | {"m": 1 << 16, "k": 1 << 15})

    def test_device_with_less_shared_memory_gets_smaller_tiles(self) -> None:
        class Small(Interpreter):
            loads = 0

            def load(self, image: bytes, names: Any) -> Any:
                self.loads += 1
                if b"tl.arange(0, 128)" in image:
                    raise ResourceError("a block needs more shared memory")
                return super().load(image, names)

        a, b = numbers((130, 40), "float32", 0), numbers((40, 130), "float32", 1)
        made = product(a, b)
        made.device = device = Small()
        want, bound = wanted(a, b)
        assert (np.abs(run(made, a, b) - want) <= bound).all()
        count = device.loads
        assert count > 1 and (np.abs(run(made, a, b) - want) <= bound).all() and device.loads == count

    def test_no_fitting_tiles_raise_resource_error(self) -> None:
        class Full(Interpreter):
            def load(self, image: bytes, names: Any) -> Any:
                raise ResourceError("a block needs more shared memory")

        a = numbers((20, 20), "float32", 0)
        made = product(a, a)
        made.device = Full()
        with pytest.raises(ResourceError, match="export MGB_TRITON_MATMUL=never"):
            run(made, a, a)


class TestMutations:
    @pytest.mark.parametrize(
        ("pattern", "into"),
        [
            (r"\(across < k\)", "(across < k - 1)"),
            (r"range\(0, k, (\d+)\)", r"range(\1, k, \1)"),
            (r"\(column < n\)$", "(column < n - 1)"),
            (r"tl\.where\(in_left, (\w+), .*\)$", r"\1"),
            (r"inner % high", "inner % (high + 1)"),
            (r"tl\.dot\(l, r, total,", "tl.dot(l, r, total * 0,"),
        ],
    )
    def test_each_mutation_is_caught(self, pattern: str, into: str, monkeypatch: pytest.MonkeyPatch) -> None:
        a, b = numbers((40, 41), "float32", 0), numbers((41, 37), "float32", 1)
        fixed(monkeypatch, 16, 16, 16, 4, 2)
        made = product(a, b)
        plain = made.source

        def source(form: Form) -> str:
            changed = re.sub(pattern, into, plain(form), flags=re.MULTILINE)
            assert changed != plain(form)
            return changed

        monkeypatch.setattr(made, "source", source)
        want, bound = wanted(a, b)
        found = run(made, a, b)
        assert not (np.abs(found - want) <= bound).all()


class TestCompiled:
    @pytest.mark.parametrize("architecture", [80, 90, 100])
    @pytest.mark.parametrize(
        ("dtype", "precision"),
        [("float16", "ieee"), ("bfloat16", "ieee"), ("float32", "tf32"), ("float32", "ieee")],
    )
    def test_matmul_kernel_fits_the_device_without_spills(
        self, dtype: str, precision: str, architecture: int
    ) -> None:
        a, b = (np.broadcast_to(numbers((1,), dtype, 0), (1024, 1024)) for _ in range(2))
        made = product(a, b, precision=precision)
        text = text_of(made)
        usage = compiler.usage(text, architecture)
        assert usage.shared <= 227 << 10
        assert usage.stores == 0 and usage.loads == 0 and usage.registers <= 255, usage
        assembly = compiler.build(text, architecture).asm["ptx"]
        used = re.search(r"\b(mma|wgmma|tcgen05)\b", assembly)
        loads = re.findall(
            r"ld\.global\.(\S+)|cp\.async\.c[ga]\.shared\.global \[.*\], \[.*\], (\S+),", assembly
        )
        assert loads and {size for pair in loads for size in pair if size} <= {"v4.b32", "0x10", "16"}, loads
        assert (used is None) == (dtype == "float32" and precision == "ieee"), "tensor cores"

    @pytest.mark.parametrize(
        "architecture", [*(pytest.param(a, marks=pytest.mark.slow) for a in (80, 100)), 90]
    )
    @pytest.mark.parametrize("activation", [relu, gelu], ids=["short", "long"])
    @pytest.mark.parametrize(
        ("dtype", "precision"),
        [("float16", "ieee"), ("bfloat16", "ieee"), ("float32", "tf32"), ("float32", "ieee")],
    )
    def test_fused_layer_fits_the_device_without_spills(
        self, dtype: str, precision: str, activation: Any, architecture: int
    ) -> None:
        def layer(x: Any, w: Any, b: Any, r: Any) -> Any:
            return activation(matmul(maximum(x, 0) * 2, w, transpose_b=True) + b) + r

        specs = [Spec(s, as_dtype(dtype)) for s in ((1024, 1024), (1024, 1024), (1024,), (1024, 1024))]
        graph = lower(graph_of(layer, *specs), traits("gpu", True))
        text = text_of(ProductUnit(Product(graph, precision), Interpreter(), Images("triton")))
        usage = compiler.usage(text, architecture)
        assert usage.stores == 0 and usage.loads == 0 and usage.shared <= 227 << 10, usage
        used = re.search(r"\b(mma|wgmma|tcgen05)\b", compiler.build(text, architecture).asm["ptx"])
        assert (used is None) == (dtype == "float32" and precision == "ieee"), "tensor cores"
