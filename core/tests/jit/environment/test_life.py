"""Watching a call leaves nothing behind: interrupts, threads, lifetimes; what mgb calls is seen."""

from __future__ import annotations

import gc
import linecache
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from environment_cases import everything_is_undone, module_of
from mgb.autodiff import GradManager
from mgb.jit.environment import Observer, arming
from mgb.jit.environment.arming import _armed
from mgb.jit.environment.watch import WATCHING
from mgb.jit.guard import Lines
from mgb.optimizer import SGD

__all__ = ["everything_is_undone"]


def test_interrupt_at_any_line_removes_the_instrumentation() -> None:
    """An error at a line of what installs and removes, for many lines."""
    module = module_of("k = 3\ndef g(x): return x * k\ndef f(): return g(2)", "watched_interrupts")
    code = module.f.__code__
    count = wanted = 0

    class Stop(BaseException):
        pass

    def trace(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith(("observer.py", "armed.py", "arming.py")):
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


def test_signal_in_the_body_removes_the_instrumentation() -> None:
    module = module_of("import signal\ndef f():\n    while True: pass\n", "watched_signal")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            Observer([]).run(module.f)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_other_threads_are_not_observed() -> None:
    module = module_of(
        """
        k = [1]
        def helper(): k[0]; return len(k)
        def f(ready, go):
            helper()
            ready.set()
            go.wait(60)
            return helper()
        """,
        "watched_threads",
    )
    ready, go, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        ready.wait(60)
        seen.append((module.helper(), WATCHING.watch))
        go.set()

    thread = threading.Thread(target=other)
    thread.start()
    observer = Observer([])
    assert observer.run(lambda: module.f(ready, go)) == 1
    thread.join()
    assert seen == [(1, None)]


def test_several_threads_observe_at_once() -> None:
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

    def counted() -> list[int]:
        living.clear()
        found: list[int] = module.f(make, alive)
        return found

    expected = counted()
    living.clear()
    assert Observer([make, alive]).run(module.f, make, alive) == expected == [0, 0]


def test_guards_do_not_extend_object_lifetimes() -> None:
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


def test_training_step_is_pure() -> None:
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
def test_monkey_patched_module_classes_are_detected(patch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_changes_of_modules_read_by_the_body_are_detected(change: Any) -> None:
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


def test_module_hooks_are_observed() -> None:
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


def test_arguments_are_guarded_by_value_not_identity() -> None:
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


def test_guard_lines_can_be_inlined_into_another_function() -> None:
    module = module_of("k = 3\ndef f(x): return x * k", "watched_lines")
    x = mgb.tensor([1.0])
    observer = Observer([x])
    observer.run(module.f, x)
    writer = observer.guards.write(Lines())
    space = {**writer.names, "MISS": "miss"}
    exec("def run(t0):\n" + "".join(f"  {line}\n" for line in [*writer.lines, "return 'hit'"]), space)
    assert space["run"](x) == "hit"
    module.k = 4
    assert space["run"](x) == "miss"


def test_guard_failure_is_reported_as_a_source_expression() -> None:
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


def test_finalized_generator_does_not_trigger_the_call_hook() -> None:
    """The garbage collector may end it while any body runs."""
    told: list[str] = []

    def counting() -> Any:
        yield from (1, 2)

    unused, begun = counting(), counting()
    next(begun)
    net = arming.Net(lambda code, caller: bool(told.append(code.co_name)))  # type: ignore[func-returns-value]
    assert net.spread() is None
    try:
        del unused, begun
        ended = list(told)
        assert list(counting()) == [1, 2]
    finally:
        net.gather()
    assert ended == [] and told[0] == "counting"


def test_finalizers_run_during_the_body_are_not_side_effects() -> None:
    done: list[str] = []

    def inner(word: str) -> None:
        done.append(word)

    class Thing:
        def __del__(self) -> None:
            inner("deleted")

    def cycle() -> None:
        thing = Thing()
        thing.itself = thing  # type: ignore[attr-defined]
        weakref.finalize(thing, lambda: inner("finalized"))

    module = module_of(
        "def f(x): return x * len([*zip(range(100_000), range(100_000))])", "watched_finalized"
    )
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
