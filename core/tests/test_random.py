"""Random numbers, against the published vectors of Philox and SciPy's distributions, with fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import random
from mgb.jit import trace
from mgb.ops.declare import op_of
from mgb.ops.random_bits import philox
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


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=6, max_size=6))
def test_the_body_and_the_eager_rule_agree(numbers):
    state = [Tensor(np.array(n, np.uint32)) for n in numbers]
    word = Tensor(np.arange(4, dtype=np.uint32))
    np.testing.assert_array_equal(philox(word, *state).numpy(), op_of(philox).body(word, *state).numpy())


def test_the_stream_is_philox():
    """The draw's number is the upper half of the counter, the seed the key."""
    rng = RNG(0x299F31D0_A4093822)
    rng.set_state((0x299F31D0_A4093822, 5))
    first = random._shaped(rng._draw(3)(rng._places()), (10,)).numpy()
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
    "exponential": (lambda r, n: r.exponential(2.0, n), stats.expon(scale=2)),
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


def test_neighbours_are_independent():
    """Box and Muller's pairs share a radius: their signs, squares and products must not tell."""
    x = RNG(1).normal(size=(N // 2, 2)).numpy().astype(np.float64)
    for f in (np.sign, np.square, lambda a: a):
        assert abs(stats.pearsonr(f(x[:, 0]), f(x[:, 1])).statistic) < 5 / np.sqrt(N / 2)


def test_the_tail_of_normal_is_there():
    """6.7 sigma is what 32 bits can reach: the smallest radius word gives it."""
    x = RNG(5).normal(size=3_000_000).numpy()
    expected = 3_000_000 * 2 * stats.norm.sf(4.5)
    assert abs(np.sum(np.abs(x) > 4.5) - expected) < 5 * np.sqrt(expected)


@pytest.mark.parametrize("bits", [0, 2**32 - 1])
def test_extreme_bits(bits, monkeypatch):
    """All ones: ``1 + (1 - 2**-24)`` would round to 2. All zeros: the logarithm of 0."""
    monkeypatch.setattr(random, "philox", lambda word, *_state: word * 0 + bits)
    rng = RNG(0)
    assert rng.uniform(1, 2, 4).numpy() == pytest.approx([1.0 if bits == 0 else 2 - 2**-23] * 4, abs=0)
    assert np.abs(rng.normal(size=4).numpy()).max() < 6.8
    assert 0 <= rng.exponential(size=1).item() < 23
    assert rng.randint(-5, 5).item() == (-5 if bits == 0 else 4)


@pytest.mark.parametrize("low, high", [(0, 7), (-3, 2), (-(2**31), 2**31), (5, 6)])
def test_randint(low, high):
    x = RNG(3).randint(low, high, (50_000,)).numpy().astype(np.int64)
    assert x.dtype == np.int64 and low <= x.min() and x.max() < high
    bins = min(high - low, 16)
    counts = np.bincount((x - low) * bins // (high - low), minlength=bins)
    assert bins == 1 or stats.chisquare(counts).pvalue > 0.01


def test_randint_counts_from_zero_and_refuses_an_empty_range():
    assert RNG(0).randint(1).item() == 0
    with pytest.raises(ValueError, match="low 3 must be below high 3"):
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
def test_sizes(size, shape):
    for name in ("uniform", "normal", "exponential"):
        assert getattr(random, name)(size=size).shape == shape
    assert random.randint(0, 5, size).shape == random.bernoulli(0.5, size).shape == shape


def test_a_state_is_a_place_in_the_stream():
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


def test_traced_draws_are_the_eager_ones():
    rng, same = RNG(6), RNG(6)
    traced = trace(lambda: (rng.uniform(size=5), rng.normal(size=5)))
    for _ in range(4):
        uniform, normal = traced()
        np.testing.assert_array_equal(uniform.numpy(), same.uniform(size=5).numpy())
        np.testing.assert_allclose(normal.numpy(), same.normal(size=5).numpy(), rtol=1e-6, atol=1e-6)
    assert rng.get_state() == same.get_state()


def test_draws_differ():
    rng = RNG(0)
    assert not np.intersect1d(rng.uniform(size=100).numpy(), rng.uniform(size=100).numpy()).size


def test_a_longer_draw_begins_with_the_shorter():
    np.testing.assert_array_equal(RNG(9).normal(size=10).numpy()[:7], RNG(9).normal(size=7).numpy())


@pytest.mark.parametrize("bad", [-1, 2**64])
def test_a_seed_has_64_bits(bad):
    with pytest.raises(ValueError, match="0 to 2"):
        RNG(bad)
