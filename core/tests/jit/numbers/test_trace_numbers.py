"""Python numbers that change from call to call become inputs: every call gives what eager code gives."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import mgb.functional as F
import mgb.module as M
import mgb.numpy as xp
import numpy as np
import pytest
from following import SKIPPING, X, same, skipping
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mgb import Parameter, tensor
from mgb.jit import partial_trace, trace

quickly = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))

WARM_UP = [0.1 * min(1.0, (step + 1) / 8) for step in range(12)]


def check(traced: Any, *calls: tuple[Any, ...], records: int) -> None:
    """Each call gives what the plain function gives, with so many records."""
    for call in calls:
        assert same(traced(*call), traced.__wrapped__(*call)), call
    assert traced.stats()["records"] == records, traced.stats()["reasons"]


# arguments


def annealed(x, t):
    return x * (0.5 * (1 + math.cos(math.pi * t / 12))), round(t * 0.37, 2), int(t / 3), float(t), abs(-t)


#: Functions, the numbers that they are called with one after the other, and how many records these cost.
CHANGING: dict[str, tuple[Callable[..., Any], Iterable[Any], int]] = {
    "argument": (lambda x, rate: x - rate * F.tanh(x), WARM_UP, 2),
    "step counter": (
        lambda x, t: x / (1 - 0.9**t) + F.sqrt(F.abs(x)) / (1 - 0.999**t), range(1, 12), 2),
    "temperature": (lambda x, t: F.softmax(x / t, axis=-1), [1 / n for n in range(1, 9)], 2),
    "Python's functions": (annealed, range(12), 2),
    "one after the other": (
        lambda x, a, b: (x * a + b, a * b),
        [(1.0, 2), (1.5, 2), (2.5, 2), (2.5, 3), (3.5, 4), (4.5, 5)], 3),
    "zero, infinity and NaN": (
        lambda x, n: (x * n, n * 0.5), [1.0, -0.0, 0.0, math.inf, -math.inf, math.nan, 1e300], 2),
    "comparison": (
        lambda x, t: x * t if t < 5 else (x - t if t != 8 else x), [1, 2, 3, 6, 7, 8, 9, 4, 10, 8, 2], 4),
    "truth": (lambda x, n: x * n if n else x, [1, 2, 0, 3, 0, 4], 3),
}  # fmt: skip


@skipping
@pytest.mark.parametrize("name", CHANGING)
def test_changing_number_becomes_an_input(name: str, wrap: Any) -> None:
    function, numbers, records = CHANGING[name]
    calls = [(tensor(X), *(n if isinstance(n, tuple) else (n,))) for n in numbers]
    check(wrap(function), *calls, records=records)


@skipping
def test_changing_keyword_number_becomes_an_input(wrap: Any) -> None:
    @wrap
    def scaled(x, *, rate, power=2):
        return x**power * rate

    for rate in WARM_UP:
        assert same(scaled(tensor(X), rate=rate), scaled.__wrapped__(tensor(X), rate=rate))
    assert scaled.stats()["records"] == 2


@skipping
@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "float64", "int32", "int8", "uint8", "bool"]
)
def test_number_inputs_promote_as_in_eager_code(wrap: Any, dtype: str) -> None:
    x = tensor(np.array([1, 0, 1]), dtype=dtype)
    check(wrap(lambda x, n: (x + n, n - x, x * (n + 1))), *((x, n) for n in (2, 3, 5, 7)), records=2)
    check(wrap(lambda x, n: (x + n, n / 3 * x)), *((x, n) for n in (0.1, 0.2, -0.0, 0.7)), records=2)


@skipping
def test_integer_out_of_range_raises_as_in_eager_code(wrap: Any) -> None:
    traced, x = wrap(lambda x, n: x + n), tensor(np.array([1, 2], np.int8))
    for n in (1, 2, 3, 1000, 4, -129, 5):
        try:
            expected = traced.__wrapped__(x, n)
        except Exception as error:
            with pytest.raises(type(error)):
                traced(x, n)
        else:
            assert same(traced(x, n), expected)


@skipping
def test_numbers_of_different_types_are_distinguished(wrap: Any) -> None:
    traced = wrap(lambda x, n: (x * n, n))
    numbers = (1, 2, 3.0, 4.0, True, False, np.float32(2), np.float32(3), 5, 6.0)
    for n in numbers:
        assert same(traced(tensor(X), n), traced.__wrapped__(tensor(X), n))


OF_NUMPY: dict[str, Callable[[Any, Any], Any]] = {
    "arithmetic": lambda x, n: (x * n, n * 2, n > 1, 1 / n, -n % 3, abs(n), round(float(n), 1)),
    "ufuncs": lambda x, n: (x * np.exp(-n), np.sqrt(n), np.float32(2) * n, np.maximum(n, 1.0)),
    "tensors": lambda x, n: (x * tensor(n), F.where(x > 0, x, n), F.maximum(n, x)),
    "decides": lambda x, n: x * 2.0 if n > 0.7 else x * n,
}


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, np.int64, np.int32])
@pytest.mark.parametrize("name", OF_NUMPY)
def test_numpy_scalars_become_inputs(name: str, kind: Any) -> None:
    check(trace(OF_NUMPY[name]), *((tensor(X), kind(0.5 * n)) for n in (2, 3, 5, 6, 8, 9)), records=2)


MASK = X > 0

#: Functions of mgb and NumPy that are given a number beside Tensors, or alone.
GIVEN: dict[str, Callable[[Any, Any], Any]] = {
    "full": lambda x, n: F.full((3,), n) + x[0],
    "full of a dtype": lambda x, n: F.full((3,), n, dtype="float64"),
    "full_like": F.full_like,
    "masked_fill": lambda x, n: F.masked_fill(x, tensor(MASK), n),
    "pad": lambda x, n: F.pad(x, ((1, 0), (0, 2)), constant_value=n),
    "linspace": lambda x, n: F.linspace(n, 20.0, 5),
    "smooth_l1_loss": lambda x, n: F.loss.l1_loss(x, F.full_like(x, n)),
    "label_smooth": lambda x, n: F.loss.cross_entropy(x, tensor([0] * len(X)), label_smooth=n / 20),
    "np.clip": lambda x, n: np.clip(x, -n, n),
    "np.where": lambda x, n: np.where(x > 0, x, n),
    "np.full_like": np.full_like,
    "np.nan_to_num": lambda x, n: np.nan_to_num(F.sqrt(x), nan=n),
    "array API": lambda x, n: (xp.full((2,), n), xp.asarray(n) * x, xp.clip(x, None, n)),
    "NumPy's types": lambda x, n: (np.float32(n) * x, x - np.float64(n), x * np.int64(n), np.int16(n)),
}


@skipping
@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("name", GIVEN)
def test_number_given_to_a_function_becomes_an_input(name: str, kind: Any, wrap: Any) -> None:
    check(wrap(GIVEN[name]), *((tensor(X), kind(n)) for n in (2, 3, 5, 6, 8, 9)), records=2)


def test_number_that_is_rounded_to_an_integer_is_guarded() -> None:
    check(
        trace(lambda x, n: F.full((3,), n, dtype="int32") * x[0]),
        *((tensor(X), n) for n in (2.25, 2.75, 3.5, 2.25)),
        records=3,
    )


def test_shape_of_a_changing_number_is_as_in_eager_code() -> None:
    traced = trace(lambda x, n: F.full((n,), 2.0) + x[0, 0])
    for n in range(1, 40):
        assert same(traced(tensor(X), n), traced.__wrapped__(tensor(X), n))


# what Python decides by a number


FIXING: dict[str, Callable[[Any, Any], Any]] = {
    "range": lambda x, n: sum((x * i for i in range(n)), x),
    "index": lambda x, n: x[n % 2],
    "slice": lambda x, n: x[:, :n],
    "list": lambda x, n: x * [1.0, 2.0, 3.0, 4.0][n],
    "key": lambda x, n: x * {1: 3.0, 2: 5.0, 3: 7.0}[n],
    "text": lambda x, n: (x, f"{n} {n:>4} {n!r}"),
    "percent": lambda x, n: (x, "%d %s" % (n, n)),  # noqa: UP031
    "shape": lambda x, n: F.broadcast_to(x, (n, 2, 3)),
    "reshape": lambda x, n: x.reshape(n, -1) if n != 4 else x,
    "zeros": lambda x, n: F.zeros(n) + 1,
    "axis": lambda x, n: x.sum(axis=n % 2),
    "array": lambda x, n: x * np.full(3, n, np.float32),
    "numpy": lambda x, n: x + float(np.sqrt(np.float64(2) * n)),
    "list of them": lambda x, n: x + tensor([n, 2.0, n * 2]),
    "tensor": lambda x, n: x + tensor(n),
    "data": lambda x, n: (x, {"n": n, n: "n"}, [n, (n,)]),
    "sorted": lambda x, n: (x, sorted([3, n, 2]), max(n, 2), sum([n, 1])),
    "class": lambda x, n: (x, type(n) is int, isinstance(n, int), n.__class__, type(n)),
    "bits": lambda x, n: (x, n << 1, n & 2, ~n, n.bit_length(), n.real),
    "power": lambda x, n: (x.astype("int32") ** n, x**n),
    "match": lambda x, n: pattern(n) * x,
    "module": lambda x, n: F.leaky_relu(x, n * 0.1) + F.one_hot(tensor([0, 1]), n)[:, :1],
    "clip": lambda x, n: F.clip(x, -n, n) + F.maximum(x, n) + F.where(x > 0, x, n),
    "decimal": lambda x, n: (x, divmod(n * 7, 3), pow(n, 2, 5), n // 2 * 1.5, 7 % n),
}


def pattern(n: Any) -> int:
    match n:
        case 1:
            return 10
        case int():
            return 20
    return 30


@pytest.mark.parametrize("wrap", [trace, partial_trace], ids=["default", "partial"])
@pytest.mark.parametrize("name", FIXING)
def test_python_uses_of_a_number_match_eager(name: str, wrap: Any) -> None:
    traced = wrap(FIXING[name])
    for n in (1, 2, 3, 2, 1, 3, 2):
        assert same(traced(tensor(X), n), traced.__wrapped__(tensor(X), n))
    assert traced.stats()["records"] <= 4


@skipping
def test_errors_for_a_number_are_raised_as_in_eager_code(wrap: Any) -> None:
    traced = wrap(lambda x, n: x * (1 / (n - 2)) + 2.0**n)
    for n in (0, 1, 3, 2, 5, 2000, 4):
        try:
            expected = traced.__wrapped__(tensor(X), n)
        except ArithmeticError as error:
            with pytest.raises(type(error)):
                traced(tensor(X), n)
        else:
            assert same(traced(tensor(X), n), expected)


# numbers outside

rate = 1.0


class Scaled(M.Module):
    """A Module of the user with a number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(np.float32(2.0))
        self.scale = 1.0

    def forward(self, x):
        return x * self.weight * self.scale


@pytest.mark.parametrize("wrap", [SKIPPING["default"], SKIPPING["skips"], SKIPPING["partial"]])
def test_numbers_in_variables_attributes_and_items_become_inputs(wrap: Any) -> None:
    global rate
    config, table, local, module = SimpleNamespace(power=1), {"bias": 1.0, "list": [0.0]}, 1.0, Scaled()
    asked = "power"

    @wrap
    def everything(x):
        return (
            module(x) * rate
            + config.power * table["bias"]
            + local
            + getattr(config, asked)
            + table["list"][0]
        )

    for step in range(12):
        rate, local, config.power, module.scale = 0.1 * step, 0.5 * step, step, 1 + 0.3 * step
        table["bias"], table["list"][0] = step / 7, step / 3
        assert same(everything(tensor(X)), everything.__wrapped__(tensor(X)))
    assert everything.stats()["records"] <= 3, everything.stats()["reasons"]


def test_number_attribute_of_an_instance_matches_eager() -> None:
    class Sampler:
        temperature = 1.0

        @trace
        def draw(self, x):
            return F.softmax(x / self.temperature, axis=-1)

    one, other = Sampler(), Sampler()
    for step in range(1, 9):
        one.temperature, other.temperature = step / 2, 3.0
        for sampler in (one, other):
            expected = F.softmax(tensor(X) / sampler.temperature, axis=-1)
            assert same(sampler.draw(tensor(X)), expected)


def test_number_also_read_by_the_library_is_guarded() -> None:
    class Half(M.Linear):
        def forward(self, x):
            return super().forward(x) * self.in_features

    net = Half(3, 3)
    traced = trace(lambda x: net(x))
    for n in (3, 4, 5, 6):
        net.in_features = n
        assert same(traced(tensor(X)), net(tensor(X)))


# nothing that is followed is left behind


def test_symbolic_numbers_do_not_leak_to_external_objects() -> None:
    kept, box, attributes = [], {}, SimpleNamespace()

    @trace
    def keeps(x, n):
        m = n * 2
        kept.append(m)
        kept.extend([(n, [m])])
        box["n"] = box[n] = [n, {"m": m}]
        attributes.n, attributes.pair = n, (n, m)
        attributes.total = getattr(attributes, "total", 0)
        attributes.total += n
        return x * m, {"m": m, n: (n,)}

    for n in (1.0, 2.0, 3.0, 4.0):
        result = keeps(tensor(X), n)
        leaves = [*kept, *box.values(), *box, *vars(attributes).values(), result[1]]
        assert "Scalar" not in str([type(leaf) for leaf in flat(leaves)])
        assert result[1] == {"m": 2 * n, n: (n,)} and attributes.n == n
        assert same(result[0], tensor(X) * (2 * n))
    assert attributes.total == 10.0


def flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [part for pair in value.items() for part in flat(pair)]
    if isinstance(value, list | tuple):
        return [part for item in value for part in flat(item)]
    return [value]


# a law


VALUES = st.one_of(
    st.integers(-5, 5), st.floats(-4, 4, width=32), st.sampled_from([0.0, -0.0, math.inf, math.nan, 10**6])
)
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
COMPARE = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt]
LEAVES = st.sampled_from(["a", "b", "x"]) | st.sampled_from([2, 0.5, -1, 3.0])
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(st.sampled_from(BINARY), inner, inner)
        | st.tuples(st.sampled_from(COMPARE), inner, inner, inner, inner)
        | st.tuples(st.sampled_from([operator.neg, operator.abs]), inner)
    ),
    max_leaves=7,
)


def value_of(tree: Any, names: dict[str, Any]) -> Any:
    if not isinstance(tree, tuple):
        return names.get(tree, tree)
    function, *parts = tree
    if function in COMPARE:
        one, other, *branches = parts
        decision = function(value_of(one, {**names, "x": 1.5}), value_of(other, {**names, "x": 1.5}))
        return value_of(branches[not decision], names)
    return function(*(value_of(part, names) for part in parts))


@pytest.mark.parametrize("wrap", [trace, lambda f: trace(f, run_body=False)], ids=["default", "skips"])
@given(tree=TREES, calls=st.lists(st.tuples(VALUES, VALUES), min_size=4, max_size=7))
@quickly
def test_random_expressions_of_numbers_and_tensors_match_eager(wrap: Any, tree: Any, calls: Any) -> None:
    traced = wrap(lambda x, a, b: (value_of(tree, {"x": x, "a": a, "b": b}), x))
    with np.errstate(all="ignore"):
        for a, b in calls:
            x = tensor(X)
            try:
                expected = traced.__wrapped__(x, a, b)
            except Exception as error:
                with pytest.raises(type(error)):
                    traced(x, a, b)
            else:
                assert same(traced(x, a, b), expected)
