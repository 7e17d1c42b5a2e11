"""Watching a call changes nothing about it: results, errors, lines, frames, lifetimes, other tools."""

from __future__ import annotations

import ast
import cProfile
import difflib
import gc
import heapq
import inspect
import json
import linecache
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
from types import ModuleType
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.jit.environment import Observer
from mgb.jit.environment.arming import _armed
from mgb.jit.environment.watch import WATCHING
from mgb.optimizer import SGD


def module_of(text: str, name: str) -> ModuleType:
    """A module made of `text`, whose source can be found."""
    made, file, text = ModuleType(name), f"<{name}>", textwrap.dedent(text)
    made.__file__ = file
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec", dont_inherit=True), vars(made))
    return made


@pytest.fixture(autouse=True)
def _everything_is_undone() -> Any:
    yield
    assert not _armed
    assert WATCHING.watch is None
    if hasattr(sys, "monitoring"):
        assert not any((sys.monitoring.get_tool(n) or "").startswith("mgb") for n in range(6))


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
def test_results_are_those_of_python(function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    observer = Observer(args)
    result = observer.run(function, *args)
    assert repr(result) == repr(function(*args))
    assert not any("could not be watched" in i.reason for i in observer.impurities), observer.impurities


@pytest.mark.parametrize("name", ["raises", "error_in_error"])
def test_errors_show_the_lines_of_the_user_and_no_other(name: str) -> None:
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


def test_a_debugger_sees_the_same_lines() -> None:
    before = _lines_run(lambda: SEMANTICS.flow(5))
    after = _lines_run(lambda: Observer([5]).run(SEMANTICS.flow, 5))
    assert dict.fromkeys(after) == dict.fromkeys(before)


def test_a_debugger_and_a_profiler_are_still_there_afterwards() -> None:
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


def test_a_profile_has_the_functions_of_the_user() -> None:
    profile = cProfile.Profile()
    profile.enable()
    Observer([]).run(SEMANTICS.order)
    profile.disable()
    names = {getattr(entry.code, "co_name", "") for entry in profile.getstats()}
    assert {"order", "note"} <= names


def test_warnings_name_the_line_that_a_level_says() -> None:
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


def test_frames_are_those_of_python() -> None:
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


def test_nothing_stays_armed_after_an_error() -> None:
    code = SEMANTICS.raises.__code__
    with pytest.raises(KeyError):
        Observer([]).run(SEMANTICS.raises)
    assert SEMANTICS.raises.__code__ is code


def test_interrupts_at_any_line_leave_nothing() -> None:
    """An error at a line of what installs and removes, for many lines."""
    module = module_of("k = 3\ndef g(x): return x * k\ndef f(): return g(2)", "watched_interrupts")
    code = module.f.__code__
    count = wanted = 0

    class Stop(BaseException):
        pass

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith(("observer.py", "arming.py")):
            return None
        if event == "line" and "with _lock" not in linecache.getline(
            frame.f_code.co_filename, frame.f_lineno
        ):
            count += 1  # a signal comes after the lock is taken or given back, never in between
            if count == wanted:
                raise Stop
        return trace

    def watched() -> None:
        nonlocal count
        count = 0
        sys.settrace(trace)
        try:
            Observer([]).run(module.f)
        except Stop:
            pass
        finally:
            sys.settrace(None)

    watched()
    lines = count
    assert lines > 100
    for wanted in {*range(1, lines, 9), *range(lines - 60, lines)}:
        watched()
        assert module.f.__code__ is code, wanted
        assert not _armed, wanted
        assert WATCHING.watch is None, wanted
        assert sys.getprofile() is None, wanted


def test_a_signal_in_the_body_leaves_nothing() -> None:
    module = module_of("import signal\ndef f():\n    while True: pass\n", "watched_signal")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            Observer([]).run(module.f)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_other_threads_see_nothing() -> None:
    module = module_of(
        """
        k = [1]
        def helper(): k[0]; return len(k)
        def f(ready, go):
            helper()
            ready.set()
            go.wait(5)
            return helper()
        """,
        "watched_threads",
    )
    ready, go, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        ready.wait(5)
        seen.append((module.helper(), WATCHING.watch))
        go.set()

    thread = threading.Thread(target=other)
    thread.start()
    observer = Observer([])
    assert observer.run(lambda: module.f(ready, go)) == 1
    thread.join()
    assert seen == [(1, None)]


def test_two_threads_watch_at_once() -> None:
    module = module_of(
        "k = 3\ndef g(x): return x * k\ndef f(x): return sum(g(i) for i in range(x))", "watched_two"
    )
    results = []

    def watch() -> None:
        for _ in range(20):
            observer = Observer([50])
            results.append((observer.run(module.f, 50), len(observer.impurities)))

    threads = [threading.Thread(target=watch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) == {(3 * 1225, 0)}


def test_tensors_die_when_python_lets_them() -> None:
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

    def counted() -> list[int]:
        living.clear()
        found: list[int] = module.f(make, alive)
        return found

    expected = counted()
    living.clear()
    assert Observer([make, alive]).run(module.f, make, alive) == expected == [0, 0]


def test_guards_keep_no_tensor_array_module_or_object_alive() -> None:
    module = module_of(
        """
        def f():
            return w, net, thing.x, a.sum()
        """,
        "watched_weak",
    )

    class Thing:
        x = 1

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


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [M.Linear(4, 4), M.ReLU(), M.Linear(4, 2)]
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.scaled(x)

    def scaled(self, x: Any) -> Any:
        return x * self.scale


def _step() -> tuple[Callable[..., Any], Any, list[Any]]:
    net = Net()
    manager, optimizer = GradManager().attach(net.parameters()), SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any, y: Any) -> Any:
        with manager:
            loss = F.nn.cross_entropy(net(x), y)
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    arguments = [mgb.tensor(np.ones((2, 4), np.float32)), mgb.tensor(np.array([0, 1], np.int32))]
    return step, net, arguments


def test_a_training_step_is_pure() -> None:
    step, _, arguments = _step()
    observer = Observer(arguments)
    observer.run(step, *arguments)
    assert not observer.impurities, [str(i) for i in observer.impurities]
    assert observer.guards.compile()(arguments)


def _patch_forward(net: Any) -> Any:
    return Net, "scaled", lambda self, x: x


def _patch_layer(net: Any) -> Any:
    return M.ReLU, "forward", lambda self, x: x


def _patch_call(net: Any) -> Any:
    return M.Module, "__call__", lambda self, *inputs: inputs[0]


@pytest.mark.parametrize("patch", [_patch_forward, _patch_layer, _patch_call])
def test_classes_of_modules_that_are_patched_are_seen(patch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    step, net, arguments = _step()
    observer = Observer(arguments)
    observer.run(step, *arguments)
    check = observer.guards.compile()
    assert check(arguments)
    kind, name, new = patch(net)
    monkeypatch.setattr(kind, name, new)
    assert not check(arguments)


@pytest.mark.parametrize(
    "change",
    [
        lambda net: setattr(net, "scale", 3.0),
        lambda net: net.layers.append(M.ReLU()),
        lambda net: net.layers.__setitem__(1, M.Sigmoid()),
        lambda net: setattr(net, "scaled", lambda x: x),
        lambda net: setattr(net.layers[1], "__class__", M.Sigmoid),
        lambda net: mgb.set_default_device("cpu0"),
    ],
)
def test_what_user_code_read_of_modules_is_seen(change: Any) -> None:
    step, net, arguments = _step()
    observer = Observer(arguments)
    observer.run(step, *arguments)
    check = observer.guards.compile()
    device = mgb.get_default_device()
    try:
        change(net)
        assert not check(arguments)
    finally:
        mgb.set_default_device(device)


def test_hooks_and_callbacks_that_mgb_calls_are_watched() -> None:
    module = module_of(
        """
        log, k = [], 2
        def hook(module, inputs, outputs): log.append(1)
        def scale(module, inputs, outputs): return outputs * k
        """,
        "watched_hooks",
    )
    x = mgb.tensor([1.0])
    net = M.ReLU()
    handle = net.register_forward_hook(module.hook)
    observer = Observer([x])
    observer.run(lambda t: net(t), x)
    assert [i.reason for i in observer.impurities if "list.append" in i.reason]
    handle.remove()
    net.register_forward_hook(module.scale)
    observer = Observer([x])
    observer.run(lambda t: net(t), x)
    assert not observer.impurities
    check = observer.guards.compile()
    module.k = 3
    assert not check([x])


def test_arguments_are_no_surroundings() -> None:
    module = module_of("def f(xs, d, o): return xs[0] + d['a'] + len(xs) + o.x", "watched_arguments")

    class Thing:
        x = 1

    thing = Thing()
    leaves = [1, 2, 3, thing]
    observer = Observer(leaves)
    assert observer.run(module.f, [1, 2], {"a": 3}, thing) == 7
    check = observer.guards.compile()
    assert check(leaves)
    thing.x = 2
    assert not check(leaves)
    other = Thing()
    assert check([1, 2, 3, other])  # read where it stands, whichever object it is


def test_lines_stand_in_another_function() -> None:
    module = module_of("k = 3\ndef f(x): return x * k", "watched_lines")
    x = mgb.tensor([1.0])
    observer = Observer([x])
    observer.run(module.f, x)
    space: dict[str, Any] = {"MISS": "miss"}

    def name(value: Any) -> str:
        space[f"n{len(space)}"] = value
        return f"n{len(space) - 1}"

    lines = observer.guards.lines(name)
    exec("def run(t0):\n" + "".join(f"  {line}\n" for line in [*lines, "return 'hit'"]), space)
    assert space["run"](x) == "hit"
    module.k = 4
    assert space["run"](x) == "miss"


def test_where_things_are_found_is_said_in_the_users_words() -> None:
    module = module_of(
        "cfg = {'layers': [1, [2]]}\ndef f(o): return cfg['layers'][1][0] + o.x[0]", "watched_words"
    )

    class Thing:
        pass

    thing: Any = Thing()
    thing.x = [5]
    observer = Observer([thing])
    observer.run(module.f, thing)
    assert str(observer.source_of(thing)) == "argument 0"
    module.cfg["layers"][1][0] = 3
    assert observer.guards.why([thing]) == "`cfg['layers'][1][0]` is 3, it was 2"


def test_the_source_of_a_function_is_proved_to_be_its_own() -> None:
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


def test_instrumented_code_has_the_lines_and_names_of_its_own() -> None:
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
