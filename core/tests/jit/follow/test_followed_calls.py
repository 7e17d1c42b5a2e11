"""Numbers and lengths are followed through calls, and what looks at their values fixes them."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.ir.scalars import SCALARS, Scalar, Size, Whole, plain
from mgb.ir.sizes import Sizes, settled
from mgb.jit.follow.calls import Calls
from mgb.jit.guard import Guards
from mgb.jit.numbers import Numbers
from mgb.jit.source import Argument
from mgb.jit.symbolic_array import SymbolicArray

SMALL, LARGE = 7, 2.5


def followed(value: Any) -> tuple[Any, Guards]:
    """What stands for a number, and where it is noted what has to stay."""
    guards = Guards()
    return Numbers(guards).at(Argument(0), value), guards


def copied(body: Any, measured: Callable[[Any], Any] = lambda value: value) -> Any:
    """A copy, and the hooks that it needs."""
    calls = Calls(lambda function, frame: None, measured)
    copy = calls.copy_of(body)
    assert copy is not body
    return lambda *args: (copy(*args), calls)[0]


def fixes(guards: Guards) -> list[str]:
    """What has to be the same number again."""
    return [str(guard) for guard in guards if guard.test == "same" and type(guard.value) in (int, float)]


def call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


COMPUTED: dict[str, Callable[[Any], Any]] = {
    "int": lambda n: int(n * 0.5),
    "float": lambda n: float(n),
    "sqrt": lambda n: math.sqrt(n),
    "atan2": lambda n: math.atan2(n, 2),
    "ufunc": lambda n: np.sqrt(n),
    "two numbers": lambda n: np.maximum(n, 1.0),
    "round": lambda n: round(n * 0.37, 2),
    "abs": lambda n: abs(-n),
    "max": lambda n: max(n, 1) + min(n, 100.0),
    "sum": lambda n: sum([n, n, 1]),
    "floor": lambda n: math.floor(n / 2),
    "pow": lambda n: pow(n, 2),
    "divmod": lambda n: divmod(n, 2)[1],
    "operator": lambda n: operator.add(n, 1),
    "prod": lambda n: math.prod((n, 2, n)),
    "reduce": lambda n: functools.reduce(lambda a, b: a * b, [n, n, 2]),
    "partial": lambda n: functools.partial(math.atan2)(n, 2) + functools.partial(helper, base=2)(n)[0],
    "map": lambda n: sum(map(root, [n, 4])) + math.sqrt(sum(map(abs, [n]))),
    "zip": lambda n: next(math.sqrt(a) + b for a, b in zip([n], [1], strict=True)),
    "function": lambda n: call(lambda m: math.sqrt(m), n),
    "helper": lambda n: helper(n, base=2)[0],
    "instance": lambda n: Kept(n).root(),
    "inherited": lambda n: Derived(n).root() + Derived(n)(1.0),
    "generator": lambda n: next(math.sqrt(m) for m in [n]),
    "dict": lambda n: dict(a=n).get("a"),  # noqa: C408
    "list": lambda n: _appended(n)[-1],
    "setattr": lambda n: _stored(n),
    "container outside": lambda n: math.sqrt(kept.setdefault("n", n)),
}
kept: dict[str, Any] = {}


def root(n: Any) -> Any:
    return n**0.5


def helper(n: Any, base: int) -> Any:
    def inner() -> Any:
        return math.log(n + 1, base)

    return inner(), {k: math.exp(-n) for k in range(1)}


def _appended(n: Any) -> list[Any]:
    xs: list[Any] = []
    xs.append(n)
    xs.extend([math.cos(n)])
    return xs


def _stored(n: Any) -> Any:
    held = Kept(1.0)
    setattr(held, "n", n)  # noqa: B010 - a call in C that keeps it
    return math.sin(getattr(held, "n"))  # noqa: B009


class Kept:
    def __init__(self, n: Any) -> None:
        self.n = float(n)

    def root(self) -> Any:
        return math.sqrt(self.n)


class Derived(Kept):
    def __init__(self, n: Any) -> None:
        super().__init__(n)
        self.n = math.fabs(self.n)

    def __call__(self, k: float) -> Any:
        return math.hypot(self.n, k)


@pytest.mark.parametrize("number", [SMALL, LARGE])
@pytest.mark.parametrize("name", COMPUTED)
def test_numbers_are_computed_through_calls(name: str, number: Any) -> None:
    kept.clear()
    body = COMPUTED[name]
    n, guards = followed(number)
    found = copied(body)(n)
    kept.clear()
    wanted = body(number)
    assert type(found) in SCALARS, name
    assert plain(found) == wanted and type(plain(found)) is type(wanted)
    assert not fixes(guards)


def test_without_hooks_a_function_in_c_fixes_a_number() -> None:
    n, guards = followed(SMALL)
    assert type(COMPUTED["sqrt"](n)) is float and fixes(guards)


def test_number_of_another_call_is_recomputed() -> None:
    found = copied(lambda n: math.sqrt(n) + int(n * 0.5))(followed(9)[0])
    assert found.path.read([16]) == math.sqrt(16) + 8


FIXED: dict[str, Callable[[Any], Any]] = {
    "range": lambda n: list(range(n)),
    "text": lambda n: (str(n), f"{n}", "".join(map(str, [n])), n.__repr__()),
    "key": lambda n: {n: len("a")}[n],
    "hash": lambda n: hash(n),
    "array": lambda n: np.full(3, n).tolist(),
    "bytes": lambda n: bytes([n, 1]) + bytes(m for m in [n]),
    "argument": lambda n: "abc".ljust(n),
    "attribute": lambda n: (hasattr(n, "value"), getattr(n, "path", 5), n.bit_length()),
    "keyword": lambda n: int("11", base=n),
    "library": lambda n: functools.cache(lambda m: m)(n),
    "identity": lambda n: (n is SMALL, SMALL is not n, n is n is SMALL),
}


@pytest.mark.parametrize("name", FIXED)
def test_looked_at_numbers_are_fixed(name: str) -> None:
    body = FIXED[name]
    n, guards = followed(SMALL)
    found = copied(body)(n)
    assert found == body(SMALL) and fixes(guards)
    assert not [part for part in (found if isinstance(found, list) else [found]) if type(part) in SCALARS]


def test_kind_and_identity_of_a_number_fix_nothing() -> None:
    def body(n: Any) -> Any:
        missing = None
        kind = type(n)
        return (
            kind is int, type(n) == int, isinstance(n, int), isinstance(n, (str, float)), n is None,  # noqa: E721
            n is missing, n is not missing, n is n, n is "".strip(), kind.__name__, n is not kind,
        )  # fmt: skip

    n, guards = followed(SMALL)
    with np.errstate(all="raise"):
        assert copied(body)(n) == (True, True, True, False, False, False, True, True, False, "int", True)
    assert not fixes(guards)


def test_identity_of_two_numbers_is_that_of_their_values() -> None:
    one, two = followed(SMALL), followed(SMALL)
    other = followed(LARGE)
    body = copied(lambda a, b: (a is b, a is not b, 1 < a is b))
    assert body(one[0], two[0]) == (True, False, True) and fixes(one[1]) and fixes(two[1])
    assert body(one[0], other[0]) == (False, True, False)


def test_errors_of_numbers_are_those_of_python() -> None:
    def body(n: Any) -> Any:
        try:
            return math.sqrt(-n)
        except ValueError:
            return int(n)

    n, guards = followed(SMALL)
    assert plain(copied(body)(n)) == SMALL and fixes(guards)


# lengths


def sizes_of(array: np.ndarray[Any, Any]) -> tuple[Sizes, SymbolicArray]:
    sizes = Sizes(array.shape)
    return sizes, SymbolicArray.of(array, sizes.letters)


LENGTHS: dict[str, Callable[[Any], Any]] = {
    "len": lambda x: len(x) * 2,
    "function": lambda x: call(len, x) + 1,
    "shape": lambda x: abs(x.shape[0] + 0),
    "max": lambda x: max(len(x), 2),
    "helper": lambda x: halves(x)[0],
}


def halves(x: Any) -> tuple[Any, ...]:
    return len(x) // 2, x.shape[1:]


@pytest.mark.parametrize("name", LENGTHS)
def test_length_of_an_array_is_a_size(name: str) -> None:
    array = np.ones((6, 2), np.float32)
    sizes, view = sizes_of(array)
    body = copied(LENGTHS[name], lambda value: view if value is array else value)
    for given in (view, array) if name in ("len", "function", "max") else (view,):
        found = body(given)
        assert type(found) is Size and plain(found) == LENGTHS[name](array)
    assert not [guard for guard in sizes.guards if guard[1] == "=="]


def test_views_are_arrays_for_all_but_mgb() -> None:
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    _, view = sizes_of(array)

    def body(x: Any) -> Any:
        kinds = type(x), type(np.reshape(x, -1)), type(x.ravel()), type(x * 2), type(x[1:])
        return set(kinds), x is array, x.sum(), [x].pop() is x, isinstance(x, np.ndarray)

    found = copied(body, lambda value: view if value is array else value)(view)
    assert found == ({np.ndarray}, True, 15.0, True, True)


@pytest.mark.parametrize("kind", [Tensor, type("Named", (Tensor,), {})])
def test_length_of_a_tensor_is_a_size(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Sizes((6, 2))
    monkeypatch.setattr(Tensor, "_tuple_shape", sizes.letters)
    x = kind(np.ones((6, 2), np.float32))
    found = copied(lambda x: len(x) * 2)(x)
    assert type(found) is Size and plain(found) == 12 and not sizes.guards


def test_length_of_a_tensor_without_axes_is_an_error() -> None:
    with pytest.raises(TypeError):
        copied(lambda x: len(x))(tensor(1.0))


def test_user_length_of_a_class_is_asked() -> None:
    class Sized(Tensor):
        def __len__(self) -> int:
            return 99

    assert copied(lambda x: len(x))(Sized(np.ones(3, np.float32))) == 99


# mgb


def test_ops_take_numbers_and_other_functions_of_mgb_plain_ones() -> None:
    seen: list[Any] = []

    def measured(value: Any) -> Any:
        seen.append(type(value))
        return value

    n, guards = followed(2)
    x = tensor([1.0, 2.0])
    found = copied(lambda x, n: F.maximum(x, n), measured)(x, n)
    np.testing.assert_array_equal(found.numpy(), [2.0, 2.0])
    assert Whole in seen
    seen.clear()
    copied(lambda x, n: F.broadcast_to(x, (n, 2)), measured)(x, n)
    assert Whole not in seen and tuple in seen and fixes(guards)


def test_forward_of_a_module_has_hooks() -> None:
    class Layer(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = M.Linear(2, 2)

        def forward(self, x: Any, n: Any) -> Any:
            found.append(math.sqrt(n))
            return self.inner(x) * found[-1]

    found: list[Any] = []
    layer, x = Layer(), tensor(np.ones((3, 2), np.float32))
    n, _ = followed(2.0)
    layer.register_forward_pre_hook(lambda module, inputs: None)
    forward = Layer.forward
    made = copied(lambda x, n: layer(x, n))(x, n)
    assert type(found[0]) is Scalar and Layer.forward is forward
    settled(found, plain)
    np.testing.assert_allclose(made.numpy(), layer(x, 2.0).numpy())
