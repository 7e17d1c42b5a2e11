"""Where a function takes an integer, nothing is rounded to one: the error names function and argument."""

from __future__ import annotations

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb.errors import ArgumentError, ConversionError, MgbError, ShapeError
from mgb.optimizer import SGD, Adam

ROW, PLANE = mgb.tensor([1.0, 2.0, 3.0, 4.0]), mgb.tensor(np.zeros((2, 4)))
IMAGES, KERNELS = F.zeros((1, 1, 4, 4)), F.zeros((1, 1, 2, 2))

FRACTIONS = {
    "topk: k": lambda n: F.topk(ROW, n),
    "reshape: the shape": lambda n: ROW.reshape(n, 4),
    "full: shape": lambda n: F.full((2, n), 0.0),
    "broadcast_to: shape": lambda n: F.broadcast_to(ROW, (n, 4)),
    "eye: N": F.eye,
    "linspace: num": lambda n: F.linspace(0, 1, n),
    "transpose: axes": lambda n: PLANE.transpose(n, 0),
    "split: nsplits_or_sections": lambda n: F.split(ROW, n),
    "repeat: repeats": lambda n: F.repeat(ROW, n, axis=0),
    "tile: reps": lambda n: F.tile(ROW, n),
    "roll: shift": lambda n: F.roll(ROW, n, 0),
    "one_hot: num_classes": lambda n: F.one_hot(mgb.tensor([0, 1]), n),
    "random: size": lambda n: mgb.random.normal(size=n),
    "permutation: n": mgb.random.permutation,
    "pad: pad_width": lambda n: F.pad(ROW, ((n, 0),)),
    "conv2d: groups": lambda n: F.conv2d(IMAGES, KERNELS, groups=n),
    "LayerNorm: normalized_shape": M.LayerNorm,
    "fft: n": lambda n: mgb.fft.fft(ROW, n),
    "bincount: minlength": lambda n: np.bincount(mgb.tensor([0, 1]), minlength=n),
}


@pytest.mark.parametrize("number", [1.5, 2.0, float("nan"), "2", np.float32(2)], ids=repr)
@pytest.mark.parametrize("name", FRACTIONS)
def test_what_is_no_integer_is_refused_and_never_cut(name, number):
    with pytest.raises(ConversionError, match=f"{name}.* integer, got"):
        FRACTIONS[name](number)


@pytest.mark.parametrize(
    "made", [int, np.int32, np.uint8, lambda n: mgb.tensor(n)], ids=["int", "int32", "uint8", "Tensor"]
)
def test_integers_of_any_kind_are_taken(made):
    assert F.topk(ROW, made(2), descending=True)[0].tolist() == [4.0, 3.0]
    assert ROW.reshape(made(2), 2).shape == PLANE[:, :2].shape == mgb.random.normal(size=(made(2), 2)).shape


@pytest.mark.parametrize(
    "name", ["repeat: repeats", "one_hot: num_classes", "random: size", "permutation: n"]
)
def test_amounts_below_zero_are_refused(name):
    with pytest.raises(ShapeError, match=f"{name}.* at least 0, got -1"):
        FRACTIONS[name](-1)


@pytest.mark.parametrize(
    "call", [F.sum, F.argmax, F.softmax, F.cumsum, F.flip, F.logsumexp, F.expand_dims, F.max, F.mean, F.norm]
)
def test_a_bool_is_no_axis(call):
    with pytest.raises(TypeError, match="axis True is not an integer"):
        call(PLANE, axis=True)


@pytest.mark.parametrize(
    "options", [{"lr": float("nan")}, {"lr": -1.0}, {"lr": 1.0, "weight_decay": float("nan")}]
)
@pytest.mark.parametrize("kind", [SGD, Adam])
def test_optimizers_refuse_rates_that_are_no_numbers(kind, options):
    with pytest.raises(ArgumentError, match=r"is not a number|is negative"):
        kind([mgb.Parameter([1.0])], **options)


def test_refusals_are_errors_of_mgb():
    assert issubclass(ConversionError, MgbError) and issubclass(ConversionError, TypeError)
