"""Results of an op that has several: it gives one value that holds them, a *bundle*; `result` takes them out.

A bundle is an array of no axes whose one element is the tuple of results. It never leaves a program: the
executor has a loop write its parts where they are wanted, and makes no bundle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..autodiff.function import Call, Output
from ..ir import Kind, Op, Spec
from ..ops.declare import register
from ..tensor import Tensor
from ..tensor.apply import apply, recording_tapes, untaped

#: The type of a bundle.
BUNDLE = Spec((), np.dtype(object))


def bundled(arrays: Sequence[Any]) -> Any:
    """Return the bundle of `arrays`."""
    bundle = np.empty((), object)
    bundle[()] = tuple(arrays)
    return bundle


def as_they_are(operands: Sequence[Any]) -> Sequence[Any]:
    """Return the promotion rule of ops that take any dtypes."""
    return operands


def _infer(_bundle: Spec, index: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Spec:
    return Spec(shape, dtype)


def _result(bundle: Any, index: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    return bundle[()][index]


def _taped(bundle: Tensor, **params: Any) -> Tensor:
    out = untaped(RESULT, bundle, **params)
    for tape in recording_tapes([bundle]):
        if out.dtype.kind in "fVc" and bundle._tape is not None:
            tape.attach(out, Output(bundle._tape[tape], params["index"]))
    return out


#: ``result(bundle, index=, shape=, dtype=)``: one of the results, with its type.
RESULT = register(
    Op(
        "result",
        Kind.OPAQUE,
        _infer,
        _result,
        promote=as_they_are,
        cost=lambda _: 0,
        crosses=True,
        taped=_taped,
        meaning="One of the results that a bundle holds, with its type.",
    )
)


def result(bundle: Tensor, index: int, spec: Spec) -> Tensor:
    """Return the result `index` of a bundle, of type `spec`."""
    return apply(RESULT, bundle, index=index, shape=spec.shape, dtype=spec.dtype)


class BundleCall(Call):
    """The call that returned a bundle, as one tape records it: its gradient is a dict by index."""

    __slots__ = ()

    @staticmethod
    def merge(one: dict[int, Tensor], other: dict[int, Tensor]) -> dict[int, Tensor]:
        """Return the sum of two gradients."""
        both = {place: one[place] + other[place] for place in one.keys() & other.keys()}
        return one | other | both
