"""Files whose lengths are open: other runtimes and our reader run them for lengths that nobody recorded."""

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import onnx
import pytest
from mgb import tensor
from mgb.errors import ArgumentError, UnsupportedError
from mgb.jit import trace

RANDOM = np.random.default_rng(0)


def drawn(*shape):
    return RANDOM.normal(size=shape).astype("float32")


class Net(M.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = (
            M.Conv2d(2, 4, 3, padding=1),
            M.BatchNorm2d(4),
            M.Linear(4 * 6 * 6, 3),
        )

    def forward(self, x):
        x = F.gelu(self.norm(self.conv(x)))
        return F.softmax(self.last(F.flatten(x, 1)), axis=1)


class Attention(M.Module):
    """Lengths in a reshape, a mean, a softmax, an arange and a product of two of them."""

    def __init__(self):
        super().__init__()
        self.proj, self.heads = M.Linear(8, 24), 2

    def forward(self, x):
        n, length, _ = x.shape
        qkv = self.proj(x).reshape(n, length, 3, self.heads, 4).transpose(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        place = F.arange(length, dtype="float32")
        weights = F.softmax(q @ k.transpose(0, 1, 3, 2) - F.abs(place[:, None] - place), axis=-1)
        out = (weights @ v).transpose(0, 2, 1, 3).reshape(n * length, 8)
        return {"rows": out, "mean": out.reshape(n, length, 8).mean(1), "half": x[:, 1:]}


CASES = {
    "net": (Net, (3, 2, 6, 6), {0: "batch"}, [(1, 2, 6, 6), (7, 2, 6, 6)]),
    "attention": (Attention, (3, 5, 8), {0: "batch", 1: "length"}, [(2, 5, 8), (4, 9, 8), (1, 2, 8)]),
}


def dumped(path, net, shape, axes, **options):
    function = trace(net, capture_as_const=True, symbolic=True)
    function(tensor(drawn(*shape)))
    function.dump(path, arg_names=["x"], dynamic_axes={"x": axes}, **options)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("options", [{}, {"no_change_graph": True, "optimize_for_inference": False}])
def test_dynamic_axes_run_with_other_lengths(tmp_path, name, options):
    make, shape, axes, others = CASES[name]
    net = make()
    net.eval()
    dumped(tmp_path / "f.onnx", net, shape, axes, **options)
    onnx.checker.check_model(str(tmp_path / "f.onnx"), full_check=True)
    loaded = mgb.jit.load(tmp_path / "f.onnx")
    assert loaded.inputs[0].shape == tuple(axes.get(i, d) for i, d in enumerate(shape))
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = runtime.InferenceSession(str(tmp_path / "f.onnx"))
    for other in (shape, *others):
        x = drawn(*other)
        want = net(tensor(x))
        want = {k: v.numpy() for k, v in want.items()} if isinstance(want, dict) else {"": want.numpy()}
        got = loaded(x)
        got = {k: v.numpy() for k, v in got.items()} if isinstance(got, dict) else {"": got.numpy()}
        names = sorted(want)
        theirs = dict(zip(names, session.run([n for n in names if n] or None, {"x": x})))
        for key in names:
            np.testing.assert_allclose(got[key], want[key], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(theirs[key], want[key], rtol=1e-4, atol=1e-5)


def test_result_shapes_have_symbolic_names(tmp_path):
    make, shape, axes, _ = CASES["attention"]
    dumped(tmp_path / "f.onnx", make(), shape, axes)
    outputs = {o.name: [d.dim_param or d.dim_value for d in o.type.tensor_type.shape.dim]
               for o in onnx.load(tmp_path / "f.onnx").graph.output}  # fmt: skip
    assert outputs["rows"] == ["batch*length", 8]
    assert outputs["mean"] == ["batch", 8]
    assert outputs["half"] == ["batch", "-1 + length", 8]


def test_two_inputs_share_a_length(tmp_path):
    function = trace(lambda a, b: (a @ b).sum(1), capture_as_const=True)
    function(tensor(drawn(3, 4)), tensor(drawn(4, 3)))
    function.dump(tmp_path / "f.onnx", arg_names=["a", "b"], dynamic_axes={"a": {0: "n"}, "b": [-1]})
    a, b = drawn(5, 4), drawn(4, 6)
    np.testing.assert_allclose(mgb.jit.load(tmp_path / "f.onnx")(a, b).numpy(), (a @ b).sum(1), rtol=1e-4)


def test_invalid_dynamic_axes_are_rejected(tmp_path):
    function = trace(lambda x: x * len(x) if len(x) < 50 else x + 1, capture_as_const=True)
    function(tensor(drawn(3)))
    with pytest.raises(UnsupportedError, match="depends on a length"):
        function.dump(tmp_path / "f.onnx", arg_names=["x"], dynamic_axes={"x": {0: "n"}})
    for axes, kind in (({"y": {0: "n"}}, ArgumentError), ({"x": {1: "n"}}, ArgumentError),
                       ({"x": {0: "a b"}}, ArgumentError)):  # fmt: skip
        with pytest.raises(kind, match="dynamic_axes"):
            function.dump(tmp_path / "f.onnx", arg_names=["x"], dynamic_axes=axes)
    assert not (tmp_path / "f.onnx").exists()
