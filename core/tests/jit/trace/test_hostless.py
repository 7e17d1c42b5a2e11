"""What calls that skip the body know their arguments by, and what `trace(without_host=True)` refuses."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import floats
from mgb import Parameter, Tensor, from_dlpack, random, tensor
from mgb.errors import ImpureBodyError, TraceMismatchError
from mgb.jit import trace


def test_refused_read_of_a_value_is_told_with_its_line() -> None:
    with pytest.raises(ImpureBodyError, match=r"reads the value .*test_hostless\.py"):
        trace(lambda x: x * (x + 1).item(), without_host=True)(tensor(1.0))


@pytest.mark.parametrize("make", [tensor, from_dlpack])
def test_tensor_made_from_an_external_array_has_its_current_data(make) -> None:
    data = np.ones(2, np.float32)

    @trace
    def made_inside(x):
        return x + make(data)

    for call in range(4):
        np.testing.assert_array_equal(made_inside(tensor([1.0, 2.0])).numpy(), [2 + call, 3 + call])
        data += 1


def test_array_created_in_the_body_is_a_constant() -> None:
    lower = trace(lambda x: x * np.tril(np.ones((3, 3), np.float32)), without_host=True)
    doubled = trace(lambda x, m: x * (m * 2), without_host=True)
    x = floats(3)
    for _ in range(3):
        np.testing.assert_array_equal(lower(tensor(x)).numpy(), x * np.tril(np.ones((3, 3), np.float32)))
        np.testing.assert_array_equal(doubled(tensor(x), np.ones(3, np.float32)).numpy(), x * 2)
    assert lower.stats()["records"] == doubled.stats()["records"] == 1


@pytest.mark.parametrize("capture_as_const", [False, True])
def test_tensor_created_in_the_body_is_a_constant(capture_as_const: bool) -> None:
    @trace(without_host=True, capture_as_const=capture_as_const)
    def constant(x):
        return x + tensor(np.ones(2, np.float32)) + tensor([1, 2])

    for _ in range(3):
        np.testing.assert_array_equal(constant(tensor([1.0, 2.0])).numpy(), [3, 5])
    assert constant.stats()["body_runs"] == 1


def test_result_of_the_tensor_constructor_is_new_at_every_call() -> None:
    @trace(without_host=True)
    def doubled(x):
        return Tensor(x * 2)

    results = [doubled(tensor(float(call))) for call in range(3)]
    assert [r.item() for r in results] == [0, 2, 4]


def test_body_reading_values_can_use_them_in_python() -> None:
    @trace
    def function(x):
        scale = tensor(2.0 * x.item())
        return x * scale, scale.item()

    for call in range(3):
        result, scale = function(tensor(float(call)))
        assert (result.item(), scale) == (2.0 * call * call, 2.0 * call)


def test_value_read_from_an_argument_is_never_frozen() -> None:
    def scaled(x, factor):
        return x * factor.item()

    default, matched = trace(scaled), trace(scaled, run_body=True)
    for function in (default, matched):
        assert function(tensor(3.0), tensor(2.0)).item() == 6
        assert function(tensor(4.0), tensor(2.0)).item() == 8
    assert default(tensor(3.0), tensor(5.0)).item() == 15
    with pytest.raises(TraceMismatchError, match="tensors not equals"):
        matched(tensor(3.0), tensor(5.0))


def test_array_arguments_are_inputs_and_numpy_scalars_are_guarded() -> None:
    @trace(without_host=True)
    def function(x, offset, factor):
        return x * factor + offset

    offset = np.zeros(2, np.float32)
    for call in range(3):
        for factor in (2, 3, 2):
            result = function(tensor([1.0, 2.0]), offset, np.float32(factor))
            np.testing.assert_array_equal(result.numpy(), [factor + call, 2 * factor + call])
        offset += 1
    assert function.stats()["body_runs"] == 2


def test_without_host_detects_shape_change_of_a_captured_tensor() -> None:
    scale = tensor(floats(4))

    @trace(without_host=True)
    def function(x: Tensor) -> Tensor:
        return x * scale + 1.0

    x = tensor(floats(3, 4))
    for shape in ((4,), (4,), (3, 4), (3, 4), (4,)):
        for value in (floats(*shape), floats(*shape, seed=1)):
            scale._reset(tensor(value))
            np.testing.assert_allclose(function(x).numpy(), x.numpy() * value + 1, rtol=1e-6)
    assert function.stats()["records"] == 2


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
def test_constant_stored_externally_is_never_shared_between_calls(keep: str) -> None:
    last, seen = tensor([0.0]), []

    @trace
    def step(x):
        made = tensor(np.ones(1, np.float32))
        if keep == "grad":
            last.grad = made
        else:
            last._reset(made)
        return x * 2.0

    for _ in range(4):
        step(tensor([1.0]))
        left = last.grad if keep == "grad" else last
        assert left.item() == 1.0
        left += 1.0
        seen.append(left)
    assert len(set(map(id, seen))) == (4 if keep == "grad" else 1)


def test_without_host_can_create_the_random_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "_generators", {})
    drawn = trace(lambda x: random.uniform(size=(1000,)) + x, without_host=True)
    first, second = drawn(tensor(0.0)).numpy(), drawn(tensor(0.0)).numpy()
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.2
    assert 0.45 < first.mean() < 0.55


def test_without_host_detects_changed_argument_aliasing() -> None:
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
