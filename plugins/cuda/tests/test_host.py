"""The host as a device: conversions bit by bit, and the mistakes that it must find."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mgb_cuda import LaunchError, Packet, Packing
from mgb_cuda.testing.host import HostDevice, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

HEAD = "struct Params { const %s *x; %s *y; int n; };\n"
KERNEL = 'extern "C" __global__ void __launch_bounds__(%d) f(const __grid_constant__ Params p) {\n%s\n}\n'


def run(
    body: str,
    x: np.ndarray,
    y: np.ndarray,
    types: tuple[str, str],
    threads: int = 64,
    reverse: bool = False,
    cluster: int = 1,
) -> None:
    """Run a kernel of one block, or of one cluster, over `x` and `y`."""
    device = HostDevice()
    device.reverse = reverse
    text = HEAD % types + KERNEL % (threads, body)
    if cluster > 1:
        text = text.replace("void __", f"void __cluster_dims__({cluster}, 1, 1) __")
    (function,) = device.load(device.compile(text), ["f"])
    packing = Packing(2, [("int", "n")])
    packet = Packet(packing.pack({"n": x.size}))
    packing.pointers.pack_into(packet.buffer, 0, device.address(x), device.address(y))
    device.launcher(function, (cluster, 1), threads)(0, packet.table)


EACH = "for (int i = threadIdx.x; i < p.n; i += 64) p.y[i] = %s;"
FLOATS = ("float", "float")


class TestConversions:
    def test_every_float16_widens_exactly(self) -> None:
        bits = np.arange(1 << 16, dtype=np.uint16)
        found = np.empty(bits.size, np.float32)
        run(EACH % "from_f16(p.x[i])", bits, found, ("uint16_t", "float"))
        want = bits.view(np.float16).astype(np.float32)
        np.testing.assert_array_equal(found, want)
        assert (np.signbit(found) == np.signbit(want))[~np.isnan(want)].all()

    def test_halfway_points_round_to_even(self) -> None:
        every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
        every = np.sort(every[np.isfinite(every)])
        middle = (every[1:].astype(np.float64) / 2 + every[:-1].astype(np.float64) / 2).astype(np.float32)
        x = np.concatenate([every, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
        x = np.concatenate([x, np.float32([np.inf, -np.inf, 65519, 65520, 3.4e38, -3.4e38, 1e-45])])
        found = np.empty(x.size, np.uint16)
        run(EACH % "to_f16(p.x[i])", x, found, ("float", "uint16_t"))
        with np.errstate(over="ignore"):
            want = x.astype(np.float16)
        np.testing.assert_array_equal(found, want.view(np.uint16))

    def test_float64_to_float16_rounds_once(self) -> None:
        """Ties of float16 that are no ties of float64: float32 in between would make them ties."""
        dtype = np.dtype(np.float16)
        near = np.arange(0x3C00, 0x3E00, dtype=np.uint16).view(dtype).astype(np.float64)
        middle = (near[1:] + near[:-1]) / 2
        up, down = np.nextafter(middle, 9), np.nextafter(middle, 0)
        x = np.concatenate([middle, up, down, -up])
        found = np.empty(x.size, np.uint16)
        run(EACH % "to_f16(to_odd(p.x[i]))", x, found, ("double", "uint16_t"))
        above, below = np.repeat(near[1:], 1), near[:-1]
        even = np.where(near[:-1].astype(dtype).view(np.uint16) % 2 == 0, below, above)
        want = np.concatenate([even, above, below, -above]).astype(dtype).view(np.uint16)
        np.testing.assert_array_equal(found, want)


class TestMistakes:
    X = np.arange(64, dtype=np.float32)

    def test_barrier_not_reached_by_all_threads_raises(self) -> None:
        with pytest.raises(LaunchError, match="a barrier was reached by 40 of 64 threads"):
            run("if (threadIdx.x < 40) __syncthreads();", self.X, self.X.copy(), FLOATS)

    def test_shuffle_not_reached_by_all_threads_raises(self) -> None:
        body = "if (threadIdx.x % 32 != 7) p.y[threadIdx.x] = __shfl_xor_sync(~0u, p.x[threadIdx.x], 1);"
        with pytest.raises(LaunchError, match="a shuffle was reached by 31 of 32 threads"):
            run(body, self.X, self.X.copy(), FLOATS)

    @pytest.mark.parametrize("barrier", [True, False])
    def test_missing_barrier_shows_in_one_of_two_thread_orders(self, barrier: bool) -> None:
        body = "__shared__ float s[64]; int t = threadIdx.x; s[t] = p.x[t]; %s p.y[t] = s[63 - t];"
        right = []
        for reverse in (False, True):
            y = np.zeros_like(self.X)
            run(body % ("__syncthreads();" if barrier else ""), self.X, y, FLOATS, reverse=reverse)
            right.append(np.array_equal(y, self.X[::-1]))
        assert all(right) is barrier

    def test_shared_memory_starts_as_nan(self) -> None:
        body = (
            "__shared__ float s[64]; p.y[threadIdx.x] = s[threadIdx.x]; __syncthreads(); s[threadIdx.x] = 1;"
        )
        for _ in range(2):
            y = np.zeros_like(self.X)
            run(body, self.X, y, FLOATS)
            assert np.isnan(y).all()

    def test_shuffle_returns_the_value_of_the_other_lane(self) -> None:
        y = np.zeros_like(self.X)
        run("p.y[threadIdx.x] = __shfl_xor_sync(~0u, p.x[threadIdx.x], 5);", self.X, y, FLOATS)
        np.testing.assert_array_equal(y, np.arange(64) ^ 5)

    #: Each thread of a block writes to its own place in the other block, then reads what lies in its own.
    SWAPPED = (
        "__shared__ float s[32]; int t = threadIdx.x; %s"
        "*in_block(s + t, 1 - blockIdx.x) = p.x[blockIdx.x * 32 + t]; %s p.y[blockIdx.x * 32 + t] = s[t]; %s"
    )

    def swap(self, *barriers: str) -> list[bool]:
        right = []
        for reverse in (False, True):
            y = np.zeros_like(self.X)
            run(self.SWAPPED % barriers, self.X, y, FLOATS, 32, reverse, cluster=2)
            right.append(np.array_equal(y, np.roll(self.X, 32)))
        return right

    def test_cluster_blocks_see_each_others_shared_memory(self) -> None:
        assert all(self.swap("cluster_sync();", "cluster_sync();", ""))

    def test_missing_cluster_barrier_shows(self) -> None:
        assert not all(self.swap("cluster_sync();", "__syncthreads();", "cluster_sync();"))

    def test_access_to_memory_of_an_inactive_block_raises(self) -> None:
        with pytest.raises(LaunchError, match="of a block that has not begun"):
            self.swap("", "cluster_sync();", "")
        with pytest.raises(LaunchError, match="of a block that has ended"):
            self.swap("cluster_sync(); if (blockIdx.x == 1) return;", "", "")

    def test_cluster_barrier_not_reached_by_all_threads_raises(self) -> None:
        body = "if (blockIdx.x == 0) cluster_sync(); else __syncthreads();"
        with pytest.raises(LaunchError, match="the barrier of a cluster was reached by 32 of 64 threads"):
            run(body, self.X, self.X.copy(), FLOATS, 32, cluster=2)

    def test_source_rejected_by_the_compiler_is_saved(self, tmp_path: Path) -> None:
        with pytest.raises(LaunchError, match=r"refused\.cpp"):
            HostDevice(tmp_path).compile("nonsense")
        assert "nonsense" in (tmp_path / "refused.cpp").read_text()
