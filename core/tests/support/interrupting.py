"""Exceptions at chosen moments of a call, and training steps whose states tell whether they ran once."""

from __future__ import annotations

import gc
import linecache
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import mgb.functional as F
import mgb.module as M
import mgb.optimizer as optim
import mgb.runtime.memory
import numpy as np
from mgb import Tensor, jit
from mgb.autodiff import GradManager
from mgb.tensor import ACTIVE

PACKAGE = str(Path(mgb.__file__).parent)


def is_ours(frame: FrameType) -> bool:
    """Does `frame` run a line of the core, or one that it has generated?"""
    name = frame.f_code.co_filename
    return name.startswith((PACKAGE, "<mgb")) or name == "<string>"


def is_reached_by_signals(frame: FrameType) -> bool:
    """May CPython look for signals right before the line of `frame`?

    It does after calls and jumps back. Between the end of a block and what gives its lock back is neither.
    """
    name, number = frame.f_code.co_filename, frame.f_lineno
    is_end_of_block = linecache.getline(name, number).lstrip().startswith("with ")
    return not is_end_of_block and linecache.getline(name, number - 1).strip() != "finally:"


def at_line(
    place: int,
    error: type[BaseException],
    function: Callable[[], Any],
    within: Callable[[FrameType], bool] = is_ours,
) -> bool:
    """Call `function` with `error` at line number `place` of those `within`; False if they are fewer."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if event == "line" and within(frame) and is_reached_by_signals(frame):
            count += 1
            if count == place:
                sys.settrace(None)
                raise error
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count >= place


#: What asks for memory: these functions of the core, NumPy's, and the native call of a kernel.
_ALLOCATORS = (mgb.memory.empty.__code__, mgb.memory._allocate.__code__)


def without_memory(place: int, function: Callable[[], Any]) -> bool:
    """Call `function` with request number `place` for memory refused; False if there are fewer."""
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        asks = (event == "call" and frame.f_code in _ALLOCATORS) or (
            event == "c_call" and (argument is np.empty or argument.__name__ in ("run", "copy"))
        )
        if asks:
            count += 1
            if count == place:
                sys.setprofile(None)
                raise MemoryError

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count >= place


def by_signal(longest: float, function: Callable[[], Any]) -> None:
    """Call `function`, then wait, with a signal at a random moment of `longest` seconds."""
    printed: list[Any] = []  # Python only prints what is raised inside a finalizer

    def handle(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before, hook = signal.signal(signal.SIGALRM, handle), sys.unraisablehook
    sys.unraisablehook = lambda lost: (printed.append if lost.exc_type is KeyboardInterrupt else hook)(lost)
    callbacks, gc.callbacks[:] = gc.callbacks[:], []  # JAX's; what is raised inside one is only printed
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, longest))
        function()
        if printed:
            raise KeyboardInterrupt
        time.sleep(longest + 60)  # the signal ends this sleep
        raise AssertionError("the exception of a signal was lost")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
        gc.callbacks[:] = callbacks


#: The decorators, by the names of the modes; by `partial_trace` only the forward part of a step is traced.
MODES: dict[str, Callable[..., Any]] = {
    "plain": jit.trace,
    "symbolic": partial(jit.trace, symbolic=True),
    "run_body": partial(jit.trace, run_body=True),
    "partial": jit.partial_trace,
    "whole": jit.xla_trace,
}


def _sgd(params: Any) -> optim.Optimizer:
    return optim.SGD(params, lr=0.1, momentum=0.9)


def _adam(params: Any) -> optim.Optimizer:
    return optim.Adam(params, lr=0.01, eps=0.01)  # large: op by op a small gradient has other last bits


OPTIMIZERS = {"sgd": _sgd, "adam": _adam}


@dataclass
class Training:
    """A small network with its optimizer, and a traced step."""

    step: Callable[[], Any]
    states: Callable[[], list[Tensor]]

    def values(self) -> list[np.ndarray[Any, Any]]:
        """What the states hold now; copies, for a view would keep them from being updated in place."""
        return [t.numpy().copy() for t in self.states()]

    def set(self, values: list[np.ndarray[Any, Any]]) -> None:
        """Give the states these values."""
        for tensor, value in zip(self.states(), values, strict=True):
            tensor._reset(Tensor(value, dtype=value.dtype))
            tensor.grad = None  # an eager step that was ended has left it


def training(mode: str, optimizer: str, backend: str | None = None, width: int = 8) -> Training:
    """A step of `mode`, that has run three times."""
    rng = np.random.default_rng(7)
    net = M.Sequential(M.Linear(6, width), M.ReLU(), M.Linear(width, 3))
    for p in net.parameters():
        p._reset(Tensor(rng.normal(size=p.shape).astype(np.float32)))
    x, y = Tensor(rng.normal(size=(5, 6)).astype(np.float32)), Tensor(np.arange(5, dtype=np.int32) % 3)
    gm, opt = GradManager().attach(net.parameters()), OPTIMIZERS[optimizer](net.parameters())
    traced = partial(MODES[mode], backend=backend)

    def loss_of(x: Tensor, y: Tensor, net: M.Module) -> Tensor:
        return F.nn.cross_entropy(net(x), y)

    loss = traced(loss_of) if mode == "partial" else loss_of

    def step(x: Tensor, y: Tensor, net: M.Module, opt: optim.Optimizer) -> Tensor:
        with gm:
            found = loss(x, y, net)
            gm.backward(found)
        opt.step().clear_grad()
        return found

    run = step if mode == "partial" else traced(step)
    for _ in range(3):
        run(x, y, net, opt)
    numbers = (t for p in net.parameters() for t in opt._state[p].values())
    states = [*net.parameters(), *(t for t in numbers if isinstance(t, Tensor))]
    return Training(lambda: run(x, y, net, opt), lambda: states)


class Judge:
    """Says of a call that an exception has ended whether each state is as before it or as after it.

    What it would be after it is what the same step makes of the same states when nothing ends it.
    """

    def __init__(self, training: Training) -> None:
        self.training = training

    def expected(self) -> tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
        """The states now, and what the next step makes of them; they are as they were then."""
        before = self.training.values()
        self.training.step()
        after = self.training.values()
        self.training.set(before)
        return before, after

    def check(self, before: list[np.ndarray[Any, Any]], after: list[np.ndarray[Any, Any]], when: Any) -> int:
        """How many states have their new values; fails where one has neither, or something is left open."""
        assert ACTIVE.get() is None, f"{when}: a call that has ended is still the active one"
        new = 0
        for n, (now, old, then) in enumerate(zip(self.training.values(), before, after, strict=True)):
            is_new = np.allclose(now, then, rtol=1e-5, atol=1e-7)
            assert is_new or np.array_equal(now, old), f"{when}: state {n} is neither as before nor as after"
            new += is_new
        return new
