"""Every pair of dtypes, stored and computed with, each cast rounded once.

A float that does not fit in an integer is nobody's contract: its element may hold any number, the others may
not suffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from mgb import dtypes
from mgb.backends import Traits
from mgb.ops.primitives import bitcast, cast
from mgb.ops.reduce import reduce_sum

from .cases import DTYPES, FLOATS, INTEGERS, check, missing, of, require, samples
from .drive import Driver
from .exact import converted, fits, numbers

SAME_SIZE = (
    ("float32", "int32"), ("int32", "float32"), ("float32", "uint32"), ("uint32", "float32"),
    ("float64", "int64"), ("int64", "float64"), ("float64", "uint64"), ("int16", "uint16"),
)  # fmt: skip

HALVES = tuple(d.name for d in dtypes.HALVES)

#: Two casts that some compiler has taken for one.
MERGED = (
    ("float64", "float32"), ("float32", "float16"),
    ("int64", "int16"), ("uint64", "uint16"), ("int32", "uint32"),
)  # fmt: skip

#: Elements of an operand.
SIZE = 512

#: What is computed of a cast value, of Tensors and of NumPy's arrays.
Use = Callable[[Any], Any]
USES_OF_INTEGERS: dict[str, Use] = {
    "c + 1": lambda c: c + 1, "c + c": lambda c: c + c, "-c": lambda c: -c, "c * c": lambda c: c * c,
    "c << 1": lambda c: c << 1, "c >> 1": lambda c: c >> 1, "c & c": lambda c: c & c,
    "c | 1": lambda c: c | 1, "c ^ 5": lambda c: c ^ 5, "c < 3": lambda c: c < 3, "c == 3": lambda c: c == 3,
    "c - 7": lambda c: c - 7, "max(c, 3)": lambda c: np.maximum(c, 3), "c // 3": lambda c: c // 3,
    "c % 3": lambda c: c % 3, "where(c < 0, c, -c)": lambda c: np.where(c < 0, c, -c),
}  # fmt: skip
USES_OF_FLOATS: dict[str, Use] = {
    "c + 1": lambda c: c + 1, "c + c": lambda c: c + c, "-c": lambda c: -c, "c * c": lambda c: c * c,
    "c / 3": lambda c: c / 3, "abs(c)": lambda c: abs(c), "c < 3": lambda c: c < 3,
    "c == c": lambda c: c == c, "max(c, 3)": lambda c: np.maximum(c, 3), "sqrt(c)": np.sqrt,
    "floor(c)": np.floor, "where(c < 0, c, -c)": lambda c: np.where(c < 0, c, -c),
}  # fmt: skip
USES_OF_BOOLS: dict[str, Use] = {
    "not c": np.logical_not, "c & c": lambda c: c & c, "c ^ c": lambda c: c ^ c, "c == c": lambda c: c == c,
}  # fmt: skip


def uses(target: str) -> dict[str, Use]:
    """Return the computations in a dtype; the cast value itself comes first."""
    if target == "bool":
        return {"c": lambda c: c, **USES_OF_BOOLS}
    return {"c": lambda c: c, **(USES_OF_FLOATS if target in FLOATS else USES_OF_INTEGERS)}


# values


def _edges_of_integers() -> list[int]:
    """Return the ends of the dtypes, and numbers that lie on and beside the middle of two floats."""
    bits = (7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64)
    ends = [(1 << b) + d for b in bits for d in (-2, -1, 0, 1)]
    ties = [(1 << b) + (k << b - p) + d for b, p in _PRECISIONS for k in (1, 3) for d in (-1, 0, 1)]
    return [0, 1, 2, 3, 4, 9, 42, 65519, 65520, *ends, *ties]


#: Powers of 2, and the bits of each float that has them and rounds numbers next to them.
_PRECISIONS = sorted({
    (min(row.bias - 1, top), row.digits + 1)
    for row in map(dtypes.ROWS.get, dtypes.FLOATS)
    for top in (30, 62) if top > row.digits
})  # fmt: skip


def _edges_of_floats() -> list[float]:
    """Return plain numbers, the ends of all dtypes and midpoints of numbers, each with its neighbours."""
    found = [
        0.0,
        0.5,
        0.99,
        1.0,
        1.5,
        1.99,
        2.01,
        2.5,
        3.0,
        4.0,
        9.0,
        42.0,
        1000.5,
        1e20,
        1e300,
        np.inf,
        np.nan,
    ]
    found += [float(2**b) + d for b in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64) for d in (-1, -0.5, 0, 0.5, 1)]
    for dtype in map(dtypes.as_dtype, FLOATS):
        info = ml_dtypes.finfo(dtype)
        half, tiny, least = float(info.eps) / 2, float(info.smallest_normal), float(info.smallest_subnormal)
        found += [float(info.max), float(info.max) / 2, tiny, tiny / 2, least, 3 * least, tiny - least]
        if dtype != np.float64:
            beyond = float(info.max) + math.ldexp(half, math.frexp(info.max)[1] - 1)
            middles = [1 + half, 1 + 3 * half, beyond]
            middles += [least / 2, 1.5 * least, tiny - least / 2]
            found += [m * (1 + d) for m in middles for d in (0, 2.0**-30, -(2.0**-30), 2.0**-51, -(2.0**-51))]
    return found


@cache
def values(source: str, turn: int) -> np.ndarray:
    """Return edges of every dtype in `source`, of both signs, and any bits; others in another turn."""
    wanted, random = dtypes.as_dtype(source), np.random.default_rng([turn, DTYPES.index(source)])
    if source == "bool":
        return random.integers(0, 2, SIZE).astype(bool)
    if source in FLOATS:
        edges = np.array(_edges_of_floats())
        with np.errstate(over="ignore"):
            listed = np.unique(np.concatenate([edges, -edges]).astype(wanted).astype(float)).astype(wanted)
    else:
        info = np.iinfo(source)
        both = {s * v for v in _edges_of_integers() for s in (1, -1)} | {info.min, info.min + 1}
        listed = np.array(sorted(v for v in both if info.min <= v <= info.max), wanted)
    word = np.dtype(f"uint{8 * wanted.itemsize}")
    bits = random.integers(0, np.iinfo(word).max, SIZE, word, endpoint=True).view(wanted)
    small = (30 * random.normal(size=SIZE)).astype(np.int8).astype(wanted)
    mixed = np.where(random.random(SIZE) < 0.5, bits, small)
    mixed[: listed.size] = listed
    return random.permutation(mixed)


def held(x: np.ndarray, through: Sequence[str]) -> np.ndarray:
    """Return which elements are cast to no integers that cannot hold them."""
    found = np.full(x.shape, True)
    for target in through:
        if x.dtype in dtypes.FLOATS and target in INTEGERS:
            found &= [fits(v, target) for v in numbers(x)]
        x = converted(np.where(found, x, x.dtype.type(1)), target)
    return found


@cache
def fitting(source: str, through: tuple[str, ...], turn: int) -> np.ndarray:
    """Return `values` of `source`, small where a dtype that they go `through` has no room for them."""
    x = values(source, turn)
    small = np.resize([9.0, 4.0, 3.0, 0.75, 7.5], x.shape).astype(x.dtype)
    below = small if x.dtype.kind in "ub" else -small
    small = np.where(held(below, through), below, small)
    return np.where(held(x, through), x, small)


# what is asked


@dataclass(frozen=True)
class Case:
    """A cast, perhaps through other dtypes on the way, and what is computed of it."""

    source: str
    through: tuple[str, ...]
    use: str

    def __str__(self) -> str:
        return f"{self.use} of {' -> '.join((self.source, *self.through))}"

    def of(self, x: Any) -> Any:
        """Return the Tensor."""
        for target in self.through:
            x = cast(x, dtype=dtypes.as_dtype(target))
        return uses(self.through[-1])[self.use](x)

    def right(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute the exact result, and where a backend without denormals may lose small numbers.

        16-bit floats are computed with in float32 and rounded once more.
        """
        small = _small(x, x.dtype)
        for target in self.through:
            before, x = x, converted(x, target)
            small |= _small(before, x.dtype) | _small(x, x.dtype)
        half = x.dtype in dtypes.HALVES
        with np.errstate(all="ignore"):
            y = np.asarray(uses(self.through[-1])[self.use](x.astype(np.float32) if half else x))
        y = converted(y, self.through[-1]) if half and y.dtype != bool else y
        return y, small | _small(y, y.dtype)


def _small(x: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return where a float is not a normal number of a dtype, or of what it is computed in."""
    if x.dtype not in dtypes.FLOATS or dtype not in dtypes.FLOATS:
        return np.zeros(x.shape, bool)
    normal = dtypes.ROWS[dtype].carrier
    with np.errstate(invalid="ignore"):  # of NaN
        size = abs(x.astype(np.float64))
    return (size > 0) & (size < float(ml_dtypes.finfo(normal).smallest_normal))


def wrong(case: Case, got: np.ndarray, x: np.ndarray, traits: Traits) -> str | None:
    """Describe the error of `got` in one line; None where it is right."""
    y, small = case.right(x)
    same = (got == y) & (np.signbit(got) == np.signbit(y)) if y.dtype in dtypes.FLOATS else got == y
    same |= (got != got) & (y != y)
    if not traits.denormals:
        same |= small
    if not traits.ieee:
        same |= ~np.isfinite(x.astype(np.float64))
    if same.all():
        return None
    at = int(np.argmin(same))
    return f"{case}: {np.sum(~same)} of {x.size} are wrong, {x[at]!r} gives {got[at]!r} and not {y[at]!r}"


def ask(driver: Driver, cases: Sequence[Case]) -> None:
    """Compute the cases that the backend claims in one kernel, twice, of other values."""
    traits = driver.backend.traits
    turns = {case: [fitting(case.source, case.through, turn) for turn in (0, 1)] for case in cases}
    claimed = [c for c in cases if missing(traits, of(c.of, turns[c][0])) is None]
    if not claimed:
        pytest.skip(str(missing(traits, of(cases[0].of, turns[cases[0]][0]))))
    operands = {_bytes(turns[c]): turns[c] for c in claimed}
    place = {c: list(operands).index(_bytes(turns[c])) for c in claimed}
    graph = of(lambda *xs: [c.of(xs[place[c]]) for c in claimed], *(x for x, _ in operands.values()))
    require(driver, graph)
    for arrays in zip(*operands.values(), strict=True):
        got = driver.run(graph, arrays)
        found = [wrong(c, g, arrays[place[c]], traits) for c, g in zip(claimed, got, strict=True)]
        problems = [text for text in found if text]
        assert not problems, "\n".join(problems)


def _bytes(arrays: Sequence[np.ndarray]) -> bytes:
    return b"".join(a.tobytes() for a in arrays)


def chosen(source: str, through: tuple[str, ...]) -> list[Case]:
    """Return one use of a cast, other ones for other dtypes.

    Where it rounds to 16 bits the cast value as well.
    """
    names = list(uses(through[-1]))
    use = names[(DTYPES.index(source) + 3 * DTYPES.index(through[0])) % len(names)]
    wanted = ("c", use) if through[-1] in HALVES else (use,)
    return [Case(source, through, name) for name in dict.fromkeys(wanted)]


class TestCasts:
    @pytest.mark.parametrize("source", DTYPES)
    def test_cast_to_every_dtype(self, driver: Driver, source: str) -> None:
        """Check values that are computed from the cast one in the same kernel."""
        ask(driver, [case for target in DTYPES for case in chosen(source, (target,))])

    @pytest.mark.parametrize("source", ["float64", "float32", "int64"])
    def test_two_consecutive_casts(self, driver: Driver, source: str) -> None:
        """Check that each does what it says, whatever a compiler makes of both."""
        ways = [(a, DTYPES[(k + DTYPES.index(source)) % len(DTYPES)]) for k, a in enumerate(DTYPES)]
        merged = [Case(source, way, "c") for way in MERGED]
        ask(driver, [*dict.fromkeys([*merged, *(case for way in ways for case in chosen(source, way))])])

    @pytest.mark.parametrize("source", ["float32", "float64"])
    def test_out_of_range_cast_does_not_affect_other_elements(self, driver: Driver, source: str) -> None:
        traits = driver.backend.traits
        cases = [Case(source, (target,), "c + 1") for target in INTEGERS if target in traits.dtypes]
        arrays = [fitting(source, case.through, 0).copy() for case in cases]
        for x in arrays:
            x[::3] = np.resize([np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, -3e9], x[::3].shape)
        graph = of(lambda *xs: [case.of(x) for case, x in zip(cases, xs, strict=True)], *arrays)
        require(driver, graph)
        rest = np.arange(SIZE) % 3 > 0
        got = driver.run(graph, arrays)
        found = [wrong(c, g[rest], x[rest], traits) for c, g, x in zip(cases, got, arrays, strict=True)]
        assert not any(found), found

    @pytest.mark.parametrize("source", ["float32", "float64"])
    def test_sum_of_cast_integers_wraps(self, driver: Driver, source: str) -> None:
        """Check that the sum of a row of integers wraps."""
        targets = [target for target in INTEGERS if target in driver.backend.traits.dtypes]
        arrays = [fitting(source, (target,), 0).reshape(8, -1) for target in targets]

        def sums(*xs: Any) -> list[Any]:
            made = [cast(x, dtype=dtypes.as_dtype(t)) for x, t in zip(xs, targets, strict=True)]
            return [reduce_sum(x, axis=(1,)) for x in made]

        graph = of(sums, *arrays)
        require(driver, graph)
        for got, x, target in zip(driver.run(graph, arrays), arrays, targets, strict=True):
            whole = converted(x.ravel(), target).reshape(x.shape)
            assert np.array_equal(got, whole.sum(axis=1, keepdims=True, dtype=target)), target

    @pytest.mark.slow
    @pytest.mark.parametrize("target", DTYPES)
    @pytest.mark.parametrize("source", DTYPES)
    def test_all_uses_of_a_cast_value(self, driver: Driver, source: str, target: str) -> None:
        ask(driver, [Case(source, (target,), use) for use in uses(target)])

    @pytest.mark.slow
    @pytest.mark.parametrize("between", DTYPES)
    @pytest.mark.parametrize("source", DTYPES)
    def test_all_pairs_of_consecutive_casts(self, driver: Driver, source: str, between: str) -> None:
        ask(driver, [case for target in DTYPES for case in chosen(source, (between, target))])

    @pytest.mark.parametrize(("source", "target"), SAME_SIZE)
    def test_bitcast(self, driver: Driver, source: str, target: str) -> None:
        x = samples(source, (65,))
        check(driver, of(lambda x: bitcast(x, dtype=dtypes.as_dtype(target)), x), [x])
