"""The functions of neural networks, against NumPy and SciPy in float64 and finite differences."""

from __future__ import annotations

import mgb.functional as F
import numpy as np
import pytest
from mgb import random
from mgb.errors import ShapeError
from mgb.jit import trace
from mgb.tensor import Tensor
from scipy import special

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape)


def double(array):
    return Tensor(array, dtype="float64")


def close(tensor, want, rtol=1e-10):
    assert tensor.shape == np.shape(want)
    np.testing.assert_allclose(tensor.numpy(), want, rtol=rtol, atol=rtol)


# linear maps


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (0, 4)])
def test_linear(shape, check_gradient):
    x, w, b = normal(*shape), normal(5, 4), normal(5)
    close(F.linear(double(x), double(w), double(b)), x @ w.T + b)
    if x.size:
        check_gradient(F.linear, x, w, b)


def test_conv2d_bias_and_groups():
    from scipy import signal  # slow to import: the collection of all tests would wait for it

    x, w = normal(2, 4, 5, 6), normal(6, 2, 3, 2)
    parts = [
        [sum(signal.correlate2d(image[o // 3 * 2 + i], w[o, i], "valid") for i in range(2)) for o in range(6)]
        for image in x
    ]
    bias = normal(6)
    want = np.array(parts) + bias[:, None, None]
    close(F.conv2d(double(x), double(w), double(bias), groups=2), want)
    grouped = double(w.reshape(2, 3, 2, 3, 2))
    close(F.conv2d(double(x), grouped, double(bias.reshape(1, 6, 1, 1)), groups=2), want)


@pytest.mark.parametrize(
    "name, axes",
    [("conv1d", 1), ("conv2d", 2), ("conv3d", 3), ("conv_transpose2d", 2), ("conv_transpose3d", 3)],
)
def test_grouped_convolution_accepts_weight_with_group_axis(name, axes):
    convolve = getattr(F, name)
    x = double(normal(2, 4, *(4,) * axes))
    weight = normal(2, 2, 2, *(2,) * axes)
    flat = double(weight.reshape(4, 2, *(2,) * axes))
    close(convolve(x, double(weight), groups=2), convolve(x, flat, groups=2).numpy())
    with pytest.raises(
        ShapeError,
        match=rf"^{name}: groups = 1 does not fit a weight of shape .*, whose axis 0 is the groups$",
    ):
        convolve(x, double(weight))


def test_conv1d(check_gradient):
    x, w, b = normal(2, 3, 9), normal(4, 3, 3), normal(4)
    want = [
        [sum(np.correlate(row[i], w[o, i], "valid") for i in range(3)) + b[o] for o in range(4)] for row in x
    ]
    close(F.conv1d(double(x), double(w), double(b)), np.array(want))
    close(F.conv1d(double(x), double(w), double(b), stride=2), np.array(want)[:, :, ::2])
    check_gradient(lambda *a: F.conv1d(*a, stride=2, padding=1), x[:1, :, :5], w, b)


@pytest.mark.parametrize(
    "stride, padding, extra, dilation, groups", [(1, 0, 0, 1, 1), (2, 1, 1, 1, 2), (3, 0, 2, 2, 1)]
)
def test_conv_transpose2d(stride, padding, extra, dilation, groups):
    """Each input element adds its multiple of the kernel to the output."""
    x, w = normal(1, 2, 3, 4), normal(2, 2 // groups, 2, 3)
    shape = [
        (n - 1) * stride + dilation * (k - 1) + 1 + extra
        for n, k in zip(x.shape[2:], w.shape[2:], strict=True)
    ]
    want = np.zeros((1, 2, *shape))
    for c, i, j in np.ndindex(x.shape[1:]):
        outputs = slice(c, c + 1) if groups == 2 else slice(None)
        rows = slice(i * stride, i * stride + dilation + 1, dilation)
        cols = slice(j * stride, j * stride + 2 * dilation + 1, dilation)
        want[0, outputs, rows, cols] += x[0, c, i, j] * w[c]
    cut = slice(padding, -padding or None)
    got = F.conv_transpose2d(double(x), double(w), None, stride, padding, extra, dilation, groups)
    close(got, want[:, :, cut, cut])


def test_pooling():
    x = normal(2, 3, 4, 6)
    blocks = x.reshape(2, 3, 2, 2, 3, 2)
    close(F.max_pool2d(double(x), 2), blocks.max((3, 5)))
    close(F.avg_pool2d(double(x), (2, 2)), blocks.mean((3, 5)))
    close(F.adaptive_avg_pool2d(double(x), (2, 3)), blocks.mean((3, 5)))
    close(F.adaptive_avg_pool2d(double(x), 1), x.mean((2, 3), keepdims=True))
    ones = double(np.ones((1, 1, 2, 2)))
    close(F.avg_pool2d(ones, 2, 2, 1, mode="average"), np.full((1, 1, 2, 2), 0.25))
    close(F.avg_pool2d(ones, 2, 2, 1), np.ones((1, 1, 2, 2)))
    with pytest.raises(ValueError, match="mean is not a mode"):
        F.avg_pool2d(ones, 2, mode="mean")
    with pytest.raises(ShapeError, match="kernel_size must be one integer or two"):
        F.max_pool2d(ones, (1, 2, 3))


# normalisation


def standardized(x, axis, eps):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + eps)


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 2, 3)])
def test_batch_norm(shape, check_gradient):
    x, w, b, mean, var = normal(*shape), normal(3), normal(3), normal(3), RNG.uniform(1, 2, 3)
    axis = (0, *range(2, x.ndim))
    column = (3, *(1,) * (x.ndim - 2))
    running_mean, running_var = double(mean.reshape(1, *column)), double(var)
    params = {"weight": double(w), "bias": double(b), "eps": 1e-3}
    out = F.batch_norm(double(x), running_mean, running_var, **params, training=True, momentum=0.8)
    close(out, standardized(x, axis, 1e-3) * w.reshape(column) + b.reshape(column))
    close(running_mean, (0.8 * mean + 0.2 * x.mean(axis)).reshape(1, *column))
    close(running_var, 0.8 * var + 0.2 * x.var(axis, ddof=1))
    at_rest = (x - mean.reshape(column)) / np.sqrt(var.reshape(column) + 1e-3)
    out = F.batch_norm(double(x), double(mean), double(var), **params)
    close(out, at_rest * w.reshape(column) + b.reshape(column))
    check_gradient(lambda x, w, b: F.batch_norm(x, weight=w, bias=b, training=True), x, w, b)


def test_batch_norm_returns_statistics_when_not_in_place():
    x, mean, var = normal(5, 2), double(np.zeros(2)), double(np.ones(2))
    _, new_mean, new_var = F.batch_norm(double(x), mean, var, training=True, inplace=False)
    close(new_mean, 0.1 * x.mean(0))
    close(new_var, 0.9 + 0.1 * x.var(0, ddof=1))
    close(mean, np.zeros(2))
    with pytest.raises(ValueError, match="running_mean and running_var"):
        F.batch_norm(double(x))


def test_traced_batch_norm_updates_running_statistics():
    mean, var = double(np.zeros(2)), double(np.ones(2))
    step = trace(lambda x: F.batch_norm(x, mean, var, training=True))
    want = np.zeros(2)
    for n in (5, 5, 7):
        x = normal(n, 2)
        close(step(double(x)), standardized(x, 0, 1e-5), rtol=1e-8)
        want = 0.9 * want + 0.1 * x.mean(0)
        close(mean, want)


def test_layer_norm(check_gradient):
    x, w, b = normal(2, 3, 4), normal(3, 4), normal(3, 4)
    close(F.layer_norm(double(x), (3, 4), True, double(w), double(b)), standardized(x, (1, 2), 1e-5) * w + b)
    close(F.layer_norm(double(x), 4, affine=False), standardized(x, (2,), 1e-5))
    check_gradient(lambda x, w, b: F.layer_norm(x, (3, 4), True, w, b), x, w, b)
    with pytest.raises(ShapeError, match=r"\(2, 3, 4\) does not end in.*\(3,\)"):
        F.layer_norm(double(x), 3, affine=False)
    with pytest.raises(ValueError, match="affine=True needs"):
        F.layer_norm(double(x), 4)


def test_rms_norm(check_gradient):
    x, w = normal(3, 4), normal(4)
    close(F.rms_norm(double(x), 4, double(w)), x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6) * w)
    check_gradient(lambda x, w: F.rms_norm(x, 4, w), x, w, order=2, step=1e-4)


def test_instance_and_group_norm(check_gradient):
    x, w, b = normal(2, 4, 3, 2), normal(4), normal(4)
    column = (4, 1, 1)
    each = standardized(x, (2, 3), 1e-5) * w.reshape(column) + b.reshape(column)
    close(F.instance_norm(double(x), True, double(w), double(b)), each)
    close(F.group_norm(double(x), 4, True, double(w), double(b)), each)
    pairs = standardized(x.reshape(2, 2, 2, 3, 2), (2, 3, 4), 1e-5).reshape(x.shape)
    close(F.group_norm(double(x), 2, affine=False), pairs)
    check_gradient(lambda x, w, b: F.group_norm(x, 2, True, w, b), x, w, b)
    with pytest.raises(ShapeError, match="4 channels do not divide into 3"):
        F.group_norm(double(x), 3, affine=False)


def test_half_floats_are_normalised_in_float32():
    x = (normal(4, 1000) * 100 + 2000).astype(np.float16)
    out = F.layer_norm(Tensor(x), 1000, affine=False)
    assert out.dtype == np.float16
    np.testing.assert_allclose(out.numpy(), standardized(x.astype(float), (1,), 1e-5), rtol=2e-3, atol=2e-3)


# softmax


@pytest.mark.parametrize("axis", [0, -1, (1, 2)])
def test_softmax(axis, check_gradient):
    x = normal(2, 3, 4) * 3
    close(F.softmax(double(x), axis), special.softmax(x, axis))
    close(F.logsoftmax(double(x), axis), special.log_softmax(x, axis))
    close(F.logsumexp(double(x), axis), special.logsumexp(x, axis))
    close(F.logsumexp(double(x), axis, keepdims=True), special.logsumexp(x, axis, keepdims=True))
    for function in (F.softmax, F.logsoftmax, F.logsumexp):
        check_gradient(lambda t, f=function: f(t, axis), x, order=2, step=1e-4)


@pytest.mark.parametrize("shape, axis", [((), ()), ((3,), 0), ((3, 4), 1), ((2, 3, 4), 0), ((2, 3, 4, 5), 1)])
def test_default_axis_of_softmax(shape, axis):
    x = normal(*shape)
    close(F.softmax(double(x)), special.softmax(x, axis))


def test_softmax_and_logsumexp_of_extreme_logits():
    x = np.array([[1e4, 0, -1e4], [-np.inf, 0, 1], [-np.inf] * 3, [np.inf, 0, 1], [np.nan, 0, 1]])
    with np.errstate(invalid="ignore"):
        want = np.logaddexp.reduce(x, axis=1)
    np.testing.assert_allclose(F.logsumexp(double(x), 1).numpy(), want, rtol=1e-12)
    close(F.softmax(double(x[:2])), special.softmax(x[:2], 1))


# the rest


def test_dropout():
    random.seed(0)
    x = Tensor(np.ones((200, 300)))
    out = F.dropout(x, 0.25).numpy()
    assert set(np.unique(out)) == {0, np.float32(1 / 0.75)}
    assert abs((out == 0).mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / out.size)
    assert not np.array_equal(out, F.dropout(x, 0.25).numpy())
    assert F.dropout(x, 0.25, training=False) is x and F.dropout(x, 0.0) is x
    assert F.dropout(Tensor(x, dtype="float32").astype("float16"), 0.5).dtype == np.float16
    with pytest.raises(ValueError, match="not in"):
        F.dropout(x, 1.0)


def test_embedding(check_gradient):
    table, rows = normal(5, 3), np.array([[0, 4], [4, 2]])
    close(F.embedding(Tensor(rows), double(table)), table[rows])
    check_gradient(lambda t: F.embedding(Tensor(rows), t), table)


@pytest.mark.parametrize("case", ["plain", "causal", "bool mask", "float mask"])
def test_attention(case, check_gradient):
    q, k, v = normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 3)
    hidden = {"causal": np.triu(np.ones((3, 5), bool), 1), "bool mask": RNG.random((3, 5)) < 0.4}.get(case)
    added = normal(3, 5) if case == "float mask" else np.zeros((3, 5))
    if hidden is not None:
        added = np.where(hidden, -np.inf, 0)
    want = special.softmax(q @ k.swapaxes(1, 2) / 2 + added, -1) @ v
    options = {"is_causal": True} if case == "causal" else {}
    if case == "bool mask":
        options["mask"] = Tensor(~hidden)
    if case == "float mask":
        options["mask"] = double(added)

    def attention(*args):
        return F.scaled_dot_product_attention(*args, **options)

    close(attention(double(q), double(k), double(v)), want)
    check_gradient(attention, q, k, v)


@pytest.mark.parametrize("is_causal", [False, True])
def test_fully_masked_query_gets_zeros(is_causal, check_gradient):
    """As PyTorch has it; the gradients of all are finite."""
    q, k, v = normal(2, 3, 4), normal(2, 3, 4), normal(2, 3, 3)
    mask = np.ones((3, 3), bool)
    mask[1] = False

    def attention(*args):
        return F.scaled_dot_product_attention(*args, mask=Tensor(mask), is_causal=is_causal)

    found = attention(double(q), double(k), double(v)).numpy()
    seen = np.tril(mask) if is_causal else mask
    for row in (0, 2):
        weights = special.softmax(np.where(seen[row], q[:, row, None] @ k.swapaxes(1, 2) / 2, -np.inf), -1)
        np.testing.assert_allclose(found[:, row], (weights @ v)[:, 0], rtol=1e-6)
    np.testing.assert_array_equal(found[:, 1], 0)
    check_gradient(attention, q, k, v)
