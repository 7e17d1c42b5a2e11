"""Does a backend get a case wrong, and in which way?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from mgb import dtypes
from mgb.executor import Options, compile_program

from .case import Case
from .changes import in_dtype

Array = np.ndarray[Any, Any]

#: How many units in the last place of its tensor's greatest element a result may be off, where EAGER is not.
UNITS = 256.0

#: How many times as far off as EAGER's a result may be.
TIMES = 16.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The failure of a case.

    Attributes
    ----------
    kind : str
        ``"differs"``, ``"raises ValueError"``, ``"crashes"``, ``"hangs"``: smaller cases are to fail alike.
    text : str
        The same with particulars.

    Examples
    --------
    >>> Verdict("differs", "mine: 1 of 4 elements").kind
    'differs'
    """

    kind: str
    text: str


def judged(case: Case, options: Options) -> Verdict | None:
    """Run a case on a backend, in this process, and return its failure; None where it is right.

    Floats are compared with the same graph in float64 and may be `TIMES` as far from it as EAGER's result is,
    or `UNITS` units of the greatest element; integers and bools against EAGER, exactly.
    """
    try:
        got = compile_program(case.graph, options).run(*case.arrays)
    except Exception as error:
        said = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return Verdict(f"raises {type(error).__name__}", f"{options.backend} raises {said}")
    exact = _in_float64(case)
    for number, (node, result) in enumerate(zip(case.graph.outputs, got, strict=True)):
        want = case.values[node]
        text = _difference(np.asarray(result), want, want if exact is None else exact[number])
        if text:
            return Verdict(
                "differs", f"{options.backend} differs in output {number} ({node.op.name}): {text}"
            )
    return None


def _in_float64(case: Case) -> list[Array] | None:
    """Return the outputs of the case in float64; None where it computes in nothing shorter, or cannot be."""
    wide = case
    for short in (dtypes.float32, *dtypes.HALVES):
        wide = in_dtype(wide, short, dtypes.float64) or wide
    if wide is case:
        return None
    try:
        return [wide.values[node] for node in wide.graph.outputs]
    except Exception:  # an op that looks at bits has no such twin
        return None


def _difference(got: Array, want: Array, exact: Array) -> str:
    """Describe how `got` differs from `want`, the result of EAGER; empty when it does not."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)} where {want.dtype}{list(want.shape)} is right"
    if want.dtype not in dtypes.FLOATS or exact.dtype not in dtypes.FLOATS or exact.shape != want.shape:
        wrong = got != want
    else:
        true = exact.astype(np.float64)
        off, noise = _apart(got, true), _apart(want, true)
        finite = np.abs(true[np.isfinite(true)])
        eps = float(ml_dtypes.finfo(want.dtype).eps)  # type: ignore[no-untyped-call]
        unit = eps * float(np.max(finite, initial=0.0))
        noise = noise[np.isfinite(noise)]
        wrong = off > TIMES * float(np.max(noise, initial=0.0)) + UNITS * unit
        wrong &= _apart(got, want.astype(np.float64)) > 0  # EAGER may overflow where float64 does not
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {got.size} elements, at {place} {got[place]!s} where {want[place]!s} is right"
    )


def _apart(a: Array, right: Array) -> Array:
    wide = a.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.abs(wide - right)
    same = (wide == right) | (np.isnan(wide) & np.isnan(right))
    found: Array = np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))
    return found


def with_backend(options: Options, backend: str) -> Options:
    """Return `options`, for another backend and without measurements."""
    return replace(options, backend=backend, profiling=False, launch_graph=None)
