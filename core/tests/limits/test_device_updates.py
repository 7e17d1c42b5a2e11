"""Parameters on a GPU are written in place where one owner alone would notice; a stand-in plays CuPy."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import mgb
import numpy as np
import op_samples as samples
import pytest
from graphs import run
from mgb import Tensor, dtypes
from mgb.executor import schedule
from mgb.ir import CONST, Node
from mgb.jit import trace
from mgb.ops.declare import OPS
from mgb.runtime import ownership
from mgb.tensor.apply import apply

standin = pytest.importorskip(
    "mgb_conformance.standin", reason="mgb-conformance is not installed: pip install ./conformance"
)

SIZES = (20_000, 20_001, 30_000)


@pytest.fixture(autouse=True)
def cupy() -> Iterator[Any]:
    """Two GPUs."""
    yield standin.install(2)
    mgb.set_default_device("xpux")
    standin.uninstall()


def parameters(device: str) -> list[Tensor]:
    rng = np.random.default_rng(3)
    return [Tensor(rng.normal(size=n).astype(np.float32), device=device) for n in SIZES]


def halving(weights: list[Tensor], **options: Any) -> trace:
    def function() -> None:
        for weight in weights:
            weight *= 0.5

    return trace(function, **options)


def places(weights: list[Tensor]) -> list[int]:
    return [w._data.data.ptr for w in weights]


@pytest.mark.parametrize("device", ["gpu0", "gpu1"])
@pytest.mark.parametrize("without_host", [True, False])
def test_updates_stay_on_the_device_of_the_parameters(device: str, without_host: bool) -> None:
    weights = parameters(device)
    wanted = [w.numpy() * 0.5**5 for w in weights]
    function = halving(weights, without_host=without_host)
    function()
    function()
    before = places(weights)
    for _ in range(3):
        function()
        assert [w._data.device.id for w in weights] == [int(device[-1])] * 3
        assert not without_host or places(weights) == before
    for weight, value in zip(weights, wanted, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


#: Ways to hold the memory of an array of a GPU.
HOLDERS = {
    "the array": lambda a: a,
    "a view": lambda a: a[:],
    "a view of a view": lambda a: a[1:].reshape(-1)[:5],
    "another shape": lambda a: a.reshape(-1, 1),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_update_preserves_memory_shared_with_others(hold: Any) -> None:
    weights = parameters("gpu0")
    function = halving(weights, without_host=True)
    for _ in range(3):
        function()
    kept = hold(weights[1]._data)
    held, before, others = kept.get(), places(weights), [w.numpy() for w in weights]
    function()
    np.testing.assert_array_equal(kept.get(), held)
    assert places(weights)[1] != before[1]
    for weight, value in zip(weights, others, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value * 0.5)
    del kept
    function()
    before = places(weights)
    function()
    assert places(weights) == before, "nobody else holds it any more"


def test_views_and_foreign_memory_are_not_owned(cupy: Any) -> None:
    """Views, and memory that CuPy has not allocated, are not owned."""
    whole = cupy.zeros(12, np.float32)
    assert not ownership.owned_alone([whole[1:]], 0)
    foreign = cupy.from_dlpack(whole)
    assert not ownership.owned_alone([foreign], 0)
    del foreign
    mgb.tensor([1.0], device="gpu0")  # from now on there is a GPU
    fresh = [cupy.zeros(12, np.float32)]
    assert ownership.owned_alone(fresh, 0)
    pointer = fresh[0].data
    held = pointer.mem
    assert not ownership.owned_alone(fresh, 0)
    del pointer, held
    assert ownership.owned_alone(fresh, 0)


def test_op_by_op_updates_write_in_place() -> None:
    """Temporaries and parameters alike, op by op."""
    weights = parameters("gpu1")
    moments = [Tensor(np.zeros(n, np.float32), device="gpu1") for n in SIZES]
    start = [w.numpy() for w in weights]

    @trace(without_host=True, opt_level=0)
    def function() -> None:
        for weight, moment in zip(weights, moments, strict=True):
            moment._reset(moment * 0.5 + weight)
            weight._reset(weight - moment * 0.25)

    def step(w: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        m = (m * np.float32(0.5) + w).astype(np.float32)
        return (w - m * np.float32(0.25)).astype(np.float32), m

    wanted = [(w, np.zeros_like(w)) for w in start]
    for call in range(5):
        before = places(weights) + places(moments)
        function()
        wanted = [step(*pair) for pair in wanted]
        assert call < 2 or places(weights) + places(moments) == before
    for weight, moment, (w, m) in zip(weights, moments, wanted, strict=True):
        np.testing.assert_array_equal(weight.numpy(), w)
        np.testing.assert_array_equal(moment.numpy(), m)


UFUNCS = sorted(name for name, op in OPS.items() if isinstance(op.eager, np.ufunc))


def op_by_op(node: Node, *inputs: Tensor) -> Tensor:
    if node.op is CONST:
        return Tensor(node.params["value"], node.spec.dtype, "gpu0")
    return apply(node.op, *inputs, **node.params)


@pytest.mark.parametrize("name", UFUNCS)
def test_cupy_ufuncs_write_into_given_outputs(name: str, cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's has the very dtypes of NumPy's: else it would refuse the array that it is given."""
    monkeypatch.setattr(schedule, "memory", SimpleNamespace(SMALL=1))  # no array is too small
    for dtype in dtypes.DTYPES:
        for graph, arrays in samples.cases(OPS[name], dtype):
            function = trace(lambda *xs: graph.fold(op_by_op, xs)[0], symbolic=True, opt_level=0)  # noqa: B023
            found = function(*(Tensor(a, a.dtype, "gpu0") for a in arrays))
            with np.errstate(all="ignore"):
                (want,) = run(graph, arrays)
            assert isinstance(found._data, standin.ndarray)
            assert (found.shape, found.dtype) == (want.shape, want.dtype)
            samples.assert_close(found.numpy(), want, str(graph))
    (program,) = function.variants()[-1].programs
    assert "out=o" in program.source
