"""Losses, against NumPy and SciPy in float64, sums over all alignments, and finite differences."""

from __future__ import annotations

from itertools import groupby, product

import mgb.functional as F
import numpy as np
import pytest
from mgb.autodiff import GradManager
from mgb.errors import ConversionError, ShapeError
from mgb.jit import trace
from mgb.optimizer import SGD
from mgb.tensor import Parameter, Tensor
from scipy import special

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape)


def double(array):
    return Tensor(array, dtype="float64")


A, B = normal(4, 3), normal(4, 3)
P, Q = special.softmax(A, 1), special.softmax(B, 1)
SIGNS = np.sign(B)
D = np.abs(A - B)

LOSSES = {
    "l1": (F.l1_loss, A, B, D),
    "square": (F.square_loss, A, B, D**2),
    "smooth l1": (
        lambda *a, **k: F.smooth_l1_loss(*a, beta=0.5, **k),
        A,
        B,
        np.where(D < 0.5, D**2, D - 0.25),
    ),
    "huber": (lambda *a, **k: F.huber_loss(*a, delta=0.7, **k), A, B, special.huber(0.7, D)),
    "kl": (F.kl_div, np.log(P), Q, special.rel_entr(Q, P)),
    "bce of probabilities": (
        lambda *a, **k: F.binary_cross_entropy(*a, with_logits=False, **k),
        P,
        Q,
        -Q * np.log(P) - (1 - Q) * np.log(1 - P),
    ),
    "bce of logits": (
        F.binary_cross_entropy,
        A,
        Q,
        -Q * np.log(special.expit(A)) - (1 - Q) * np.log(special.expit(-A)),
    ),
    "hinge": (F.hinge_loss, A, SIGNS, np.maximum(0, 1 - A * SIGNS).sum(1)),
    "hinge L2": (
        lambda *a, **k: F.hinge_loss(*a, norm="L2", **k),
        A,
        SIGNS,
        (np.maximum(0, 1 - A * SIGNS) ** 2).sum(1),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_match_numpy(name, check_gradient):
    loss, pred, label, want = LOSSES[name]
    each = loss(double(pred), double(label), reduction="none")
    assert each.shape == want.shape
    np.testing.assert_allclose(each.numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(loss(double(pred), double(label)).numpy(), want.mean(), rtol=1e-12)
    np.testing.assert_allclose(
        loss(double(pred), double(label), reduction="sum").numpy(), want.sum(), rtol=1e-12
    )
    check_gradient(lambda p: loss(p, double(label), reduction="none"), pred)


def test_reduction_is_validated_and_keyword_only():
    with pytest.raises(ValueError, match="max is not a valid value for reduction"):
        F.l1_loss(double(A), double(B), reduction="max")
    with pytest.raises(TypeError):
        F.l1_loss(double(A), double(B), "sum")


def test_l1_loss_of_integers():
    a, b = Tensor([1, 4]), Tensor([2, 2])
    assert F.l1_loss(a, b).item() == 1.5 and F.l1_loss(a, b).dtype == np.float32
    assert F.l1_loss(a, b, reduction="sum").dtype == np.int32


def test_binary_cross_entropy_of_extreme_logits():
    loss = F.binary_cross_entropy(Tensor([80.0, -80.0, 80.0]), Tensor([1.0, 0.0, 0.0]), reduction="none")
    np.testing.assert_allclose(loss.numpy(), [np.exp(-80), np.exp(-80), 80], rtol=1e-5)


def test_kl_div_of_zero_probability_labels(check_gradient):
    label = np.array([[0.0, 0.5, 0.5]])
    assert F.kl_div(double(A[:1]), double(label)).numpy() == pytest.approx(
        np.mean(special.xlogy(label, label) - label * A[:1])
    )
    check_gradient(lambda p: F.kl_div(p, double(label), reduction="none"), A[:1])


@pytest.mark.parametrize("shape, axis", [((4, 3), 1), ((4, 3), 0), ((2, 5, 3), -1), ((2, 3, 2, 2), 1)])
@pytest.mark.parametrize("smooth", [0, 0.1])
@pytest.mark.parametrize("with_logits", [True, False])
def test_cross_entropy(shape, axis, smooth, with_logits, check_gradient):
    logits = normal(*shape)
    classes = shape[axis]
    label = RNG.integers(0, classes, [d for i, d in enumerate(shape) if i != axis % len(shape)])
    target = np.moveaxis(np.eye(classes)[label], -1, axis) * (1 - smooth) + smooth / classes
    want = -(target * special.log_softmax(logits, axis)).sum(axis)
    pred = logits if with_logits else special.softmax(logits, axis)

    def loss(p):
        return F.cross_entropy(p, Tensor(label), axis, with_logits, smooth, reduction="none")

    np.testing.assert_allclose(loss(double(pred)).numpy(), want, rtol=1e-10)
    mean = F.cross_entropy(double(pred), Tensor(label), axis, with_logits, smooth)
    assert mean.shape == () and mean.item() == pytest.approx(want.mean())
    check_gradient(loss, pred)


def test_nll_loss(check_gradient):
    label = np.array([0, 2, 1, 1])
    assert F.nll_loss(double(A), Tensor(label)).item() == pytest.approx(-A[np.arange(4), label].mean())
    check_gradient(lambda p: F.nll_loss(p, Tensor(label), reduction="none"), A)


def test_cross_entropy_of_large_logits():
    loss = F.cross_entropy(Tensor([[1000.0, 0.0], [-1000.0, 0.0]]), Tensor([0, 0]), reduction="none")
    np.testing.assert_array_equal(loss.numpy(), [0, 1000])


def test_cross_entropy_of_zero_probability_has_finite_gradient():
    """Probability 0 of the classes that were not meant must not make 0 / 0."""
    pred = Tensor([[1.0, 0.0]])
    with GradManager().attach(pred) as manager:
        manager.backward(F.cross_entropy(pred, Tensor([0]), with_logits=False))
    np.testing.assert_array_equal(pred.grad.numpy(), [[-1, 0]])


def test_mismatched_label_shapes_and_invalid_norm_raise():
    with pytest.raises(
        ShapeError, match="target ndim must be one less than input ndim; input_ndim=2 target_ndim=2"
    ):
        F.cross_entropy(double(A), Tensor([[0, 1]]))
    with pytest.raises(ShapeError, match=r"\(3,\).*\(4, 3\)"):
        F.cross_entropy(double(A), Tensor([0, 1, 2]))
    with pytest.raises(ValueError, match="norm must be L1 or L2"):
        F.hinge_loss(double(A), double(B), norm="L3")


# connectionist temporal classification


def spelt(path, blank):
    """What an alignment says: repeats are one, blanks are none."""
    return [c for c, _ in groupby(path) if c != blank]


def by_enumeration(pred, label, blank):
    paths = product(range(pred.shape[1]), repeat=len(pred))
    return -np.log(sum(np.prod(pred[range(len(pred)), p]) for p in paths if spelt(p, blank) == list(label)))


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("flat", [False, True])
def test_ctc_loss(blank, flat, check_gradient):
    others = [c for c in range(4) if c != blank]
    labels = [[others[0], others[1]], [others[2]], [others[0], others[0]], []]
    lengths, times = np.array([2, 1, 2, 0]), np.array([4, 3, 5, 2])
    pred = special.softmax(normal(5, 4, 4), -1)
    want = np.array(
        [
            by_enumeration(pred[:t, n], label, blank)
            for n, (t, label) in enumerate(zip(times, labels, strict=True))
        ]
    )
    rows = (
        [c for label in labels for c in label]
        if flat
        else [(label + [others[0]] * 2)[:2] for label in labels]
    )

    def loss(p, reduction="none"):
        return F.ctc_loss(p, Tensor(times), Tensor(rows), Tensor(lengths), blank, reduction=reduction)

    np.testing.assert_allclose(loss(double(pred)).numpy(), want, rtol=1e-10)
    assert loss(double(pred), "sum").item() == pytest.approx(want.sum())
    assert loss(double(pred), "mean").item() == pytest.approx((want / np.maximum(lengths, 1)).mean())
    check_gradient(loss, pred)


def test_ctc_loss_rejects_mismatched_shapes():
    with pytest.raises(ShapeError, match=r"\(3, 2, 4\).*\(3,\)"):
        F.ctc_loss(double(np.ones((3, 2, 4))), Tensor([3, 3, 3]), Tensor([[1], [1]]), Tensor([1, 1]))


@pytest.mark.parametrize("wrong", [3, 7, -1, -100])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_out_of_range_label_raises(wrong: int, dtype: str) -> None:
    """Among many, at the end, in both losses, eagerly and from the second call of a trace on."""
    label = np.array([0, 2, 1, wrong])
    for loss in (F.cross_entropy, F.nll_loss):
        traced = trace(loss)
        for function in (loss, traced):
            for _ in range(3):
                right = function(Tensor(A), Tensor(label % 3, dtype)).numpy()
                assert np.isfinite(right)
            with pytest.raises(IndexError, match=f"label {wrong} is out of range for 3 classes"):
                function(Tensor(A), Tensor(label, dtype)).numpy()
            np.testing.assert_array_equal(function(Tensor(A), Tensor(label % 3, dtype)).numpy(), right)


def test_out_of_range_label_leaves_parameters_unchanged() -> None:
    weight = Parameter(A.astype(np.float32))
    optimizer = SGD([weight], lr=1.0)

    @trace
    def step(label: Tensor) -> Tensor:
        with GradManager().attach([weight]) as manager:
            loss = F.cross_entropy(weight, label)
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    for _ in range(3):
        step(Tensor([0, 2, 1, 1]))
    before = weight.numpy().copy()
    with pytest.raises(IndexError, match="label 5"):
        step(Tensor([0, 2, 1, 5])).numpy()
    np.testing.assert_array_equal(weight.numpy(), before)


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_non_integer_labels_raise(dtype: str) -> None:
    for loss in (F.cross_entropy, F.nll_loss):
        with pytest.raises(ConversionError, match=f"label must be integers, got {dtype}"):
            loss(Tensor(A), Tensor(np.zeros(4), dtype))


def test_cross_entropy_of_an_empty_batch_is_zero() -> None:
    assert F.cross_entropy(Tensor(A[:0]), Tensor(np.zeros(0), "int32"), reduction="sum").item() == 0


def test_ctc_loss_of_a_too_long_label_is_finite():
    """Of 2 times, 3 equal classes and (1, 1), which needs 3 times: four ways from the least probability."""
    pred = np.full((2, 2, 3), 1 / 3)
    label, lengths = Tensor([[1, 1], [1, 0]]), Tensor([2, 1])
    losses = F.ctc_loss(double(pred), Tensor([2, 2]), label, lengths, 0, "none").numpy()
    least = float(np.finfo(np.float32).tiny)
    np.testing.assert_allclose(losses, [-np.log(4 * least / 3), -np.log(3 / 9)], rtol=1e-12)
    assert losses[0] == pytest.approx(87.0489, abs=1e-4)  # as MegEngine's own reference has it


def test_topk_accuracy():
    logits = Tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.3, 0.4, 0.2]])
    target = Tensor([1, 1, 0, 0])
    assert F.topk_accuracy(logits, target).item() == 0.25
    assert [a.item() for a in F.topk_accuracy(logits, target, (1, 2))] == [0.25, 0.75]
    assert F.topk_accuracy(logits, target, topk=(5,)).item() == 1
    with pytest.raises(ShapeError, match=r"topk_accuracy: .* one label per row, got \(4, 3\) and \(2,\)"):
        F.topk_accuracy(logits, target[:2])
