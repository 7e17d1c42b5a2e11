"""Files with bytes and fields that are anything: `load` gives a model or one of our errors."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb.errors import MgbError
from mgb.jit import load

if importlib.util.find_spec("onnx") is None:
    pytest.skip("the onnx package is not installed: pip install onnx", allow_module_level=True)

import onnx
from onnx_models import attention_block, branches, loop, residual_network

# fuzzing: a file either loads or gives one of our errors


BYTES = st.tuples(st.floats(0, 1), st.integers(0, 255))
BASES = [residual_network(), attention_block(), branches(), loop()]


def _survives(data: bytes, *, run: bool = False) -> None:
    """Run it as well only where no number can be large: a model may ask for any amount of memory."""
    with contextlib.suppress(MgbError):
        function = load(io.BytesIO(data), "EAGER")
        if run:
            shapes = [[d if isinstance(d, int) else 2 for d in spec.shape or ()] for spec in function.inputs]
            function(*(np.ones(s, i.dtype or np.float32) for s, i in zip(shapes, function.inputs)))


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(BASES), st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=8)
)
def test_flipped_bytes_do_no_harm(base: bytes, edits: list[tuple[float, int]]) -> None:
    data = bytearray(base)
    for place, value in edits:
        data[min(int(place * len(data)), len(data) - 1)] = value
    _survives(bytes(data))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(BASES), st.floats(0, 1), st.floats(0, 1), st.binary(max_size=8))
def test_cut_and_joined_bytes_do_no_harm(base: bytes, start: float, stop: float, middle: bytes) -> None:
    low, high = sorted(int(f * len(base)) for f in (start, stop))
    _survives(base[:low] + middle + base[high:])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_edited_fields_do_no_harm(data: st.DataObject) -> None:
    model = onnx.load_from_string(data.draw(st.sampled_from(BASES[1:])))
    for _ in range(data.draw(st.integers(1, 4))):
        _edit(model, data)
    _survives(model.SerializeToString(), run=True)


def _edit(message: Any, data: st.DataObject) -> None:
    """Follow fields at random and change one value, drop it, or put it there twice."""
    fields = message.ListFields()
    if not fields:
        return
    field, value = data.draw(st.sampled_from(fields))
    many = hasattr(value, "__delitem__") and hasattr(value, "append")
    if many:
        place = data.draw(st.integers(0, len(value) - 1))
        change = data.draw(st.sampled_from(["enter", "enter", "enter", "drop", "double"]))
        if change == "drop":
            del value[place]
        elif change == "double":
            value.append(value[place])
        elif hasattr(value[place], "ListFields"):
            _edit(value[place], data)
        else:
            value[place] = _other(value[place], data)
    elif hasattr(value, "ListFields"):
        _edit(value, data)
    else:
        with contextlib.suppress(ValueError):  # a number that the enumeration does not have
            setattr(message, field.name, _other(value, data))


def _other(value: Any, data: st.DataObject) -> Any:
    if isinstance(value, bytes):
        return data.draw(st.binary(max_size=16))
    if isinstance(value, str):
        return data.draw(
            st.sampled_from(["", "x", "y", "shape", "Shape", "MatMul", "ai.onnx", "Loop", "zero"])
        )
    if isinstance(value, float):
        return data.draw(st.floats(width=32))
    return data.draw(st.integers(0, 40))
