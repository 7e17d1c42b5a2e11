"""Inputs that are transposed against the output: squares of them are turned in shared memory."""

from __future__ import annotations

import mmap
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb import config
from mgb.ops.bodies.transcendental import exp
from mgb.ops.primitives import eq, where
from mgb.ops.reduce import reduce_sum
from mgb_conformance.cases import DTYPES, check, of, samples
from mgb_conformance.drive import ConformanceError, Driver
from mgb_conformance.judge import judge, problem
from mgb_cuda import LaunchError, Properties
from mgb_cuda.frame import Frame
from mgb_cuda.geometry import choose
from mgb_cuda.steps import steps
from mgb_cuda.testing import host
from mgb_cuda.testing.compiled import ARCHITECTURES, REGISTERS, OnPaper
from mgb_cuda.testing.mutations import mutate
from mgb_cuda.tiling import pitch
from mgb_cuda.variant import Kind, Variant
from mgb_nvrtc import compiler
from mgb_nvrtc.source import prelude
from nvrtc_helpers import BENCH, OnHost, traced

needs_compiler = pytest.mark.skipif(host.missing() is not None, reason=str(host.missing()))


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is on disk would not be compiled, and not be changed before."""
    monkeypatch.setenv(config.CACHE.name, "0")


#: As many multiprocessors as a large GPU has.
LARGE = Properties("large", (9, 0), multiprocessors=132)


def turned(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """An array of this shape whose axes lie in memory in the other order."""
    return samples(dtype, shape[::-1], seed).T


def empty(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """An array with no memory behind it, for the rule; strides are in elements."""
    one = np.zeros(1, dtype)
    return np.lib.stride_tricks.as_strided(one, shape, tuple(s * one.itemsize for s in strides))


def chosen(function: Callable[..., Any], *arrays: np.ndarray, properties: Properties = LARGE) -> Variant:
    """The variant by the rule."""
    graph = traced(function, *arrays)
    frame = Frame(graph)
    shapes = [*(a.shape for a in arrays), *(o.spec.shape for o in graph.outputs)]
    choice = choose(frame, steps(frame, shapes, [a.strides for a in arrays]), properties)
    variant: Variant = choice.variant
    return variant


def double(x: Any) -> Any:
    return x * 2 + 1


def added(*xs: Any) -> Any:
    return sum(xs[1:], xs[0])


class TestRule:
    def test_transposed_input_uses_tiles(self) -> None:
        x, y = empty("float32", (4096, 4096), (1, 4096)), empty("float32", (4096, 4096), (4096, 1))
        v = chosen(added, y, x)
        assert (v.kind, v.turned, v.fast, v.side) == (Kind.TILES, (1,), 0, 32)

    @pytest.mark.parametrize(
        ("dtype", "side"), [("float16", 64), ("uint8", 64), ("int32", 32), ("float64", 32)]
    )
    def test_small_elements_use_larger_tiles(self, dtype: str, side: int) -> None:
        assert chosen(lambda x: x + x, empty(dtype, (4096, 4096), (1, 4096))).side == side

    def test_short_axis_uses_smaller_tiles(self) -> None:
        assert chosen(added, *[empty("float16", (1 << 16, 40), (1, 1 << 16))] * 2).side == 32

    def test_image_axes_are_merged_into_one_tile_loop(self) -> None:
        """Channels become the innermost axis; the places of an image are one loop."""
        v = chosen(double, empty("float32", (64, 56, 56, 256), (256 * 56 * 56, 56, 1, 56 * 56)))
        assert (v.kind, len(v.folded), v.fast) == (Kind.TILES, 3, 1)

    @pytest.mark.parametrize(
        ("shape", "strides"),
        [
            ((4096, 4096), (4096, 1)),
            ((4096, 4096), (-4096, -1)),
            ((4096, 4096), (8192, 2)),
            ((1 << 20, 31), (1, 1 << 20)),
            ((31, 1 << 20), (1, 31)),
            ((4096, 4096), (0, 4096)),
            ((4096, 4096), (1, 0)),
            ((100, 100), (1, 100)),
        ],
        ids=["row-major", "backwards", "spread", "short rows", "few rows", "one row", "one column", "small"],
    )
    def test_tiles_are_not_used_where_they_do_not_pay(
        self, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        assert chosen(double, empty("float32", shape, strides)).kind is Kind.FLAT

    @pytest.mark.parametrize(("dtype", "count"), [("float32", 11), ("float64", 5), ("float16", 5)])
    def test_number_of_tiles_is_limited_by_shared_memory(self, dtype: str, count: int) -> None:
        v = chosen(added, *[empty(dtype, (4096, 4096), (1, 4096))] * 14)
        assert v.turned == tuple(range(count))

    def test_reductions_use_rows_or_columns_not_tiles(self) -> None:
        """Of memory, whichever axis is folded."""
        x = empty("float32", (4096, 4096), (1, 4096))
        for axis, kind in (((1,), Kind.COLUMNS), ((0,), Kind.ROWS)):
            v = chosen(lambda x, axis=axis: reduce_sum(x, axis=axis), x)
            assert (v.kind, v.lanes) == (kind, 4)

    @pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
    @pytest.mark.parametrize("side", [32, 64])
    def test_tile_columns_are_spread_over_all_banks(self, side: int, itemsize: int) -> None:
        threads = np.arange(32 if itemsize <= 4 else 16)
        words = threads * pitch(side, itemsize) * itemsize // 4
        for word in np.unique(words):
            assert (words % 32 == word % 32).sum() == (words == word).sum()


def run(function: Callable[..., Any], arrays: list[np.ndarray], device: host.HostDevice) -> Variant:
    """Hold the results in both orders of warps against the judge; the variant that made them."""
    driver, graph = Driver(OnHost(device)), of(function, *arrays)
    for device.reverse in (False, True):
        check(driver, graph, arrays)
    device.reverse = False
    (plan,) = driver.compile(graph).state.unit().plans.values()
    variant: Variant = plan.choice.variant
    return variant


def picked(x: Any, y: Any, z: Any) -> list[Any]:
    """Every bit counts, in any dtype."""
    return [where(eq(x, y), x, z), y]


def laid_out(random: np.random.Generator, dtype: str, domain: tuple[int, ...], seed: int) -> np.ndarray:
    """An array that broadcasts to the domain, with its axes in any order, spread, turned round or cut."""
    shape = tuple(1 if random.random() < 0.1 else d for d in domain)
    order = random.permutation(len(domain))
    spread = [int(random.choice([1, 1, 1, 2])) for _ in domain]
    whole = samples(dtype, tuple(shape[a] * spread[a] + 3 for a in order), seed)
    found = whole.transpose(np.argsort(order))
    cut = []
    for d, s in zip(shape, spread, strict=True):
        cut.append(slice(2, 2 + d * s, s) if random.random() < 0.7 else slice(1 + d * s, 1, -s))
    return found[tuple(cut)]


def drawn(seed: int) -> list[np.ndarray]:
    """Arrays of one dtype over a domain of two long axes, and perhaps short ones, in any layout."""
    random = np.random.default_rng(seed)
    domain = [int(random.integers(32, 80)) for _ in range(2)]
    for _ in range(int(random.integers(0, 3))):
        domain.insert(int(random.integers(0, len(domain) + 1)), int(random.integers(1, 4)))
    dtype = str(random.choice(DTYPES))
    arrays = [laid_out(random, dtype, tuple(domain), k) for k in range(3)]
    return [arrays[0], np.broadcast_to(arrays[1], domain), arrays[2]]


@needs_compiler
class TestNumbers:
    FEW = host.HostDevice()

    @pytest.mark.parametrize("shape", [(32, 32), (33, 65), (64, 1000), (1000, 40), (3, 70, 45)], ids=str)
    def test_partial_tiles_at_the_edges(self, shape: tuple[int, ...]) -> None:
        x = samples("float32", shape).swapaxes(-1, -2)
        x = np.ascontiguousarray(x).swapaxes(-1, -2)
        one = host.HostDevice(properties=Properties("one", (9, 0), multiprocessors=1))
        assert run(lambda x: [double(x), exp(x)], [x], one).kind is Kind.TILES

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_tiles_of_every_dtype(self, dtype: str) -> None:
        shape = (130, 71)
        arrays = [turned(dtype, shape), turned(dtype, shape, 1), samples(dtype, shape, 2)]
        arrays[1][::2] = arrays[0][::2]
        v = run(picked, arrays, self.FEW)
        assert (v.kind, v.turned) == (Kind.TILES, (0, 1))
        assert v.side == (64 if arrays[0].itemsize <= 2 else 32)

    @pytest.mark.parametrize("seed", range(24))
    def test_tiles_of_random_layouts(self, seed: int) -> None:
        run(picked, drawn(seed), self.FEW)

    def test_random_layouts_cover_the_tile_variants(self) -> None:
        """At least half of them, or they would prove little."""
        found = [chosen(picked, *drawn(seed), properties=self.FEW.properties) for seed in range(24)]
        assert sum(v.kind is Kind.TILES for v in found) >= 12
        assert {v.fast for v in found} >= {0, 1} and {v.side for v in found} == {0, 32, 64}
        assert any(len(v.folded) > 2 for v in found if v.turned) and any(len(v.turned) > 1 for v in found)

    def test_offsets_beyond_32_bits(self) -> None:
        """Columns further apart than 32 bits count; nothing but the elements has memory behind it."""
        apart = 1 << 26
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        memory = np.frombuffer(mmap.mmap(-1, 4 * (40 * apart + 200), flags=flags), np.float32)
        x = np.lib.stride_tricks.as_strided(memory, (130, 40), (4, 4 * apart), writeable=True)
        x[...] = samples("float32", (130, 40))
        backend, graph = OnHost(self.FEW), traced(double, x)
        kernel, out = backend.compile(graph), np.full(x.shape, 77, np.float32)
        kernel.run(x, out=(out,))
        np.testing.assert_array_equal(out, x * 2 + 1)
        (plan,) = kernel.state.unit().plans.values()
        assert plan.choice.variant.wide and plan.choice.variant.kind is Kind.TILES

    def test_tiles_are_not_used_without_enough_shared_memory(self) -> None:
        class Small(host.HostDevice):
            def load(self, image: bytes, names: Any) -> Any:
                from mgb_cuda import ResourceError

                if "turned_" in self.sources[-1]:
                    raise ResourceError("4224 bytes")
                return super().load(image, names)

        assert run(double, [turned("float32", (130, 71))], Small()).kind is Kind.FLAT


# what is caught

#: Each place where the pattern stands is tried on its own.
MUTATIONS: dict[str, tuple[str, str]] = {
    "no barrier": (r"__syncthreads\(\);", ""),
    "a barrier for some": (r"__syncthreads\(\);", "if (threadIdx.x > 40) __syncthreads();"),
    "rows left out": (r"i0 < p\.n0", "i0 + 1 < p.n0"),
    "columns left out": (r"i1 < p\.n1", "i1 + 1 < p.n1"),
    "another column": (r"lane \* 33 \+ down", "lane * 33 + down + 1"),
    "another row": (r"lane \* 33 \+ down", "(lane + 1) * 33 + down"),
    "rows of another length": (r"\* 33", "* 32"),
    "the place beside": (r"\+ lane;", "+ lane + 1;"),
    "the place below": (r"\+ down;", "+ down + 1;"),
    "squares apart": (r"(const I first\d = .*) \* 32;", r"\1 * 33;"),
    "a part twice": (r"\bs \* 8", "s / 2 * 8"),
    "a part left out": (r"s < 4", "s < 3"),
    "the wrong square": (r"const I u1 = (.*);", r"const I u1 = \1 + 1;"),
    "not turned": (r"lane \* 33 \+ down", "down * 33 + lane"),
    "the wrong stride": (r"i1 \* p\.s0_1", "i1 * p.s0_0"),
}

#: Masks let through one more: the first place loads the square, the second one stores.
MASKS = {
    "past the last row": (r"i0 < p\.n0", "i0 <= p.n0"),
    "past the last column": (r"i1 < p\.n1", "i1 <= p.n1"),
}

#: What is generated for a kernel begins here.
GENERATED = "typedef int I;"

SHAPE = (70, 101)


def sample() -> np.ndarray:
    return np.random.default_rng(5).uniform(0.5, 1, SHAPE[::-1]).astype(np.float32).T


def faults(device: host.HostDevice) -> Iterator[str]:
    """Return the faults of the results, with warps run in either order."""
    x = sample()
    driver, graph = Driver(OnHost(device)), of(double, x)
    for device.reverse in (False, True):
        try:
            found = driver.run(graph, [x])
        except (ConformanceError, LaunchError) as error:
            yield str(error)
        else:
            yield from filter(None, (problem(g, w) for g, w in zip(found, judge(graph, [x]), strict=True)))


def mutant(mutation: tuple[str, str], which: int) -> Any:
    return mutate(host.HostDevice(), *mutation, which, GENERATED)


def places(pattern: str) -> int:
    device = host.HostDevice()
    assert not list(faults(device))
    text = next(s for s in device.sources if "turned_" in s)
    return len(re.findall(pattern, text.partition(GENERATED)[2]))


@needs_compiler
class TestMutations:
    @pytest.mark.parametrize("mutation", MUTATIONS)
    def test_each_mutant_is_caught(self, mutation: str) -> None:
        count = places(MUTATIONS[mutation][0])
        assert count, "the kernel has no place for it"
        missed = [k for k in range(count) if not any(faults(mutant(MUTATIONS[mutation], k)))]
        assert not missed, f"of {count} places these are not caught: {missed}"

    @pytest.mark.parametrize("mask", MASKS)
    def test_stores_past_the_end_are_caught(self, mask: str) -> None:
        assert places(MASKS[mask][0]) == 2
        assert any(faults(mutant(MASKS[mask], 1)))


#: Puts the inputs right before memory that cannot be read.
FENCED = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from test_tiles import MASKS, mutant, sample
from nvrtc_fence import fenced
from nvrtc_helpers import OnHost, call, traced
from mgb_cuda.testing.host import HostDevice

x = fenced(sample().T).T
y = fenced(np.ascontiguousarray(sample()))
mask, which = sys.argv[2], int(sys.argv[3])
device = mutant(MASKS[mask], which) if mask else HostDevice()
graph = traced(lambda x, y: x * 2 + y, x, y)
(got,) = call(OnHost(device).compile(graph).run, graph, [x, y])
assert np.array_equal(got, x * 2 + y)
assert any("turned_" in text for text in device.sources)
"""


@needs_compiler
class TestFenced:
    def run(self, mask: str = "", which: int = 0) -> int:
        command = [sys.executable, "-c", FENCED, str(Path(__file__).parent), mask, str(which)]
        return subprocess.run(command, capture_output=True, timeout=100).returncode

    def test_no_read_past_the_end_of_an_array(self) -> None:
        assert self.run() == 0

    @pytest.mark.parametrize("which", [0, 1], ids=["of the square", "of the other input"])
    @pytest.mark.parametrize("mask", MASKS)
    def test_fence_catches_out_of_bounds_access(self, mask: str, which: int) -> None:
        assert self.run(mask, which) == -signal.SIGSEGV


@pytest.mark.skipif(compiler.missing() is not None, reason=str(compiler.missing()))
class TestCompiled:
    def loaded(self, architecture: int, function: Any, arrays: list[np.ndarray]) -> tuple[Any, Any, Variant]:
        """The kernels, what that for these arrays takes, and its variant."""
        device = OnPaper(lambda text, number: compiler.usage(text, f"sm_{number}"), architecture)
        graph = traced(function, *arrays)
        unit = BENCH.given(device).compile(graph).state.unit()
        shapes = [*(a.shape for a in arrays), *(o.spec.shape for o in graph.outputs)]
        choice = unit.choose(steps(unit.frame, shapes, [a.strides for a in arrays]))
        unit.load(choice.variant, keep=False)
        return unit, device.usage[-1], choice.variant

    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    @pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
    def test_tiles_fit_the_register_and_shared_memory_budget(self, dtype: str, architecture: int) -> None:
        square = (8192, 8192)
        arrays = [
            empty(dtype, square, (1, 8192)),
            empty(dtype, square, (8192, 1)),
            empty(dtype, square, (1, 8192)),
        ]
        _, usage, v = self.loaded(architecture, lambda x, y, z: x * y + z, arrays)
        assert v.kind is Kind.TILES and v.turned == (0, 2)
        assert usage.stores == usage.loads == 0 and usage.registers <= REGISTERS, usage
        assert usage.shared == 2 * v.side * pitch(v.side, arrays[0].itemsize) * arrays[0].itemsize

    def test_fourteen_inputs_use_as_many_tiles_as_fit(self) -> None:
        arrays = [empty("float32", (8192, 8192), (1, 8192))] * 14
        _, usage, v = self.loaded(90, added, arrays)
        assert len(v.turned) == 11 and usage.shared <= 48 << 10 and usage.stores == 0

    @pytest.mark.parametrize(("dtype", "count"), [("float32", 4), ("float16", 16)])
    def test_loads_of_a_tile_are_issued_together(self, dtype: str, count: int) -> None:
        unit, _, v = self.loaded(90, lambda x: x + x, [empty(dtype, (8192, 8192), (1, 8192))])
        text = compiler.compile_source(prelude() + unit.source(v), "compute_90")[0].decode()
        before, _, after = text.partition("st.shared")
        assert before.count("ld.global") == count and "bar.sync" not in before and "bar.sync" in after
        assert after.count("ld.global") == 0
