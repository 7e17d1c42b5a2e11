"""Files of tensors: round trips, other programs' files, and damage of every kind."""

from __future__ import annotations

import io
import json
import math
import os
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mgb import dtypes
from mgb.errors import ArgumentError, DeviceError, FileFormatError
from mgb.module import Linear
from mgb.storage.serialization import load, save
from mgb.tensor import Parameter, Tensor


def same(a, b):
    """Equal nests: types, keys, dtypes, shapes and every bit."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        assert [type(k) for k in a] == [type(k) for k in b]
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray | Tensor):
        x, y = (v if isinstance(v, np.ndarray) else v.numpy() for v in (a, b))
        assert (x.dtype, x.shape, x.tobytes()) == (y.dtype, y.shape, y.tobytes())
    else:
        assert a == b or (math.isnan(a) and math.isnan(b))


ARRAYS = st.sampled_from([d for d in dtypes.DTYPES if d.isbuiltin == 1]).flatmap(
    lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
LEAVES = st.one_of(
    ARRAYS,
    ARRAYS.map(lambda a: Tensor(a, dtype=a.dtype)),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=5),
)
NESTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(max_size=4), st.integers()), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(NESTS)
@settings(max_examples=80)
def test_round_trip(nest):
    file = io.BytesIO()
    save(nest, file)
    file.seek(0)
    same(load(file), nest)


@pytest.mark.parametrize("dtype", dtypes.DTYPES, ids=str)
def test_round_trip_of_every_dtype_and_class(tmp_path, dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    nest = {"t": Tensor(array, dtype=dtype), "p": Parameter(array, dtype=dtype), "a": array}
    save(nest, tmp_path / "x.safetensors")
    same(load(tmp_path / "x.safetensors"), nest)


def test_colliding_names_are_distinguished():
    nest = {"a": {"b": np.array([1])}, "a.b": np.array([2]), 0: np.array([3]), "0": np.array([4])}
    file = io.BytesIO()
    save(nest, file)
    file.seek(0)
    same(load(file), nest)


def test_non_contiguous_arrays_are_saved(tmp_path):
    array = np.arange(12.0).reshape(3, 4).T[::2]
    save(array, str(tmp_path / "x"))
    np.testing.assert_array_equal(load(str(tmp_path / "x")), array)


def test_saved_file_is_a_safetensors_file(tmp_path):
    """Read back by the format's own words: little-endian length, JSON, bytes."""
    array = np.array([[1.5, -2.0]], np.float32)
    save({"layer": {"weight": Tensor(array)}}, tmp_path / "x")
    content = (tmp_path / "x").read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    assert length % 8 == 0
    assert header["layer.weight"] == {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}
    assert all(isinstance(v, str) for v in header["__metadata__"].values())
    assert content[8 + length :] == array.tobytes()


def test_files_are_interchangeable_with_the_safetensors_package(tmp_path):
    theirs = pytest.importorskip("safetensors.numpy")
    arrays = {"w": np.ones((2, 3), np.float32), "n": np.array(7, np.int64), "e": np.zeros((0, 2), np.float16)}
    save(arrays, tmp_path / "ours")
    same(dict(sorted(theirs.load_file(tmp_path / "ours").items())), dict(sorted(arrays.items())))
    theirs.save_file(arrays, tmp_path / "theirs")
    same(dict(sorted(load(tmp_path / "theirs").items())), dict(sorted(arrays.items())))


def written(nest):
    file = io.BytesIO()
    save(nest, file)
    return file.getvalue()


def test_truncated_file_raises():
    content = written({"a": np.arange(3), "b": [1, Tensor([1.0, 2.0])]})
    for size in range(len(content)):
        with pytest.raises(FileFormatError):
            load(io.BytesIO(content[:size]))


@pytest.mark.parametrize("flip", [1, 2, 4, 0x20, 0x80, 0xFF])
def test_corrupted_byte_never_loads_wrong_data(flip):
    nest = {"a": np.arange(3), "b": [1, 2.5]}
    content = written(nest)
    refused = 0
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= flip
        try:
            found = load(io.BytesIO(bytes(changed)))
        except FileFormatError:
            refused += 1
        else:
            same(found, nest)
    assert refused > 0.9 * len(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a safetensors file at all",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 56) + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}} ',
        struct.pack("<Q", 56) + b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}} ' + bytes(4),
        struct.pack("<Q", 56) + b'{"a":{"dtype":"Q32","shape":[1],"data_offsets":[0,4]}}  ' + bytes(4),
    ],
)
def test_damaged_files_raise(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"cannot load .*damaged or was not written by mgb\.save"):
        load(tmp_path / "x")


@pytest.mark.parametrize(
    "thing", [object(), {"a": [1, {2}]}, {(1, 2): 3}, {"f": save}, 1j, np.array(["text"])]
)
def test_unsupported_values_raise(tmp_path, thing):
    with pytest.raises(TypeError, match="cannot save"):
        save(thing, tmp_path / "x")
    assert not os.listdir(tmp_path)


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    save({"a": 1}, tmp_path / "x")

    def fail(*_args):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="the disk is full"):
        save({"a": 2}, tmp_path / "x")
    assert os.listdir(tmp_path) == ["x"]
    assert load(tmp_path / "x") == {"a": 1}


def test_saved_file_has_default_permissions(tmp_path):
    save({"a": 1}, tmp_path / "x")
    (tmp_path / "y").touch()
    assert (tmp_path / "x").stat().st_mode == (tmp_path / "y").stat().st_mode


def test_map_location_sets_the_device_of_tensors():
    file = io.BytesIO()
    save({"a": Tensor([1.0], device="cpu1"), "b": [Parameter([2.0], device="xpu3:1"), np.ones(2)]}, f=file)

    def found(map_location):
        file.seek(0)
        nest = load(file, map_location=map_location)
        assert isinstance(nest["b"][0], Parameter) and isinstance(nest["b"][1], np.ndarray)
        return nest["a"].device, nest["b"][0].device

    asked = []
    assert found(None) == ("xpux:0", "xpux:0")
    assert found("cpu2") == ("cpu2:0", "cpu2:0")
    assert found({"cpu1": "cpu5", "cpu7": "cpu8"}) == ("cpu5:0", "xpu3:1")
    assert found(lambda name: asked.append(name) or "cpux") == ("cpux:0", "cpux:0")
    assert asked == ["cpu1:0", "xpu3:1"]
    for wrong in ("tpu0", {"cpu1": "tpu0"}, {"tpu0": "cpu1"}, lambda _: "tpu0"):
        with pytest.raises(DeviceError, match="'tpu0' is not a device"):
            found(wrong)


def test_invalid_map_location_raises_its_own_error():
    file = io.BytesIO()
    save({"a": Tensor([1.0]), "b": Tensor([2.0], device="cpu1")}, file)

    def found(map_location):
        file.seek(0)
        return load(file, map_location)

    def broken(_name):
        return {}["no such key"]

    with pytest.raises(KeyError, match="no such key") as caught:
        found(broken)
    assert not isinstance(caught.value, FileFormatError)
    for wrong in (3, {"cpu1": 3}, {3: "cpu1"}, lambda _name: 3, ["cpu1"]):
        with pytest.raises(ArgumentError, match=r"map_location .*(3|cpu1)") as caught:
            found(wrong)
        assert isinstance(caught.value, TypeError) and not isinstance(caught.value, FileFormatError)
    assert found(lambda _name: None)["b"].device == "xpux:0"


def test_file_without_device_entries_loads():
    """As they were written before: the tree of a Tensor had two entries."""
    array = np.arange(3, dtype=np.float32)
    header = {"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}
    tree = json.dumps(["tensor", "w"])
    crc = zlib.crc32(array.tobytes(), zlib.crc32((json.dumps(header) + tree).encode()))
    text = json.dumps(header | {"__metadata__": {"mgb": tree, "crc32": str(crc)}}).encode()
    file = struct.pack("<Q", len(text)) + text + array.tobytes()
    got = load(io.BytesIO(file), {"xpux": "cpu4"})
    assert (got.device, got.tolist()) == ("cpu4:0", [0, 1, 2])


def test_saving_a_module_raises_and_suggests_state_dict():
    with pytest.raises(
        TypeError, match=r"cannot save net: a Linear is not a tensor or a number; save its state_dict"
    ):
        save({"net": Linear(2, 3)}, io.BytesIO())
