"""Programs that reshape transposed and repeated arrays, roll and slice computed ones, against NumPy."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any

import mgb
import numpy as np
import pytest
from mgb import Tensor, plugins
from mgb.jit import trace

DEFAULT = plugins.choose_backend("cpu")

pytestmark = pytest.mark.skipif(
    not DEFAULT.traits.strided_outputs,
    reason="the kernels of the default backend write row-major results only",
)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype("float32")


def space_to_depth(x: Any, b: Any) -> Any:
    y = x.reshape(2, 8, 32, 2, 64, 2).transpose(0, 1, 3, 5, 2, 4).reshape(2, 32, 32, 64)
    return y + b[:32, None, None]


def depth_to_space(x: Any, b: Any) -> Any:
    y = x.reshape(2, 2, 2, 2, 64, 128).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 128, 256)
    return y * b[:128, None] + b[:256]


def upsampled(x: Any, b: Any) -> Any:
    return np.maximum(np.repeat(np.repeat(x, 2, 2), 2, 3) + b[:128, None], 0.0)


def shuffled_channels(x: Any, b: Any) -> Any:
    y = x.reshape(2, 2, 4, 64, 128).transpose(0, 2, 1, 3, 4).reshape(2, 8, 64, 128)
    return y * b[:8, None, None] + x


def rolled_windows(x: Any, b: Any) -> Any:
    y = np.roll(x, (-3, 5), (2, 3)).reshape(2, 8, 8, 8, 16, 8)
    return y.transpose(0, 2, 4, 1, 3, 5).reshape(-1, 8, 64) * 0.5


def padded_windows(x: Any, b: Any) -> Any:
    y = np.pad(x, ((0, 0), (0, 0), (3, 5), (0, 0))).reshape(2, 8, 9, 8, 128)
    return y.transpose(0, 2, 1, 3, 4) * 2.0 + 1.0


def halves_of_computed(x: Any, b: Any) -> Any:
    y = np.maximum(x - b[:128], 0.0)
    return np.stack([y[..., ::2, ::2], y[..., ::2, 1::2] + y[..., 1::2, ::2], y[..., 1::2, 1::2]], -1) * b[:3]


def differences_of_computed(x: Any, b: Any) -> Any:
    y = x * b[:128] + 1.0
    return y[..., 1:] - y[..., :-1], y[:, :4] * y[:, 4:]


def softmax_of_windows(x: Any, b: Any) -> Any:
    y = x.reshape(2, 8, 8, 8, 128).transpose(0, 2, 1, 3, 4).reshape(16, 64, 128) + b[:128]
    e = np.exp(y - y.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def framed(x: Any, b: Any) -> Any:
    places = np.arange(253)[:, None] * 256 + np.arange(256)
    return x.reshape(-1)[places] * b + 1.0


def patches(x: Any, b: Any) -> Any:
    rows = np.arange(62)[:, None, None, None] + np.arange(3)[:, None]
    columns = np.arange(126)[:, None, None] + np.arange(3)
    return (x[0, 1][rows, columns] * b[:9].reshape(3, 3)).sum(axis=(2, 3))


def of_differences(x: Any, b: Any) -> Any:
    places = np.arange(64)[:, None] - np.arange(64)  # counts from the end where it is negative
    return b[places + 63] * x[0, 0, :, :64] + b[np.arange(64) - 70] + b[places]


def diagonal(x: Any, b: Any) -> Any:
    places = np.arange(64)
    return x[1, :, places, places + 3] * b[:8] - x[0, 2, 63 - places, places][:, None]


BODIES = [
    framed, patches, of_differences, diagonal,
    space_to_depth, depth_to_space, upsampled, shuffled_channels, rolled_windows, padded_windows,
    halves_of_computed, differences_of_computed, softmax_of_windows,
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_moved_and_computed_match_numpy(body: Callable[..., Any]) -> None:
    x, b = numbers(2, 8, 64, 128), numbers(256)
    run, wanted = trace(body), body(x, b)
    for _ in range(3):
        got = run(Tensor(x), Tensor(b))
    pairs = zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]
    for one, value in pairs:
        assert one.shape == value.shape
        np.testing.assert_allclose(one.numpy(), value, rtol=2e-5, atol=2e-6)


ONE_KERNEL = [framed, space_to_depth, depth_to_space, upsampled, shuffled_channels, halves_of_computed]


@pytest.mark.parametrize("body", ONE_KERNEL)
def test_no_copy_stands_beside_one_kernel(body: Callable[..., Any]) -> None:
    x, b = numbers(2, 8, 64, 128), numbers(256)
    run = trace(body)
    run(Tensor(x), Tensor(b))
    text = str(run.explain(Tensor(x), Tensor(b)))
    assert "1 fused groups" in text, text
    stored = body(x, b).nbytes
    assert "; arena 0, 0 of" in text and f"{stored} planned" in text, text


def split(rng: random.Random, count: int) -> tuple[int, ...]:
    shape, rest = [], count
    while rest > 1 and len(shape) < 5 and rng.random() > 0.15:
        divisors = [d for d in (2, 3, 4, 6, 8, 12) if rest % d == 0]
        if not divisors:
            break
        shape.append(rng.choice(divisors))
        rest //= shape[-1]
    shape += [rest] if rest > 1 or not shape else []
    if rng.random() < 0.2:
        shape.insert(rng.randrange(len(shape) + 1), 1)
    return tuple(shape)


def drawn(seed: int) -> tuple[Any, Callable[[Any, Any], Any]]:
    """Return an array, and a program of 3 to 8 ops on it."""
    first = random.Random(seed)
    x = numbers(*split(first, first.choice([576, 2304, 720, 6912])))
    kinds = [first.choice(["turn", "shape", "repeat", "compute", "row", "whole", "half"]) for _ in range(8)]

    def body(x: Any, y: Any) -> Any:
        rng = random.Random(seed + 1)
        for kind in kinds[: rng.randint(3, 8)]:
            shape = tuple(int(d) for d in x.shape)
            if kind == "turn":
                x = np.transpose(x, tuple(rng.sample(range(len(shape)), len(shape))))
            elif kind == "shape":
                x = x.reshape(split(rng, prod(shape)))
            elif kind == "repeat" and prod(shape) < 8000:
                x = np.repeat(x, rng.choice([2, 3]), rng.randrange(len(shape)))
            elif kind == "row":
                row = tuple(d if rng.random() < 0.5 else 1 for d in shape)
                x = x + y[: prod(row)].reshape(row)
            elif kind == "whole":
                x = x * y[: prod(shape)].reshape(shape)
            elif kind == "half" and shape[0] > 1:
                x = x[: shape[0] // 2 * 2]
            else:
                x = x * 0.5 + 1.0
        return x

    return x, body


@pytest.mark.parametrize("seed", range(0, 120, 2))
def test_drawn_programs_match_numpy(seed: int) -> None:
    x, body = drawn(seed)
    y, run = numbers(30_000, seed=1), trace(body)
    for _ in range(2):
        got = run(Tensor(x), Tensor(y))
    wanted = body(x, y)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got.numpy(), wanted, rtol=2e-5, atol=2e-6)


INDICES = {
    "of 8 bits that wrap": lambda np_: np_.arange(300, dtype="int32").astype("uint8"),
    "of 8 bits with a sign": lambda np_: np_.arange(300, dtype="int32").astype("int8"),
    "of 16 bits that wrap": lambda np_: np_.arange(300, dtype="int16") * np_.asarray(200, dtype="int16"),
    "of many ops": lambda np_: negated(np_.arange(5, dtype="int32") + 100, 600),
    "of ops that double": lambda np_: doubled(np_.arange(5, dtype="int32") + 100, 18),
}


def negated(places: Any, times: int) -> Any:
    for _ in range(times):
        places = -(places + 1)
    return places


def doubled(places: Any, times: int) -> Any:
    for _ in range(times):
        places = (places * 2) - (places + 1) + 1
    return places


@pytest.mark.parametrize("name", INDICES)
def test_counting_indices_wrap_as_their_dtype_does(name: str) -> None:
    x, run = numbers(1 << 17), trace(lambda x: x[INDICES[name](mgb.numpy)] * 2.0)
    for _ in range(2):
        got = run(Tensor(x))
    np.testing.assert_array_equal(got.numpy(), x[INDICES[name](np)] * 2)


def test_slices_of_a_long_chain() -> None:
    def body(x: Any) -> Any:
        for _ in range(400):
            x = np.sin(x * 0.5)
        return x[::2] + x[1::2]

    x, run = numbers(2000), trace(body)
    for _ in range(2):
        got = run(Tensor(x))
    np.testing.assert_allclose(got.numpy(), body(x), atol=1e-6)
