"""Kernels that are ended half-way or when they are done, and interrupts that come when a call is over."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from folding import Fold
from interrupting import MODES, at_line
from mgb import Parameter, Tensor, jit, plugins
from mgb.backends import Kernel, Specialize
from mgb.backends.eager_backend import EagerBackend
from mgb.backends.plugins import hookimpl
from mgb.errors import AutoInterruptedError, TraceMismatchError
from mgb.tensor import ACTIVE

_CLOSURES = [mode for mode in MODES if mode != "whole"]  # there the weight would be an argument


class Halves(EagerBackend):
    """A backend whose kernels fill half of each result, then fail when they are told to."""

    name = "halves"
    traits = replace(EagerBackend().traits, specialize=Specialize.SHAPE)
    fails = False

    def compile(self, graph):
        whole = super().compile(graph)

        def run(*arrays, out):
            results = tuple(np.empty_like(o) for o in out)
            whole.run(*arrays, out=results)
            for target, result in zip(out, results):
                target[: len(target) // 2] = result[: len(target) // 2]
            if self.fails:
                raise RuntimeError("half-way through")
            for target, result in zip(out, results):
                target[...] = result

        return Kernel(run)


@pytest.fixture
def halves():
    backend = Halves()

    class Plugin:
        @hookimpl
        def mgb_backend(self, name):
            return backend if name == "halves" else None

    plugins.manager.register(Plugin(), name="halves")
    yield
    Halves.fails = False
    plugins.manager.unregister(name="halves")


@pytest.mark.parametrize("mode", _CLOSURES)
def test_kernel_failing_midway_leaves_no_parameter_half_updated(mode, halves):
    weight, x = Parameter(np.zeros(64, np.float32)), Tensor(np.ones(64, np.float32))

    def add(x):
        weight[...] = weight * 2 + x

    f = MODES[mode](add, backend="halves")
    for _ in range(3):
        f(x)
    Halves.fails = True  # of the class: a kernel may serve the next test too
    for _ in range(3):
        before = weight.numpy().copy()
        with pytest.raises(RuntimeError, match="half-way through"):
            f(x)
        now = weight.numpy()
        assert np.array_equal(now, before) or np.array_equal(now, before * 2 + 1)


class Late(Fold):
    """A backend whose kernels are interrupted, once they are told to, when they have done all."""

    stops = False

    def _kernel(self, graph):
        done = super()._kernel(graph)

        def run(*arrays, out):
            done.run(*arrays, out=out)
            if Late.stops:
                Late.stops = False
                raise KeyboardInterrupt

        return replace(done, run=run)


@pytest.fixture
def late():
    class Plugin:
        @hookimpl
        def mgb_backend(self, name):
            return Late() if name == "fold" else None

    plugins.manager.register(Plugin(), name="fold")
    yield
    plugins.manager.unregister(name="fold")


@pytest.mark.parametrize("run_body", [None, True])
def test_interrupted_program_does_not_update_twice_in_one_call(late, run_body):
    weight, x = Parameter(np.zeros(64, np.float32)), Tensor(np.ones(64, np.float32))

    @jit.trace(backend="fold", run_body=run_body)
    def add(x):
        weight[...] = weight + x
        total = weight * 1
        try:
            total.numpy()
        finally:
            total.numpy()

    for _ in range(3):
        add(x)
    before = weight.numpy().copy()
    Late.stops = True
    with pytest.raises((KeyboardInterrupt, TraceMismatchError, AutoInterruptedError)):
        add(x)
    assert np.unique(weight.numpy() - before) in (0, 1)
    add(x)


@pytest.mark.parametrize("options", [{}, {"run_body": True}, {"run_body": True, "symbolic": True}])
def test_interrupt_during_error_handling_leaves_consistent_parameters(options):
    weight, x = Parameter(np.zeros(4, np.float32)), Tensor(np.ones(4, np.float32))

    @jit.trace(backend="eager", **options)
    def add(x, fails):
        weight[...] = weight + x
        if fails:
            raise ValueError("of the body")
        return weight * 2

    for _ in range(2):
        add(x, False)

    def fail():
        with suppress(ValueError):
            add(x, True)

    def ends(frame):
        return not {"_abort", "abandon"}.isdisjoint(_names(frame))

    place, reached = 0, True
    while reached:
        place += 1
        before = weight.numpy().copy()
        with suppress(KeyboardInterrupt):
            reached = at_line(place, KeyboardInterrupt, fail, ends)
        assert np.unique(weight.numpy() - before) in (0, 1), place
        assert (add(x, False).numpy() == 2 * weight.numpy()).all(), place
    assert place > 10


def _names(frame):
    """The functions that `frame` runs in, itself first."""
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


def test_interrupt_while_entering_auto_leaves_it_inactive():
    place, reached = 0, True
    while reached:
        place += 1
        auto = jit.auto()
        try:
            reached = at_line(place, KeyboardInterrupt, auto.__enter__, _is_entry)
        except KeyboardInterrupt:
            assert ACTIVE.get() is None, place
        else:
            auto.__exit__(None, None, None)
    assert place > 4


def _is_entry(frame):
    return frame.f_code.co_name == "__enter__" and frame.f_code.co_filename.endswith("auto.py")
