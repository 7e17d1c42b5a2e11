"""Random numbers, against the published vectors of Philox and SciPy's distributions, with fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import random
from mgb.errors import ShapeError
from mgb.jit import trace
from mgb.ops.declare import op_of
from mgb.ops.random import blocks as random_blocks
from mgb.ops.random.bits import philox, philox_normal, philox_pair, philox_uniform
from mgb.ops.random.blocks import MULTIPLIERS, ROUNDS, WEYL
from mgb.random import RNG
from mgb.tensor import Tensor
from scipy import stats

# kat_vectors of Random123 (Salmon et al. 2011), philox4x32 with 10 rounds: counter, key, result
VECTORS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return [Tensor(np.array(int(w, 16), np.uint32)) for w in text.split()]


@pytest.mark.parametrize("counter, key, result", VECTORS)
@pytest.mark.parametrize("rule", [philox, op_of(philox).body], ids=["eager", "body"])
def test_philox_known_answers(rule, counter, key, result):
    got = rule(Tensor(np.arange(4, dtype=np.uint32)), *words(counter), *words(key))
    assert " ".join(f"{w:08x}" for w in got.numpy()) == result


@settings(max_examples=30)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=6, max_size=6))
def test_philox_body_matches_the_eager_rule(numbers):
    state = [Tensor(np.array(n, np.uint32)) for n in numbers]
    word = Tensor(np.arange(4, dtype=np.uint32))
    np.testing.assert_array_equal(philox(word, *state).numpy(), op_of(philox).body(word, *state).numpy())


def test_draws_follow_the_philox_stream():
    """The draw's number is the upper half of the counter, the seed the key."""
    rng = RNG(0x299F31D0_A4093822)
    rng.set_state((0x299F31D0_A4093822, 5))
    first = rng._draw(philox, (10,), 4).numpy()
    want = [
        philox(Tensor(np.arange(4, dtype=np.uint32)), *words(f"{i} 0 5 0 a4093822 299f31d0"))
        for i in range(3)
    ]
    np.testing.assert_array_equal(first, np.concatenate([w.numpy() for w in want])[:10])
    assert rng.get_state() == (0x299F31D0_A4093822, 6)


N = 200_000

DISTRIBUTIONS = {
    "uniform": (lambda r, n: r.uniform(size=n), stats.uniform()),
    "uniform from -2 to 3": (lambda r, n: r.uniform(-2, 3, n), stats.uniform(-2, 5)),
    "normal": (lambda r, n: r.normal(size=n), stats.norm()),
    "normal of mean 3": (lambda r, n: r.normal(3, 0.5, n), stats.norm(3, 0.5)),
    "exponential": (lambda r, n: r.exponential(4.0, n), stats.expon(scale=0.25)),
    "exponential with a Tensor of rates": (
        lambda r, n: r.exponential(Tensor([0.5, 4.0]), n)[:, 0],
        stats.expon(scale=2),
    ),
    "gamma": (lambda r, n: r.gamma(2.5, 1.5, n), stats.gamma(2.5, scale=1.5)),
    "gamma of shape 1": (lambda r, n: r.gamma(size=n), stats.gamma(1)),
    "gamma of a small shape": (lambda r, n: r.gamma(0.3, 2.0, n), stats.gamma(0.3, scale=2.0)),
    "gamma of a large shape": (lambda r, n: r.gamma(200.0, 0.1, n), stats.gamma(200, scale=0.1)),
    "beta": (lambda r, n: r.beta(2.0, 3.5, n), stats.beta(2, 3.5)),
    "beta with two ends": (lambda r, n: r.beta(0.5, 0.5, n), stats.beta(0.5, 0.5)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name):
    """Kolmogorov and Smirnov's test, and the first four moments within 5 standard errors."""
    draw, law = DISTRIBUTIONS[name]
    x = draw(RNG(2011), N).numpy()
    assert x.dtype == np.float32 and x.shape == (N,)
    assert stats.kstest(x, law.cdf).pvalue > 0.01
    for order in range(1, 5):
        error = np.sqrt((law.moment(2 * order) - law.moment(order) ** 2) / N)
        assert abs(np.mean(x.astype(np.float64) ** order) - law.moment(order)) < 5 * error


def test_gamma_and_beta_broadcast():
    """As MegEngine has it: the parameters' shape stands behind `size`."""
    shapes = Tensor([[0.5], [20.0]])
    x = RNG(0).gamma(shapes, Tensor([1.0, 2.0, 4.0]), size=N // 8).numpy()
    assert x.shape == (N // 8, 2, 3) and x.dtype == np.float32
    means = np.array([[0.5], [20.0]]) * [1, 2, 4]
    spread = np.sqrt(np.array([[0.5], [20.0]])) * [1, 2, 4]
    assert (abs(x.mean(0) - means) < 5 * spread / np.sqrt(N / 8)).all()
    assert random.beta(shapes, 1.0).shape == (2, 1) and random.gamma(2.0).shape == ()


def test_neighboring_normal_draws_are_independent():
    """Box and Muller's pairs share a radius: their signs, squares and products must not tell."""
    x = RNG(1).normal(size=(N // 2, 2)).numpy().astype(np.float64)
    for f in (np.sign, np.square, lambda a: a):
        assert abs(stats.pearsonr(f(x[:, 0]), f(x[:, 1])).statistic) < 5 / np.sqrt(N / 2)


def test_normal_has_the_right_tail_probability():
    """6.7 sigma is what 32 bits can reach: the smallest radius word gives it."""
    x = RNG(5).normal(size=3_000_000).numpy()
    expected = 3_000_000 * 2 * stats.norm.sf(4.5)
    assert abs(np.sum(np.abs(x) > 4.5) - expected) < 5 * np.sqrt(expected)


def counter_of(bits, key):
    """The counter of which Philox makes these four words: its rounds backwards."""
    (m0, m1), mask = MULTIPLIERS, 2**32 - 1
    c0, c1, c2, c3 = bits
    for n in reversed(range(ROUNDS)):
        k0, k1 = ((k + n * w) & mask for k, w in zip(key, WEYL, strict=True))
        d0, d2 = c3 * pow(m0, -1, 2**32) & mask, c1 * pow(m1, -1, 2**32) & mask
        c0, c1, c2, c3 = d0, c0 ^ (m1 * d2 >> 32) ^ k0, d2, c2 ^ (m0 * d0 >> 32) ^ k1
    return c0, c1, c2, c3


@pytest.mark.parametrize("form", ["eager", "body"])
@pytest.mark.parametrize("bits", [0, 2**32 - 1])
def test_uniform_and_normal_at_extreme_random_bits(bits, form):
    """All ones: ``1 + (1 - 2**-24)`` would round to 2. All zeros: the logarithm of 0."""

    def made(op, count, *numbers):
        which = Tensor(np.arange(count, dtype=np.uint32))
        state = [Tensor(np.uint32(w)) for w in (*counter_of([bits] * 4, (7, 9)), 7, 9)]
        floats = [Tensor(np.float32(x)) for x in numbers]
        return (op if form == "eager" else op_of(op).body)(which, *state, *floats).numpy()

    assert (made(philox, 4) == bits).all()
    assert (made(philox_pair, 2) == bits * (2**32 + 1)).all()
    below = 2 - 2**-23
    assert made(philox_uniform, 4, 1, 1, below) == pytest.approx([1.0 if bits == 0 else below] * 4, abs=0)
    assert np.abs(made(philox_normal, 4, 1, 0)).max() < 6.8


@pytest.mark.parametrize("bits", [0, 2**32 - 1])
def test_exponential_and_randint_at_extreme_random_bits(bits, monkeypatch):
    rng = RNG(0)
    monkeypatch.setattr(random, "philox", lambda which, *_state: which * 0 + bits)
    monkeypatch.setattr(
        random, "philox_pair", lambda which, *_s: which.astype("uint64") * 0 + bits * (2**32 + 1)
    )
    assert 0 <= rng.exponential(size=1).item() < 23
    assert rng.randint(-5, 5).item() == (-5 if bits == 0 else 4)


def formulas(seed, draw, count):
    """The numbers of a draw in NumPy, over Python integers: words, uniform numbers and normal ones."""
    mask = 2**32 - 1
    words = []
    for place in range(-(-count // 4)):
        c0, c1, c2, c3, k0, k1 = place, 0, draw & mask, draw >> 32, seed & mask, seed >> 32
        for _ in range(ROUNDS):
            p0, p1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
            c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & mask, (p0 >> 32) ^ c3 ^ k1, p0 & mask
            k0, k1 = k0 + WEYL[0] & mask, k1 + WEYL[1] & mask
        words += [c0, c1, c2, c3]
    words = np.array(words, np.float64)
    radius = np.repeat(np.sqrt(-2 * np.log(words[::2] * 2.0**-32 + 2.0**-33)), 2)
    turn = np.repeat(words[1::2] * 2.0**-32, 2) - np.tile([0, 0.25], len(words) // 2)
    return (
        words[:count],
        np.floor(words / 256)[:count] * 2.0**-24,
        (radius * np.cos(2 * np.pi * turn))[:count],
    )


@pytest.mark.parametrize("count", [1, 2, 7, 64, 67, 130, 517])
def test_blockwise_draws_match_the_formulas(count, monkeypatch):
    """Draws of one block, of several and of a part of one, against the formulas in float64."""
    monkeypatch.setattr(random_blocks, "BLOCK", 16)
    seed = 0x299F31D0_A4093822
    bits, uniform, normal = formulas(seed, 0, count)
    rngs = (RNG(seed) for _ in range(5))
    np.testing.assert_array_equal(next(rngs)._draw(philox, (count,), 4).numpy(), bits)
    np.testing.assert_array_equal(next(rngs).uniform(size=count).numpy(), uniform)
    np.testing.assert_array_equal(
        next(rngs).uniform(-1, 3, count).numpy(), (uniform * 4 - 1).astype(np.float32)
    )
    np.testing.assert_allclose(next(rngs).normal(size=count).numpy(), normal, rtol=0, atol=4e-6)
    np.testing.assert_allclose(next(rngs).normal(3, 0.5, count).numpy(), normal * 0.5 + 3, rtol=0, atol=4e-6)


@pytest.mark.parametrize(
    "op, numbers", [(philox, 0), (philox_pair, 0), (philox_uniform, 3), (philox_normal, 2)]
)
@pytest.mark.parametrize(
    "shapes", [[(5, 3)] * 7, [(5, 1), (1, 3), (3,), (), (5, 1), (5, 3), ()], [(0, 1)] * 7]
)
def test_philox_ops_broadcast_their_operands(op, numbers, shapes, monkeypatch):
    """The eager rule broadcasts as the body does, wherever words, counters and keys vary."""
    monkeypatch.setattr(random_blocks, "BLOCK", 4)
    rng = np.random.default_rng(0)
    state = [Tensor(rng.integers(0, 2**32, s, np.uint32), dtype="uint32") for s in shapes[1:]]
    which = Tensor(rng.integers(0, 2 if op is philox_pair else 4, shapes[0], np.uint32), dtype="uint32")
    floats = [Tensor(rng.random((5, 1) if shapes[0][0] else (1,)).astype(np.float32)) for _ in range(numbers)]
    got, want = (f(which, *state, *floats).numpy() for f in (op, op_of(op).body))
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=0, atol=4e-6 if numbers else 0)


@pytest.mark.parametrize("mean, std", [(Tensor(3.0), 2.0), (np.float64(3), 2), (3, Tensor([2.0] * 9))])
def test_normal_accepts_tensor_mean_and_deviation(mean, std):
    want = RNG(1).normal(3.0, 2.0, 9).numpy()
    np.testing.assert_array_equal(RNG(1).normal(mean, std, 9).numpy(), want)


@pytest.mark.parametrize("low, high", [(0, 7), (-3, 2), (-(2**31), 2**31), (5, 6)])
def test_randint(low, high):
    x = RNG(3).randint(low, high, (50_000,)).numpy().astype(np.int64)
    assert x.dtype == np.int64 and low <= x.min() and x.max() < high
    bins = min(high - low, 16)
    counts = np.bincount((x - low) * bins // (high - low), minlength=bins)
    assert bins == 1 or stats.chisquare(counts).pvalue > 0.01


def test_randint_starts_at_zero_and_rejects_an_empty_range():
    assert RNG(0).randint(1).item() == 0
    with pytest.raises(ValueError, match=r"low must be below high, .* got 3 and 3"):
        RNG(0).randint(3, 3)


def test_bernoulli():
    x = RNG(0).bernoulli(Tensor([0.0, 0.3, 1.0]), (N, 3)).numpy()
    assert x.dtype == np.bool_ and not x[:, 0].any() and x[:, 2].all()
    assert abs(x[:, 1].mean() - 0.3) < 5 * np.sqrt(0.21 / N)


def test_permutations_are_equally_likely():
    rng = RNG(4)
    seen = [tuple(rng.permutation(3).tolist()) for _ in range(1200)]
    counts = np.unique(seen, axis=0, return_counts=True)[1]
    assert len(counts) == 6 and stats.chisquare(counts).pvalue > 0.01


def test_permutation_of_a_tensor_and_shuffle():
    x = np.arange(60).reshape(20, 3)
    t = Tensor(x)
    rows = RNG(0).permutation(t).numpy()
    assert not np.array_equal(rows, x)
    np.testing.assert_array_equal(rows[np.argsort(rows[:, 0])], x)
    random.seed(0)
    random.shuffle(t)
    np.testing.assert_array_equal(t.numpy(), rows)


@pytest.mark.parametrize("size, shape", [(None, ()), (3, (3,)), ((2, 0), (2, 0)), ([2, 3], (2, 3))])
def test_draws_have_the_requested_size(size, shape):
    for name in ("uniform", "normal", "exponential"):
        assert getattr(random, name)(size=size).shape == shape
    assert random.randint(0, 5, size).shape == random.bernoulli(0.5, size).shape == shape


def test_rng_state_can_be_saved_and_restored():
    random.seed(12)
    random.normal(size=3)
    state = random.get_rng_state()
    first = random.uniform(size=5).numpy(), random.randint(0, 100, 5).numpy()
    random.set_rng_state(state)
    again = random.uniform(size=5).numpy(), random.randint(0, 100, 5).numpy()
    np.testing.assert_array_equal(first, again)
    random.seed(12)
    own = RNG(12)
    np.testing.assert_array_equal(random.normal(size=7).numpy(), own.normal(size=7).numpy())
    assert not np.array_equal(own.normal(size=7).numpy(), RNG(13).normal(size=7).numpy())


def test_traced_draws_match_eager():
    rng, same = RNG(6), RNG(6)
    traced = trace(lambda: (rng.uniform(size=5), rng.normal(size=5)))
    for _ in range(4):
        uniform, normal = traced()
        np.testing.assert_array_equal(uniform.numpy(), same.uniform(size=5).numpy())
        np.testing.assert_allclose(normal.numpy(), same.normal(size=5).numpy(), rtol=1e-6, atol=1e-6)
    assert rng.get_state() == same.get_state()


EXACT = {
    "uniform": lambda rng, size: rng.uniform(size=size),
    "bernoulli": lambda rng, size: rng.bernoulli(0.3, size=size),
    "randint": lambda rng, size: rng.randint(-7, 1000, size=size),
    "permutation": lambda rng, size: rng.permutation(size),
}
ROUNDED = {
    "normal": lambda rng, size: rng.normal(size=size),
    "exponential": lambda rng, size: rng.exponential(2.5, size=size),
}


@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_compiled_draws_match_eager(name):
    """But where a logarithm or a cosine is between, which are right to a few units in the last place."""
    pytest.importorskip("mgb_cpu_llvm", reason="the backend cpu_llvm is not installed")
    draw, size = {**EXACT, **ROUNDED}[name], 20_011
    rng = RNG(21)
    traced = trace(lambda: draw(rng, size), backend="cpu_llvm")
    eager = RNG(21)
    for _ in range(3):
        got, wanted = traced().numpy(), draw(eager, size).numpy()
        if name in EXACT:
            np.testing.assert_array_equal(got, wanted)
        else:
            np.testing.assert_array_max_ulp(got, wanted, 8)


def test_successive_draws_differ():
    rng = RNG(0)
    assert not np.intersect1d(rng.uniform(size=100).numpy(), rng.uniform(size=100).numpy()).size


def test_longer_draw_begins_with_the_shorter_one():
    np.testing.assert_array_equal(RNG(9).normal(size=10).numpy()[:7], RNG(9).normal(size=7).numpy())


@pytest.mark.parametrize("bad", [-1, 2**64])
def test_rng_rejects_seed_outside_64_bits(bad):
    with pytest.raises(ValueError, match="0 to 2"):
        RNG(bad)


@pytest.mark.parametrize("wrong", ["a", 1.5, None, -1, 2**64])
def test_invalid_seed_raises_and_keeps_the_state(wrong):
    random.seed(3)
    with pytest.raises(ValueError, match=r"seed must be an integer from 0 to 2\*\*64 - 1, got"):
        random.seed(wrong)
    assert random.get_rng_state() == (3, 0)


@pytest.mark.parametrize("small", [0.05, 1e-3, 1e-30])
def test_beta_with_small_parameters_has_the_right_mean(small):
    x = RNG(3).beta(small, 3 * small, size=N).numpy()
    assert ((x >= 0) & (x <= 1)).all()
    spread = stats.beta(small, 3 * small).std() if small > 1e-9 else np.sqrt(3 / 16)
    assert abs(x.mean(dtype=np.float64) - 0.25) < 5 * spread / np.sqrt(N)


def test_gamma_and_beta_reject_invalid_parameters():
    for wrong in (-1.0, 0, float("nan"), [1.0, -1.0]):
        with pytest.raises(ValueError, match="must be above 0, got"):
            random.gamma(wrong)
        with pytest.raises(ValueError, match="must be above 0, got"):
            random.beta(1.0, wrong)
    for draw in (random.gamma, random.beta):
        with pytest.raises(ShapeError, match=r"shapes \(2,\) and \(3,\) do not broadcast"):
            draw(Tensor([1.0, 2.0]), Tensor([1.0, 2.0, 3.0]))
        assert draw(Tensor([1.0, 2.0], "float64"), 1.0).dtype == np.float32


def test_exponential_takes_a_rate():
    rng = RNG(3)
    assert abs(rng.exponential(4.0, 100_000).numpy().mean() - 0.25) < 0.25 * 4 / 100_000**0.5
    rates = Tensor([[0.5], [8.0]])
    drawn = rng.exponential(rates, (50_000,)).numpy()
    assert drawn.shape == (50_000, 2, 1)
    np.testing.assert_allclose(drawn.mean(axis=0), [[2], [0.125]], rtol=4 / 50_000**0.5)
    assert rng.exponential(rates).shape == (2, 1) and rng.exponential(size=3).shape == (3,)
    with pytest.raises(ValueError, match=r"random: rate must be above 0, got 0"):
        rng.exponential(0)


@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_permutation_accepts_a_dtype(dtype):
    drawn = RNG(1).permutation(50, dtype=dtype)
    assert drawn.dtype == dtype
    assert drawn.tolist() == RNG(1).permutation(50).tolist() and sorted(drawn.tolist()) == list(range(50))
