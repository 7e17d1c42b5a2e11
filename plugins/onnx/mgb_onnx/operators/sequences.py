"""Sequences, which are lists of values, and optional values, which are None when they are absent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mgb.errors import FileFormatError
from mgb.ops.layout import concat
from mgb.storage.limits import meter
from mgb.tensor import Tensor
from mgb.tensor.apply import literal

from ..values import Host, Value, host_of
from .control import stacked
from .elementwise import number
from .layout import axis_of, cut, sections, squeeze
from .table import operator


def _place(sequence: list[Any], position: Value, new: int = 0) -> int:
    """Return `position` counted from the start; an inserted element may stand one further."""
    place = int(number(host_of(position)))
    count = len(sequence) + new
    if not -len(sequence) <= place < count:
        raise FileFormatError(f"position {place} is out of range for a sequence of {len(sequence)} elements")
    return place + len(sequence) if place < 0 else place


def _counted(sequence: list[Any]) -> list[Any]:
    """Return `sequence` after counting it, as it may hold another one twice: few nodes make any number."""
    stack: list[Any] = [sequence]
    most, count = meter().limits.nodes, 0
    while stack and count <= most:
        inner = stack.pop()
        count += len(inner)
        stack += [value for value in inner if isinstance(value, list)]
    meter().spend("nodes", count)
    return sequence


@operator("SequenceEmpty", folds=False)
def sequence_empty(*, dtype: int = 1) -> Value:
    return []


@operator("SequenceConstruct")
def sequence_construct(*values: Value) -> Value:
    return _counted(list(values))


@operator("SequenceAt")
def sequence_at(sequence: Value, position: Value) -> Value:
    return sequence[_place(sequence, position)]


@operator("SequenceErase")
def sequence_erase(sequence: Value, position: Value = None) -> Value:
    place = len(sequence) - 1 if position is None else _place(sequence, position)
    return [*sequence[:place], *sequence[place + 1 :]]


@operator("SequenceInsert")
def sequence_insert(sequence: Value, value: Value, position: Value = None) -> Value:
    place = len(sequence) if position is None else _place(sequence, position, 1)
    return _counted([*sequence[:place], value, *sequence[place:]])


@operator("SequenceLength")
def sequence_length(sequence: Value) -> Host:
    return np.array(len(sequence), np.int64)


@operator("ConcatFromSequence")
def concat_from_sequence(sequence: Value, *, axis: int, new_axis: int = 0) -> Value:
    if new_axis:
        return stacked(sequence, axis)
    if not any(isinstance(v, Tensor) for v in sequence):
        meter().value([sum(v.size for v in sequence)])
        return np.concatenate(sequence, axis)
    device = next(v.device for v in sequence if isinstance(v, Tensor))
    tensors = [v if isinstance(v, Tensor) else literal(v, v.dtype, device) for v in sequence]
    return concat(*tensors, axis=axis_of("ConcatFromSequence", axis, tensors[0].ndim))


@operator("SplitToSequence")
def split_to_sequence(x: Tensor, split: Host | None = None, *, axis: int = 0, keepdims: int = 1) -> Value:
    place = axis_of("SplitToSequence", axis, x.ndim)
    length = x.shape[place]
    if split is None:
        meter().check("nodes", length)
        parts = cut(x, place, [1] * length)
        return parts if keepdims else [squeeze(p, np.array([place])) for p in parts]
    if split.ndim == 0:
        each = int(split)
        meter().check("nodes", length // max(each, 1))
        return cut(x, place, [min(each, length - i) for i in range(0, length, each)])
    return cut(x, place, sections(length, 0, split))


@operator("SequenceMap", folds=False)
def sequence_map(sequence: Value, *others: Value, body: Callable[..., tuple[Value, ...]]) -> Value:
    """Apply `body` to each element, with those of other sequences and with other values as they are."""
    rows = [
        body(value, *(o[i] if isinstance(o, list) else o for o in others)) for i, value in enumerate(sequence)
    ]
    return tuple(map(list, zip(*rows)))


@operator("Optional", folds=False)
def optional(value: Value = None, *, type: str | None = None) -> Value:
    return value


@operator("OptionalHasElement", folds=False)
def optional_has_element(value: Value = None) -> Host:
    return np.array(value is not None)


@operator("OptionalGetElement", folds=False)
def optional_get_element(value: Value) -> Value:
    if value is None:
        raise FileFormatError("an optional value is read, and it is absent")
    return value
