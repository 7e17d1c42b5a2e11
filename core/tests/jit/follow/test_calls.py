"""Copies of functions with hooks mean what the functions mean; nothing of the functions changes."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

import pytest
from calling_functions import BODIES, Base, Derived, add, outcome
from mgb.jit.follow.calls import Calls


def calls_of(told: list[Any] | None = None, measured: Callable[[Any], Any] = lambda value: value) -> Calls:
    return Calls(lambda function, frame: told.append(function) if told is not None else None, measured)


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


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="is told of more than a profiler is")
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_what_is_told_is_what_a_profiler_misses(body: FunctionType) -> None:
    seen: tuple[list[Any], list[Any]] = [], []

    def note(kept: list[Any], function: Any, code: CodeType) -> None:
        if code.co_filename == body.__code__.co_filename:
            kept.append((code.co_qualname, type(function), function.__qualname__))

    made = Calls(lambda function, frame: note(seen[1], function, frame.f_code), lambda value: value)
    for function, kept in zip((body, made.copy_of(body)), seen, strict=True):
        before = sys.getprofile()
        try:
            sys.setprofile(lambda f, event, arg: note(kept, arg, f.f_code) if event == "c_call" else None)  # noqa: B023
            outcome(function, 2)
        finally:
            sys.setprofile(before)
    assert Counter(seen[0]) == Counter(seen[1])
