"""Arguments of new shapes: one record serves them, and every result is that of eager code."""

from __future__ import annotations

import inspect
import math  # noqa: F401 - in the table of bodies
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from arrays import floats
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import Tensor, optimizer
from mgb.autodiff import GradManager
from mgb.executor import kernels
from mgb.jit import trace
from states import bodies

WAYS = [{}, {"without_host": True}, {"symbolic": True}, {"without_host": True, "opt_level": 1}]


# bodies that use lengths in every way there is


BODIES = bodies(
    """
### half
return x[: x.shape[0] // 2] * 2.0
### folded
n, m = x.shape
return x.reshape(m, n).sum(axis=0) if n % 2 else x.reshape(-1) + 1.0
### mean_by_hand
return x.sum() / max(1, x.shape[0])
### scaled
return x * (1.0 / (1 + len(x))) + math.sqrt(x.shape[1])
### branches
return x + 1.0 if x.shape[0] > 3 else x * 2.0
### looked_up
return x * {2: 5.0, 3: 7.0}.get(x.shape[0], 1.0)
### named
return x * float(f"{x.shape[0]}") + int(str(x.shape[1]))
### looped
total = x * 0.0
for i in range(x.shape[0]):
    total = total + float(i)
return total
### rows
total = F.zeros(x.shape[1:])
for row in x:
    total = total + row
return total
### places
return x + F.arange(x.shape[0]).reshape(-1, 1) + F.arange(0, x.shape[1], 2).sum()
### squares
return x * x if x.shape[0] == x.shape[1] else x + x.size
### with_array
return x @ F.ones((x.shape[1], x.shape[0])) - F.full((x.shape[0], 1), 2.0)
### last
return x[-1] + x[x.shape[0] - 1, 0] if x.shape[0] and x.shape[1] else x.sum()
### joined
return F.concat([x, x[:1], x * 2.0], axis=0).transpose(1, 0)
### parts
return sum(F.split(x, min(2, x.shape[0]), axis=0)[0].sum() for _ in range(2)) if x.shape[0] else x.sum()
### stretched
y = F.broadcast_to(x.sum(axis=0, keepdims=True), x.shape)
return F.softmax(y + x, axis=1) if x.shape[1] else y
### kept_length
n = x.shape[0]
return F.concat([x, F.zeros((n, n))], axis=1).mean() if n else x.sum()
### deviations
return (x - x.mean(axis=0)) / (x.std(axis=0) + 1.0) if x.shape[0] else x
### numbers
n, m = x.shape
return (x * n + m) / (n + 1) - n**2 + (x > n) * m
### small_integers
return x.astype("int8") * x.shape[0] + x.astype("float64") / (x.shape[1] + 1)
### derived
manager = GradManager().attach(x)
with manager:
    manager.backward((x * x * x.shape[0] / (x.shape[1] + 1)).sum())
gradient, x.grad = x.grad, None
return gradient
""",
    globals(),
    "x",
)

LENGTHS = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 16]), st.sampled_from([0, 1, 2, 3, 4, 16])
SHAPES = st.lists(st.tuples(*LENGTHS), min_size=3, max_size=7)


def follows_eager(
    body: Callable[..., Any], traced: Any, calls: Sequence[tuple[np.ndarray[Any, Any], ...]]
) -> None:
    for arrays in calls:
        wanted = body(*map(mgb.tensor, arrays)).numpy()
        found = traced(*map(mgb.tensor, arrays)).numpy()
        assert found.shape == wanted.shape and found.dtype == wanted.dtype, [a.shape for a in arrays]
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5, err_msg=str(arrays[0].shape))


@pytest.mark.parametrize("options", WAYS[:2], ids=str)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@settings(max_examples=2, deadline=None)
@given(shapes=SHAPES)
def test_bodies_using_lengths_are_never_stale(
    body: Callable[[Tensor], Any], options: dict[str, Any], shapes: list[tuple[int, int]]
) -> None:
    traced = trace(body, **options)
    follows_eager(body, traced, [(floats(*shape, seed=i),) for i, shape in enumerate(shapes)])


@pytest.mark.slow
@pytest.mark.parametrize("options", WAYS[:2], ids=str)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@settings(max_examples=20, deadline=None)
@given(shapes=SHAPES)
def test_bodies_using_lengths_are_never_stale_in_many_orders(
    body: Callable[[Tensor], Any], options: dict[str, Any], shapes: list[tuple[int, int]]
) -> None:
    traced = trace(body, **options)
    follows_eager(body, traced, [(floats(*shape, seed=i),) for i, shape in enumerate(shapes * 2)])


@pytest.mark.parametrize("options", WAYS[:2], ids=str)
@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.tuples(*[st.sampled_from([1, 2, 3, 4])] * 3), min_size=3, max_size=8))
def test_broadcast_lengths_may_become_equal_or_differ(
    options: dict[str, Any], lengths: list[tuple[int, int, int]]
) -> None:
    def body(x: Tensor, y: Tensor) -> Tensor:
        return (x + y).sum(axis=1) * y.mean()

    traced = trace(body, **options)
    calls = [
        (floats(n, m, seed=i), floats(1 if k == 4 else n, m, seed=k)) for i, (n, m, k) in enumerate(lengths)
    ]
    follows_eager(body, traced, calls)


# training


def network() -> tuple[M.Module, Callable[[Tensor, Tensor], Tensor]]:
    mgb.random.seed(3)
    net = M.Sequential(M.Linear(6, 5), M.LayerNorm(5), M.ReLU(), M.Linear(5, 4))
    adam, manager = optimizer.Adam(net.parameters(), lr=1e-2), GradManager().attach(net.parameters())

    def step(x: Tensor, y: Tensor) -> Tensor:
        with manager:
            loss = F.nn.cross_entropy(net(x), y)
            manager.backward(loss)
        adam.step().clear_grad()
        return loss

    return net, step


def batches(sizes: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    for seed, size in enumerate(sizes):
        labels = np.random.default_rng(seed).integers(0, 4, size).astype(np.int32)
        yield mgb.tensor(floats(size, 6, seed=seed)), mgb.tensor(labels)


@pytest.mark.parametrize("options", WAYS[:2], ids=str)
def test_training_with_any_batch_size_matches_eager(options: dict[str, Any]) -> None:
    sizes = [8, 8, 12, 3, 64, 1, 6, 5, 4, 2, 100, 8, 33, 1]
    (one, eager), (other, step) = network(), network()
    traced = trace(step, **options)
    for batch, same in zip(batches(sizes), batches(sizes), strict=True):
        np.testing.assert_allclose(traced(*same).numpy(), eager(*batch).numpy(), rtol=1e-4, atol=1e-5)
    for mine, its in zip(one.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(mine.numpy(), its.numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("options", WAYS[:2], ids=str)
def test_hundreds_of_batch_sizes_do_not_retrace(options: dict[str, Any]) -> None:
    _, step = network()
    traced = trace(step, **options)
    for batch in batches(range(40, 140)):
        traced(*batch)
    stats = traced.stats()
    (reason,) = stats["reasons"]
    assert stats["records"] == 2 and "has shape (41, 6), recorded were (40, 6)" in reason
    assert len(traced.variants()) <= 256


@pytest.mark.parametrize("backend", [None, "EAGER"])
@pytest.mark.parametrize("options", WAYS[:2], ids=str)
def test_new_batch_size_compiles_nothing(options: dict[str, Any], backend: str | None) -> None:
    _, step = network()
    traced = trace(step, backend=backend, **options)
    for batch in batches([16, 16, 17, 17]):
        traced(*batch)
    before, seconds = kernels.stats(), traced.stats()["compile_seconds"]
    for batch in batches([18, 19, 24, 31]):
        traced(*batch)
    assert kernels.stats() == before and traced.stats()["compile_seconds"] == seconds


@pytest.mark.parametrize("transform", [
    lambda x, y: mgb.grad(lambda x: (F.exp(x) * y).sum())(x),
    lambda x, y: mgb.value_and_grad(lambda x: (F.exp(x) * y).sum())(x)[1],
    lambda x, y: mgb.vjp(F.exp, x)[1](y)[0],
    lambda x, y: mgb.jvp(F.exp, (x,), (y,))[1],
    lambda x, y: mgb.vmap(lambda x, y: mgb.grad(lambda x: (F.exp(x) * y).sum())(x))(x, y),
])  # fmt: skip
def test_transforms_do_not_retrace_at_new_lengths(transform: Any) -> None:
    traced = trace(transform)
    for length in (3, 4, 9, 20):
        x, y = np.random.default_rng(length).standard_normal((2, length, 3)).astype(np.float32)
        np.testing.assert_allclose(traced(Tensor(x), Tensor(y)).numpy(), np.exp(x) * y, rtol=1e-5)
    assert traced.stats()["body_runs"] == 2


def test_traced_gradient_of_floor_is_zero_at_new_lengths() -> None:
    traced = trace(mgb.grad(lambda x: F.floor(x).sum()))
    assert [traced(Tensor(np.ones(n, np.float32))).tolist() for n in (2, 2, 3)] == [
        [0] * n for n in (2, 2, 3)
    ]


def test_retrace_reason_names_the_line_comparing_lengths() -> None:
    def decides(x: Tensor) -> Tensor:
        if x.shape[0] > 5:
            return x * 2
        return x + 1

    traced = trace(decides)
    for length in (3, 4, 9):
        traced(Tensor(np.ones(length, np.float32)))
    line = inspect.getsourcelines(decides)[1] + 1
    _, reason = traced.stats()["reasons"]
    assert "has shape (9,), recorded were (4,), (3,)" in reason
    assert reason.endswith(f"; lengths decide at {__file__}:{line}")


def test_negative_step_slices_do_not_retrace_at_new_lengths() -> None:
    def parts(x: Any) -> Any:
        return x[:, ::-1] * 2, x[-2::-2], x[5:1:-1], x[::-1][:3]

    traced = trace(parts)
    for length in (8, 9, 11, 40, 100):
        array = np.random.default_rng(length).standard_normal((length, 6)).astype(np.float32)
        for got, want in zip(traced(Tensor(array)), parts(array), strict=True):
            np.testing.assert_array_equal(got.numpy(), want)
    assert traced.stats()["body_runs"] == 2


def test_body_is_skipped_for_new_lengths() -> None:
    @trace(without_host=True)
    def double(x: Tensor) -> Tensor:
        return x[: x.shape[0] // 2] * 2.0

    for n in (8, 10, 13, 64):
        np.testing.assert_array_equal(double(mgb.tensor(floats(n, 3))).numpy(), floats(n, 3)[: n // 2] * 2)
    assert double.stats()["body_runs"] == 2


def test_length_used_as_an_operand_is_symbolic() -> None:
    @trace(without_host=True)
    def mean(x: Tensor) -> Tensor:
        return x.sum() / x.shape[0] * (x.size - x.shape[1])

    for n in (8, 10, 13, 64):
        wanted = floats(n, 3).sum(dtype=np.float64) / n * (3 * n - 3)
        np.testing.assert_allclose(mean(mgb.tensor(floats(n, 3))).numpy(), wanted, rtol=1e-5)
    assert mean.stats()["records"] == 2


def test_body_reading_values_does_not_retrace_at_new_lengths() -> None:
    @trace
    def positive(x: Tensor) -> Tensor:
        total = float(x.sum().numpy())
        return x[: x.shape[0] // (2 if total > 0 else 4)] * 2.0

    for n in (8, 10, 13, 64, 10):
        for sign in (1, -1):
            value = np.abs(floats(n, 3)) * np.float32(sign)
            wanted = value[: n // (2 if sign > 0 else 4)] * 2
            np.testing.assert_allclose(positive(mgb.tensor(value)).numpy(), wanted, rtol=1e-6)
    stats = positive.stats()
    assert stats["body_runs"] == 10 and stats["records"] <= 3


def test_programs_show_their_own_lengths() -> None:
    @trace(without_host=True)
    def shifted(x: Tensor) -> Tensor:
        return F.softmax(x + F.arange(x.shape[1]), axis=1)

    for n in (8, 10, 8, 10):  # calls that are recorded run op by op
        shifted(mgb.tensor(floats(n, n + 1)))
    small, large = shifted.programs()
    assert [s.shape for s in small.inputs + small.outputs] == [(8, 9)] * 2
    assert [s.shape for s in large.inputs + large.outputs] == [(10, 11)] * 2
    for program, shape in ((small, "8,9"), (large, "10,11")):
        assert f"float32[{shape}]" in str(program.recorded) and f"float32[{shape}]" in str(program.simplified)
        x = floats(*map(int, shape.split(",")))
        shifted_x = x + np.arange(x.shape[1], dtype=np.float32)
        wanted = np.exp(shifted_x) / np.exp(shifted_x).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(program.run(x)[0], wanted, rtol=1e-5)


def test_new_rank_or_dtype_retraces() -> None:
    @trace(without_host=True)
    def summed(x: Tensor) -> Tensor:
        return x.sum(axis=0)

    for value in (floats(4, 3), floats(5, 3), floats(5), floats(5, 3).astype(np.float64), floats(2, 2, 2)):
        np.testing.assert_allclose(
            summed(mgb.tensor(value, dtype=value.dtype)).numpy(), value.sum(axis=0), 1e-5
        )
    assert summed.stats()["records"] == 5


def test_argument_passed_twice_has_one_shape() -> None:
    @trace(without_host=True)
    def product(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum() + x.shape[0] - y.shape[0]

    for n in (3, 5, 4):
        x, y = mgb.tensor(floats(n, seed=1)), mgb.tensor(floats(n, seed=2))
        np.testing.assert_allclose(product(x, x).numpy(), (floats(n, seed=1) ** 2).sum(), rtol=1e-5)
        np.testing.assert_allclose(product(x, y).numpy(), floats(n, seed=1) @ floats(n, seed=2), rtol=1e-5)


def test_stored_length_is_a_plain_integer_elsewhere() -> None:
    kept = []

    @trace
    def first(x: Tensor) -> Tensor:
        kept.append(x.shape[0])
        return x * 2.0

    first(mgb.tensor(floats(3, 2)))
    (n,) = kept
    assert n == 3 and n + 1 == 4 and list(range(n)) == [0, 1, 2] and np.zeros(n).shape == (3,)
    assert F.ones((n, 2)).numpy().shape == (3, 2)
    follows_eager(lambda x: x.reshape(-1, n), trace(lambda x: x.reshape(-1, n)), [(floats(6),), (floats(9),)])


def test_shape_of_the_grad_of_an_argument_is_not_frozen() -> None:
    @trace(without_host=True)
    def scaled_by_rows(x: Tensor) -> Tensor:
        return x * 2.0 if x.grad is None else x * float(len(x.grad))

    for n in (3, 4, 5):
        x = mgb.tensor(floats(n, 2))
        x.grad = mgb.tensor(floats(n, 2))
        np.testing.assert_allclose(scaled_by_rows(x).numpy(), floats(n, 2) * n, rtol=1e-6)


def test_result_shape_has_plain_integers() -> None:
    @trace(without_host=True)
    def doubled(x: Tensor) -> Tensor:
        return x * 2.0

    for n in (3, 4):
        out = doubled(mgb.tensor(floats(n, 2)))
        assert [type(d) for d in out.shape] == [int, int] and out.shape == (n, 2)
