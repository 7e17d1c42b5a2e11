"""Foreign ONNX models: networks and operators against ONNX Runtime, NumPy and PyTorch."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from onnx import helper as h
from onnx_models import (
    FLOAT,
    agrees,
    attention_block,
    info,
    loaded,
    model,
    normal,
    recurrent,
    residual_network,
)


@pytest.mark.parametrize("batch", [1, 4])
def test_residual_network_agrees_with_onnx_runtime(batch: int) -> None:
    agrees(residual_network(), x=normal(batch, 3, 32, 32))


def test_attention_block_agrees_with_onnx_runtime() -> None:
    agrees(attention_block(), x=normal(2, 9, 32))


@pytest.mark.parametrize("kind, gates", [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_layer_agrees_with_onnx_runtime(kind: str, gates: int, direction: str) -> None:
    lengths = np.array([7, 7, 4], np.int32) if direction != "reverse" else np.array([7, 7, 7], np.int32)
    agrees(recurrent(kind, gates, direction), x=normal(7, 3, 5), lengths=lengths)


CONVOLUTIONS = [
    ("Conv", (2, 4, 9), (6, 4, 3), {"pads": [1, 0]}),
    ("Conv", (2, 4, 9, 8), (6, 2, 3, 2), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ("Conv", (2, 4, 9, 8), (6, 4, 3, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    ("Conv", (1, 2, 6, 7, 5), (3, 2, 2, 3, 2), {"pads": [1, 1, 0, 0, 1, 1], "strides": [2, 1, 1]}),
    ("ConvTranspose", (2, 4, 9), (4, 3, 3), {"strides": [2], "pads": [1, 0]}),
    ("ConvTranspose", (2, 4, 5, 6), (4, 3, 3, 2), {"group": 2, "strides": [2, 3], "output_padding": [1, 2]}),
    ("ConvTranspose", (1, 2, 4, 3, 3), (2, 3, 2, 2, 2), {"strides": [2, 1, 2], "dilations": [1, 2, 1]}),
]


@pytest.mark.parametrize("kind, x, w, attributes", CONVOLUTIONS)
def test_convolutions_over_any_axes_agree_with_onnx_runtime(
    kind: str, x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    node = h.make_node(kind, ["x", "w"], ["y"], **attributes)
    agrees(model([node], [info("x", FLOAT, x)], [info("y", FLOAT, None)], {"w": normal(*w)}), x=normal(*x))


POOLS = [
    ("MaxPool", (2, 3, 11), {"kernel_shape": [3], "strides": [2], "ceil_mode": 1}),
    ("MaxPool", (2, 3, 9, 8), {"kernel_shape": [3, 2], "dilations": [2, 1], "pads": [1, 0, 0, 1]}),
    ("MaxPool", (1, 2, 6, 7, 5), {"kernel_shape": [2, 3, 2], "strides": [2, 2, 1]}),
    ("AveragePool", (2, 3, 9, 8), {"kernel_shape": [3, 2], "pads": [1, 0, 0, 1], "count_include_pad": 1}),
    ("AveragePool", (2, 3, 9, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("AveragePool", (1, 2, 6, 7, 5), {"kernel_shape": [2, 3, 2], "auto_pad": "SAME_UPPER"}),
    ("LpPool", (2, 3, 9, 8), {"kernel_shape": [3, 2], "p": 3}),
]


@pytest.mark.parametrize("kind, x, attributes", POOLS)
def test_pooling_over_any_axes_agrees_with_onnx_runtime(
    kind: str, x: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    node = h.make_node(kind, ["x"], ["y"], **attributes)
    agrees(model([node], [info("x", FLOAT, x)], [info("y", FLOAT, None)]), x=normal(*x))


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("...ij,...jk", [(2, 1, 3, 4), (5, 4, 2)]),
        ("ii->i", [(4, 4)]),
        ("iji->j", [(4, 3, 4)]),
        ("i,j,k->kji", [(2,), (3,), (4,)]),
        ("ab,bc,cd->da", [(2, 3), (3, 4), (4, 5)]),
        ("ij->", [(2, 3)]),
    ],
)
def test_einsum_matches_numpy(equation: str, shapes: list[tuple[int, ...]]) -> None:
    arrays = [normal(*s) for s in shapes]
    names = [f"x{i}" for i in range(len(arrays))]
    node = h.make_node("Einsum", names, ["y"], equation=equation)
    data = model([node], [info(n, FLOAT, a.shape) for n, a in zip(names, arrays)], [info("y", FLOAT, None)])
    np.testing.assert_allclose(loaded(data)(*arrays).numpy(), np.einsum(equation, *arrays), 1e-4, 1e-5)


@pytest.mark.parametrize("base, exponent", [("int64", "int64"), ("int32", "uint8"), ("int64", "int32")])
def test_powers_of_integers_are_exact(base: str, exponent: str) -> None:
    x, y = np.meshgrid(np.arange(-9, 10), np.arange(19))
    x, y = x.astype(base), y.astype(exponent)
    types = [h.np_dtype_to_tensor_dtype(a.dtype) for a in (x, y)]
    inputs = [info(n, t, a.shape) for n, t, a in zip("xy", types, (x, y))]
    data = model([h.make_node("Pow", ["x", "y"], ["z"])], inputs, [info("z", types[0], None)])
    np.testing.assert_array_equal(loaded(data)(x, y).numpy(), np.power(x, y.astype(base)))


# what torch writes


def exported(net: Any, *inputs: Any) -> tuple[Any, list[np.ndarray]]:
    """The model that torch writes, read back, and torch's own results."""
    import torch

    file = io.BytesIO()
    torch.onnx.export(net, inputs, file, dynamo=False, opset_version=17)
    wanted = net(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    return loaded(file.getvalue()), [w.detach().numpy() for w in wanted]


def _torch_networks() -> dict[str, Any]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    nn = torch.nn
    torch.manual_seed(5)

    class Turns(nn.Module):  # type: ignore[misc]
        def forward(self, x):  # type: ignore[no-untyped-def]
            h = torch.zeros_like(x[0])
            for t in range(x.shape[0]):
                h = torch.tanh(h + x[t])
            return h

    class Last(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.lstm(x)[0][:, -1]

    class Encoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(10, 8)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.layer(self.words(x))

    images = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * 16, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, 5), nn.LogSoftmax(-1),
    )  # fmt: skip
    larger = nn.Sequential(
        nn.ConvTranspose2d(3, 8, 3, 2, 1, 1), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.GroupNorm(4, 8), nn.PixelShuffle(2), nn.InstanceNorm2d(2),
    )  # fmt: skip
    return {
        "images": (images, torch.randn(2, 3, 8, 8)),
        "larger": (larger, torch.randn(2, 3, 5, 6)),
        "encoder": (Encoder(), torch.randint(0, 10, (2, 5))),
        "lstm": (Last(), torch.randn(2, 5, 8)),
        "loop": (torch.jit.script(Turns()), torch.randn(4, 3)),
    }


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["images", "larger", "encoder", "lstm", "loop"])
def test_torch_exported_model_agrees_with_torch(name: str) -> None:
    net, x = _torch_networks()[name]
    function, wanted = exported(net.eval(), x)
    for _ in range(2):
        results = function(x.numpy())
        for got, want in zip(results if isinstance(results, tuple) else (results,), wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), want, 1e-3, 1e-5)
