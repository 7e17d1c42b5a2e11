"""Layers and functions of images and sequences, with their gradients, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Tensor
from mgb.autodiff import GradManager
from mgb.errors import ShapeError
from mgb.jit import trace

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

RNG = np.random.default_rng(0)


def agree(ours: Callable[[Tensor], Tensor], theirs: Callable[[Any], Any], array: np.ndarray) -> None:
    """Values and gradients, eagerly and traced."""
    x = torch.tensor(array, requires_grad=True)
    want = theirs(x)
    share = RNG.standard_normal(tuple(want.shape)).astype(np.float32)
    want.backward(torch.tensor(share))
    for function in (ours, trace(ours)):
        for _ in range(2):
            t = Tensor(array)
            with GradManager().attach(t) as manager:
                got = function(t)
                manager.backward(got, Tensor(share))
            np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=2e-5, atol=2e-5)
            assert t.grad is not None
            np.testing.assert_allclose(t.grad.numpy(), x.grad.numpy(), rtol=2e-5, atol=2e-5)


IMAGE = RNG.standard_normal((2, 3, 7, 5)).astype(np.float32)
ROWS = RNG.standard_normal((2, 4, 9)).astype(np.float32)


@pytest.mark.parametrize("size", [1, 3, (7, 5), (2, 4), (9, 11)])
def test_adaptive_max_pool2d(size: Any) -> None:
    for array in (IMAGE, np.round(IMAGE)):  # the second one has ties
        agree(M.AdaptiveMaxPool2d(size), lambda x: torch.nn.functional.adaptive_max_pool2d(x, size), array)


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "groups": 2}, {"bias": False}], ids=str
)
def test_conv1d(options: dict[str, Any]) -> None:
    ours, theirs = M.Conv1d(4, 6, 3, **options), torch.nn.Conv1d(4, 6, 3, **options)
    ours.weight._reset(Tensor(theirs.weight.detach().numpy()).reshape(ours.weight.shape))
    if ours.bias is not None:
        ours.bias._reset(Tensor(theirs.bias.detach().numpy()).reshape(ours.bias.shape))
    agree(ours, theirs, ROWS)


def test_pixel_shuffle() -> None:
    image = RNG.standard_normal((2, 12, 3, 5)).astype(np.float32)
    agree(M.PixelShuffle(2), torch.nn.PixelShuffle(2), image)
    agree(lambda x: F.nn.pixel_shuffle(x, 2), torch.nn.PixelShuffle(2), image[0])
    with pytest.raises(ShapeError, match=r"must be a multiple of 5 \* 5"):
        M.PixelShuffle(5)(Tensor(image))


def test_instance_norm() -> None:
    ours, theirs = M.InstanceNorm(3), torch.nn.InstanceNorm2d(3, affine=True)
    agree(ours, theirs, IMAGE)
    with pytest.raises(ShapeError, match=r"InstanceNorm\(4\): \(2, 3, 7, 5\)"):
        M.InstanceNorm(4)(Tensor(IMAGE))


SIZES: list[dict[str, Any]] = [
    {"size": (14, 10)},
    {"size": (3, 8)},
    {"size": 6},
    {"scale_factor": 2},
    {"size": (7, 5)},
]


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("corners", [None, False, True])
def test_interpolate(mode: str, sizes: dict[str, Any], corners: bool | None) -> None:
    if mode == "nearest" and corners is not None:
        with pytest.raises(ValueError, match="align_corners is not for mode 'nearest'"):
            F.nn.interpolate(Tensor(IMAGE), **sizes, mode=mode, align_corners=corners)
        return
    agree(
        lambda x: F.nn.interpolate(x, **sizes, mode=mode, align_corners=corners),
        lambda x: torch.nn.functional.interpolate(x, **sizes, mode=mode, align_corners=corners),
        IMAGE,
    )


def test_interpolate_other_axes() -> None:
    agree(
        lambda x: F.nn.interpolate(x, 5, mode="linear"),
        lambda x: torch.nn.functional.interpolate(x, 5, mode="linear"),
        ROWS,
    )
    volume = RNG.standard_normal((1, 2, 3, 4, 5)).astype(np.float32)
    agree(
        lambda x: F.nn.interpolate(x, (5, 6, 3), mode="trilinear"),
        lambda x: torch.nn.functional.interpolate(x, (5, 6, 3), mode="trilinear"),
        volume,
    )


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"size": 3, "mode": "area"}, ValueError, "'area' is not a mode"),
        (
            {"size": 3, "mode": "linear"},
            ShapeError,
            r"mode 'linear' does not take images of shape \(2, 3, 7, 5\)",
        ),
        ({}, ShapeError, "either size or scale_factor"),
        ({"size": 3, "scale_factor": 2}, ShapeError, "either size or scale_factor"),
        ({"size": (1, 2, 3)}, ShapeError, r"resize images of \(7, 5\) to \(1, 2, 3\)"),
        ({"size": (1, 0)}, ShapeError, r"resize images of .* to \(1, 0\)"),
        ({"scale_factor": (1.0, 2.0, 3.0)}, ShapeError, "cannot resize"),
    ],
)
def test_interpolate_rejects_invalid_options(
    options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        F.nn.interpolate(Tensor(IMAGE), **options)


SEQUENCE = RNG.standard_normal((5, 2, 3)).astype(np.float32)


def with_the_weights_of(ours: Any, theirs: Any) -> Any:
    """`ours`, whose cells stand in the order of PyTorch's parameters."""
    cells = getattr(ours, "cells", [ours])
    names = [n for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh") if getattr(cells[0], n) is not None]
    mine = [getattr(cell, name) for cell in cells for name in names]
    for parameter, value in zip(mine, theirs.parameters(), strict=True):
        parameter._reset(Tensor(value.detach().numpy()))
    return ours


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_cells(name: str, bias: bool) -> None:
    theirs = getattr(torch.nn, name)(3, 4, bias)
    ours = with_the_weights_of(getattr(M, name)(3, 4, bias), theirs)
    first = RNG.standard_normal((2, 4)).astype(np.float32)

    def twice(cell: Any, x: Any, state: Any) -> Any:
        """From zeros and from a given state; of an LSTM, the hidden state and the memory."""
        one, two = cell(x), cell(x, (state, state) if name == "LSTMCell" else state)
        return one[0] * one[1] + two[0] * two[1] if name == "LSTMCell" else one * two

    agree(
        lambda x: twice(ours, x, Tensor(first)), lambda x: twice(theirs, x, torch.tensor(first)), SEQUENCE[0]
    )


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 3, "bias": False}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}],
    ids=str,
)
def test_recurrent_layers(name: str, options: dict[str, Any]) -> None:
    theirs = getattr(torch.nn, name)(3, 4, **options)
    ours = with_the_weights_of(getattr(M, name)(3, 4, **options), theirs)
    agree(lambda x: ours(x)[0], lambda x: theirs(x)[0], SEQUENCE)
    agree(
        lambda x: ours(x)[1][1] if name == "LSTM" else ours(x)[1],
        lambda x: theirs(x)[1][1] if name == "LSTM" else theirs(x)[1],
        SEQUENCE,
    )
    given = RNG.standard_normal(theirs(torch.tensor(SEQUENCE))[1][0].shape if name == "LSTM" else 0)
    if name == "LSTM":
        state = given.astype(np.float32)
        agree(
            lambda x: ours(x, (Tensor(state), Tensor(state)))[0],
            lambda x: theirs(x, (torch.tensor(state), torch.tensor(state)))[0],
            SEQUENCE,
        )


def test_relu_rnn_and_rejected_recurrent_arguments() -> None:
    theirs = torch.nn.RNN(3, 4, nonlinearity="relu")
    ours = with_the_weights_of(M.RNN(3, 4, nonlinearity="relu"), theirs)
    agree(lambda x: ours(x)[0], lambda x: theirs(x)[0], SEQUENCE)
    with pytest.raises(ValueError, match="'sin' is not a nonlinearity"):
        M.RNNCell(3, 4, nonlinearity="sin")
    with pytest.raises(ShapeError, match=r"RNN takes \(time, batch, features\), got \(2, 3\)"):
        ours(Tensor(SEQUENCE[0]))
    with pytest.raises(
        ShapeError, match=r"LSTMCell: the input must have 7 features in its last axis, got shape \(2, 3\)"
    ):
        M.LSTMCell(7, 4)(Tensor(SEQUENCE[0]))
    with pytest.raises(ShapeError, match="at least one step"):
        ours(Tensor(SEQUENCE[:0]))


def test_megengine_names_are_available_in_nn() -> None:
    assert F.nn.pad is F.pad and F.nn.one_hot is F.one_hot and F.nn.indexing_one_hot is F.indexing_one_hot
