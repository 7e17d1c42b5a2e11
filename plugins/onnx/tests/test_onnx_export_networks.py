"""Whole networks: a dump in ONNX Runtime, and loaded again, gives what the network gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import onnx
import pytest
from mgb.jit import load, trace
from mgb.tensor import Tensor
from mgb.tools.demo import DigitsNet
from onnx_runtime import run_model

RNG = np.random.default_rng(3)


def randomised(net: M.Module) -> M.Module:
    """`net` in eval mode, with statistics and affine parameters of its batch norms that are not 0 and 1."""
    for module in net.modules():
        if isinstance(module, M.BatchNorm2d):
            shape = module.running_mean.shape
            for tensor, low in ((module.running_mean, -1), (module.running_var, 0.5), (module.weight, -1)):
                tensor[...] = mgb.tensor(RNG.uniform(low, 2, shape).astype(np.float32))
    net.eval()
    return net


class ConvNet(M.Module):
    """Two convolutions with batch norm, a residual connection, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = M.Conv2d(3, 8, 3, padding=1)
        self.norm1 = M.BatchNorm2d(8)
        self.conv2 = M.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm2 = M.BatchNorm2d(8)
        self.head = M.Linear(8 * 4 * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)) + y)
        return self.head(F.flatten(F.max_pool2d(y, 2, 2), 1))


class Attention(M.Module):
    """A transformer block: layer norm, two heads, GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = M.LayerNorm(16), M.LayerNorm(16)
        self.attention = M.MultiHeadAttention(16, 2)
        self.up, self.down = M.Linear(16, 32), M.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class AlexNet(M.Module):
    """Its layers at a quarter of its size."""

    def __init__(self) -> None:
        super().__init__()
        channels = ((3, 16, 11, 4, 2), (16, 48, 5, 1, 2), (48, 96, 3, 1, 1), (96, 64, 3, 1, 1))
        self.convolutions = [M.Conv2d(i, o, k, stride=s, padding=p) for i, o, k, s, p in channels]
        self.pooled = (0, 1, 3)
        self.fc = [M.Linear(64, 128), M.Linear(128, 10)]

    def forward(self, x: Tensor) -> Tensor:
        for number, convolution in enumerate(self.convolutions):
            x = F.relu(convolution(x))
            if number in self.pooled:
                x = F.max_pool2d(x, 3, 2)
        x = F.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1)
        return self.fc[1](F.relu(self.fc[0](x)))


NETWORKS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "digits": (DigitsNet, (8, 1, 8, 8)),
    "convolutions": (ConvNet, (2, 3, 8, 8)),
    "attention": (Attention, (2, 6, 16)),
    "alexnet": (AlexNet, (1, 3, 67, 67)),
}

WAYS: dict[str, tuple[dict[str, Any], float]] = {
    "default": ({}, 2e-5),
    "as recorded": ({"no_change_graph": True}, 2e-5),
    "not for inference": ({"optimize_for_inference": False}, 2e-5),
    "fused": (
        {
            "enable_fuse_conv_bias_nonlinearity": True,
            "enable_fuse_conv_bias_with_z": True,
            "keep_opr_name": True,
        },
        2e-5,
    ),
    "stored in 16 bits": ({"enable_io16xc32": True, "keep_param_name": True}, 1e-2),
    "computed in 16 bits": ({"enable_ioc16": True, "keep_var_name": 2}, 2e-2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("network", NETWORKS)
def test_network_matches_in_onnx_runtime_and_after_loading(network: str, way: str, tmp_path: Path) -> None:
    make, shape = NETWORKS[network]
    options, tolerance = WAYS[way]
    net = randomised(make())
    x = mgb.tensor(RNG.standard_normal(shape).astype(np.float32))
    traced = trace(lambda x: F.softmax(net(x), axis=-1), capture_as_const=True)
    traced(x)
    want = F.softmax(net(x), axis=-1).numpy()
    file = str(tmp_path / "net.onnx")
    info = traced.dump(file, arg_names=["x"], output_names=["probability"], **options)
    onnx.checker.check_model(file, full_check=True)
    assert info.inputs == ["x"] and info.outputs == ["probability"]
    (got,) = run_model(file, x.numpy())
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    again = load(file, backend="EAGER")(x=x).numpy()
    np.testing.assert_allclose(again, want, rtol=tolerance, atol=tolerance)


def operators(file: str) -> list[str]:
    return [node.op_type.split("__")[0] for node in onnx.load(file).graph.node]


def test_batch_norm_is_fused_into_the_convolution(tmp_path: Path) -> None:
    net = randomised(ConvNet())
    traced = trace(lambda x: net(x), capture_as_const=True)
    traced(mgb.tensor(RNG.standard_normal((2, 3, 8, 8)).astype(np.float32)))
    file = str(tmp_path / "net.onnx")
    traced.dump(file)
    assert operators(file)[:5] == ["Conv", "Relu", "Conv", "Add", "Relu"]
    traced.dump(file, enable_fuse_conv_bias_nonlinearity=True, enable_fuse_conv_bias_with_z=True)
    assert operators(file)[:2] == ["conv_bias_relu", "conv_bias_add_relu"]
