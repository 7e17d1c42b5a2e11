"""Arguments and attributes of MegEngine's layers do here what they do there."""

from __future__ import annotations

import math
import pickle

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.errors import ShapeError
from mgb.module import init
from mgb.optimizer import SGD
from mgb.tensor import Parameter, Tensor

X = np.random.default_rng(0).normal(size=(2, 3, 5, 6)).astype(np.float32)


def correlated(x, w):
    """Windows of all of `w` at every place of `x` (N, C, H, W), without a border."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64))


@pytest.mark.parametrize(
    ("mode", "numpys"), [("zeros", "constant"), ("reflect", "reflect"), ("replicate", "edge")]
)
def test_convolution_padding_modes(mode, numpys):
    layer = M.Conv2d(3, 4, 3, padding=(1, 2), bias=False, padding_mode=mode)
    x = np.pad(X, ((0, 0), (0, 0), (1, 1), (2, 2)), numpys)
    np.testing.assert_allclose(layer(Tensor(X)).numpy(), correlated(x, layer.weight.numpy()), atol=1e-5)
    rows = M.Conv1d(3, 4, 3, padding=2, bias=False, padding_mode=mode)
    x = np.pad(X[:, :, 0], ((0, 0), (0, 0), (2, 2)), numpys)[:, :, None]
    want = correlated(x, rows.weight.numpy()[:, :, None])[:, :, 0]
    np.testing.assert_allclose(rows(Tensor(X[:, :, 0])).numpy(), want, atol=1e-5)
    assert ("padding_mode=" in repr(layer)) == (mode != "zeros")


def test_conv_mode_and_compute_mode_are_validated():
    x = Tensor(X)
    for layer in (M.Conv2d, M.Conv1d, M.ConvTranspose2d):
        assert layer(3, 4, 3, conv_mode="CROSS_CORRELATION", compute_mode="float32").compute_mode == "float32"
        with pytest.raises(ValueError, match=rf"{layer.__name__}, conv_mode: 'convolution' is not a mode"):
            layer(3, 4, 3, conv_mode="convolution")
    with pytest.raises(ValueError, match="Conv2d, padding_mode: 'circular' is not a mode; choose zeros or"):
        M.Conv2d(3, 4, 3, padding_mode="circular")
    assert M.Linear(6, 2, True, "float32")(x).shape == (2, 3, 5, 2)
    w = Tensor(np.ones((2, 3, 1, 1)))
    for function, arguments in (
        (F.conv2d, (x, w)),
        (F.conv_transpose2d, (x[:, :2], w)),
        (F.matmul, (x, x.T.reshape(6, 30))),
    ):
        assert (function(*arguments, compute_mode="float32").numpy() == function(*arguments).numpy()).all()
        with pytest.raises(ValueError, match=f"{function.__name__}, compute_mode: 'half' is not a mode"):
            function(*arguments, compute_mode="half")


def test_sixth_argument_of_conv_transpose2d_is_output_padding():
    layer = M.ConvTranspose2d(3, 4, 3, 2, 1, 1)
    assert (layer.output_padding, layer.dilation) == ((1, 1), (1, 1))
    assert layer(Tensor(X)).shape == (2, 4, 10, 12)


def test_pickles_of_layers_without_mode_attributes_load():
    """A pickle of a layer holds its attributes, which may be those of an older one."""
    for layer in (M.Conv2d(3, 4, 3), M.Linear(6, 4), M.Embedding(3, 2)):
        for name in ("conv_mode", "compute_mode", "padding_mode", "freeze"):
            vars(layer).pop(name, None)
        again = pickle.loads(pickle.dumps(layer))
        x = Tensor([[2, 0]]) if isinstance(layer, M.Embedding) else Tensor(X)
        np.testing.assert_array_equal(again(x).numpy(), layer(x).numpy())
        assert repr(again)


# embeddings


def test_embedding_initial_weight_and_from_pretrained():
    vectors = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    layer = M.Embedding(3, 2, initial_weight=Parameter(vectors))
    assert layer(Tensor([2, 0])).tolist() == [[4, 5], [0, 1]]
    frozen = M.Embedding.from_pretrained(Tensor(vectors))
    assert frozen.freeze and not M.Embedding.from_pretrained(Tensor(vectors), freeze=False).freeze
    for one, moves in ((layer, True), (frozen, False)):
        gm, optimizer = GradManager().attach(one.parameters()), SGD(one.parameters(), 1.0)
        with gm:
            gm.backward(one(Tensor([1])).sum())
        optimizer.step()
        assert one.weight.tolist()[1] == ([1, 2] if moves else [2, 3])
    assert vectors[1].tolist() == [2, 3]


def test_embedding_copies_a_numpy_initial_weight():
    vectors = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    for layer in (M.Embedding(3, 2, initial_weight=vectors), M.Embedding.from_pretrained(vectors)):
        assert layer(Tensor([2, 0])).tolist() == [[4, 5], [0, 1]]
        assert layer.weight.dtype == np.float32
        vectors[0] = 7  # it was copied
        assert layer.weight.tolist()[0] == [0, 1]
        vectors[0] = [0, 1]
    with pytest.raises(ShapeError, match=r"must have shape \(3, 2\), got \(2, 2\)"):
        M.Embedding(3, 2, initial_weight=np.zeros((2, 2)))


def test_embedding_rejects_invalid_arguments():
    with pytest.raises(ShapeError, match=r"initial_weight must have shape \(3, 2\), got \(2, 2\)"):
        M.Embedding(3, 2, initial_weight=Parameter(np.zeros((2, 2))))
    with pytest.raises(
        ShapeError, match=r"from_pretrained: embeddings must have shape \(number, length\), got \(3,\)"
    ):
        M.Embedding.from_pretrained(Tensor([1.0, 2.0, 3.0]))
    for option in ("padding_idx", "max_norm", "norm_type"):
        with pytest.raises(ValueError, match=f"Embedding: {option}=1 is not supported"):
            M.Embedding(3, 2, **{option: 1})


# batch normalisation


def one_step(layer):
    gm, optimizer = GradManager().attach(layer.parameters()), SGD(layer.parameters(), 0.5)
    with gm:
        gm.backward((layer(Tensor(X)) ** 2).sum())
    optimizer.step()


def test_frozen_batch_norm_does_not_learn():
    layer, free = M.BatchNorm2d(3, freeze=True), M.BatchNorm2d(3)
    one_step(layer)
    one_step(free)
    assert (layer.weight.numpy() == 1).all() and (layer.bias.numpy() == 0).all()
    assert (layer.running_mean.numpy() == 0).all()
    assert (free.weight.numpy() != 1).all()
    gm, x = GradManager(), Tensor(X)
    with gm.attach(x):
        gm.backward(layer(x).sum())
    np.testing.assert_allclose(x.grad.numpy(), np.full(X.shape, 1 / math.sqrt(1 + 1e-5)), rtol=1e-6)


def test_track_running_stats_can_be_switched_off_and_on():
    layer = M.BatchNorm2d(3)
    layer(Tensor(X))
    mean = layer.running_mean.numpy()
    assert (mean != 0).all()
    layer.track_running_stats = False
    for training in (True, False):
        layer.train(training)
        y = layer(Tensor(X * 3 + 1)).numpy()
        np.testing.assert_array_equal(layer.running_mean.numpy(), mean)
        np.testing.assert_allclose(y.mean((0, 2, 3)), 0, atol=1e-6)
    layer.track_running_stats = True
    layer.eval()
    assert (np.abs(layer(Tensor(X * 3 + 1)).numpy().mean((0, 2, 3))) > 0.1).all()
    with pytest.raises(ValueError, match="BatchNorm2d was made with track_running_stats=False"):
        never = M.BatchNorm2d(3, track_running_stats=False)
        never.track_running_stats = True
        never(Tensor(X))


# initial values


def test_fan_of_conv1d_weights():
    weight = M.Conv1d(2, 3, 5).weight
    assert init.calculate_fan_in_and_fan_out(weight) == (10, 15)
    assert init.calculate_correct_fan(weight, "FAN_OUT") == 15
    large = Parameter(np.zeros((50, 40, 20)))
    init.xavier_normal_(large)
    assert large.numpy().std() == pytest.approx(math.sqrt(2 / (90 * 20)), rel=0.03)
    init.msra_uniform_(large, nonlinearity="relu")
    assert large.numpy().std() == pytest.approx(math.sqrt(2 / 800), rel=0.03)
    with pytest.raises(ValueError, match="2 to 5 axes"):
        init.calculate_fan_in_and_fan_out(Parameter([1.0]))


# the tree


class Tree(M.Module):
    def __init__(self):
        super().__init__()
        self.stem = M.ReLU()
        self.body = M.Sequential(M.Tanh(), self.stem)
        self.again = [self.stem, {"x": M.Sigmoid()}]

    def forward(self, x):
        return x


def test_repr_shows_submodules_in_definition_order():
    """That of definition; a layer that stands in two places is shown in both."""
    assert repr(Tree()) == (
        "Tree(\n"
        "  (stem): ReLU()\n"
        "  (body): Sequential(\n"
        "    (0): Tanh()\n"
        "    (1): ReLU()\n"
        "  )\n"
        "  (again.0): ReLU()\n"
        "  (again.1.x): Sigmoid()\n"
        ")"
    )
    inside_itself = M.Sequential(M.ReLU())
    inside_itself.parent = inside_itself
    assert repr(inside_itself) == "Sequential(\n  (0): ReLU()\n  (parent): ...\n)"


def test_named_modules_with_parents():
    tree = Tree()
    relu, sigmoid = tree.stem, tree.again[1]["x"]
    assert list(tree.named_modules("net", with_parent=True)) == [
        ("net", tree, None),
        ("net.again.0", relu, tree),
        ("net.body", tree.body, tree),
        ("net.body.0", tree.body[0], tree.body),
        ("net.again.1.x", sigmoid, tree),
    ]
    assert list(tree.modules(with_parent=True))[-2] == (tree.body[0], tree.body)
    assert next(tree.modules()) is tree and next(tree.modules(with_parent=True)) == (tree, None)


def test_fourth_argument_of_a_recurrent_layer_is_bias():
    layer = M.RNN(3, 4, 2, False, True, nonlinearity="relu")
    assert all(cell.bias_ih is None for cell in layer.cells) and layer.batch_first
    assert layer(Tensor(np.ones((2, 5, 3))))[0].shape == (2, 5, 4)


def test_pooling_repr_shows_sizes_as_given():
    layer = M.MaxPool2d(kernel_size=2, padding=(0, 1))
    assert repr(layer) == "MaxPool2d(kernel_size=2, stride=2, padding=(0, 1))"
    assert layer(Tensor(X)).shape == (2, 3, 2, 4)
    with pytest.raises(ShapeError, match="stride must be one integer or two"):
        M.AvgPool2d(2, (1, 2, 3))
