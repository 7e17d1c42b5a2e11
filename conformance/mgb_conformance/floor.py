"""The minimum that the suite must run: how much of a backend's own claims it has compiled and run.

Everything here is asked of `Traits`. A backend that claims little skips much, and would be green with hardly
a kernel run; one that claims what no program can use would be so with none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from mgb import dtypes
from mgb.backends import Traits
from mgb.errors import ConversionError
from mgb.executor import Options, compile_program
from mgb.ir import Graph, Kind, Op, Spec
from mgb.ops.declare import OPS
from mgb.ops.images.contract import matmul
from mgb.ops.primitives import bitcast, cast
from mgb.passes import lower
from mgb.tensor.apply import apply
from mgb.tensor.tracing import graph_of

from .cases import call, elementwise, missing, operands
from .drive import Driver

#: Without this dtype nearly all tests are skipped.
NEEDED = "float32"

#: Groups of more ops than this are rare in programs.
MOST_OPS = 16


def unclaimed(traits: Traits) -> list[str]:
    """Return the claims that every backend has to make and `traits` does not."""
    found = []
    if NEEDED not in traits.dtypes:
        found.append(f"traits.dtypes has no {NEEDED}, which nearly all tests compute in")
    if Kind.ELEMENTWISE not in traits.kinds:
        found.append("traits.kinds has no elementwise, which nearly all tests are")
    if traits.min_ops > MOST_OPS:
        found.append(f"traits.min_ops is {traits.min_ops}: there are hardly any groups of so many ops")
    return found


def unused_words(traits: Traits) -> list[str]:
    """Return ops of the vocabulary for which the suite has cases, all of which it skips for this backend."""
    cases = _cases()
    return [w for w in sorted(traits.vocabulary & cases.keys()) if not _is_used(traits, w, cases[w])]


def unused_kinds(traits: Traits) -> list[str]:
    """Return kinds that are claimed, and of which the vocabulary has no op."""
    spoken = {OPS[word].kind for word in traits.vocabulary & OPS.keys()}
    return sorted(kind.value for kind in traits.kinds - spoken - {Kind.LEAF})


def _is_used(traits: Traits, word: str, graphs: Sequence[Callable[[], Graph]]) -> bool:
    for make in graphs:
        graph = make()
        if missing(traits, graph) is None and lower(graph, traits).has(OPS[word]):
            return True
    return False


@cache
def _cases() -> dict[str, list[Callable[[], Graph]]]:
    """Return for each op the graphs that the tiers try it in, as far as dtypes go."""
    found: dict[str, list[Callable[[], Graph]]] = {}

    def add(name: str, function: Callable[..., Any], *specs: Spec) -> None:
        found.setdefault(name, []).append(lambda: graph_of(function, *specs))

    for dtype, name in elementwise():
        add(name, call(OPS[name]), *(Spec((3,), d) for d in operands(OPS[name], dtype)))
    wide = Spec((3, 4), dtypes.float32)
    for name, op in OPS.items():
        if op.kind is Kind.REDUCE:
            takes = wide if _takes(op, wide) else Spec(wide.shape, dtypes.int32)
            add(name, lambda x, op=op: [apply(op, x, axis=(1,)), x + 1], takes)
    add("bitcast", lambda x: bitcast(x, dtype=dtypes.int32), wide)
    add("matmul", matmul, wide, Spec((4, 5), dtypes.float32))
    return found


def _takes(op: Op, spec: Spec) -> bool:
    """Return whether a reduction folds such values. Some fold integers alone."""
    try:
        if op.promote is not None:
            op.promote([spec.dtype])
    except ConversionError:
        return False
    return True


# programs


def not_compiled(driver: Driver, dtype: str) -> str | None:
    """Return why no program with values of `dtype` is compiled and run by the backend; None when one is."""
    reasons: dict[str, None] = {}
    for function, arrays in _programs(dtype, driver.backend.traits):
        reason = _run(driver, function, arrays)
        if reason is None:
            return None
        reasons[reason] = None
    return "; ".join(list(reasons)[:3]) or "no word of the vocabulary computes in float32"


def _programs(dtype: str, traits: Traits) -> Iterator[tuple[Callable[..., Any], list[np.ndarray]]]:
    """Yield programs of ops of the vocabulary that load, compute and store `dtype`, with their arrays.

    Where no word computes in it, they cast from it and to it, as every backend can.
    """
    wanted, count = dtypes.as_dtype(dtype), min(max(2, traits.min_ops), MOST_OPS)
    for given in dict.fromkeys((wanted, np.dtype(NEEDED))):
        for d, name in elementwise():
            op = OPS[name]
            if d == given.name and name in traits.vocabulary and set(operands(op, d)) == {given}:
                yield _chain(call(op), len(operands(op, d)), count, given, wanted)


def _chain(
    op: Callable[..., Any], arity: int, count: int, within: np.dtype[Any], outside: np.dtype[Any]
) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Apply `op` many times in a row; each time to new operands, so that nothing is simplified away."""
    x = np.array([0, 1, 1, 0, 1, 0, 0, 1]).astype(outside)

    def function(*xs: Any) -> Any:
        value, *others = (x if within == outside else cast(x, dtype=within) for x in xs)
        for k in range(count):
            value = op(value, *others[k * (arity - 1) : (k + 1) * (arity - 1)])
        return value if within == outside else cast(value, dtype=outside)

    return function, [np.roll(x, k) for k in range(1 + count * (arity - 1))]


def _run(driver: Driver, function: Callable[..., Any], arrays: list[np.ndarray]) -> str | None:
    specs = [Spec(a.shape, a.dtype, driver.place.device) for a in arrays]
    program = compile_program(graph_of(function, *specs), Options(backend=driver.backend.name))
    if driver.backend.name not in program.backends:
        ends = dict.fromkeys(f"{n.op.name} {s.reason}" for s in program.steps for n in s.graph.outputs)
        return ", ".join(ends) or "nothing was left to compute"
    program.run(*map(driver.place.put, arrays))
    return None
