"""Messages of element-wise functions and losses begin with the name that the user wrote."""

import numpy as np
import pytest
from mgb import errors, tensor
from mgb import functional as F
from mgb import module as M
from mgb import numpy as mnp
from mgb.jit import trace

X = tensor([1.0, 2.0])
BAD = {"None": None, "text": "a", "object": object(), "tuple": (1, 2), "shape": tensor([1.0, 2.0, 3.0])}
BINARY = (
    "add atan2 copysign div equal floor_div greater greater_equal hypot left_shift less less_equal logaddexp "
    "logical_and logical_or logical_xor maximum minimum mod mul not_equal pow right_shift sub trunc_div"
).split()


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", BINARY)
def test_function_of_two_operands_names_itself(name, bad):
    for args in ((X, BAD[bad]), (BAD[bad], X)):
        with pytest.raises((TypeError, ValueError), match=rf"\A{name}\b"):
            getattr(F, name)(*args)


def test_comparisons_of_numpy_and_clip_name_themselves():
    for name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"):
        with pytest.raises(errors.ShapeError, match=rf"\A{name}: .*\(2,\) and \(3,\)"):
            getattr(mnp, name)(X, BAD["shape"])
    for bounds in ((BAD["shape"], None), (None, BAD["shape"]), (BAD["shape"], 1.0)):
        with pytest.raises(errors.ShapeError, match=r"\Aclip: "):
            F.clip(X, *bounds)
    with pytest.raises(ValueError, match="clip: give lower, upper, or both"):
        F.clip(X)


def test_traced_comparison_names_itself():
    with pytest.raises(errors.ShapeError, match=r"\Aless_equal: "):
        trace(lambda x: F.less_equal(x, BAD["shape"]))(X)


PRED = np.arange(12.0, dtype="float32").reshape(4, 3)


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
@pytest.mark.parametrize(
    "label, says",
    [
        (
            np.zeros((4, 1), "int32"),
            r"label is of shape \(4, 1\), pred of \(4, 3\) .*label\.reshape\(\(4,\)\)",
        ),
        (np.zeros((1, 4, 1), "int32"), r"input_ndim=2 target_ndim=3.*label\.reshape\(\(4,\)\)"),
        (np.zeros((3,), "int32"), r"axis 1: it has to be of \(4,\)"),
        (np.zeros((), "int32"), r"input_ndim=2 target_ndim=0; it has to be of \(4,\)"),
        (np.zeros((4,), "float32"), r"label must be integers, got float32: use label\.astype\('int32'\)"),
    ],
)
@pytest.mark.parametrize("decorate", [lambda f: f, trace])
def test_loss_says_which_label_it_takes(loss, label, says, decorate):
    with pytest.raises((errors.ShapeError, errors.ConversionError), match=rf"\A{loss.__name__}: .*{says}"):
        decorate(lambda p, y: loss(p, y))(tensor(PRED), tensor(label))


def test_remedies_of_losses_work():
    want = np.log(np.exp(PRED).sum(1)) - PRED[:, 1]
    label = tensor(np.ones((4, 1), "int32"))
    with pytest.raises(errors.ShapeError, match="reshape"):
        F.cross_entropy(tensor(PRED), label)
    got = F.cross_entropy(tensor(PRED), label.reshape((4,)), reduction="none")
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)
    shares = tensor(np.eye(3, dtype="int32")[[1, 1, 1, 1]])
    with pytest.raises(
        errors.ShapeError, match=r"probabilities of all classes, use label\.astype\('float32'\)"
    ):
        F.cross_entropy(tensor(PRED), shares)
    got = F.cross_entropy(tensor(PRED), shares.astype("float32"), reduction="none")
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)


def test_shares_of_another_shape_and_other_norms():
    with pytest.raises(
        errors.ShapeError, match=r"cross_entropy: .*shape of pred, \(4, 3\), and got \(3, 4\)"
    ):
        F.cross_entropy(tensor(PRED), tensor(np.ones((3, 4), "float32")))
    with pytest.raises(ValueError, match="hinge_loss: norm must be L1 or L2, got 'L3'"):
        F.hinge_loss(tensor(PRED), tensor(PRED), norm="L3")


COUNTS = {
    "RNN": lambda n: M.RNN(2, 3, num_layers=n),
    "LSTM": lambda n: M.LSTM(2, 3, num_layers=n),
    "GRU": lambda n: M.GRU(2, 3, num_layers=n),
    "TransformerEncoder": lambda n: M.TransformerEncoder(M.TransformerEncoderLayer(4, 2, 8), n),
}


@pytest.mark.parametrize("kind", COUNTS)
@pytest.mark.parametrize("count", [1 << 63, 1 << 70, -1])
def test_counts_of_layers_that_no_module_has_are_refused(kind, count):
    with pytest.raises(errors.ShapeError, match=rf"num_layers must be .*, got {count}$"):
        COUNTS[kind](count)
    with pytest.raises(errors.ConversionError, match=r"num_layers must be an integer, got 1\.5"):
        COUNTS[kind](1.5)
