"""What bad input to ops, tensors, files, modules and optimizers gets: its class, and a text that helps."""

from __future__ import annotations

import io
import json
import pickle
import re
import struct

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Parameter, errors, tensor
from mgb.autodiff import GradManager
from mgb.errors import ConversionError, ShapeError
from mgb.jit import trace
from mgb.optimizer import LAMB, SGD, Adam, AdamW, MultiStepLR
from mgb.tensor.apply import literal

A, B = tensor(np.zeros((2, 3))), tensor(np.zeros((4, 5)))
INTS, BYTES, FLOATS = tensor([1, 2]), tensor(np.array([1, 2], np.uint8)), tensor([1.0, 2.0])
IMAGES, WEIGHTS = tensor(np.zeros((1, 2, 8, 8))), tensor(np.zeros((4, 5, 3, 3)))

MODES = [{}, {"symbolic": True}, {"without_host": True}, {"imperative": True}]

#: name -> (function of `A` and `B`, class, what the message holds)
OPS = {
    "add": (lambda a, b: a + b, ShapeError, r"add: .*\(2, 3\) and \(4, 5\) do not broadcast"),
    "in place": (lambda a, b: a.__imul__(b), ShapeError, r"mul: .*\(2, 3\) and \(4, 5\) do not broadcast"),
    "reflected": (lambda a, b: [1.0, 2.0] - a, ShapeError, r"sub: .*\(2,\) and \(2, 3\) do not broadcast"),
    "maximum": (lambda a, b: F.maximum(a, b), ShapeError, r"maximum: .*\(2, 3\) and \(4, 5\)"),
    "where": (lambda a, b: F.where(a > 0, a, b), ShapeError, r"where: .*\(2, 3\) and \(2, 3\) and \(4, 5\)"),
    "composite": (lambda a, b: F.logaddexp(a, b), ShapeError, r"\(2, 3\) and \(4, 5\) do not broadcast"),
    "matmul": (lambda a, b: a @ b, ShapeError, r"matmul: \(2, 3\) and \(4, 5\) do not multiply"),
    "matmul batch": (lambda a, b: F.matmul(F.zeros((2, 3, 4)), F.zeros((5, 4, 3))), ShapeError,
                     r"matmul: the leading axes of \(2, 3, 4\) and \(5, 4, 3\) do not broadcast"),
    "linear": (lambda a, b: F.linear(a, b), ShapeError, r"matmul: \(2, 3\) and \(5, 4\) do not multiply"),
    "conv2d": (lambda a, b: F.conv2d(IMAGES, WEIGHTS), ShapeError,
               r"conv2d: images of \(1, 2, 8, 8\) and weights of \(4, 5, 3, 3\).*2 channels, 5 for each"),
    "conv2d axes": (lambda a, b: F.conv2d(a, b), ShapeError, r"conv2d: .*\(2, 3\) and weights of \(4, 5\)"),
    "batch_norm": (lambda a, b: F.batch_norm(IMAGES, training=True, weight=tensor([1.0] * 3)),
                   ShapeError, r"normalisation of shape \(1, 2, 8, 8\) needs one parameter per channel"),
    "instance_norm": (lambda a, b: F.instance_norm(a, weight=tensor([1.0] * 4), bias=tensor([1.0] * 4)),
                      ShapeError, r"normalisation of shape \(2, 3\) needs one parameter per channel"),
    "max nothing": (lambda a, b: a[:0].max(), ShapeError, r"max of an empty array: shape \(0, 3\)"),
    "einsum": (lambda a, b: F.einsum("ij,jk", a, b), ShapeError, r"einsum: the lengths of \['j'\] differ"),
    "max_pool2d": (lambda a, b: F.max_pool2d(IMAGES, 9),
                   ShapeError, r"pooling: a kernel of \(9, 9\).*\(8, 8\)"),
    "concat": (lambda a, b: F.concat([a, b], 0),
               ShapeError, r"concat: \(2, 3\) and \(4, 5\) differ beside axis 0"),
    "concat axis": (lambda a, b: F.concat([a, a], 5),
                    ShapeError, "concat: axis 5 is out of range for 2 axes"),
    "concat nothing": (lambda a, b: F.concat([], 0), ShapeError, "concat: needs at least one array"),
    "stack": (lambda a, b: F.stack([a, b]), ShapeError, r"stack: .* got \(2, 3\), \(4, 5\)"),
    "split": (lambda a, b: F.split(a, 5, axis=1),
              ShapeError, r"split: cannot split axis 1 of shape \(2, 3\) into 5 parts"),
    "reshape": (lambda a, b: a.reshape(5, 5), ShapeError, r"reshape: \(2, 3\) has 6 elements.*\(5, 5\)"),
    "reshape -1": (lambda a, b: a.reshape(-1, 4), ShapeError, r"reshape: \(2, 3\) has 6 elements.*\(-1, 4\)"),
    "broadcast_to": (lambda a, b: F.broadcast_to(a, (4, 5)),
                     ShapeError, r"\(2, 3\) does not broadcast to \(4, 5\)"),
    "transpose": (lambda a, b: a.transpose(0, 1, 2), ShapeError, r"transpose: \(0, 1, 2\) .*\(2, 3\)"),
    "squeeze": (lambda a, b: F.squeeze(a, 0), ShapeError, r"squeeze: an axis of \(0,\) in shape \(2, 3\)"),
    "index": (lambda a, b: a[0, 7], IndexError, "index 7 is out of bounds for axis 1 with size 3"),
    "index first": (lambda a, b: a[-3], IndexError, "index -3 is out of bounds for axis 0 with size 2"),
    "index array": (lambda a, b: a[:, [0, 9]], IndexError, "index 9 is out of bounds for axis 1 with size 3"),
    "indices": (lambda a, b: a[0, 0, 0], IndexError, "it has 2 axes, but 3 were indexed"),
    "index float": (lambda a, b: a[1.5], IndexError, "float is not an index: use integers"),
    "index floats": (lambda a, b: a[FLOATS], IndexError, "integer or boolean type, got float32"),
    "mask": (lambda a, b: a[b > 0], IndexError, "a mask of length 4 does not match axis 0 of length 2"),
    "assign": (lambda a, b: a.__setitem__((0, 7), 1.0), IndexError, "index 7 is out of bounds for axis 1"),
    "assign shape": (
        lambda a, b: a.__setitem__(0, b), ShapeError,
        r"\(4, 5\) does not broadcast to the 3 places of x\[key\], of shape \(3,\)",
    ),
    "sum": (lambda a, b: a.sum(axis=2), ShapeError, "sum: axis 2 is out of range for 2 axes"),
    "mean": (lambda a, b: F.mean(a, axis=-3), ShapeError, "mean: axis -3 is out of range for 2 axes"),
    "max twice": (lambda a, b: a.max(axis=(0, 0)), ShapeError, r"max: axis \(0, 0\) .* or given twice"),
    "argmax": (lambda a, b: F.argmax(a, axis=5), ShapeError, "argmax: axis 5 is out of range for 2 axes"),
    "norm": (lambda a, b: F.norm(a, axis=5), ShapeError, "norm: axis 5 is out of range for 2 axes"),
    "softmax": (lambda a, b: F.softmax(a, axis=5), ShapeError, "softmax: axis 5 is out of range for 2 axes"),
    "axis float": (lambda a, b: a.sum(axis=1.5), TypeError, "sum: axis 1.5 is not an integer"),
    "axis str": (lambda a, b: a.prod(axis="x"), TypeError, "prod: axis 'x' is not an integer"),
    "signs": (lambda a, b: INTS.astype("int64") & BYTES.astype("uint64"),
              ConversionError, "bit_and: no integer holds int64 and uint64: cast one"),
    "float shift": (lambda a, b: FLOATS << 1, ConversionError, "left_shift: needs integers or bools, got"),
    "shift by float": (lambda a, b: INTS >> FLOATS,
                       ConversionError, "right_shift: needs integers or bools, got"),
    "inverse": (lambda a, b: INTS**-1, ConversionError, "pow: integers to the power -1 are not integers"),
    "float bits": (lambda a, b: FLOATS & FLOATS, ConversionError, "bit_and: needs .* got float32"),
    "too large": (lambda a, b: INTS + 2**40, ConversionError, "add: 1099511627776 does not fit in int32"),
    "None": (lambda a, b: a + None, TypeError, "add: the operand is None and is not supported"),
    "None left": (lambda a, b: None * a, TypeError, "mul: the operand is None and is not supported"),
    "None alone": (lambda a, b: F.exp(None), TypeError, "exp: the operand is None and is not supported"),
    "None matmul": (lambda a, b: F.matmul(a, None), TypeError, "matmul: the operand is None"),
    "tuple": (lambda a, b: a + (1, 2, 3), TypeError, "add: a tuple is not an array; make a list or a Tensor"),
    "str": (lambda a, b: a * "x",
            ConversionError, "mul: cannot make a Tensor of str: dtype <U1 is not supported"),
    "dict": (lambda a, b: a - {}, ConversionError, "sub: cannot make a Tensor of dict"),
    "complex": (lambda a, b: a + np.clongdouble(1j),
                ConversionError, "add: cannot make a Tensor of clongdouble: dtype complex256"),
    "astype": (lambda a, b: a.astype("complex256"),
               ConversionError, "dtype complex256 is not supported; choose"),
    "astype name": (lambda a, b: a.astype("flaot32"),
                    ConversionError, "'flaot32' is not a dtype; choose one of"),
    "device": (lambda a, b: a.to("tpu0"), errors.DeviceError, "'tpu0'.: that is neither a device"),
    "devices": (lambda a, b: a + literal(1.0, device="gpu0:0"),
                errors.DeviceMismatchError, "add: ambiguous device: xpux:0 and gpu0:0.*to"),
    "linspace": (lambda a, b: F.linspace(0, 1, -1), ShapeError, "linspace: .* at least 0, got -1"),
    "eye": (lambda a, b: F.eye(-1), ShapeError, "eye: .* at least 0, got -1"),
    "full": (lambda a, b: F.full((-1,), 0.0), ShapeError, r"does not broadcast to \(-1,\)"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    monkeypatch.setenv("MGB_JIT_BACKEND", "eager")


def refused(function, kind, text) -> None:
    with pytest.raises(kind, match=text) as caught:
        function()
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", OPS)
def test_op_rejects_bad_operands(name):
    function, kind, text = OPS[name]
    a = tensor(A.numpy().copy())
    refused(lambda: function(a, B), kind, text)
    assert a.shape == (2, 3) and (a + 1).sum().item() == 6


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_traced_op_rejects_bad_operands(name, mode):
    function, kind, text = OPS[name]
    bad = False

    @trace(**mode)
    def step(a, b):
        c = a * 1.0
        return function(c, b) if bad else c + 1

    bad = True
    refused(lambda: step(A, B), kind, text)  # the first call
    bad = False
    assert step(A, B).sum().item() == 6
    if not mode.get("without_host"):  # its body does not run again
        bad = True
        with pytest.raises((kind, errors.TraceMismatchError)):
            step(A, B)
        bad = False
    assert step(A, B).sum().item() == 6


@pytest.mark.parametrize("order", [1, 2])
def test_failed_op_leaves_the_grad_manager_usable(order):
    weight = Parameter(np.ones((2, 3)))
    manager = GradManager().attach([weight])
    for _ in range(order):
        with pytest.raises(ShapeError, match=r"\(2, 3\) and \(4, 5\)"), manager:
            manager.backward((weight * B).sum())
    with manager:
        manager.backward((weight * 2.0).sum())
    assert weight.grad.tolist() == [[2, 2, 2], [2, 2, 2]]


# tensors

TENSORS = {
    "ragged": (lambda: tensor([[1, 2], [3]]),
               ConversionError, "cannot make a Tensor of list: .*inhomogeneous"),
    "object": (lambda: tensor([object()]),
               ConversionError, "a Tensor of list: dtype object is not supported"),
    "None": (lambda: tensor(None), ConversionError, "a Tensor of NoneType: dtype object is not supported"),
    "None inside": (lambda: tensor([1, None], dtype="float32"),
                    ConversionError, "dtype object is not supported"),
    "complex": (lambda: tensor(np.clongdouble(1j)),
                ConversionError, "dtype complex256 is not supported; choose one of bool"),
    "complex to float": (lambda: tensor(1j, dtype="float32"),
                         ConversionError, "a cast of complex128 to float32 would drop the imaginary parts"),
    "text": (lambda: tensor(["1"], dtype="float32"), ConversionError, "a Tensor of list: dtype <U1"),
    "dtype": (lambda: tensor([1], dtype="complex256"), ConversionError, "dtype complex256 is not supported"),
    "generator": (lambda: tensor(x for x in [1]), ConversionError, "a Tensor of generator"),
    "too large": (lambda: tensor([2**40]), ConversionError, "does not fit in int32: give a dtype"),
    "device": (lambda: tensor(1.0, device="tpu9"), errors.DeviceError, "'tpu9' is not a device"),
    "index": (lambda: tensor([1, 2])[5], IndexError, "index 5 is out of bounds for axis 0 with size 2"),
    "bool": (lambda: bool(tensor([1, 2])), ValueError, "truth value of an array with more than one element"),
    "bool of none": (lambda: bool(tensor([])), ValueError, "truth value of an empty array"),
    "item": (lambda: tensor([1, 2]).item(), ValueError, "size 1"),
    "float": (lambda: float(tensor([1.0, 2.0])), ValueError, "size 1"),
    "as an index": (lambda: [1, 2, 3][tensor(1.5)],
                    TypeError, "only a 0-d integer Tensor can be used as an index"),
    "len": (lambda: len(tensor(1.0)), TypeError, "ndim is 0"),
    "iter": (lambda: list(tensor(1.0)), TypeError, "ndim is 0"),
    "rebuilt": (lambda: tensor(tensor([1.0]), dtype="int32"),
                RuntimeError, "cannot be rebuilt as int32: use astype"),
    "requires_grad": (lambda: tensor(1.0).requires_grad, AttributeError, "attach tensors to a GradManager"),
}  # fmt: skip


@pytest.mark.parametrize("name", TENSORS)
def test_tensor_rejects_bad_input(name):
    refused(*TENSORS[name])
    assert tensor([2**31 - 1, -(2**31)]).tolist() == [2**31 - 1, -(2**31)]


# files


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "state.safetensors"
    mgb.save({"w": tensor([1.0, 2.0]), "n": [3, None]}, path)
    return path


FOREIGN = {
    "empty": b"",
    "short": b"abcde",
    "text": b"hello, this is a text file and nothing else\n" * 9,
    "pickle": pickle.dumps({"w": [1.0, 2.0]}),
    "zeros": bytes(64),
    "no json": struct.pack("<Q", 2) + b"{]",
    "a list": struct.pack("<Q", 2) + b"[]",
    "nested": struct.pack("<Q", 100_000) + b"[" * 100_000,
    "not utf-8": struct.pack("<Q", 2) + b"\xff\xfe",
    **{
        name: struct.pack("<Q", len(header)) + header + bytes(4)
        for name, header in {
            "no dtype": b'{"a":{"shape":[1],"data_offsets":[0,4]}}',
            "dtype": b'{"a":{"dtype":"C64","shape":[1],"data_offsets":[0,4]}}',
            "offsets": b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,400]}}',
            "backwards": b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}',
            "negative": b'{"a":{"dtype":"F32","shape":[-1,-1],"data_offsets":[0,4]}}',
            "huge": b'{"a":{"dtype":"F32","shape":[1099511627776,16777216],"data_offsets":[0,4]}}',
            "words": b'{"a":{"dtype":"F32","shape":["x"],"data_offsets":[0,4]}}',
            "metadata": b'{"__metadata__":3}',
        }.items()
    },
}


@pytest.mark.parametrize("name", FOREIGN)
def test_load_rejects_foreign_files(name, saved):
    good = saved.read_bytes()
    saved.write_bytes(FOREIGN[name])
    text = f"cannot load {re.escape(str(saved))}: .*damaged or was not written by mgb.save"
    with pytest.raises(errors.FileFormatError, match=text):
        mgb.load(saved)
    with pytest.raises(errors.FileFormatError, match="cannot load the file"):
        mgb.load(io.BytesIO(FOREIGN[name]))
    saved.write_bytes(good)
    assert mgb.load(saved)["n"] == [3, None]


def test_load_detects_bit_flips_and_truncation_at_every_byte(saved):
    good = saved.read_bytes()
    for place in range(len(good)):
        for bad in (good[:place], good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :]):
            with pytest.raises(errors.FileFormatError):
                mgb.load(io.BytesIO(bad))
    assert mgb.load(io.BytesIO(good))["w"].tolist() == [1, 2]


def test_failed_save_leaves_the_file_unchanged(saved):
    circle: list = []
    circle.append(circle)
    for bad, text in [
        ({"f": print}, "cannot save f: a builtin_function_or_method is not a tensor"),
        ({"a": {(1, 2): 3}}, r"cannot save a: the key \(1, 2\) is not a string or an integer"),
        ({"a": [np.zeros(2, complex)]}, "cannot save a.0: safetensors files have no dtype complex128"),
        (circle, "nested too deeply, or holds itself"),
    ]:
        refused(lambda: mgb.save(bad, saved), TypeError, text)  # noqa: B023
    assert mgb.load(saved)["w"].tolist() == [1, 2]
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        mgb.load(saved.parent / "nowhere")
    assert json.loads(saved.read_bytes()[8:].split(b"}}")[0] + b"}}")["w"]["dtype"] == "F32"


def test_save_into_a_missing_folder_reports_the_given_path(tmp_path):
    path = tmp_path / "nowhere" / "state"
    with pytest.raises(FileNotFoundError) as caught:
        mgb.save(tensor(1.0), path)
    assert caught.value.filename == str(path) and str(caught.value).endswith(repr(str(path)))


# optimizers and modules

OPTIMIZERS = {
    "none": (lambda w: SGD([], 0.1), ValueError, "optimizer got an empty parameter list"),
    "tensor": (lambda w: SGD([tensor(1.0)], 0.1),
               TypeError, "only optimize Parameters, but one .* is Tensor"),
    "number": (lambda w: SGD(3, 0.1), TypeError, "a Parameter or an iterable of them, got int"),
    "set": (lambda w: SGD({w}, 0.1), TypeError, "in a set have another order.*use a list"),
    "twice": (lambda w: SGD([w, w], 0.1), ValueError, "appear in more than one parameter group"),
    "in two groups": (lambda w: Adam([{"params": [w]}, {"params": [w]}], 0.1), ValueError, "more than one"),
    "mixed": (lambda w: SGD([w, {"params": [w]}], 0.1), TypeError, "all Parameters or all dicts, got both"),
    "no params": (lambda w: SGD([{"lr": 1.0}], 0.1), ValueError, "needs 'params', got only lr"),
    "negative lr": (lambda w: AdamW([w], -1.0), ValueError, "invalid lr: -1.0 is negative"),
    "lr": (lambda w: SGD([w], "fast"), ValueError, "invalid lr: 'fast' is not a number"),
    "no lr": (lambda w: LAMB([w], None), ValueError, "invalid lr: None is not a number"),
    "betas": (lambda w: Adam([w], 0.1, betas=(1.0, 0.9)), ValueError, r"invalid betas: \(1.0, 0.9\)"),
    "one beta": (lambda w: Adam([w], 0.1, betas=0.9), ValueError, "invalid betas: 0.9 is not a pair of numb"),
    "three betas": (lambda w: AdamW([w], 0.1, betas=(0.1, 0.2, 0.3)), ValueError, "is not a pair of numbers"),
    "words": (lambda w: LAMB([w], 0.1, betas="ab"), ValueError, "invalid betas: 'ab' is not a pair of numb"),
    "decay": (lambda w: SGD([w], 0.1, weight_decay=-1.0),
              ValueError, "invalid weight_decay: -1.0 is negative"),
    "load nothing": (lambda w: SGD([w], 0.1).load_state_dict({}), KeyError, "has no 'param_groups'"),
    "load another": (lambda w: SGD([w], 0.1, momentum=0.9).load_state_dict(Adam([w], 0.1).state_dict()),
                     ValueError, "differs in betas, eps, momentum, nesterov"),
    "milestones": (lambda w: MultiStepLR(SGD([w], 0.1), [3, 1]),
                   ValueError, r"increasing integers. Got \[3, 1\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_rejects_bad_input(name):
    make, kind, text = OPTIMIZERS[name]
    weight = Parameter([1.0])
    refused(lambda: make(weight), kind, text)
    weight.grad = tensor([2.0])
    SGD([weight], lr=0.25).step()
    assert weight.item() == 0.5


@pytest.mark.parametrize("mode", [None, {}, {"symbolic": True}], ids=str)
def test_optimizer_rejects_a_gradient_of_another_shape(mode):
    weight = Parameter([1.0])
    optimizer = SGD([weight], lr=0.5)

    def step(x):
        weight.grad = x * 2.0
        optimizer.step().clear_grad()

    run = step if mode is None else trace(step, **mode)
    with pytest.raises(
        ShapeError, match=r"gradient of shape \(1, 2\) does not fit a parameter of shape \(1,\)"
    ):
        run(tensor([[1.0, 2.0]]))
    assert weight.shape == (1,) and weight.item() == 1
    weight.grad = None
    run(tensor([1.0]))
    assert weight.item() == 0


class NoInit(M.Module):
    def __init__(self):
        self.inner = M.Linear(2, 2)

    def forward(self, x):
        return x


class BadKey(M.Module):
    def __init__(self):
        super().__init__()
        self.layers = {1: M.Linear(2, 2)}

    def forward(self, x):
        return x


LINEAR = M.Linear(2, 3)
STATE = LINEAR.state_dict()

MODULES = {
    "shape": (lambda: LINEAR(B), ShapeError, r"\(4, 5\) and \(2, 3\) do not multiply"),
    "channels": (lambda: M.Conv2d(3, 4, 3)(IMAGES), ShapeError, "2 channels, 3 for each group"),
    "groups": (lambda: M.Conv2d(3, 4, 3, groups=2),
               ShapeError, "in_channels = 3 and out_channels = 4 must be multiples of groups = 2"),
    "batch norm": (lambda: M.BatchNorm2d(3)(A), ShapeError, r"BatchNorm2d takes 4 axes, got \(2, 3\)"),
    "batch norm channels": (lambda: M.BatchNorm2d(3)(IMAGES),
                            ShapeError, r"\(1, 2, 8, 8\) needs one parameter per channel"),
    "no weight": (lambda: M.BatchNorm2d(3, affine=False)(IMAGES),
                  ShapeError, "batch_norm: 3 running statistics for 2 channels"),
    "word": (lambda: M.Linear("a", 2), ConversionError, "in_features must be an integer, got 'a'"),
    "half": (lambda: M.Conv2d(3, 2.5, 1), ConversionError, "out_channels must be an integer, got 2.5"),
    "negative": (lambda: M.Embedding(-1, 2), ShapeError, "num_embeddings must be at least 0, got -1"),
    "no groups": (lambda: M.Conv2d(3, 4, 3, groups=0), ShapeError, "groups must be at least 1, got 0"),
    "layer norm": (lambda: M.LayerNorm(4)(A),
                   ShapeError, r"\(2, 3\) does not end in the normalized shape \(4,\)"),
    "embedding": (lambda: M.Embedding(3, 2)(tensor([7])), IndexError, "index 7 is out of bounds for axis 0"),
    "dropout": (lambda: M.Dropout(2.0), ValueError, "drop_prob must be at least 0 and less than 1, got 2.0"),
    "no init": (NoInit, AttributeError, r"cannot assign module before Module.__init__\(\) call"),
    "key": (lambda: list(BadKey().parameters()),
            AssertionError, "keys for Tensor and Module must be str.*: 1"),
    "missing": (lambda: LINEAR.load_state_dict({}),
                KeyError, r"Missing params violate.*\['bias', 'weight'\]"),
    "unused": (lambda: LINEAR.load_state_dict({**STATE, "x": 1}),
               KeyError, r"Unused params violate.*\['x'\]"),
    "wrong": (lambda: LINEAR.load_state_dict({**STATE, "bias": np.zeros(7)}), ValueError,
              r"param `bias` shape mismatch, should be \(3,\), get \(7,\)"),
    "object": (lambda: LINEAR.load_state_dict({**STATE, "bias": np.array([None] * 3)}),
               ConversionError, "object"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_module_rejects_bad_input(name):
    refused(*MODULES[name])
    for key, value in LINEAR.state_dict().items():
        np.testing.assert_array_equal(value, STATE[key])
    assert LINEAR(tensor(np.ones((4, 2)))).shape == (4, 3)
