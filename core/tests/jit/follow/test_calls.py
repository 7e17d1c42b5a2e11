"""Copies of functions with hooks mean what the functions mean; nothing of the functions changes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

import pytest
from mgb.jit.follow.calls import Calls


def calls_of(told: list[Any] | None = None, measured: Callable[[Any], Any] = lambda value: value) -> Calls:
    return Calls(lambda function, frame: told.append(function) if told is not None else None, measured)


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """What a call gives, or the type of what it raises."""
    try:
        return function(*args)
    except Exception as error:
        return type(error)


def add(a: int, b: int = 2, *rest: int, c: int = 3, **more: int) -> tuple[Any, ...]:
    return a, b, rest, c, sorted(more.items())


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return ("decorated", function(*args, **kwargs))

    return inner


# bodies, of one number each


def many_arguments(n: int) -> Any:
    xs, named = [n, 4], {"c": 5, "self": 6, "function": 7}
    return add(n), add(*xs), add(*xs, *xs, **named), add(n, b=n, **named), add(*xs, c=n, calls=1)


def closures(n: int) -> Any:
    def outer(k: int, step: int = abs(-n)) -> Callable[[], int]:
        def inner() -> int:
            nonlocal k
            k += len(range(step))
            return k

        return inner

    counted = outer(n)
    return counted(), counted(), outer(7)()


def lambdas(n: int) -> Any:
    fs = [lambda: abs(n), lambda: abs(-n), lambda: (lambda m: max(m, n))(3), lambda k=max(n, 1): k + n]  # noqa: B008
    return [f() for f in fs], (lambda *a, **k: (a, k))(*"ab", c=n)


def generators(n: int) -> Any:
    def count(m: int) -> Iterator[int]:
        got = yield len(range(m))
        while got is not None:
            try:
                got = yield abs(got)
            except KeyError:
                got = 5
        yield from (max(i, 2) for i in range(m))
        return

    one = count(n)
    sent = [next(one), one.send(-3), one.throw(KeyError), one.send(None), *one]
    return sent, list(count(n)), sum(i for i in range(n) if abs(i) % 2), {str(i): abs(i) for i in range(n)}


def coroutines(n: int) -> Any:
    async def each(m: int) -> Any:
        for i in range(m):
            await asyncio.sleep(0)
            yield i

    @contextlib.asynccontextmanager
    async def entered(m: int) -> Any:
        yield str(m)

    async def main() -> Any:
        async with entered(n) as text:
            found = [abs(i) async for i in each(n) if max(i, 0)]
            return text, found, await asyncio.gather(*(asyncio.sleep(0, i) for i in range(2)))

    return asyncio.run(main())


class Base:
    kept = 1

    def __init__(self, n: int = 1) -> None:
        self.n = abs(n)

    def value(self) -> int:
        return self.n

    @classmethod
    def made(cls, n: int) -> Any:
        return cls(n)

    @staticmethod
    def static(n: int) -> int:
        return abs(n) + 1

    @property
    def double(self) -> int:
        return max(self.n, 0) * 2

    def __call__(self, k: int) -> int:
        return min(k, self.n)


class Derived(Base):
    def __init__(self, n: int) -> None:
        super().__init__(n + 1)
        self.__private = max(n, 3)

    def value(self) -> Any:
        return super().value(), super(Derived, self).value(), __class__, self.__hidden()  # type: ignore  # noqa: UP008

    def __hidden(self) -> int:
        return abs(self.__private)


def methods(n: int) -> Any:
    d, bound = Derived(n), Derived(n).value
    made = Derived.made(n).value(), Derived(n=n).n
    return d.value(), bound(), made, d.static(n), d.double, d(2), Base.value(d)


def scopes(n: int) -> Any:
    here = sorted(locals())
    inside = [sorted(set(locals()) & {"i"}) for i in range(1)]
    seen = eval("n + 1"), sorted(vars()), globals()["add"] is add, sorted(dir())
    exec("n = 5")
    return here, inside, seen, sys._getframe().f_code.co_name, frame_of_caller(), n


def frame_of_caller() -> Any:
    frame = sys._getframe(1)
    return frame.f_code.co_name, frame.f_locals.get("n"), os.path.basename(frame.f_code.co_filename)


def line_of_caller() -> int:
    return sys._getframe(1).f_lineno


def lines(n: int) -> Any:
    one = line_of_caller()
    two = (
        n,
        line_of_caller(),
    )
    return one, two


def classes(n: int) -> Any:
    bases = (Base, dict)

    class Meta(type):
        def __call__(cls, *args: Any) -> Any:
            return "meta", super().__call__(*args)

    class K(*bases):
        """Its own."""

        number: int = abs(n)
        named = tuple(str(i) for i in range(2))
        locals()["put"] = max(n, 4)

    class M(metaclass=Meta):
        __slots__ = ("n",)

        def __repr__(self) -> str:
            return "M()"

    return K(n).n, K.number, K.named, K.put, K.__doc__, K.__bases__, repr(M()), K.__qualname__


def displays(n: int) -> Any:
    names = ("a", "b")[:n]
    pairs = {**dict(a=n), "k": len(names)}  # noqa: C408
    return sorted({"q", *names, *(c for c in "bc")}), [*map(str, range(n))], pairs, (*names, n)


def decorators(n: int) -> Any:
    @decorated
    @functools.lru_cache(maxsize=4)
    def inner(m: int) -> int:
        return abs(m)

    @functools.partial
    def another() -> int:
        return max(n, 2)

    return inner(n), inner.__name__, another(), decorated(add)(n)


def walrus(n: int) -> Any:
    if (m := abs(n)) > 1 and (k := max(m, 3)):
        return m, k, [last := str(i) for i in range(2)], last
    return add(m := n, b=(b := 4)), m, b


def matches(n: int) -> Any:
    match [n, {"a": abs(n)}, Base(n)]:
        case [int(m), {"a": 1}, _] if max(m, 1) == 1:
            return "one"
        case [_, {"a": int() as a, **rest}, Base(n=k)] if k is not None:
            return a, rest, k, str(n)
    return None


def exceptions(n: int) -> Any:
    found: list[Any] = []
    try:
        [1, 2][add(n)[0]]
    except IndexError as error:
        found.append(str(error))
    else:
        found.append(len("else"))
    finally:
        found.append(max(n, 1))
    try:
        raise ExceptionGroup("g", [ValueError(str(n)), KeyError(n)])
    except* ValueError as group:
        found.append([str(e) for e in group.exceptions])
    except* KeyError as group:
        found.append(len(group.exceptions))
    with contextlib.suppress(ZeroDivisionError), contextlib.nullcontext(n) as k:
        found.append(abs(k) // (n - 1))
    none, named = None, {"a": 1}
    return found, outcome(add), outcome(lambda: add(*none)), outcome(lambda: add(**named, **named))  # type: ignore


def recursion(n: int) -> Any:
    return n * recursion(n - 1) if n > 1 else max(n, 1)


def identity(n: int) -> Any:
    a, b, missing, nine = object(), Base(), None, 9
    chains = missing is None is missing, n < nine is not b, nine is not b is not a
    return a is b, a is a, a is not b, n is missing, chains, type(n) is int


def texts(n: int) -> Any:
    return f"{abs(n)!r:>{max(n, 4)}} {'-'.join(str(i) for i in range(n))}", "%s" % len("ab"), f"{n is None}"  # noqa: UP031


def order(n: int) -> Any:
    seen: list[str] = []

    def note(text: str, value: Any = None) -> Any:
        seen.append(text)
        return value

    def take() -> Any:
        note("function")
        return add

    take()(note("one", 1), *note("two", [2]), c=note("three", 3), **note("four", {"d": 4}))
    note("target", {})[note("key", n)] = note("value", n)
    note("left", 1) < note("middle", 0) < note("never")  # noqa: B015
    return seen


def partials(n: int) -> Any:
    part = functools.partial(add, n, c=4)
    again = functools.partial(part, 5, c=6)
    mapped = list(map(abs, filter(None, [n, -1])))
    return part(), again(7), functools.partial(len)("abc"), mapped, add.__call__(n)


def sorting(n: int) -> Any:
    reduced = functools.reduce(lambda a, b: max(a, b), range(n + 1))
    return sorted([3, n, 2], key=lambda v: -abs(v)), reduced, list(itertools.starmap(add, [(n, 1)]))


def annotated(n: int) -> Any:
    def inner(a: add(1) = 3, *, b: list[int] = [abs(n)]) -> max(1, 2):  # type: ignore  # noqa: B006, B008
        return a, b

    return inner(), inner.__annotations__


def asserting(n: int) -> Any:
    assert isinstance(n, int) and max(n, 1) >= 1, str(n)
    assert add(n)[0] is n
    return outcome(failing, n)


def failing(n: int) -> None:
    assert abs(n) == n + 1, f"{n}"


BODIES = [
    many_arguments, closures, lambdas, generators, coroutines, methods, scopes, lines, classes, displays,
    decorators, walrus, matches, exceptions, recursion, identity, texts, order, partials, sorting, annotated,
    asserting,
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_copies_give_what_functions_give(body: FunctionType) -> None:
    code, made = body.__code__, calls_of()
    copy = made.copy_of(body)
    assert copy is not body and copy.__code__ != code
    for n in (0, 1, 2, 3):
        assert repr(outcome(copy, n)) == repr(outcome(body, n))
    assert body.__code__ is code


def test_copy_has_all_that_a_function_has() -> None:
    def function(a: int, b: int = 2, *, c: int = 3) -> Any:
        """Its text."""
        return function, abs(a), b, c

    function.note = 5  # type: ignore[attr-defined]
    copy = calls_of().copy_of(function)
    assert copy is not function
    names = "__name__ __qualname__ __module__ __doc__ __defaults__ __kwdefaults__ __dict__ __annotations__"
    for name in (*names.split(), "__globals__", "__closure__"):
        assert getattr(copy, name) == getattr(function, name)
    assert copy(-1) == function(-1) == (function, 1, 2, 3)


def test_changed_defaults_and_code_are_used() -> None:
    def one(a: int = 1) -> int:
        return abs(a)

    def two(a: int = 1) -> int:
        return abs(a) + 10

    def call() -> int:
        return one()

    made = calls_of()
    copy = made.copy_of(call)
    found = [copy()]
    one.__defaults__ = (5,)
    found.append(copy())
    one.__code__ = two.__code__
    assert [*found, copy()] == [1, 5, 15]


def test_all_kinds_of_functions_have_copies() -> None:
    made, derived = calls_of(), Derived(1)
    assert made.copy_of(add) is made.copy_of(add) is not add
    method = made.copy_of(derived.value)
    assert type(method) is MethodType and method.__self__ is derived and method.__func__ is not Derived.value
    part = made.copy_of(functools.partial(add, 1, c=2))
    assert part.func is made.copy_of(add) and part.args == (1,) and part.keywords == {"c": 2}
    others = (len, [].append, functools.partial(len, "a"), Base, derived, 3, contextlib.suppress, "".join)
    assert all(made.copy_of(other) is other for other in others)
    assert made.copy_of(functools.wraps) is functools.wraps, "Python's library is left alone"
    assert made.copy_of(line_without_calls) is line_without_calls


def line_without_calls(n: Any) -> Any:
    return n + 1 if n is not None else 0


class Coded:
    """It knows which code makes it and calls it."""

    def __init__(self) -> None:
        self.codes = [own_code(), sys._getframe(1).f_code, sys._getframe().f_code]

    def __call__(self) -> Any:
        return [*self.codes, own_code(), sys._getframe().f_code]


def own_code() -> Any:
    return sys._getframe().f_code


def test_functions_called_by_a_copy_are_copies() -> None:
    def body() -> Any:
        return Coded()()

    made = calls_of()
    wanted = [own_code, body, Coded.__init__, own_code, Coded.__call__]
    assert [made.originals[code] for code in made.copy_of(body)()] == [f.__code__ for f in wanted]


def test_functions_handed_on_are_themselves() -> None:
    def body() -> Any:
        return [*map(type(own_code).__call__, [own_code])], sorted([own_code], key=lambda f: f() and 1)

    (code,), kept = calls_of().copy_of(body)()
    assert code is own_code.__code__ and kept == [own_code]


def test_originals_of_inner_functions_are_their_own_code() -> None:
    def body() -> Any:
        def first() -> Any:
            return [abs(i) for i in range(2)]

        def second() -> Any:
            return 5

        return first, second

    made = calls_of()
    copies, plain = made.copy_of(body)(), body()
    assert not made.originals.keys() & {f.__code__ for f in plain}
    assert made.originals[copies[0].__code__] is plain[0].__code__ and copies[1].__code__ is plain[1].__code__
    assert made.copy_of(copies[0]) is copies[0]


def test_two_sets_of_hooks_do_not_mix() -> None:
    told: tuple[list[Any], list[Any]] = ([], [])
    one, two = map(calls_of, told)
    inner = one.copy_of(closures_of)()
    told[0].clear()

    def body() -> Any:
        return inner(-3)

    assert two.copy_of(body)() == 3 and not told[0] and told[1] == [abs]
    assert two.originals[two.copy_of(inner).__code__] is one.originals[inner.__code__]
    assert inner(-3) == 3 and told[0] == [abs]


def closures_of() -> Any:
    return lambda n: abs(n) if n is not None else max(n)


def test_hooks_are_gone_when_nobody_needs_them() -> None:
    told: list[Any] = []
    made = calls_of(told)
    inner, gone = made.copy_of(closures_of)(), weakref.ref(made)
    copy = weakref.ref(made.copy_of(add))
    del made
    gc.collect()
    assert gone() is None and copy() is None
    assert inner(-4) == 4 and not told
    another = calls_of()
    assert another.copy_of(inner)(-4) == 4


def test_functions_in_c_are_told_before_their_calls() -> None:
    told: list[tuple[Any, Any]] = []
    xs: list[int] = []

    def body() -> None:
        xs.append(len("ab"))
        list.append(xs, abs(1))
        str(3)
        outcome(add, 1)

    made = Calls(lambda function, frame: told.append((function, made.originals[frame.f_code])), lambda v: v)
    made.copy_of(body)()
    assert [function for function, _ in told[:4]] == [len, xs.append, abs, xs.append]
    assert {code for _, code in told[:4]} == {body.__code__}
    assert all(code is not body.__code__ for _, code in told[4:])
