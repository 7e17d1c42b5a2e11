"""Schedules that are found instead of given: by trying some, or by an autoscheduler of the wheel.

What is found is part of the compiled kernel, and so it is in the cache on disk with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from mgb_native.objects import ObjectError

from .algorithm import Algorithm
from .frame import Frame
from .launch import Layout, Unit
from .machine import NAME, Code, place
from .pipeline import Pipeline, collect
from .schedule import Form, HalideSchedule
from .toolchain import CHECKED, compile_pipeline, hl, target

_log = logging.getLogger("mgb.halide")

#: Seconds that each candidate is run for, and the most bytes of the arrays that it is run on.
SECONDS, MOST = 0.02, 1 << 28


def candidates(frame: Frame) -> list[HalideSchedule]:
    """Return the schedules that are worth trying for a group: the default first."""
    usual = HalideSchedule()
    if frame.flat:
        changes: list[dict[str, Any]] = [{"task": 4096}, {"task": 65536}, {"piece": 2048}]
    elif frame.columns:
        changes = [{"tile": 128}, {"tile": 2048}, {"group": 32}, {"group": 512}, {"fits": 1 << 17}]
    else:
        changes = [{"unroll": 2}, {"unroll": 8}, {"keep": 1}, {"keep": 1 << 20}, {"piece": 2048}]
    return [usual, *(replace(usual, **change) for change in changes)]


def tuned(frame: Frame, run: Callable[[HalideSchedule], Callable[..., None]]) -> HalideSchedule:
    """Return the fastest of `candidates` on arrays of the sizes of `frame`; `run` compiles one."""
    inputs = [_sample(x.spec.shape, x.spec.dtype) for x in frame.graph.inputs]
    out = tuple(np.empty(y.spec.shape, y.spec.dtype) for y in frame.graph.outputs)
    if sum(a.nbytes for a in (*inputs, *out)) > MOST:
        return HalideSchedule()
    times = {plan: _seconds(run(plan), inputs, out) for plan in candidates(frame)}
    best = min(times, key=lambda plan: times[plan])
    _log.debug("schedule %s: %.3g s, the usual one %.3g s", best, times[best], times[HalideSchedule()])
    return best


def _sample(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(0).random(shape) + 1).astype(dtype)


def _seconds(run: Callable[..., None], inputs: Sequence[Any], out: tuple[Any, ...]) -> float:
    best, end = float("inf"), time.perf_counter() + SECONDS
    run(*inputs, out=out)
    while best == float("inf") or time.perf_counter() < end:
        start = time.perf_counter()
        run(*inputs, out=out)
        best = min(best, time.perf_counter() - start)
    return best


def autoscheduled(frame: Frame, plan: HalideSchedule, layout: Layout, form: Form) -> Code | None:
    """Return the code of an autoscheduler, for exactly these sizes and dense inputs; None when it has none.

    It may compute elements twice and rely on sizes, so that it is checked: Halide's own assertions stay in.
    """
    pipeline = _estimated(frame, plan, layout.lengths, form)
    try:
        hl.load_plugin(str(Path(hl.install_dir(), "lib64", f"libautoschedule_{plan.auto.lower()}.so")))
        made = hl.Pipeline(list(pipeline.outputs))
        made.apply_autoscheduler(target(), hl.AutoschedulerParams(plan.auto))
        image = compile_pipeline(pipeline.outputs, pipeline.arguments, NAME, CHECKED, made)
        code = place(image, pipeline.order, str(plan), form, layout.lengths)
    except (hl.HalideError, ObjectError) as error:
        _log.warning("%s finds no schedule, the usual one is taken: %s", plan.auto, str(error).strip())
        return None
    if status := Unit(frame, [code], lambda _: code).status():
        _log.warning("%s does not fit these sizes (%d), the usual schedule is taken", plan.auto, status)
        return None
    return code


def _estimated(frame: Frame, plan: HalideSchedule, lengths: dict[str, int], form: Form) -> Pipeline:
    """Return the algorithm without a schedule, and its sizes."""
    algorithm = Algorithm(frame, plan, 1, form)
    for d, loop in enumerate(frame.loops):
        algorithm.shape.dim(d).set_bounds(0, lengths[loop])
    algorithm.shape.set_estimates([(0, lengths[loop]) for loop in frame.loops] or [(0, 1)])
    for o in frame.operands:
        if not o.is_output and o.loops:
            param = algorithm.params[o.name]
            param.set_estimates([(0, lengths[loop]) for loop in o.loops])
            if o.loops[0] == "i" and not o.is_iota:
                param.dim(0).set_stride(1)
    for func, operands in algorithm.outputs:
        func.set_estimates([(0, lengths[x]) for x in max((o.loops for o in operands), key=len)])
    return collect(algorithm)
