"""`auto`: the same values as plain eager code, computed when they are wanted."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from auto_sessions import auto, noted, off
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import Tensor, from_dlpack, tensor
from mgb.errors import ConversionError
from mgb.jit.deferred.sequence_cache import SequenceCache
from mgb.tensor.apply import apply
from work import calls_of

# random programs


def run(program: list[tuple[Any, ...]], hot: Callable[[], Any]) -> list[Any]:
    """What `program` reads. Its Tensors stand in a list, some of them twice."""
    draw = np.random.default_rng(0)
    tensors = [tensor(draw.uniform(0.5, 2.0, (2, 3)).astype(np.float32)) for _ in range(3)]
    seen: list[Any] = []
    with hot():
        for kind, a, b in program:
            x, y = tensors[a % len(tensors)], tensors[b % len(tensors)]
            if kind == "read":
                seen.append(x.numpy().copy())
            elif kind == "delete":
                if len(tensors) > 2:
                    del tensors[a % len(tensors)]
            elif kind == "rebind":
                x *= 0.5
                x += y
            elif kind == "set":
                x[0] = y[1]
            elif kind == "alias":
                tensors.append(x.detach())
            elif kind == "twice":
                tensors.append(x)
            elif kind == "number":
                tensors.append(x * (a / 8) + 1)
            elif kind == "if":
                tensors.append(x if x.sum() > y.sum() else y + 1)
            elif kind == "mixed":
                tensors.append(x + y.astype("int32"))
            else:
                tensors.append(STEPS[kind](x, y))
    return seen + [t.numpy() for t in tensors]


STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, y: x + y,
    "max": lambda x, y: F.maximum(x, y) - x,
    "mean": lambda x, y: x.mean(axis=1, keepdims=True) + y,
    "flip": lambda x, y: x.T.reshape(2, 3) * 0.25,
    "matmul": lambda x, y: F.matmul(x, y.T)[:, :1] * 0.1 + y,
    "new": lambda x, y: tensor(np.ones((2, 3), np.float32)) - y * [1.0, 2.0, 3.0],
}
KINDS = [*STEPS, "read", "delete", "rebind", "set", "alias", "twice", "number", "if", "mixed"]
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=25
)


@settings(max_examples=60)
@given(PROGRAMS)
def test_cold_programs_are_bit_equal_to_eager(program: list[tuple[Any, ...]]) -> None:
    for got, want in zip(run(program, auto), run(program, lambda: off), strict=True):
        np.testing.assert_array_equal(got, want)


@settings(max_examples=40)
@given(PROGRAMS)
def test_hot_programs_are_equal_to_eager(program: list[tuple[Any, ...]]) -> None:
    hot = auto(after=0)
    want = run(program, lambda: off)
    for _ in range(3):
        for got, expected in zip(run(program, lambda: hot), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-5)


# when things are computed


def test_ops_are_deferred_until_a_value_is_read() -> None:
    calls: list[str] = []
    with auto():
        y = apply(noted(calls), tensor([1.0])) + 1
        assert calls == []
        assert y.item() == 2.0
        assert calls == ["noted"]


def test_unreachable_values_are_never_computed() -> None:
    calls: list[str] = []
    op = noted(calls)
    with auto():
        dead = apply(op, tensor([1.0]))
        del dead
        kept = tensor([1.0]) + 1
        assert kept.item() == 2.0
    assert calls == []


@pytest.mark.parametrize(
    "read",
    [
        lambda y: y.numpy().tolist() == [2.0],
        lambda y: y.item() == 2.0,
        lambda y: bool(y == 2.0),
        lambda y: "2." in repr(y),
        lambda y: f"{y[0]:.1f}" == "2.0",
        lambda y: float(y) == 2.0,
        lambda y: np.asarray(y).tolist() == [2.0],
    ],
    ids=["numpy", "item", "bool", "print", "format", "float", "asarray"],
)
def test_reading_computes_deferred_values(read: Callable[[Tensor], bool]) -> None:
    with auto():
        assert read(tensor([1.0]) + 1)


def test_exit_computes_live_values() -> None:
    with auto():
        y = tensor([1.0]) + 1
        assert y._session is not None
    assert y._session is None and y.numpy().tolist() == [2.0]


def test_auto_nested_reentered_and_as_a_decorator() -> None:
    outer, inner = auto(), auto()

    @outer
    def function(x: Tensor) -> Tensor:
        y = x + 1
        with inner:
            z = y * 2
            with outer:
                z = z + y
        return z - y

    assert [function(tensor([float(n)])).item() for n in range(3)] == [2.0, 4.0, 6.0]


def test_sequence_is_compiled_after_the_given_number_of_runs() -> None:
    hot = auto(after=2)
    with hot:
        for n in range(6):
            assert (tensor([1.0, float(n)]) * 2 + 1).sum().item() == 4.0 + 2 * n
    assert hot.stats() == {"sequences": 6, "compiled": 4, "programs": 1}


def test_changing_number_becomes_an_input() -> None:
    hot = auto(after=1)
    x = tensor([1.0, 2.0])
    with hot:
        for n in range(12):
            rate, bias = 0.5**n, n + 3
            got = ((x * rate + bias) * 2.0).numpy()
            np.testing.assert_allclose(got, (np.float32([1, 2]) * np.float32(rate) + bias) * 2, rtol=1e-6)
    assert hot.stats()["programs"] == 1


def test_sign_of_zero_is_distinguished() -> None:
    hot = auto(after=0)
    with hot:
        signs = [np.signbit((tensor([1.0]) * zero).numpy()[0]) for zero in (0.0, -0.0, 0.0, -0.0, 0.0)]
    assert signs == [False, True, False, True, False]


def test_changing_op_parameters_do_not_recompile() -> None:
    hot = auto(after=1)
    x = tensor(np.arange(400, dtype=np.float32))
    with hot:
        for n in range(100):
            part = x[n : n + 8]
            assert (part * 2 + 1).sum().item() == sum(2 * (n + k) + 1 for k in range(8))
    assert hot.stats()["programs"] <= 6


def test_changing_shapes_use_bounded_caches() -> None:
    hot = auto(after=1)
    with hot:
        for n in [*range(1, 40), *range(1, 40)]:
            assert (tensor(np.ones(n, np.float32)) * 2 + 1).sum().item() == 3.0 * n
    assert hot.stats()["programs"] <= 4 and len(hot._session.stream()._cache) <= 256


def test_loop_without_reads_is_split_where_it_repeats() -> None:
    hot = auto(after=2)
    x = state = tensor(np.float32([0.5, 0.25]))
    with hot:
        for _ in range(2000):
            state = F.sin(state * 0.5 + x) - x
            state = F.maximum(state, -1.0)
        got = state.numpy()
    want = np.float64([0.5, 0.25])
    for _ in range(2000):
        want = np.maximum(np.sin(want * 0.5 + [0.5, 0.25]) - [0.5, 0.25], -1.0)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    counts = hot.stats()
    assert counts["programs"] <= 3 and counts["compiled"] > 0.9 * counts["sequences"] > 100


@pytest.mark.parametrize("do", [lambda x, n: x < n, lambda x, n: n * x])
def test_numbers_that_vary_may_be_too_large_for_an_input(do: Callable[[Tensor, int], Tensor]) -> None:
    integers, floats = tensor(np.arange(4, dtype=np.int32)), tensor(np.arange(4, dtype=np.float32))

    def done(x: Tensor, number: int) -> Any:
        try:
            return do(x, number).tolist()
        except ConversionError as error:
            return str(error)

    cases = [(integers, n) for n in (1, 2, 3, 2**40, 5)] + [(floats, -(2**40)), (integers, 7)]
    expected = [done(*case) for case in cases]
    with auto():
        assert [done(*case) for case in cases] == expected


@pytest.mark.parametrize("numbers", [(1.0, 2.0, 3.0), (2.0,)], ids=["varying", "constant"])
def test_numbers_of_another_class_but_the_same_value_cost_no_more(numbers: tuple[float, ...]) -> None:
    x = tensor(np.ones(4, np.float32))
    with auto():
        for number in numbers * 20:
            (x * number).numpy()
        before = calls_of(lambda: (x * 2.0).numpy())
        (x * 2).numpy()
        assert calls_of(lambda: (x * 2).numpy()) == before


def test_memory_of_pending_inputs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgb.jit.deferred.stream.Stream.most_bytes", 1 << 16)
    freed: list[int] = []
    with auto():
        for n in range(64):
            x = tensor(np.ones(1 << 10, np.float32))
            weakref.finalize(x._data.base if x._data.base is not None else x._data, freed.append, n)
            y = x * 2
        assert len(freed) > 32 and y.numpy()[0] == 2.0


def test_interrupt_before_computation_leaves_the_old_values(monkeypatch: Any) -> None:
    parameter = tensor([1.0, 2.0])

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with auto():
        parameter += 1.0
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(SequenceCache, "touch", interrupt)
            parameter.numpy()
        np.testing.assert_array_equal(parameter.numpy(), [1.0, 2.0])
        parameter += 1.0
        np.testing.assert_array_equal(parameter.numpy(), [2.0, 3.0])


@pytest.mark.parametrize("after", [0, 2])
def test_shared_memory_is_read_when_the_op_is_called(after: int) -> None:
    with auto(after):
        for call in range(6):
            source = np.ones(3, np.float32)
            shared = from_dlpack(source)
            rows = from_dlpack(np.ones((3, 2), np.float32)).T
            doubled, both, again = shared * 2.0, shared + rows[0], shared * 3.0
            source[:] = 9.0
            later = shared * 2.0
            assert doubled.tolist() == both.tolist() == [2.0] * 3 and again.tolist() == [3.0] * 3, call
            assert later.tolist() == [18.0] * 3 and shared.tolist() == [9.0] * 3, call
