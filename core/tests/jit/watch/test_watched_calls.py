"""Watching a call changes nothing about it, and leaves nothing behind."""

from __future__ import annotations

import ast
import contextlib
import cProfile
import gc
import json
import signal
import statistics
import string
import sys
import textwrap
import threading
import traceback
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mgb
import mgb.module as M
import numpy as np
import pytest
from interrupting import at_line
from mgb.jit.watch import Observer, bearer, kinds, walk
from threads import together
from watch_cases import everything_is_undone, module_of

__all__ = ["everything_is_undone"]

SEMANTICS = module_of(
    """
    def order():
        log = []
        def note(x, v=None):
            log.append(x)
            return x if v is None else v
        d = {note("k"): note("v"), **{note("m"): note("n")}}
        xs = [0]
        xs[note(0)] += note(10)
        f = (lambda *a, **k: (a, k))(note(1), *[note(2)], x=note(3), **{"y": note(4)})
        return log, d, xs, f, f"{note(1)!r:>{note(5)}}", note(1) < note(2) < note(0) < note(9)

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

    async def waits(): return 3
    def coroutine():
        try: waits().send(None)
        except StopIteration as e: return e.value

    def names():
        a = 1
        b, *c = [1, 2, 3]
        del a
        try: a
        except UnboundLocalError as error: g = type(error).__name__
        return sorted(locals())

    def caller(): return sys._getframe(1).f_code.co_name, sorted(sys._getframe(1).f_locals)
    def frames():
        x = 1
        return caller()

    def deep(): return {}["missing"]
    def raises():
        try: deep()
        except KeyError as e: raise ValueError("x") from e
    """,
    "watched_semantics",
)
CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    *((getattr(SEMANTICS, name), ()) for name in "order generators coroutine names frames".split()),
    (textwrap.fill, ("the quick brown fox " * 9, 30)),
    (json.dumps, ({"a": [1, 2.5, None, {"b": "c"}]},)),
    (statistics.stdev, ([1.5, 2.5, 4.0, 9.25],)),
    (string.Template("$a is $b").substitute, ({"a": 1, "b": 2},)),
    (ast.unparse, (ast.parse("def f(x, *y): return [x for z in y if z] + {**{}}['a'][1:2]"),)),
]


@pytest.mark.parametrize(("function", "args"), CALLS, ids=lambda v: getattr(v, "__name__", None))
def test_observed_results_match_plain_python(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    observer = Observer(args)
    assert repr(observer.run(function, *args)) == repr(function(*args))
    assert not any("could not be watched" in i.reason for i in observer.impurities), observer.impurities


def test_tracebacks_show_the_lines_of_the_user() -> None:
    def shown(call: Callable[[], Any]) -> list[str]:
        with pytest.raises(ValueError) as caught:
            call()
        lines = "".join(traceback.format_exception(caught.value)).splitlines()
        return [line for line in lines if line.lstrip().startswith('File "<watched')]

    assert shown(lambda: Observer([]).run(SEMANTICS.raises)) == shown(SEMANTICS.raises)


def test_debugger_and_profiler_stay_installed() -> None:
    def look(*_: Any) -> None:
        return None

    sys.settrace(look)
    sys.setprofile(look)
    try:
        Observer([]).run(SEMANTICS.order)
        assert sys.gettrace() is look
        assert sys.getprofile() is look
    finally:
        sys.settrace(None)
        sys.setprofile(None)


def test_profile_contains_the_user_functions() -> None:
    profile = cProfile.Profile()
    profile.enable()
    Observer([]).run(SEMANTICS.order)
    profile.disable()
    names = {getattr(entry.code, "co_name", "") for entry in profile.getstats()}
    assert {"order", "note"} <= names


def test_warnings_respect_stacklevel() -> None:
    text = 'def old(): warnings.warn("old", DeprecationWarning, stacklevel=2)\ndef f():\n    old()'
    module = module_of(text, "watched_warning")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Observer([]).run(module.f)
    assert [(w.filename, w.lineno) for w in caught] == [("<watched_warning>", 3)]


def test_assertions_rewritten_by_pytest_are_observed() -> None:
    x = mgb.tensor(np.ones(5, np.float32))
    observer = Observer([x])
    observer.run(_checked, x)
    assert not observer.impurities, [str(i) for i in observer.impurities]
    assert [guard for guard in observer.guards if str(guard.source) == "global `LIMIT`"]
    with pytest.raises(AssertionError) as plain:
        _checked(mgb.tensor([1.0]))
    with pytest.raises(AssertionError) as watched:
        Observer([]).run(_checked, mgb.tensor([1.0]))
    assert str(plain.value) == str(watched.value)


LIMIT = 3


def _checked(x: Any) -> Any:
    assert x.ndim == 1 and x.shape[0] > LIMIT, f"too few: {x.shape}"
    return x + 1


def test_generator_handed_to_a_function_in_c_is_the_same_object() -> None:
    made: list[Any] = []

    def body() -> Any:
        made.append(x for x in (1, 2))
        return next(zip(made[-1], [3])), made[-1].gi_frame.f_code.co_name

    assert Observer([]).run(body) == ((1, 3), "<genexpr>")
    assert list(made[0]) == [2]


# what is left


class Stop(BaseException):
    pass


def test_interrupt_at_any_line_of_watching_leaves_nothing() -> None:
    module = module_of("k = 3\ndef g(x): return x * k\ndef f(): return g(2)", "watched_interrupts")
    folder = str(Path(sys.modules["mgb.jit.watch"].__file__ or "").parent)

    def is_of_watching(frame: Any) -> bool:
        return str(frame.f_code.co_filename).startswith(folder)

    def watched() -> None:
        Observer([]).run(module.f)

    code, place, ends = module.f.__code__, 0, False
    while not ends:
        place += 1 if place < 20 else 7
        with contextlib.suppress(Stop):
            ends = not at_line(place, Stop, watched, is_of_watching)
        assert module.f.__code__ is code and sys.getprofile() is None, place
    assert place > 100
    assert Observer([]).run(module.f) == 6


def test_signal_in_the_body_ends_the_watching() -> None:
    module = module_of("def f():\n    while True: pass\n", "watched_signal")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            Observer([]).run(module.f)
    finally:
        signal.signal(signal.SIGALRM, before)


class Late(Exception):
    pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, Late])
@pytest.mark.parametrize(
    "change", ["S = 5.0", "T['a'][0] = 7.0", "L.bias = mgb.Parameter([4.0])", "HIDDEN.stop.by = 6.0"]
)
def test_body_that_goes_on_after_a_signal_in_watching_is_never_stale(
    error: type[BaseException], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
    class Scales(mgb.module.Module):
        by = 2.0
        def forward(self, x): return x * self.by

    S, T, L, HIDDEN = 2.0, {"a": [3.0]}, mgb.module.Linear(1, 1), slice(Scales())
    def helper(x): return HIDDEN.stop(L(x)) * S * T["a"][0]
    def f(x):
        try: helper(x)
        except (KeyboardInterrupt, LATE): pass
        return helper(x)
    """

    def stop(*_: Any) -> None:
        raise error

    left = 0

    def signalling(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGUSR1)
            return real(*args)

        return call

    for owner, name in (
        (walk, "names_of"),
        (walk, "read_variables"),
        (kinds, "look"),
        (bearer.Bearer, "read"),
    ):
        monkeypatch.setattr(owner, name, signalling(getattr(owner, name)))
    before = signal.signal(signal.SIGUSR1, stop)
    x, place, reached = mgb.tensor([[1.0]]), 0, True
    try:
        while reached:
            place += 1
            module: Any = module_of(text)
            module.LATE = Late
            traced, left = mgb.jit.trace(module.f), place
            with contextlib.suppress(error):
                traced(x)
            reached, left = left <= 0, 0
            exec(change, vars(module))
            for _ in range(2):
                assert traced(x).item() == pytest.approx(module.f(x).item()), place
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert place > 10


def test_body_that_handles_its_refusal_is_refused() -> None:
    module: Any = module_of("""
    def f(x):
        try: print("said")
        except BaseException: pass
        return x * 2
    """)
    for _ in range(2):
        with pytest.raises(mgb.errors.ImpureBodyError):
            mgb.jit.trace(module.f, run_body=False)(mgb.tensor(1.0))


def test_other_threads_are_not_observed() -> None:
    module = module_of("k = [1]\ndef helper(): k.append(1)\ndef f(ready, go): ready.set(); go.wait(60)")
    ready, go, seen = threading.Event(), threading.Event(), []
    code = module.f.__code__

    def other() -> None:
        ready.wait(60)
        module.helper()
        seen.append((module.f.__code__, sys.getprofile()))
        go.set()

    thread = threading.Thread(target=other)
    thread.start()
    observer = Observer([ready, go])
    observer.run(module.f, ready, go)
    thread.join()
    assert seen == [(code, None)]
    assert not [i for i in observer.impurities if "helper" in str(i) or "of a list" in i.reason]


def test_several_threads_observe_at_once() -> None:
    module = module_of("k = 3\ndef g(x): return x * k\ndef f(x): return sum(g(i) for i in range(x))")
    results = []

    def watch() -> None:
        for _ in range(20):
            observer = Observer([50])
            results.append((observer.run(module.f, 50), len(observer.impurities)))

    together([watch] * 3)
    assert set(results) == {(3 * 1225, 0)}


def test_observation_does_not_extend_tensor_lifetimes() -> None:
    module = module_of(
        """
        def f(make, alive):
            seen = []
            x = make()
            xs = [x, make()]
            del x, xs
            seen.append(alive())
            d = {"a": make()}
            y = d["a"] + make()
            d = None
            seen.append(alive())
            return seen
        """,
        "watched_lives",
    )
    living: list[weakref.ref[Any]] = []

    def make() -> Any:
        made = mgb.tensor(np.ones(3, np.float32))
        living.append(weakref.ref(made))
        return made

    def alive() -> int:
        gc.collect()
        return sum(ref() is not None for ref in living)

    assert Observer([make, alive]).run(module.f, make, alive) == [0, 0]


class Thing:
    x = 1


def test_guards_do_not_extend_object_lifetimes() -> None:
    module = module_of("def f(): return w, net, thing.x, a.sum()", "watched_weak")
    module.w, module.net, module.thing = mgb.tensor([1.0]), M.ReLU(), Thing()
    module.a = np.zeros(3)
    refs = [weakref.ref(value) for value in (module.w, module.net, module.thing, module.a)]
    observer = Observer([])
    observer.run(module.f)
    guards = observer.guards
    check = guards.compile()
    assert check([])
    del observer
    module.w = module.net = module.thing = module.a = None
    gc.collect()
    assert [ref() for ref in refs] == [None] * 4
    assert not check([])
    assert guards.why([])


def test_finalizers_run_during_the_body_are_not_side_effects() -> None:
    done: list[str] = []

    class Dying:
        def __del__(self) -> None:
            done.append("deleted")

    def cycle() -> None:
        thing = Dying()
        thing.itself = thing  # type: ignore[attr-defined]
        weakref.finalize(thing, lambda: done.append("finalized"))

    module = module_of("def f(x): return x * len([*zip(range(100_000), range(100_000))])")
    x, before = mgb.tensor([1.0]), gc.get_threshold()
    observer = Observer([x], True)
    gc.collect()
    gc.disable()
    cycle()
    gc.set_threshold(50_000)
    gc.enable()
    try:
        observer.run(module.f, x)
    finally:
        gc.set_threshold(*before)
    assert sorted(done) == ["deleted", "finalized"] and not observer.impurities
