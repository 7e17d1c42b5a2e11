"""The shared part of the tiers: samples, ops by dtype, and the skips, which come from `Traits` alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from mgb import dtypes
from mgb.backends import Traits
from mgb.errors import ConversionError, GraphError
from mgb.ir import Graph, Kind, Op, Spec
from mgb.ops.declare import OPS, arity
from mgb.passes import lower
from mgb.passes.decompose import ALWAYS
from mgb.tensor.apply import apply
from mgb.tensor.tracing import graph_of

from .drive import Driver
from .judge import judge, problem

#: Parameters for the element-wise ops that cannot do without.
PARAMS: dict[str, dict[str, Any]] = {}

#: Ops of the casts' own tier.
CASTS = frozenset({"cast", "bitcast"})

FLOATS = tuple(d.name for d in dtypes.FLOATS)
INTEGERS = tuple(d.name for d in dtypes.INTEGERS)
DTYPES = tuple(d.name for d in dtypes.DTYPES)


def missing(traits: Traits, graph: Graph) -> str | None:
    """Return what `graph` needs and `traits` does not claim; None when the backend must take the graph."""
    try:
        lowered = lower(graph, traits)
    except GraphError as error:
        if "outside the vocabulary" not in str(error):
            raise
        return f"traits.vocabulary has no {', '.join(_missing_words(traits, graph))}"
    needed = {n.spec.dtype.name for n in (*lowered.inputs, *lowered.nodes)} - traits.dtypes
    if needed:
        return f"traits.dtypes has no {', '.join(sorted(needed))}"
    kinds = {n.op.kind for n in lowered.nodes} - traits.kinds - {Kind.LEAF}
    if kinds:
        return f"traits.kinds has no {', '.join(sorted(k.value for k in kinds))}"
    if len(graph.inputs) > traits.max_inputs:
        return f"traits.max_inputs is {traits.max_inputs}"
    return None


def _missing_words(traits: Traits, graph: Graph) -> list[str]:
    """Return the ops that `graph` decomposes into and `traits` does not have."""
    primitives = {name for name, op in OPS.items() if op.is_primitive}
    lowered = lower(graph, replace(traits, vocabulary=traits.vocabulary | primitives))
    known = traits.vocabulary | {op.name for op in ALWAYS}
    return sorted({n.op.name for n in lowered.nodes} - known)


def require(driver: Driver, graph: Graph) -> None:
    """Skip the test when the backend does not claim what `graph` needs."""
    reason = missing(driver.backend.traits, graph)
    if reason is not None:
        pytest.skip(reason)


def check(
    driver: Driver,
    graph: Graph,
    arrays: Sequence[np.ndarray],
    over: dict[int, int] | None = None,
    signed_zero: bool = False,
) -> list[np.ndarray]:
    """Run `graph` and hold every output against the judge; the outputs."""
    require(driver, graph)
    got = driver.run(graph, arrays, over)
    wants = judge(graph, arrays, driver.backend.traits.denormals)
    found = [(k, problem(g, w, signed_zero)) for k, (g, w) in enumerate(zip(got, wants, strict=True))]
    wrong = [f"output {k} ({graph.outputs[k].op.name}): {text}" for k, text in found if text]
    assert not wrong, "\n".join(wrong) + f"\nin\n{graph}"
    return got


def of(function: Callable[..., Any], *arrays: np.ndarray) -> Graph:
    """Return the graph of `function` on tensors like `arrays`."""
    return graph_of(function, *(Spec(a.shape, a.dtype) for a in arrays))


# samples


def samples(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return numbers of many sizes and both signs, the same at every run."""
    wanted = dtypes.as_dtype(dtype)
    size = int(np.prod(shape))
    random = np.random.default_rng([seed, size, DTYPES.index(dtype)])
    return _flat(wanted, size, random).astype(wanted).reshape(shape)


def pairs_of_any_bits(dtype: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Make operands of divisions: floats of any bits, each special one by each other, usual quotients."""
    random, word = np.random.default_rng(13), np.dtype(f"uint{8 * np.dtype(dtype).itemsize}")
    a, b = random.integers(0, np.iinfo(word).max, (2, count), word, endpoint=True).view(dtype)
    info = np.finfo(dtype)
    tiny = (info.tiny, info.tiny / 3, info.smallest_subnormal, 7 * info.smallest_subnormal)
    some = (0.0, 1.0, 3.0, 0.1, np.inf, np.nan, info.max, info.max / 3, *tiny)
    special = np.array([*some, *(-v for v in some)], dtype)
    n, half = len(special), count // 2
    a[: n * n], b[: n * n] = np.repeat(special, n), np.tile(special, n)
    a[half:] = random.standard_normal(count - half) * 100
    b[half:] = random.standard_normal(count - half)
    return a, b


def _flat(dtype: np.dtype[Any], size: int, random: np.random.Generator) -> np.ndarray:
    if dtype == dtypes.bool_:
        return random.integers(0, 2, size)
    if dtype in dtypes.INTEGERS:
        info = np.iinfo(dtype)
        wide = random.integers(info.min, info.max, size, dtype=dtype, endpoint=True)
        return np.where(random.random(size) < 0.5, wide, wide % 17)
    kinds = [random.normal(size=size), 30 * random.normal(size=size), random.uniform(-1, 1, size)]
    kinds.append(np.exp(3 * random.normal(size=size)) * random.choice([-1, 1], size))
    largest = float(ml_dtypes.finfo(dtype).max)  # none of them is infinite
    return np.clip(np.choose(random.integers(0, 4, size), kinds), -largest, largest)


# ops by dtype


@cache
def elementwise() -> tuple[tuple[str, str], ...]:
    """Return every (dtype, op) such that the element-wise op computes in that dtype."""
    ops = [op for op in OPS.values() if op.kind is Kind.ELEMENTWISE and op.name not in CASTS]
    return tuple((d, op.name) for d in DTYPES for op in sorted(ops, key=lambda o: o.name) if operands(op, d))


def operands(op: Op, dtype: str) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes of the op's operands when it computes in `dtype`, bool apart.

    Empty when it never does.
    """
    wanted = dtypes.as_dtype(dtype)
    try:
        given = (wanted,) * arity(op)
        found = tuple(op.promote(given)) if op.promote is not None else given
        op.infer(*(Spec((), d) for d in found), **parameters(op))
    except (ConversionError, ValueError):
        return ()
    return found if wanted in found and {wanted, dtypes.bool_}.issuperset(found) else ()


def spread(given: Sequence[np.dtype[Any]]) -> list[tuple[int, ...]]:
    """Return a shape for each operand, each broadcast in a way of its own.

    Tiers that take it for the same ops ask for the same kernels, of backends that compile for one shape too.
    """
    rows = 3 if len(given) < 3 else 15
    shapes = ((rows, 1, 61), (rows, 5, 61), (61,), (rows, 5, 1))
    return [shapes[i % len(shapes)] for i in range(len(given))] if len(given) > 1 else [shapes[1]]


def dealt(values: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Return arrays of these shapes, in which every value of an operand meets every value of each other one.

    That needs some room. Wherever the operands dealt before, the small ones, are the same, an operand goes
    through its values in turn, from one drawn by lot.
    """
    random = np.random.default_rng(len(values))
    turns: dict[int, np.ndarray] = {}
    for i in sorted(range(len(values)), key=lambda i: int(np.prod(shapes[i]))):
        met = [np.zeros(shapes[i], int)]
        met += [np.broadcast_to(t, shapes[i]) for t in turns.values() if _fits(t.shape, shapes[i])]
        _, groups = np.unique(np.stack(met).reshape(len(met), -1), axis=1, return_inverse=True)
        turn, sizes = np.empty(groups.size, int), np.bincount(groups.ravel())
        places = np.argsort(groups.ravel(), kind="stable")
        turn[places] = np.concatenate([random.integers(values[i].size) + np.arange(n) for n in sizes])
        turns[i] = turn.reshape(shapes[i]) % values[i].size
    return [values[i][turns[i]] for i in range(len(values))]


def _fits(shape: tuple[int, ...], larger: tuple[int, ...]) -> bool:
    return np.broadcast_shapes(shape, larger) == larger


def parameters(op: Op) -> dict[str, Any]:
    """Return values for the keyword parameters that the op cannot do without."""
    function = op.body or op.eager
    needed = () if isinstance(function, np.ufunc) else inspect.signature(function).parameters.values()
    absent = [p.name for p in needed if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    given = PARAMS.get(op.name, {})
    assert set(absent) <= set(given), f"cases.PARAMS must give {absent} of {op.name}"
    return given


def call(op: Op) -> Callable[..., Any]:
    """Return the op as a function of its operands."""
    params = parameters(op)
    return lambda *xs: apply(op, *xs, **params)


#: From a name to what is computed of the operands: a list of tensors.
Family = Callable[[str], Callable[..., list[Any]]]


def plain(name: str) -> Callable[..., list[Any]]:
    """Return the op itself."""
    return lambda *xs: [call(OPS[name])(*xs)]


class Batches:
    """Many ops in one kernel, an answer for each: compilations are what a run costs.

    Tiers of the same ops and shapes share the kernels as well, which a `Driver` keeps.

    Parameters
    ----------
    cases : sequence of (dtype, op)
        All that will be asked for.
    inputs : callable
        ``(dtypes of the operands) -> arrays``
    family : callable
        What is tested of an op.
    signed_zero : bool
        Must zeros of ops with `Op.signed_zero` have the right sign?
    size : int
        Ops in one kernel.
    """

    def __init__(
        self,
        cases: Sequence[tuple[str, str]],
        inputs: Callable[[tuple[np.dtype[Any], ...]], list[np.ndarray]],
        family: Family = plain,
        signed_zero: bool = False,
        size: int = 16,
    ) -> None:
        self._cases = cases
        self._inputs = cache(inputs)
        self._family = family
        self._signed_zero = signed_zero
        self._size = size
        self._answers: dict[tuple[int, str, str], str | None] = {}
        self._unclaimed: dict[tuple[int, str, str], str | None] = {}

    def ask(self, driver: Driver, dtype: str, name: str) -> None:
        """Fail when the op is wrong in this dtype; skip when the backend does not claim it."""
        reason = self._missing(driver, dtype, name)
        if reason is not None:
            pytest.skip(reason)
        if (id(driver), dtype, name) not in self._answers:
            self._run(driver, dtype, self._group(driver, dtype, name))
        answer = self._answers[id(driver), dtype, name]
        if answer is not None:
            pytest.fail(f"{name} in {dtype}: {answer}", pytrace=False)

    def _run(self, driver: Driver, dtype: str, group: list[str]) -> None:
        try:
            found = self._problems(driver, dtype, group)
        except Exception as error:
            if len(group) > 1:  # whose fault is it?
                for one in group:
                    self._run(driver, dtype, [one])
                return
            found = {group[0]: f"{type(error).__name__}: {error}"}
        self._answers |= {(id(driver), dtype, name): text for name, text in found.items()}

    def _problems(self, driver: Driver, dtype: str, group: list[str]) -> dict[str, str | None]:
        graph, arrays, counts = self._graph(group, dtype)
        wants = judge(graph, arrays, driver.backend.traits.denormals)
        answers = zip(driver.run(graph, arrays), wants, strict=True)
        found = {}
        for name, count in zip(group, counts, strict=True):
            signed = self._signed_zero and OPS[name].signed_zero
            texts = [problem(got, want, signed) for got, want in islice(answers, count)]
            found[name] = "; ".join(t for t in texts if t) or None
        return found

    def _group(self, driver: Driver, dtype: str, name: str) -> list[str]:
        """Return the ops that share a kernel with this one: the same operands, claimed by the backend."""
        like = operands(OPS[name], dtype)
        names = [n for d, n in self._cases if d == dtype and operands(OPS[n], d) == like]
        able = [n for n in names if self._missing(driver, dtype, n) is None]
        start = able.index(name) // self._size * self._size
        return able[start : start + self._size]

    def _missing(self, driver: Driver, dtype: str, name: str) -> str | None:
        """Return `missing`, found out once: every group asks about all ops of its dtype."""
        key = (id(driver), dtype, name)
        if key not in self._unclaimed:
            graph, *_ = self._graph([name], dtype)
            self._unclaimed[key] = missing(driver.backend.traits, graph)
        return self._unclaimed[key]

    def _graph(self, names: list[str], dtype: str) -> tuple[Graph, list[np.ndarray], list[int]]:
        arrays = [a.copy() for a in self._inputs(operands(OPS[names[0]], dtype))]
        counts: list[int] = []

        def outputs(*xs: Any) -> list[Any]:
            parts = [self._family(name)(*xs) for name in names]
            counts.extend(map(len, parts))
            return [out for part in parts for out in part]

        return of(outputs, *arrays), arrays, counts
