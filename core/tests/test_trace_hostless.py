"""What `trace(without_host=True)` skips, keys on and refuses."""

from __future__ import annotations

import numpy as np
import pytest
from mgb import Parameter, Tensor, from_dlpack, random, tensor
from mgb.errors import (
    TraceError,
    TraceMismatchError,
    TraceOutputError,
    UnknownInputError,
)
from mgb.jit import exclude_from_trace, trace


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_without_host_skips_the_body_unless_it_reads() -> None:
    calls = []

    @trace(without_host=True)
    def plain(x):
        calls.append("plain")
        return x + 1

    @trace(without_host=True)
    def reads(x):
        calls.append("reads")
        positive = (x + 1).item() > 0
        return x * 2.0 if positive else (x + x) * 1.0

    for value in (1.0, 2.0, 3.0):
        assert plain(tensor(value)).item() == value + 1
        assert reads(tensor(value)).item() == value * 2
    assert calls.count("plain") == 1
    assert calls.count("reads") == 3


def test_without_host_keys_on_python_values_and_on_shared_arguments() -> None:
    @trace(without_host=True)
    def function(x, y, factor):
        return x + y * factor

    x, y = tensor([1.0]), tensor([10.0])
    assert function(x, x, 2).item() == 3
    assert function(x, y, 2).item() == 21
    assert function(x, y, 3).item() == 31
    assert function(x, x, 2).item() == 3


@pytest.mark.parametrize("make", [tensor, from_dlpack])
def test_without_host_refuses_what_only_the_body_could_supply(make) -> None:
    data = np.ones(2, np.float32)

    @trace(without_host=True)
    def made_inside(x):
        return x + make(data)

    with pytest.raises(UnknownInputError, match="made of data inside the function"):
        made_inside(tensor([1.0, 2.0]))


def test_an_array_that_the_body_makes_is_a_constant() -> None:
    lower = trace(lambda x: x * np.tril(np.ones((3, 3), np.float32)), without_host=True)
    doubled = trace(lambda x, m: x * (m * 2), without_host=True)
    x = floats(3)
    for _ in range(3):
        np.testing.assert_array_equal(lower(tensor(x)).numpy(), x * np.tril(np.ones((3, 3), np.float32)))
        np.testing.assert_array_equal(doubled(tensor(x), np.ones(3, np.float32)).numpy(), x * 2)
    assert lower.stats()["records"] == doubled.stats()["records"] == 1


def test_without_host_refuses_what_only_the_body_could_read() -> None:

    @trace(without_host=True)
    def number(x):
        return float(3)

    with pytest.raises(TraceOutputError, match="return value of traced function must be tensor"):
        number(tensor(1.0))

    @trace(without_host=True)
    def excluded(x):
        with exclude_from_trace():
            return x + 1

    with pytest.raises(TraceError, match="exclude_from_trace"):
        excluded(tensor(1.0))

    @trace(without_host=True, capture_as_const=True)
    def constant(x):
        return x + tensor(np.ones(2, np.float32))

    for _ in range(2):
        np.testing.assert_array_equal(constant(tensor([1.0, 2.0])).numpy(), [2, 3])


def test_a_result_made_by_the_constructor_is_the_callers() -> None:
    @trace(without_host=True)
    def doubled(x):
        return Tensor(x * 2)

    results = [doubled(tensor(float(call))) for call in range(3)]
    assert [r.item() for r in results] == [0, 2, 4]


def test_a_body_that_reads_may_do_what_only_python_can() -> None:
    @trace(without_host=True)
    def function(x):
        scale = tensor(2.0 * x.item())
        return x * scale, scale.item()

    for call in range(3):
        result, scale = function(tensor(float(call)))
        assert (result.item(), scale) == (2.0 * call * call, 2.0 * call)


def test_a_value_of_an_argument_that_python_looks_at_is_never_frozen() -> None:
    @trace(without_host=True)
    def scaled(x, factor):
        return x * factor.item()

    assert scaled(tensor(3.0), tensor(2.0)).item() == 6
    assert scaled(tensor(4.0), tensor(2.0)).item() == 8
    with pytest.raises(TraceMismatchError, match="tensors not equals"):
        scaled(tensor(3.0), tensor(5.0))


def test_without_host_keys_on_the_values_of_arrays_and_numpy_scalars() -> None:
    calls = []

    @trace(without_host=True)
    def function(x, offset, factor):
        calls.append(factor)
        return x * factor + offset

    offset = np.zeros(2, np.float32)
    for call in range(3):
        result = function(tensor([1.0, 2.0]), offset, np.float32(2))
        np.testing.assert_array_equal(result.numpy(), [2 + call, 4 + call])
        result = function(tensor([1.0, 2.0]), offset, np.float32(2))
        np.testing.assert_array_equal(result.numpy(), [2 + call, 4 + call])
        offset += 1
    assert len(calls) == 3


def test_without_host_sees_a_tensor_that_was_given_another_shape() -> None:
    scale, count = tensor(floats(4)), []

    @trace(without_host=True)
    def function(x: Tensor) -> Tensor:
        count.append(1)
        return x * scale + 1.0

    x = tensor(floats(3, 4))
    for shape in ((4,), (4,), (3, 4), (3, 4), (4,)):
        for value in (floats(*shape), floats(*shape, seed=1)):
            scale._reset(tensor(value))
            np.testing.assert_allclose(function(x).numpy(), x.numpy() * value + 1, rtol=1e-6)
    assert len(count) == 2


def test_without_host_updates_in_place() -> None:
    weights = [tensor(floats(n)) for n in (20_000, 20_001, 30_000)]

    @trace(without_host=True)
    def function() -> None:
        for weight in weights:
            weight.__imul__(0.5)

    function()
    function()
    places = [w._data.ctypes.data for w in weights]
    wanted = [w.numpy() * 0.5 for w in weights]
    function()
    assert [w._data.ctypes.data for w in weights] == places
    for weight, value in zip(weights, wanted, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


@pytest.mark.parametrize("keep", ["_reset", "grad"])
def test_without_host_refuses_to_keep_what_only_the_body_could_make(keep: str) -> None:
    last = tensor([0.0])

    @trace(without_host=True)
    def step(x):
        made = tensor(np.ones(1, np.float32))
        if keep == "grad":
            last.grad = made
        else:
            last._reset(made)
        return x * 2.0

    with pytest.raises(UnknownInputError, match="have some unknown input tensors in trace result"):
        step(tensor([1.0]))


def test_without_host_may_be_the_first_to_draw_a_random_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "_generators", {})
    drawn = trace(lambda x: random.uniform(size=(1000,)) + x, without_host=True)
    first, second = drawn(tensor(0.0)).numpy(), drawn(tensor(0.0)).numpy()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2
    assert 0.45 < first.mean() < 0.55


def test_without_host_sees_that_arguments_are_no_longer_shared() -> None:
    x, y = (Tensor(np.full(2, value, np.float32)) for value in (1, 10))
    for count in (0, 20):  # few, and as many as are guarded together
        f = trace(lambda a, b, *more: a * 2 + b + sum(more), without_host=True)
        more = [Tensor(np.zeros(2, np.float32)) for _ in range(count)]
        for first, second, expected in [(x, x, 3), (x, x, 3), (x, y, 12), (y, y, 30), (y, x, 21), (x, x, 3)]:
            assert f(first, second, *more).numpy().tolist() == [expected, expected]


def test_without_host_guards_many_arguments() -> None:
    f = trace(lambda *xs: sum(xs[1:], xs[0]) * 2, without_host=True)
    arrays = [np.full((2, 3), n, np.float32) for n in range(40)]
    for change in (
        lambda xs: xs,
        lambda xs: xs,
        lambda xs: [*xs[:7], Tensor(np.ones((1, 3), np.float32)), *xs[8:]],
        lambda xs: [*xs[:7], Tensor(np.ones((2, 3)), dtype="float64"), *xs[8:]],
        lambda xs: [*xs[:7], xs[30], *xs[8:]],
        lambda xs: [*xs[:7], Parameter(arrays[30]), *xs[8:]],
        lambda xs: xs[1:],
        lambda xs: [*xs[:7], 3.5, *xs[8:]],
    ):
        xs = [Tensor(array) for array in arrays]
        for _ in range(2):
            given = change(xs)
            expected = sum(np.asarray(x, dtype=np.float64) for x in given) * 2
            np.testing.assert_allclose(f(*given).numpy(), expected)
            xs[3] = Tensor(arrays[3])  # among the same ones a new one
            xs[4] += 1
