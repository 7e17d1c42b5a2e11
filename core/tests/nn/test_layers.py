"""Every layer against NumPy in float64, and initial values."""

from __future__ import annotations

import math

import mgb.functional as F
import mgb.module as M
import mgb.random
import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.errors import ShapeError
from mgb.module import init
from mgb.tensor import Parameter, Tensor
from scipy import special, stats

RNG = np.random.default_rng(0)

# layers


def close(got, want, tolerance=2e-6):
    np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)


def data(*shape):
    array = RNG.normal(size=shape).astype(np.float32)
    return Tensor(array), array.astype(np.float64)


def weight_of(layer, name="weight"):
    return getattr(layer, name).numpy().astype(np.float64)


@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias):
    layer = M.Linear(3, 5, bias=bias)
    if bias:
        init.normal_(layer.bias)
    x, x64 = data(2, 4, 3)
    close(layer(x), x64 @ weight_of(layer).T + (weight_of(layer, "bias") if bias else 0))
    assert layer.weight.shape == (5, 3)
    assert len(list(layer.parameters())) == 1 + bias


def convolved(x, w, stride, padding, dilation, groups):
    """The definition, one output element after the other."""
    n, _, height, width = x.shape
    out_channels, per_group, kh, kw = w.shape
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    rows = (height + 2 * padding[0] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    columns = (width + 2 * padding[1] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    out = np.zeros((n, out_channels, rows, columns))
    for o in range(out_channels):
        first = o // (out_channels // groups) * per_group
        for i in range(rows):
            for j in range(columns):
                top, left = i * stride[0], j * stride[1]
                bottom, right = top + dilation[0] * (kh - 1) + 1, left + dilation[1] * (kw - 1) + 1
                seen = x[:, first : first + per_group, top : bottom : dilation[0], left : right : dilation[1]]
                out[:, o, i, j] = (seen * w[o]).sum((1, 2, 3))
    return out


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("stride", "padding", "dilation"), [((1, 1), (0, 0), (1, 1)), ((2, 1), (1, 2), (1, 2))]
)
def test_conv2d(groups, stride, padding, dilation):
    layer = M.Conv2d(4, 6, (3, 2), stride, padding, dilation, groups)
    init.normal_(layer.bias)
    x, x64 = data(2, 4, 7, 6)
    want = convolved(x64, weight_of(layer).reshape(6, 4 // groups, 3, 2), stride, padding, dilation, groups)
    close(layer(x), want + weight_of(layer, "bias"), 1e-5)


@pytest.mark.parametrize("groups", [1, 2])
def test_conv_transpose2d_is_the_transpose_of_conv2d(groups):
    """``<conv(x), y> == <x, conv_transpose(y)>`` with the same weight."""
    window = {"stride": 2, "padding": 1, "groups": groups, "bias": False}
    forward = M.Conv2d(4, 6, 3, **window)
    back = M.ConvTranspose2d(6, 4, 3, **window)
    assert forward.weight.shape == back.weight.shape
    back.weight._reset(forward.weight)
    x, x64 = data(2, 4, 7, 7)
    y, y64 = data(2, 6, 4, 4)
    np.testing.assert_allclose((forward(x).numpy() * y64).sum(), (back(y).numpy() * x64).sum(), rtol=1e-4)


def test_indivisible_channels_raise():
    with pytest.raises(
        ShapeError, match="in_channels = 3 and out_channels = 4 must be multiples of groups = 2"
    ):
        M.Conv2d(3, 4, 1, groups=2)
    with pytest.raises(ShapeError, match="num_channels = 4 must be a multiple of num_groups = 3"):
        M.GroupNorm(3, 4)
    with pytest.raises(ShapeError, match="embed_dim = 6 must be a multiple of num_heads = 4"):
        M.MultiHeadAttention(6, 4)


@pytest.mark.parametrize(
    ("layer", "shape"), [(M.BatchNorm1d, (6, 3)), (M.BatchNorm1d, (6, 3, 4)), (M.BatchNorm2d, (6, 3, 4, 2))]
)
def test_batch_norm(layer, shape):
    norm = layer(3, momentum=0.8)
    init.normal_(norm.weight)
    init.normal_(norm.bias)
    axes = tuple(i for i in range(len(shape)) if i != 1)
    affine = (1, 3, *[1] * (len(shape) - 2))
    scale, shift = weight_of(norm).reshape(affine), weight_of(norm, "bias").reshape(affine)
    mean, var = np.zeros(affine), np.ones(affine)
    for _ in range(3):
        x, x64 = data(*shape)
        batch_mean, batch_var = x64.mean(axes, keepdims=True), x64.var(axes, keepdims=True)
        close(norm(x), (x64 - batch_mean) / np.sqrt(batch_var + 1e-5) * scale + shift, 1e-5)
        mean = 0.8 * mean + 0.2 * batch_mean
        var = 0.8 * var + 0.2 * x64.var(axes, ddof=1, keepdims=True)
    close(norm.running_mean, mean.reshape(1, 3, 1, 1), 1e-5)
    close(norm.running_var, var.reshape(1, 3, 1, 1), 1e-5)
    norm.eval()
    x, x64 = data(*shape)
    close(norm(x), (x64 - mean) / np.sqrt(var + 1e-5) * scale + shift, 1e-5)
    close(norm.running_mean, mean.reshape(1, 3, 1, 1), 1e-5)
    norm.reset_parameters()
    assert (norm.weight.numpy().max(), norm.running_mean.numpy().max()) == (1, 0)


def test_batch_norm_options():
    x, x64 = data(6, 3)
    frozen = M.BatchNorm1d(3, freeze=True)
    close(frozen(x), x64 / np.sqrt(1 + 1e-5))
    assert not np.any(frozen.running_mean.numpy())
    untracked = M.BatchNorm1d(3, affine=False, track_running_stats=False).eval()
    close(untracked(x), (x64 - x64.mean(0)) / np.sqrt(x64.var(0) + 1e-5), 1e-5)
    assert not list(untracked.tensors())
    with pytest.raises(ValueError, match="freeze=True"):
        M.BatchNorm1d(3, freeze=True, track_running_stats=False)
    with pytest.raises(ShapeError, match="BatchNorm2d takes 4 axes"):
        M.BatchNorm2d(3)(x)


def test_batch_norm_does_not_differentiate_its_statistics():
    norm, (x, _) = M.BatchNorm1d(3), data(6, 3)
    gm = GradManager().attach([x, *norm.parameters()])
    with gm:
        gm.backward(F.sum(norm(x) ** 2))
        assert not norm.running_mean._tape
    assert norm.weight.grad.shape == norm.weight.shape


@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_and_rms_norm(affine):
    x, x64 = data(5, 2, 3)
    layer, rms = M.LayerNorm((2, 3), affine=affine), M.RMSNorm(3, eps=1e-3, affine=affine)
    scale, shift, rms_scale = 1.0, 0.0, 1.0
    if affine:
        for parameter in (*layer.parameters(), *rms.parameters()):
            init.normal_(parameter)
        scale, shift, rms_scale = weight_of(layer), weight_of(layer, "bias"), weight_of(rms)
    mean, var = x64.mean((1, 2), keepdims=True), x64.var((1, 2), keepdims=True)
    close(layer(x), (x64 - mean) / np.sqrt(var + 1e-5) * scale + shift, 1e-5)
    close(rms(x), x64 / np.sqrt((x64**2).mean(2, keepdims=True) + 1e-3) * rms_scale, 1e-5)
    assert len(list(layer.parameters())) == 2 * affine
    assert len(list(rms.parameters())) == affine


def test_group_norm():
    x, x64 = data(2, 4, 3, 5)
    norm = M.GroupNorm(2, 4)
    init.normal_(norm.weight)
    grouped = x64.reshape(2, 2, -1)
    want = (grouped - grouped.mean(2, keepdims=True)) / np.sqrt(grouped.var(2, keepdims=True) + 1e-5)
    close(norm(x), want.reshape(x.shape) * weight_of(norm).reshape(1, 4, 1, 1), 1e-5)


def test_pooling():
    x, x64 = data(2, 3, 6, 4)
    blocks = x64.reshape(2, 3, 3, 2, 2, 2)
    close(M.MaxPool2d(2)(x), blocks.max((3, 5)))
    close(M.AvgPool2d(2)(x), blocks.mean((3, 5)))
    close(M.AdaptiveAvgPool2d(1)(x), x64.mean((2, 3), keepdims=True))
    close(M.AdaptiveAvgPool2d((3, 2))(x), blocks.mean((3, 5)))
    corner = M.AvgPool2d(2, stride=1, padding=1)(x).numpy()[:, :, 0, 0]
    np.testing.assert_allclose(corner, x64[:, :, 0, 0], rtol=1e-6)  # the padding does not count
    corner = M.AvgPool2d(2, stride=1, padding=1, mode="average")(x).numpy()[:, :, 0, 0]
    np.testing.assert_allclose(corner, x64[:, :, 0, 0] / 4, rtol=1e-6)
    assert M.MaxPool2d(3, 1, 1)(x).shape == x.shape


ACTIVATIONS = {
    M.ReLU: lambda x: np.maximum(x, 0),
    M.ReLU6: lambda x: np.clip(x, 0, 6),
    M.Sigmoid: special.expit,
    M.Tanh: np.tanh,
    M.GELU: lambda x: x * special.ndtr(x),
    M.SiLU: lambda x: x * special.expit(x),
    M.Softplus: lambda x: np.logaddexp(x, 0),
    M.LogSigmoid: lambda x: -np.logaddexp(-x, 0),
    M.HSigmoid: lambda x: np.clip(x + 3, 0, 6) / 6,
    M.HSwish: lambda x: x * np.clip(x + 3, 0, 6) / 6,
    M.Identity: lambda x: x,
    M.LeakyReLU: lambda x: np.where(x > 0, x, 0.01 * x),
    M.PReLU: lambda x: np.where(x > 0, x, 0.25 * x),
    M.Softmax: lambda x: special.softmax(x, axis=1),
}


@pytest.mark.parametrize("layer", ACTIVATIONS, ids=lambda c: c.__name__)
def test_activations(layer):
    x = np.linspace(-8, 8, 40, dtype=np.float32).reshape(8, 5)
    close(layer()(Tensor(x)), ACTIVATIONS[layer](x.astype(np.float64)))
    assert repr(layer()).startswith(f"{layer.__name__}(")
    assert layer.__doc__


def test_prelu_has_a_slope_for_each_channel():
    layer, (x, x64) = M.PReLU(3), data(2, 3, 4, 4)
    init.normal_(layer.weight)
    close(layer(x), np.where(x64 > 0, x64, weight_of(layer) * x64))
    with pytest.raises(ShapeError, match="PReLU: num_parameters = 3 does not fit"):
        layer(Tensor(np.ones((2, 4, 1, 1))))


def test_dropout():
    mgb.random.seed(0)
    layer, x = M.Dropout(0.3), Tensor(np.ones(20000))
    out = layer(x).numpy()
    assert set(np.unique(out)) == {0, np.float32(1 / 0.7)}
    # The 99.99% interval of the binomial distribution.
    assert stats.binom(20000, 0.3).ppf(0.00005) <= (out == 0).sum() <= stats.binom(20000, 0.3).ppf(0.99995)
    assert not np.array_equal(layer(x).numpy(), out)
    assert layer.eval()(x) is x
    with pytest.raises(ValueError, match="drop_prob"):
        M.Dropout(1.0)


def test_embedding():
    layer, places = M.Embedding(5, 3), np.array([[0, 4], [2, 2]])
    out = layer(Tensor(places))
    np.testing.assert_array_equal(out.numpy(), layer.weight.numpy()[places])
    gm = GradManager().attach(layer.weight)
    with gm:
        gm.backward(F.sum(layer(Tensor(places))))
    np.testing.assert_array_equal(layer.weight.grad.numpy()[:, 0], [1, 0, 2, 0, 1])


def attended(layer, query, source, mask):
    """The definition, one head after the other."""
    maps = (layer.query, layer.key, layer.value)
    q, k, v = (
        x @ weight_of(m).T + weight_of(m, "bias") for x, m in zip((query, source, source), maps, strict=True)
    )
    size = layer.embed_dim // layer.num_heads
    heads = []
    for start in range(0, layer.embed_dim, size):
        part = slice(start, start + size)
        scores = q[..., part] @ k[..., part].transpose(0, 2, 1) / math.sqrt(size)
        heads.append(special.softmax(np.where(mask, scores, -np.inf), axis=-1) @ v[..., part])
    return np.concatenate(heads, -1) @ weight_of(layer.out).T + weight_of(layer.out, "bias")


def test_multi_head_attention():
    layer = M.MultiHeadAttention(6, 2)
    for projection in layer.children():
        if isinstance(projection, M.Linear):
            init.normal_(projection.bias)
    x, x64 = data(2, 4, 6)
    source, source64 = data(2, 5, 6)
    causal = np.tri(4, dtype=bool)
    close(layer(x), attended(layer, x64, x64, True), 1e-5)
    close(layer(x, source), attended(layer, x64, source64, True), 1e-5)
    close(layer(x, is_causal=True), attended(layer, x64, x64, causal), 1e-5)
    close(layer(x, attn_mask=Tensor(causal)), attended(layer, x64, x64, causal), 1e-5)
    added = Tensor(np.where(causal, 0, -np.inf).astype(np.float32))
    close(layer(x, attn_mask=added), attended(layer, x64, x64, causal), 1e-5)
    noisy = M.MultiHeadAttention(6, 2, dropout=0.5)
    assert not np.array_equal(noisy(x).numpy(), noisy(x).numpy())
    assert np.array_equal(noisy.eval()(x).numpy(), noisy(x).numpy())


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (M.Linear(3, 2), (4, 3)),
        (M.Conv2d(2, 3, 2, padding=1), (2, 2, 4, 4)),
        (M.BatchNorm1d(3), (5, 3)),
        (M.LayerNorm(3), (4, 3)),
        (M.RMSNorm(3), (4, 3)),
        (M.GroupNorm(2, 4), (2, 4, 3)),
        (M.PReLU(), (3, 3)),
        (M.MultiHeadAttention(4, 2), (2, 3, 4)),
    ],
    ids=lambda v: type(v).__name__,
)
def test_gradients_of_layers_match_finite_differences(layer, shape):
    """In float64, along a random direction in the space of all parameters and the input."""
    for parameter in layer.parameters():
        parameter._reset(Tensor(RNG.normal(size=parameter.shape), dtype="float64"))
    for buffer in layer.buffers():
        buffer._reset(Tensor(buffer.numpy(), dtype="float64"))
    x = Tensor(RNG.normal(size=shape), dtype="float64")
    weights = Tensor(RNG.normal(size=layer(x).shape), dtype="float64")
    moving = [x, *layer.parameters()]
    base = [t.numpy().copy() for t in moving]
    steps = [RNG.normal(size=t.shape) for t in moving]

    def value(distance):
        for t, b, s in zip(moving, base, steps, strict=True):
            t._reset(Tensor(b + distance * s, dtype="float64"))
        return F.sum(layer(x) * weights).item()

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    value(0.0)
    gm = GradManager().attach(moving)
    with gm:
        gm.backward(F.sum(layer(x) * weights))
    got = sum((t.grad.numpy() * s).sum() for t, s in zip(moving, steps, strict=True))
    np.testing.assert_allclose(got, slope, rtol=1e-7, atol=1e-8)


# initial values


@pytest.mark.parametrize(
    ("function", "distribution"),
    [
        (lambda t: init.uniform_(t, -2, 3), stats.uniform(-2, 5)),
        (lambda t: init.normal_(t, 1, 3), stats.norm(1, 3)),
        (init.xavier_uniform_, stats.uniform(-math.sqrt(6 / 300), 2 * math.sqrt(6 / 300))),
        (lambda t: init.xavier_normal_(t, gain=2), stats.norm(0, 2 * math.sqrt(2 / 300))),
        (init.msra_uniform_, stats.uniform(-math.sqrt(6 / 200), 2 * math.sqrt(6 / 200))),
        (lambda t: init.msra_normal_(t, mode="fan_out"), stats.norm(0, math.sqrt(2 / 100))),
        (lambda t: init.msra_normal_(t, a=1.0), stats.norm(0, math.sqrt(1 / 200))),
        (lambda t: init.msra_normal_(t, nonlinearity="linear"), stats.norm(0, math.sqrt(1 / 200))),
    ],
)
def test_distributions_of_initial_values(function, distribution):
    mgb.random.seed(7)
    tensor = Parameter(np.zeros((100, 200)))
    function(tensor)
    assert isinstance(tensor, Parameter)
    assert stats.kstest(tensor.numpy().ravel().astype(np.float64), distribution.cdf).pvalue > 1e-3


def test_fixed_initial_values_keep_identity_and_dtype():
    tensor = Tensor([1.0, 2.0], dtype="float16")
    for function, value in ((init.zeros_, 0), (init.ones_, 1), (lambda t: init.fill_(t, 7), 7)):
        function(tensor)
        assert tensor.dtype == np.float16
        np.testing.assert_array_equal(tensor.numpy(), [value, value])


def test_fan_and_gain_calculation():
    assert init.calculate_fan_in_and_fan_out(Tensor(np.zeros((2, 3)))) == (3, 2)
    assert init.calculate_fan_in_and_fan_out(Tensor(np.zeros((2, 3, 4, 5)))) == (60, 40)
    assert init.calculate_fan_in_and_fan_out(Tensor(np.zeros((7, 2, 3, 4, 5)))) == (60, 40)
    assert init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("relu") == math.sqrt(2)
    assert init.calculate_gain("leaky_relu", 2) == math.sqrt(2 / 5)
    assert init.calculate_gain("conv2d") == 1
    for mistake in (
        lambda: init.calculate_fan_in_and_fan_out(Tensor([1.0])),
        lambda: init.calculate_gain("nothing"),
        lambda: init.msra_normal_(Tensor(np.zeros((2, 2))), mode="fan"),
    ):
        with pytest.raises(ValueError):
            mistake()


def test_seed_makes_initialization_reproducible():
    def network():
        mgb.random.seed(3)
        return M.Sequential(M.Linear(3, 4), M.Conv2d(1, 2, 3), M.Embedding(3, 2)).state_dict()

    first, second = network(), network()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


@pytest.mark.parametrize("layer", [M.RNN, M.GRU, M.LSTM])
@pytest.mark.parametrize("shape", [(3, 6), (3, 3, 6), (1, 1, 6), (2, 1, 6), (1, 3, 5)])
def test_recurrent_layer_rejects_wrong_state_shape(layer, shape):
    inputs, given = Tensor(np.zeros((5, 3, 4))), Tensor(np.zeros(shape))
    with pytest.raises(ShapeError, match=r"of shape \(1, 3, 6\), got"):
        layer(4, 6)(inputs, (given, given) if layer is M.LSTM else given)


@pytest.mark.parametrize("cell", [M.RNNCell, M.GRUCell, M.LSTMCell])
@pytest.mark.parametrize("shape", [(6,), (1, 6), (3, 5)])
def test_recurrent_cell_rejects_wrong_state_shape(cell, shape):
    given = Tensor(np.zeros(shape))
    with pytest.raises(ShapeError, match=r"of shape \(3, 6\), got"):
        cell(4, 6)(Tensor(np.zeros((3, 4))), (given, given) if cell is M.LSTMCell else given)


def test_recurrent_layers_reject_wrong_number_of_states():
    inputs, state = Tensor(np.zeros((5, 3, 4))), Tensor(np.zeros((1, 3, 6)))
    for wrong in (state, (state,), (state,) * 3, (), 0):
        with pytest.raises(ShapeError, match=r"LSTM: hx is a tuple of 2 Tensors of shape \(1, 3, 6\), got"):
            M.LSTM(4, 6)(inputs, wrong)
        with pytest.raises(ShapeError, match=r"LSTMCell: hx is a tuple of 2 Tensors of shape \(3, 6\), got"):
            M.LSTMCell(4, 6)(inputs[0], wrong)
    for wrong in ((state,), (state, state), 0):
        with pytest.raises(ShapeError, match=r"GRU: hx is one Tensor of shape \(1, 3, 6\), got"):
            M.GRU(4, 6)(inputs, wrong)
    with pytest.raises(ShapeError, match=r"one Tensor of shape \(4, 3, 6\), got \(1, 3, 6\)"):
        M.GRU(4, 6, num_layers=2, bidirectional=True)(inputs, state)
    out, last = M.GRU(4, 6, batch_first=True)(F.swapaxes(inputs, 0, 1), state)
    assert (out.shape, last.shape) == ((3, 5, 6), (1, 3, 6))


def test_recurrent_layer_repr_and_num_layers_check():
    with pytest.raises(ShapeError, match="num_layers must be at least 1, got 0"):
        M.GRU(4, 6, num_layers=0)
    assert "nonlinearity='relu'" in repr(M.RNN(4, 6, nonlinearity="relu"))
    assert repr(M.RNNCell(4, 6)).endswith("nonlinearity='tanh')")


def test_empty_batch_pooling_and_invalid_interpolate_sizes():
    assert F.adaptive_max_pool2d(Tensor(np.zeros((0, 2, 5, 5))), 3).shape == (0, 2, 3, 3)
    x = Tensor(np.zeros((1, 2, 4, 4)))
    assert F.nn.interpolate(x, scale_factor=np.array([2.0, 1.5])).shape == (1, 2, 8, 6)
    for wrong in (math.inf, math.nan, [2.0, math.inf]):
        with pytest.raises(ShapeError, match="scale_factor is a finite number"):
            F.nn.interpolate(x, scale_factor=wrong)
    for wrong in (2.5, (2, 2.5)):
        with pytest.raises(ShapeError, match="size must be an integer"):
            F.nn.interpolate(x, size=wrong)
