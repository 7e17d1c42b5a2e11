"""Tensors, devices and keys as programs for MegEngine use them."""

from __future__ import annotations

import copy
import io
import pickle

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import device
from mgb.errors import DeviceError, ShapeError
from mgb.jit import trace
from mgb.tensor import Parameter, Tensor

X = np.arange(30, dtype=np.float32).reshape(5, 3, 2)


def test_mgb_tensor_is_the_tensor_class() -> None:
    assert isinstance(mgb.tensor([1.0]), mgb.tensor) and isinstance(Parameter([1.0]), mgb.tensor)
    assert mgb.tensor([1.0], format="nhwc").format == "nhwc"


def twins(t: Tensor) -> list[Tensor]:
    return [copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t))]


def test_unnamed_tensor_has_an_empty_name() -> None:
    t = Tensor([1.0])
    assert t.name == (t * 2).name == t.detach().name == Tensor(t).name == ""
    t.name = "x"
    assert [t.name, (t + 1).name, Tensor(t).name, Tensor(t, name="y").name] == ["x", "", "", "y"]
    assert all(twin.name == "x" for twin in twins(t))


def test_tensor_format_can_be_set() -> None:
    t = Tensor(X)
    assert t.format == (t * 2).format == "default"
    t.format = "nhwc"
    for twin in (t, *twins(t)):
        assert twin.format == "nhwc"
        np.testing.assert_array_equal(twin.numpy(), X)
    with pytest.raises(
        ValueError, match="'nc4hw4' is not a format of a Tensor: choose one of default, nchw, nhwc"
    ):
        t.format = "nc4hw4"


def test_parameter_attributes_survive_copies() -> None:
    layer = M.Linear(2, 3)
    layer.weight.is_bias, layer.bias.is_bias = False, True
    assert [p.is_bias for p in layer.parameters()] == [False, True]  # type: ignore[attr-defined]
    for twin in (*twins(layer.bias), *(copy.deepcopy(layer).bias, pickle.loads(pickle.dumps(layer)).bias)):
        assert twin.is_bias is True
        np.testing.assert_array_equal(twin.numpy(), layer.bias.numpy())
    layer.bias.twin = layer.bias
    again = copy.deepcopy(layer.bias)
    assert again.twin is again
    layer.bias[...] = 1
    assert layer.bias.is_bias


def test_shape_error_is_a_value_error_and_a_runtime_error() -> None:
    for kind in (ValueError, RuntimeError):
        with pytest.raises(kind):
            Tensor([1.0, 2.0]) + Tensor([1.0, 2.0, 3.0])
    assert issubclass(ShapeError, ValueError)


@pytest.mark.parametrize(
    ("name", "canonical"),
    [("cpu:0", "cpu0:0"), ("cpu:2", "cpu0:2"), ("gpu:0", "gpu0:0"), ("xpu", "xpux:0"), ("xpu:0", "xpu0:0"),
     ("cpux", "cpux:0"), ("cpu1", "cpu1:0"), ("gpux:3", "gpu0:3"), ("xpux", "xpux:0")],
)  # fmt: skip
def test_device_names_are_canonicalized(name: str, canonical: str) -> None:
    assert device.canonical(name) == canonical
    if "gpu" not in name:
        assert F.linspace(1, 9, 8, device=name).device == canonical


@pytest.mark.parametrize("name", ["cpu", "gpu", "cpu:", "xpux:", ":0", "cpu0:x"])
def test_invalid_device_names_raise(name: str) -> None:
    with pytest.raises(DeviceError, match="is not a device"):
        device.canonical(name)


def test_device_equals_each_of_its_names() -> None:
    t, other = Tensor([1.0]), Tensor([1.0], device="cpu1")
    assert t.device == "xpux" and t.device == "xpux:0" and t.device == device.HOST
    assert "xpux".__eq__(t.device) is False and t.device in ("xpux",)  # from the left, too
    assert other.device == "cpu1" and other.device == "cpu1:0" and other.device != "cpu2"
    assert t.device != "cpu1" and t.device != other.device and t.device != "no device" and t.device != 1
    assert t.device != "xpu"  # which other libraries say of theirs
    assert (t * 2).device == t.device == mgb.get_default_device()
    assert isinstance(t.device, str) and f"{t.device}" == "xpux:0" and {t.device: 1}["xpux:0"] == 1
    assert type(pickle.loads(pickle.dumps(t.device))) is str
    saved = io.BytesIO()
    mgb.save({"where": t.device}, saved)
    saved.seek(0)
    assert mgb.load(saved) == {"where": "xpux:0"}


def test_creation_ops_accept_the_device_of_a_tensor() -> None:
    """What is made there meets it, and is recorded as if the name had been written out."""
    t = Tensor([[3.0, 1.0], [2.0, 4.0]], device="cpu1")
    made = [
        F.zeros((2, 2), device=t.device), F.eye(2, device=t.device), F.arange(2, device=t.device),
        F.linspace(0, 1, 2, device=t.device), F.full((2,), 1.0, device=t.device),
        F.one_hot(F.argmax(t, 1), 2),
        Tensor([1.0, 2.0], device=t.device), t.to(t.device), F.concat([t, t], device=t.device)[:2],
    ]  # fmt: skip
    for x in made:
        assert (t + x).device == "cpu1" and type(x._device) is str
    traced = trace(lambda x: x + F.arange(2, device=x.device))
    for _ in range(3):
        assert traced(t).tolist() == [[3, 2], [2, 5]]


# indexing

#: NumPy's own results are the truth.
KEYS = {
    "a tuple in a key": np.s_[(0, 4, 2), :],
    "tuples beside each other": np.s_[(0, 4), (2, 1)],
    "a nested tuple": np.s_[((0, 1), (2, 3)), 1],
    "an empty tuple": np.s_[(), :],
    "a tuple of bools": np.s_[(True, False, True, False, True), 0],
    "true": np.s_[True],
    "false": np.s_[False],
    "true and a slice": np.s_[True, 0:1],
    "a slice and false": np.s_[0:1, False],
    "two bools": np.s_[True, False],
    "true in the middle": np.s_[1:3, True, 0],
    "true and an array": np.s_[True, [0, 2]],
    "true apart from an array": np.s_[True, :, [0, 2]],
    "true and a number": np.s_[True, 2],
    "false and an array": np.s_[False, [0]],
    "true and none": np.s_[None, True, ..., 1],
    "a NumPy bool": np.s_[np.True_, 1:],
    "a mask of one": np.s_[np.array(True), 1:],
}


@pytest.mark.parametrize("name", KEYS)
def test_tuple_and_bool_keys_match_numpy(name: str) -> None:
    key = KEYS[name]
    np.testing.assert_array_equal(Tensor(X)[key].numpy(), X[key])
    changed, want = Tensor(X), X.copy()
    changed[key], want[key] = -1.0, -1.0
    np.testing.assert_array_equal(changed.numpy(), want)
    if X[key].size:
        values = np.random.default_rng(0).normal(size=X[key].shape).astype(np.float32)
        changed[key], want[key] = values, values
        np.testing.assert_array_equal(changed.numpy(), want)


def test_numpy_testing_functions_accept_tensors() -> None:
    t = Tensor([1.0, 2.0])
    np.testing.assert_almost_equal(Tensor(1.0), 1.0)
    np.testing.assert_almost_equal(t, [1.0, 2.0])
    np.testing.assert_allclose(t, [1.0, 2.0])
    np.testing.assert_array_equal(t, t)
    for wrong in (lambda: np.testing.assert_almost_equal(Tensor(1.0), 2.0),
                  lambda: np.testing.assert_allclose(t, [1.0, 3.0])):  # fmt: skip
        with pytest.raises(AssertionError):
            wrong()


def test_pad_accepts_upper_case_mode() -> None:
    for mode in ("constant", "edge", "reflect"):
        want = np.pad(X, ((2, 1), (1, 0), (0, 1)), mode)
        np.testing.assert_array_equal(
            F.nn.pad(Tensor(X), ((2, 1), (1, 0), (0, 1)), mode.upper()).numpy(), want
        )
