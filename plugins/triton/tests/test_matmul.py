"""Products with what stands before and after them, against NumPy in float64, and as machine code."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from mgb.ir import Graph, Spec
from mgb.ir.dtypes import as_dtype
from mgb.ops.activations import gelu, relu
from mgb.ops.images.contract import matmul
from mgb.ops.primitives import cast, maximum
from mgb.passes.lower import lower
from mgb.tensor.tracing import graph_of
from mgb_cuda import ResourceError
from mgb_triton import compiler
from mgb_triton.backend import traits
from mgb_triton.matmul import Form, Product
from mgb_triton.parts import Parts
from mgb_triton.testing.interpreter import Interpreter, missing
from mgb_triton.tiles import Tiles
from triton_helpers import traced

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

#: The size of one unit in the last place.
EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.dtype(dtype))


def same(x: Any) -> Any:
    return x


def product(a: np.ndarray, b: np.ndarray, *rest: np.ndarray, after: Any = same, before: Any = same,
            tiles: Tiles | None = None, precision: str = "ieee") -> Product:  # fmt: skip
    whole = np.empty((a.shape[0], b.shape[1]), np.float32)
    graphs: list[Graph] = [traced(before, a), traced(same, b), traced(after, whole, *rest)]
    return Product(*graphs, Interpreter(), precision, tiles)


def run(made: Product, *arrays: np.ndarray) -> np.ndarray:
    spec = made.epilogue.outputs[0].spec
    out = np.full(spec.shape, 77, spec.dtype)
    made.run(*arrays, out=[out])
    return out


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

    def test_matmul_with_many_tiles_in_groups(self) -> None:
        a, b = numbers((170, 40), "float32", 0), numbers((40, 100), "float32", 1)
        want, bound = wanted(a, b)
        for group in (1, 3, 8):
            found = run(product(a, b, tiles=Tiles(16, 16, 16, 4, group)), a, b)
            assert (np.abs(found - want) <= bound).all()

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_matmul_with_bias_activation_residual_and_cast(self, dtype: str) -> None:
        a, b = numbers((40, 50), dtype, 0), numbers((50, 30), dtype, 1)
        bias, residual = numbers((30,), dtype, 2), numbers((40, 30), dtype, 3)

        def after(p: Any, bias: Any, residual: Any) -> Any:
            wide = np.dtype(np.float32)
            total = maximum(p + cast(bias, dtype=wide), 0) + cast(residual, dtype=wide)
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
        monkeypatch.setattr(Product, "_is_wide", lambda self, values: True)
        a, b = numbers((40, 50), "float32", 0), numbers((50, 30), "float32", 1)
        given = [x.T.copy() if flip else x for x, flip in zip((a, b), transposed, strict=True)]
        graphs = [*(traced(same, x) for x in given), traced(same, np.empty((40, 30), np.float32))]
        made = Product(*graphs, Interpreter(), transposed=transposed)
        want, bound = wanted(a, b)
        assert (np.abs(run(made, *given) - want) <= bound).all()
        assert "tl.int64" in made.source(made.expected())

    def test_large_strides_select_64_bit_offsets(self) -> None:
        made = product(*(numbers((16, 16), "float32", i) for i in range(2)))
        values = dict(made.sizes) | {f"{name}_{axis}": 16 for name, _ in made.operands for axis in (0, 1)}
        assert not made.form([0] * 3, values).wide
        assert made.form([0] * 3, values | {"r0_0": -(1 << 27)}).wide
        assert made.form([0] * 3, values | {"m": 1 << 16, "k": 1 << 15}).wide

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
        made = product(a, b, tiles=Tiles(16, 16, 16, 4, 2))
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
        steps = {f"{name}_{axis}": 1024 if axis == 0 else 1 for name, _ in made.operands for axis in (0, 1)}
        text = made.source(made.form([4096] * 3, steps | dict.fromkeys("mnk", 1024)))
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
        parts = Parts(lower(graph_of(layer, *specs), traits("gpu", True)))
        graphs = [p.graph for p in (parts.left, parts.right, parts.after)]
        made = Product(*graphs, Interpreter(), precision, None, parts.transposed)
        text = made.source(made.expected())
        usage = compiler.usage(text, architecture)
        assert usage.stores == 0 and usage.loads == 0 and usage.shared <= 227 << 10, usage
        used = re.search(r"\b(mma|wgmma|tcgen05)\b", compiler.build(text, architecture).asm["ptx"])
        assert (used is None) == (dtype == "float32" and precision == "ieee"), "tensor cores"


class TestErrors:
    def test_mismatched_matrices_are_rejected(self) -> None:
        a, b = numbers((4, 5), "float32", 0), numbers((6, 7), "float32", 1)
        with pytest.raises(ValueError, match="multiplied"):
            product(a, b)

    def test_unsupported_dtype_is_rejected(self) -> None:
        a = np.zeros((4, 4), np.int32)
        with pytest.raises(ValueError, match=r"products of int32; use mgb\.functional\.matmul"):
            product(a, a)

    def test_unknown_precision_is_rejected(self) -> None:
        a = np.zeros((4, 4), np.float32)
        with pytest.raises(ValueError, match="one of ieee, tf32, not 'fast'"):
            product(a, a, precision="fast")
