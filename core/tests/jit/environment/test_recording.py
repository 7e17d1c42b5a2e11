"""Watching a call changes nothing about it: results, errors, lines, frames, lifetimes, other tools."""

from __future__ import annotations

import ast
import cProfile
import difflib
import heapq
import inspect
import json
import linecache
import statistics
import string
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import mgb
import numpy as np
import pytest
from environment_cases import everything_is_undone, module_of
from mgb.jit.watch import Observer

__all__ = ["everything_is_undone"]


SEMANTICS = module_of(
    """
    def order():
        log = []
        def note(x, v=None):
            log.append(x)
            return x if v is None else v
        a = [note(1), note(2)][note(3, 0)]
        d = {note("k"): note("v"), **{note("m"): note("n")}}
        d[note("key")] = note("value")
        b = note(1) < note(2) < note(0) < note(9)
        c = note(0) or note(5) and note(6)
        e = note(7) if note(0) else note(8)
        f = (lambda *a, **k: (a, k))(note(1), *[note(2)], x=note(3), **{"y": note(4)})
        xs = [0]
        xs[note(0)] += note(10)
        g = f"{note(1)!r:>{note(5)}}"
        h = note([1, 2, 3])[note(0):note(2):note(1)]
        assert note(True), note("message")
        return log, a, d, b, c, e, f, xs, g, h

    def flow(n):
        out = []
        for i in range(n):
            if i == 2: continue
            if i == 7: break
            try:
                if i % 3 == 0: raise ValueError(i)
                out.append(i)
            except ValueError as e:
                out.append(str(e))
            else: out.append("else")
            finally: out.append("finally")
        else: out.append("whole")
        while n > 0:
            n -= 3
        else: out.append(n)
        return out

    class Base:
        def __init__(self, x): self.__x = x
        def m(self): return self.__x
        @classmethod
        def make(cls, x): return cls(x)
        @staticmethod
        def twice(x): return 2 * x
        @property
        def p(self): return self.m() + 1
        @p.setter
        def p(self, v): self.__x = v
        def __enter__(self): return self
        def __exit__(self, *a): return True

    class Derived(Base):
        def __init__(self, x):
            super().__init__(x)
            self.own = __class__.__name__
        def m(self): return super().m() * 10
        def all(self): return [super(Derived, self).m() for _ in range(2)]

    def classes():
        d = Derived.make(3)
        d.p = 5
        d.p += 1
        with d as e, Base(1):
            assert e is d
            1 / 0
        return d.m(), d.p, d.own, Derived.twice(4), d.all(), isinstance(d, Base)

    def generators():
        def g(n):
            got = yield n
            while got is not None:
                got = yield got * 2
            return "end"
        def outer():
            result = yield from g(1)
            yield result
        it = outer()
        return [next(it), it.send(5), it.send(6), it.send(None)], sum(x for x in range(4)), [*g(3)]

    def scopes():
        x = 1
        def inner():
            nonlocal x
            x += 1
            def deeper(): return x * y
            return deeper
        y = 5
        class C:
            x = 10
            y = x + 1
            zs = [i for i in range(3)]
        total = sum(y := y + i for i in range(3))
        fns = [lambda i=i: i + x for i in range(3)]
        return inner()(), C.x, C.y, C.zs, total, y, [fn() for fn in fns]

    def names():
        a = 1
        b, *c = [1, 2, 3]
        (d, e), f = (1, 2), 3
        del a
        try: a
        except UnboundLocalError as error: g = type(error).__name__
        return sorted(locals())

    def patterns(x):
        match x:
            case [1, *rest] if rest: return "list", rest
            case {"a": a, **more}: return "dict", a, more
            case str(text) | bytes(text): return "text", text
            case Derived(own=o): return "object", o
            case (int() as n) if n > 5: return "int", n
            case None: return "none"
            case _: return "other"

    def slices():
        class A:
            def __getitem__(self, k): return k
        a = A()
        return a[1], a[1:2], a[1:2:3, ...], a[::, None], a[()], a["x"]

    def raises():
        def deep(): return {}["missing"]
        return deep()

    def error_in_error():
        try: raises()
        except KeyError as e: raise ValueError("x") from e

    def star(*args, key=3, **more): return args, key, more
    def default(x, to=(), *, k=None): return x, to, k

    def calls():
        return star(*range(3), key=1, **{"z": 2}), default(1, k=2), (lambda x, /, y=2: x - y)(5)

    def operators():
        import operator
        a, b = 7, 3
        s = {1, 2} | {3}
        s &= {1, 3}
        one = a + b, a - b, a * b, a / b, a // b, a % b, a ** b, a << b, a >> b
        return one, a & b, a | b, a ^ b, -a, ~a, not a, s

    async def waits():
        return 3

    def coroutine():
        c = waits()
        try: c.send(None)
        except StopIteration as e: return e.value
    """,
    "watched_semantics",
)
CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    *((getattr(SEMANTICS, name), ()) for name in "order classes generators scopes names".split()),
    *((getattr(SEMANTICS, name), ()) for name in "slices calls operators coroutine".split()),
    (SEMANTICS.flow, (5,)),
    (SEMANTICS.flow, (9,)),
    *((SEMANTICS.patterns, (x,)) for x in ([1, 2], {"a": 1, "b": 2}, "t", b"t", 9, 2, None)),
    (SEMANTICS.patterns, (SEMANTICS.Derived(1),)),
    (textwrap.fill, ("the quick brown fox " * 9, 30)),
    (json.dumps, ({"a": [1, 2.5, None, {"b": "c"}]}, )),
    (difflib.get_close_matches, ("appel", ["ape", "apple", "peach", "puppy"])),
    (statistics.stdev, ([1.5, 2.5, 4.0, 9.25],)),
    (heapq.nsmallest, (3, [5, 1, 4, 2, 3])),
    (string.Template("$a is $b").substitute, ({"a": 1, "b": 2},)),
    (ast.unparse, (ast.parse("def f(x, *y): return [x for z in y if z] + {**{}}['a'][1:2]"),)),
]  # fmt: skip


@pytest.mark.parametrize(("function", "args"), CALLS, ids=lambda v: getattr(v, "__name__", None))
def test_observed_results_match_plain_python(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    observer = Observer(args)
    result = observer.run(function, *args)
    assert repr(result) == repr(function(*args))
    assert not any("could not be watched" in i.reason for i in observer.impurities), observer.impurities


@pytest.mark.parametrize("name", ["raises", "error_in_error"])
def test_tracebacks_show_only_user_lines(name: str) -> None:
    function = getattr(SEMANTICS, name)

    def shown(call: Callable[[], Any]) -> str:
        with pytest.raises(Exception) as caught:
            call()
        lines = "".join(traceback.format_exception(caught.value)).splitlines()
        start = next(n for n, line in enumerate(lines) if "<watched_semantics>" in line)
        return "\n".join(
            line for line in lines[start:] if "environment" not in line and "observer" not in line
        )

    natively = [line for line in shown(function).splitlines() if line.lstrip().startswith('File "<watched')]
    watched = shown(lambda: Observer([]).run(function)).splitlines()
    assert [line for line in watched if line.lstrip().startswith('File "<watched')] == natively
    assert not [line for line in watched if "hooks.py" in line or "_see" in line]


def _lines_run(function: Callable[[], Any]) -> list[int]:
    lines: list[int] = []

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != "<watched_semantics>":
            return None
        if event == "line":
            lines.append(frame.f_lineno)
        return trace

    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(None)
    return lines


def test_debugger_sees_the_same_lines() -> None:
    before = _lines_run(lambda: SEMANTICS.flow(5))
    after = _lines_run(lambda: Observer([5]).run(SEMANTICS.flow, 5))
    assert dict.fromkeys(after) == dict.fromkeys(before)


def test_debugger_and_profiler_stay_installed() -> None:
    def trace(frame: Any, event: str, arg: Any) -> None:
        return None

    sys.settrace(trace)
    sys.setprofile(trace)
    try:
        observer = Observer([])
        observer.run(SEMANTICS.order)
        assert sys.gettrace() is trace
        assert sys.getprofile() is trace
    finally:
        sys.settrace(None)
        sys.setprofile(None)
    told = ["both active" in impurity.reason for impurity in observer.impurities]
    assert any(told) is not hasattr(sys, "monitoring")


def test_profile_contains_the_user_functions() -> None:
    profile = cProfile.Profile()
    profile.enable()
    Observer([]).run(SEMANTICS.order)
    profile.disable()
    names = {getattr(entry.code, "co_name", "") for entry in profile.getstats()}
    assert {"order", "note"} <= names


def test_warnings_respect_stacklevel() -> None:
    module = module_of(
        """
        import warnings
        def old(): warnings.warn("old", DeprecationWarning, stacklevel=2)
        def f():
            old()
        """,
        "watched_warning",
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Observer([]).run(module.f)
    assert [(w.filename, w.lineno) for w in caught] == [("<watched_warning>", 5)]


def test_frames_match_plain_python() -> None:
    module = module_of(
        """
        import sys
        def caller(): return sys._getframe(1).f_code.co_name, sorted(sys._getframe(1).f_locals)
        def f():
            x = 1
            return caller()
        """,
        "watched_frames",
    )
    assert Observer([]).run(module.f) == ("f", ["x"])


def test_instrumentation_is_removed_after_an_error() -> None:
    code = SEMANTICS.raises.__code__
    with pytest.raises(KeyError):
        Observer([]).run(SEMANTICS.raises)
    assert SEMANTICS.raises.__code__ is code


def test_changed_source_of_a_function_is_detected() -> None:
    module = module_of("def g(): return 1\ndef f(): return g()", "watched_source")
    text = "def g(): return 2\ndef f(): return g()"
    linecache.cache["<watched_source>"] = (
        len(text),
        None,
        text.splitlines(keepends=True),
        "<watched_source>",
    )
    observer = Observer([])
    assert observer.run(module.f) == 1
    assert [i for i in observer.impurities if "not what was compiled" in i.reason]


def test_instrumented_code_preserves_lines_and_names() -> None:
    from mgb.jit.environment.instrument import instrumented
    from mgb.jit.environment.observer import HOOKS

    for function in (
        SEMANTICS.order,
        SEMANTICS.scopes,
        SEMANTICS.Derived.all,
        textwrap.fill,
        inspect.getmembers,
    ):
        code = function.__code__
        made = instrumented(code, function.__globals__, HOOKS)
        assert not isinstance(made, str), made
        for name in (
            "co_name",
            "co_qualname",
            "co_filename",
            "co_firstlineno",
            "co_varnames",
            "co_freevars",
            "co_flags",
        ):
            assert getattr(made, name) == getattr(code, name)
        lines = [{line for *_, line in c.co_lines() if line is not None} for c in (made, code)]
        assert lines[0] == lines[1]


LIMIT = 3


def _checked(x: Any, n: int = 2) -> Any:
    assert x.ndim == 1 and x.shape[0] > LIMIT, f"too few: {x.shape}"
    assert isinstance(n, int)
    return x + n


def test_assertions_rewritten_by_pytest_are_observed() -> None:
    x = mgb.tensor(np.ones(5, np.float32))
    observer = Observer([x])
    observer.run(_checked, x)
    assert not observer.impurities, [str(i) for i in observer.impurities]
    assert [guard for guard in observer.guards if str(guard.source) == "global `LIMIT`"]
    for arguments in ([mgb.tensor([1.0])], [x, "two"]):
        said = []
        for run in (_checked, Observer(arguments).run):
            with pytest.raises(AssertionError) as caught:
                run(*([_checked] if run is not _checked else []), *arguments)
            said.append(str(caught.value))
        assert said[0] == said[1]
