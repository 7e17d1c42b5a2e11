"""Functions of PyTorch that users reach for: values and gradients against it, traced too."""

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import tensor
from mgb.autodiff import GradManager
from mgb.errors import ShapeError
from mgb.jit import trace

torch = pytest.importorskip("torch")

RANDOM = np.random.default_rng(0)


def drawn(*shape):
    return RANDOM.normal(size=shape)


def compare(ours, theirs, *arrays):
    """Values and gradients of ``sum(result**3)`` are those of torch, eagerly and in a trace."""
    given = [torch.tensor(a, requires_grad=a.dtype.kind == "f") for a in arrays]
    wanted = theirs(*given)
    (wanted**3).sum().backward()
    for function in (ours, trace(ours)):
        tensors = [tensor(a, dtype=a.dtype) for a in arrays]
        floats = [t for t in tensors if t.dtype == "float64"]
        with GradManager().attach(floats) as manager:
            got = function(*tensors)
            manager.backward((got**3).sum())
        np.testing.assert_allclose(got.numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-10)
        for t, w in zip(floats, (g for g in given if g.requires_grad), strict=True):
            np.testing.assert_allclose(t.grad.numpy(), w.grad.numpy(), rtol=1e-8, atol=1e-8)


# scatter_reduce


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_scatter_reduce(reduce, include, axis):
    index = RANDOM.integers(0, 3, size=(5, 3) if axis == 0 else (3, 6))
    x, source = drawn(3, 3), drawn(*index.shape)
    source[0, 0] = x[0, 1] = 0.0  # a factor of 0
    source[1] = source[2]  # equal extremes
    compare(
        lambda x, s: F.scatter_reduce(x, axis, tensor(index), s, reduce, include_self=include),
        lambda x, s: x.scatter_reduce(axis, torch.tensor(index), s, reduce, include_self=include),
        x, source,
    )  # fmt: skip


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce_of_integers(reduce):
    index = np.array([0, 1, 1, 0, 2])
    x, source = np.arange(4, dtype=np.int32), np.array([3, -4, 5, 7, 2], np.int32)
    for include in (True, False):
        got = F.scatter_reduce(tensor(x), 0, tensor(index), tensor(source), reduce, include)
        wanted = torch.tensor(x).scatter_reduce(0, torch.tensor(index), torch.tensor(source), reduce,
                                                include_self=include)  # fmt: skip
        assert got.dtype == "int32"
        assert got.tolist() == wanted.tolist()


def test_scatter_reduce_rejects_invalid_arguments():
    x, index = tensor([1.0, 2.0]), tensor([0, 5])
    with pytest.raises(ValueError, match="reduce is one of sum"):
        F.scatter_reduce(x, 0, index, x, "median")
    with pytest.raises(IndexError):
        F.scatter_reduce(x, 0, index, x, "amax").numpy()
    with pytest.raises(ShapeError):
        F.scatter_reduce(x, 0, index, tensor([1.0]), "amax")


# quotients


@pytest.mark.parametrize("mode", ["trunc", "floor", None])
def test_div_rounding_modes_match_torch(mode):
    a, b = drawn(4, 5) * 10, drawn(5)
    compare(lambda a, b: F.div(a, b, rounding_mode=mode) + a * b,
            lambda a, b: torch.div(a, b, rounding_mode=mode) + a * b, a, b)  # fmt: skip
    whole, by = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    got = F.div(tensor(whole), tensor(by), rounding_mode=mode)
    wanted = torch.div(torch.tensor(whole), torch.tensor(by), rounding_mode=mode)
    assert got.tolist() == wanted.tolist()
    assert got.dtype == ("float32" if mode is None else "int32")


def test_trunc_div():
    assert F.trunc_div(tensor([-7, 7]), 2).tolist() == [-3, 3]
    assert F.trunc_div(-7.0, tensor([2])).tolist() == [-3.0]
    assert F.trunc_div([7, -7], [2, 2]).tolist() == [3, -3]
    with pytest.raises(ValueError, match="rounding_mode"):
        F.div(tensor([1.0]), 2, rounding_mode="up")


# volumes

WINDOWS = [
    {},
    {"stride": 2, "padding": 1},
    {"stride": (1, 2, 3), "padding": (2, 0, 1), "dilation": (2, 1, 1)},
    {"groups": 2, "padding": 1},
]


@pytest.mark.parametrize("window", WINDOWS)
def test_conv3d(window):
    groups = window.get("groups", 1)
    x, w, b = drawn(2, 4, 6, 5, 7), drawn(6, 4 // groups, 3, 2, 3), drawn(6)
    compare(lambda *a: F.conv3d(*a, **window), lambda *a: torch.conv3d(*a, **window), x, w, b)


@pytest.mark.parametrize("window", [*WINDOWS, {"stride": 2, "padding": 1, "output_padding": (1, 0, 1)}])
def test_conv_transpose3d(window):
    groups = window.get("groups", 1)
    x, w, b = drawn(2, 4, 3, 4, 3), drawn(4, 6 // groups, 3, 2, 3), drawn(6)
    compare(lambda *a: F.conv_transpose3d(*a, **window),
            lambda *a: torch.nn.functional.conv_transpose3d(*a, **window), x, w, b)  # fmt: skip


@pytest.mark.parametrize(
    "ours, theirs", [(M.Conv3d, torch.nn.Conv3d), (M.ConvTranspose3d, torch.nn.ConvTranspose3d)]
)
def test_conv3d_layers_match_torch(ours, theirs):
    layer, like = (
        ours(4, 6, (3, 2, 3), stride=2, padding=1, groups=2),
        theirs(4, 6, (3, 2, 3), 2, 1, groups=2),
    )
    x = drawn(2, 4, 5, 6, 7).astype("float32")
    with torch.no_grad():
        like.weight.copy_(torch.tensor(layer.weight.numpy().reshape(like.weight.shape)))
        like.bias.copy_(torch.tensor(layer.bias.numpy().reshape(-1)))
        wanted = like(torch.tensor(x)).numpy()
    np.testing.assert_allclose(layer(tensor(x)).numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert 0.5 < layer.weight.numpy().std() * np.sqrt(np.prod(layer.kernel_size) * 2) < 1.5


def test_conv3d_rejects_invalid_shapes():
    with pytest.raises(ShapeError, match="5 axes"):
        F.conv3d(tensor(drawn(1, 2, 3, 3)), tensor(drawn(1, 2, 3, 3, 3)))
    with pytest.raises(ShapeError, match="larger than"):
        F.conv3d(tensor(drawn(1, 2, 2, 3, 3)), tensor(drawn(1, 2, 3, 3, 3)))
    with pytest.raises(ShapeError, match="one integer or three"):
        M.Conv3d(1, 1, (3, 3))
    with pytest.raises(ShapeError, match="leaves nothing"):
        F.conv_transpose3d(tensor(drawn(1, 1, 1, 1, 1)), tensor(drawn(1, 1, 1, 1, 1)), padding=1)


# the places of maxima

POOLS = [(2, None, 0), (3, 2, 1), ((2, 3), (1, 2), (1, 0))]


@pytest.mark.parametrize("kernel, stride, padding", POOLS)
def test_max_pool2d_with_indices_matches_torch(kernel, stride, padding):
    x = np.round(drawn(2, 3, 7, 8), 1)  # with ties
    x[0, 0, 2, 3] = np.nan
    values, places = F.max_pool2d_with_indices(tensor(x, dtype="float64"), kernel, stride, padding)
    wanted = torch.nn.functional.max_pool2d(torch.tensor(x), kernel, stride, padding, return_indices=True)
    np.testing.assert_array_equal(values.numpy(), wanted[0].numpy())
    np.testing.assert_array_equal(places.numpy(), wanted[1].numpy())
    assert places.dtype == "int32"
    compare(
        lambda x: F.max_pool2d_with_indices(x, kernel, stride, padding)[0],
        lambda x: torch.nn.functional.max_pool2d(x, kernel, stride, padding), np.nan_to_num(x),
    )  # fmt: skip


@pytest.mark.parametrize("kernel, stride, size", [(2, 2, (7, 6)), (3, 2, None), (2, 2, None)])
def test_max_unpool2d_matches_torch(kernel, stride, size):
    x = drawn(2, 3, 7, 7) if size != (7, 6) else drawn(2, 3, 7, 6)

    def ours(x):
        return F.max_unpool2d(*F.max_pool2d_with_indices(x, kernel, stride), kernel, stride, 0, size)

    def theirs(x):
        pooled = torch.nn.functional.max_pool2d(x, kernel, stride, return_indices=True)
        return torch.nn.functional.max_unpool2d(*pooled, kernel, stride, 0, size)

    if size is None and kernel == 3:  # windows that overlap: a maximum of two of them is put there once
        values, places = F.max_pool2d_with_indices(tensor(x), kernel, stride)
        np.testing.assert_allclose(ours(tensor(x)).numpy(), theirs(torch.tensor(x.astype("float32"))).numpy())
        assert values.shape == places.shape
    elif size is None:
        compare(ours, theirs, x[:, :, :6, :6])
    else:
        compare(ours, theirs, x)


def test_max_pool1d_and_max_unpool_layers():
    x = drawn(2, 3, 9)
    values, places = F.max_pool1d_with_indices(tensor(x, dtype="float64"), 3, 2, 1)
    pooled = torch.nn.functional.max_pool1d(torch.tensor(x), 3, 2, 1, return_indices=True)
    np.testing.assert_array_equal(places.numpy(), pooled[1].numpy())
    wanted = torch.nn.MaxUnpool1d(3, 2, 1)(*pooled, output_size=[9])
    got = M.MaxUnpool1d(3, 2, 1)(values, places, output_size=[9])
    np.testing.assert_array_equal(got.numpy(), wanted.numpy())
    values, places = F.max_pool2d_with_indices(tensor(drawn(1, 2, 4, 4)), 2)
    assert M.MaxUnpool2d(2)(values, places).shape == (1, 2, 4, 4)
    with pytest.raises(ShapeError, match="not those of images"):
        F.max_unpool2d(values, places, 2, output_size=(9, 9))
    with pytest.raises(ShapeError, match="must have 4 axes and indices its shape"):
        F.max_unpool2d(values, places[:, :1], 2)
    with pytest.raises(IndexError):
        F.max_unpool2d(values, places + 100, 2).numpy()
    assert mgb.vmap(lambda v: v * 2)(values).shape == values.shape


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_conv_transpose3d_rounds_once(dtype: str) -> None:
    """The transpose adds up its taps in float32."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 2, 4, 5, 5)), rng.standard_normal((2, 3, 3, 3, 3))
    low = [mgb.tensor(a.astype(np.float32)).astype(dtype) for a in (x, w)]
    exact = torch.conv_transpose3d(
        *(torch.tensor(a.astype("float32").numpy()) for a in low), stride=2, padding=1
    )
    got = F.conv_transpose3d(*low, stride=2, padding=1)
    want = mgb.tensor(exact.numpy()).astype(dtype)
    assert got.dtype == want.dtype
    step = 2.0**-7 if dtype == "bfloat16" else 2.0**-10  # a product in float32 may fall on the other side
    np.testing.assert_allclose(
        got.astype("float32").numpy(), want.astype("float32").numpy(), rtol=step, atol=1e-5
    )
