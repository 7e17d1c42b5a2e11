"""Ops that share a kernel: each is judged, by itself, as if it had a kernel of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from mgb import dtypes
from mgb.backends import Kernel
from mgb.backends.eager_backend import EagerBackend
from mgb.ir import Graph, Node
from mgb.ops.declare import OPS
from mgb_conformance import test_elementwise, test_gradients, test_integers, test_special
from mgb_conformance.cases import Batches, dealt, elementwise, operands, spread
from mgb_conformance.drive import Driver

#: Of the tiers of single ops: what they ask for, and of what values.
TIERS = {
    "TestElementwise": (elementwise(), test_elementwise._inputs),
    "TestSpecialValues": (test_special.CASES, test_special._inputs),
    "TestIntegers": (test_integers.CASES, test_integers._inputs),
    "TestGradients": (test_gradients.CASES, test_gradients._inputs, test_gradients._family),
}


class Liar(EagerBackend):
    """Computes one op of one dtype wrongly, at one element, or refuses it; knows what it compiled."""

    def __init__(self, word: str = "", dtype: str = "", refuses: bool = False) -> None:
        self.word, self.dtype, self.refuses = word, dtype, refuses
        self.compiled: list[Graph] = []

    def compile(self, graph: Graph) -> Kernel:
        self.compiled.append(graph)
        lies = [k for k, o in enumerate(graph.outputs) if self.is_wrong(o)]
        if lies and self.refuses:
            raise ValueError(f"no code for {self.word}")
        honest = super().compile(graph)

        def run(*arrays: Any, out: tuple[Any, ...]) -> None:
            honest.run(*arrays, out=out)
            for k in lies:
                out[k].reshape(-1)[-1] = ~out[k].reshape(-1)[-1]

        return Kernel(run, honest.source)

    def is_wrong(self, node: Node) -> bool:
        return node.op.name == self.word and node.spec.dtype == self.dtype


def verdicts(batches: Batches, driver: Driver, cases: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the report of each op that is wrong."""
    found = {}
    for dtype, name in cases:
        try:
            batches.ask(driver, dtype, name)
        except pytest.fail.Exception as error:
            found[name] = str(error)
    return found


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("word", ["shl", "bit_and", "mulhi", "neg", "where"])
def test_only_the_wrong_op_of_a_batch_fails(word: str, refuses: bool) -> None:
    cases, inputs = TIERS["TestIntegers"]
    some = [(dtype, name) for dtype, name in cases if dtype == "int32"]
    together, alone = (
        verdicts(Batches(cases, inputs, size=size), Driver(Liar(word, "int32", refuses)), some)
        for size in (16, 1)
    )
    assert list(together) == [word] and together == alone
    assert ("no code for" if refuses else "1 of ") in together[word]


class Wrong(EagerBackend):
    """Computes nothing rightly."""

    def compile(self, graph: Graph) -> Kernel:
        honest = super().compile(graph)

        def run(*arrays: Any, out: tuple[Any, ...]) -> None:
            honest.run(*arrays, out=out)
            for o in out:
                o[...] = np.where(np.isnan(o), 0, np.nan) if o.dtype in dtypes.FLOATS else ~o

        return Kernel(run, honest.source)


@pytest.mark.parametrize("tier", TIERS)
def test_every_op_is_checked_in_every_dtype(tier: str) -> None:
    """Every word of every backend is among them: `TestFloor` sees to that."""
    cases, *how = TIERS[tier]
    batches, driver = Batches(cases, *how), Driver(Wrong())
    passed = [case for case in cases if not verdicts(batches, driver, [case])]
    assert not passed


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
def test_tiers_share_kernels(dtype: str) -> None:
    """Also those of a backend that compiles for one shape, as this one does."""
    liar = Liar()
    driver = Driver(liar)
    compiled = []
    for tier in ("TestElementwise", "TestSpecialValues" if "float" in dtype else "TestIntegers"):
        cases, inputs, *_ = TIERS[tier]
        assert not verdicts(Batches(cases, inputs), driver, [case for case in cases if case[0] == dtype])
        compiled.append(len(liar.compiled))
    assert compiled[0] == compiled[1] > 1


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_inputs_cover_pairs_of_operand_values(dtype: str, count: int) -> None:
    """Of four operands some pairs may not."""
    given = (np.dtype(dtype),) * count
    values = test_special.special(given[0]) if dtype == "float32" else test_integers.edges(given[0])
    numbers = np.arange(len(values))
    arrays = dealt([numbers] * count, spread(given))
    whole = [a.ravel() for a in np.broadcast_arrays(*arrays)]
    assert all(len(np.unique(a)) == len(values) for a in whole)
    for i in range(count):
        for j in range(i):
            met = len(np.unique(whole[i] * len(values) + whole[j])) / len(values) ** 2
            assert met == 1 if count < 4 else met > 0.98


def test_operands_of_where_cover_their_own_special_values() -> None:
    given = operands(OPS["where"], "float32")
    condition, *others = test_special._inputs(given)
    assert condition.dtype == bool and {*condition.ravel()} == {False, True}
    assert all(np.isnan(x).any() and np.isinf(x).any() and (x == 0).any() for x in others)
