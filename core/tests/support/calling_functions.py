"""Functions of many shapes that call others, of one number each."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any


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
