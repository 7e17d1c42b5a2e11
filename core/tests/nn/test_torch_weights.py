"""Weights of PyTorch: its modules and ours give the same for the same input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Tensor
from mgb.errors import FileFormatError, StateDictError
from mgb.utils import load_torch_state_dict, torch_state_dict
from mgb.utils.torch_weights import Entry, entries

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
T = torch.nn

RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


IMAGE, ROWS, LINE = array(2, 4, 6, 5), array(5, 2, 3), array(2, 4, 9)

LAYERS: dict[str, tuple[Callable[[], Any], Callable[[], Any], np.ndarray]] = {
    "linear": (lambda: T.Linear(3, 5), lambda: M.Linear(3, 5), ROWS),
    "linear without bias": (lambda: T.Linear(3, 5, bias=False), lambda: M.Linear(3, 5, bias=False), ROWS),
    "conv1d": (lambda: T.Conv1d(4, 6, 3, padding=1), lambda: M.Conv1d(4, 6, 3, padding=1), LINE),
    "conv2d": (lambda: T.Conv2d(4, 6, 3, 2, 1), lambda: M.Conv2d(4, 6, 3, 2, 1), IMAGE),
    "grouped": (lambda: T.Conv2d(4, 6, 3, groups=2), lambda: M.Conv2d(4, 6, 3, groups=2), IMAGE),
    "by channel": (lambda: T.Conv2d(4, 8, 3, groups=4), lambda: M.Conv2d(4, 8, 3, groups=4), IMAGE),
    "reflected": (
        lambda: T.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
        lambda: M.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
        IMAGE,
    ),
    "transposed": (
        lambda: T.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1),
        lambda: M.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1),
        IMAGE,
    ),
    "transposed groups": (
        lambda: T.ConvTranspose2d(4, 6, 3, groups=2),
        lambda: M.ConvTranspose2d(4, 6, 3, groups=2),
        IMAGE,
    ),
    "batch norm": (lambda: T.BatchNorm2d(4), lambda: M.BatchNorm2d(4), IMAGE),
    "batch norm of rows": (lambda: T.BatchNorm1d(4), lambda: M.BatchNorm1d(4), LINE),
    "no statistics": (
        lambda: T.BatchNorm2d(4, track_running_stats=False, affine=False),
        lambda: M.BatchNorm2d(4, track_running_stats=False, affine=False),
        IMAGE,
    ),
    "layer norm": (lambda: T.LayerNorm((6, 5)), lambda: M.LayerNorm((6, 5)), IMAGE),
    "rms norm": (lambda: T.RMSNorm(5, eps=1e-6), lambda: M.RMSNorm(5), IMAGE),
    "group norm": (lambda: T.GroupNorm(2, 4), lambda: M.GroupNorm(2, 4), IMAGE),
    "instance norm": (lambda: T.InstanceNorm2d(4, affine=True), lambda: M.InstanceNorm(4), IMAGE),
    "prelu": (lambda: T.PReLU(4), lambda: M.PReLU(4), IMAGE),
    "rnn": (lambda: T.RNN(3, 5, 2), lambda: M.RNN(3, 5, 2), ROWS),
    "relu rnn": (
        lambda: T.RNN(3, 5, nonlinearity="relu", bias=False),
        lambda: M.RNN(3, 5, nonlinearity="relu", bias=False),
        ROWS,
    ),
    "lstm": (lambda: T.LSTM(3, 5, 2, bidirectional=True), lambda: M.LSTM(3, 5, 2, bidirectional=True), ROWS),
    "gru": (lambda: T.GRU(3, 5, 2, bidirectional=True), lambda: M.GRU(3, 5, 2, bidirectional=True), ROWS),
    "lstm cell": (lambda: T.LSTMCell(3, 5), lambda: M.LSTMCell(3, 5), ROWS[0]),
    "gru cell": (lambda: T.GRUCell(3, 5), lambda: M.GRUCell(3, 5), ROWS[0]),
    "encoder": (
        lambda: T.TransformerEncoder(
            T.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, T.LayerNorm(8), False
        ),
        lambda: M.TransformerEncoder(M.TransformerEncoderLayer(8, 2, 16), 2, M.LayerNorm(8)),
        array(2, 7, 8),
    ),
    "encoder, norm first": (
        lambda: T.TransformerEncoderLayer(8, 2, 16, norm_first=True, activation="gelu", batch_first=True),
        lambda: M.TransformerEncoderLayer(8, 2, 16, norm_first=True, activation="gelu"),
        array(2, 7, 8),
    ),
}


def random_state(theirs: Any) -> dict[str, Any]:
    """A state in which nothing is 0 or 1."""
    state = theirs.state_dict()
    for name, value in state.items():
        if value.is_floating_point():
            value.copy_(torch.from_numpy(array(*value.shape)))
            value.abs_() if name.endswith("running_var") else value.mul_(0.5)
    return state


def agree(got: Any, want: Any) -> None:
    if isinstance(want, tuple):
        for ours, theirs in zip(got, want, strict=True):
            agree(ours, theirs)
    else:
        np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_with_loaded_weights_match_torch(name: str) -> None:
    make_theirs, make_ours, x = LAYERS[name]
    theirs, ours = make_theirs(), make_ours()
    state = random_state(theirs)
    load_torch_state_dict(ours, state)
    for mode in (False, True) if "coder" not in name else (False,):  # dropout differs in training
        agree(ours.train(mode)(Tensor(x)), theirs.train(mode)(torch.from_numpy(x)))
    if theirs.training:  # the running statistics have moved alike
        agree(ours.eval()(Tensor(x)), theirs.eval()(torch.from_numpy(x)))
    back = {key: torch.from_numpy(value) for key, value in torch_state_dict(ours).items()}
    again = make_theirs()
    again.load_state_dict(back)
    agree(ours.eval()(Tensor(x)), again.eval()(torch.from_numpy(x)))


def test_attention_and_embedding() -> None:
    theirs, ours = T.MultiheadAttention(8, 2, batch_first=True), M.MultiHeadAttention(8, 2)
    load_torch_state_dict(ours, random_state(theirs))
    q, k, v = array(2, 5, 8), array(2, 7, 8), array(2, 7, 8)
    agree(ours(Tensor(q), Tensor(k), Tensor(v)), theirs(*map(torch.from_numpy, (q, k, v)))[0])
    table, looked_up = M.Embedding(10, 4), T.Embedding(10, 4)
    load_torch_state_dict(table, looked_up.state_dict())
    agree(table(Tensor([1, 9])), looked_up(torch.tensor([1, 9])))


class Net(M.Module):
    """The twin of `Theirs`, defined in the same order."""

    def __init__(self):
        super().__init__()
        self.stem = M.Sequential(M.Conv2d(3, 8, 3, bias=False), M.BatchNorm2d(8), M.ReLU())
        self.blocks = M.ModuleList(M.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.embed = M.Linear(8, 6)
        self.classify = M.Linear(6, 8, bias=False)
        self.back = M.Linear(8, 6, bias=False)
        self.back.weight = self.embed.weight  # tied, as in language models
        self.alpha = M.Linear(6, 1)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + F.relu(block(x))
        return self.alpha(self.back(self.classify(self.embed(x.mean((2, 3))))))


class Theirs(T.Module):
    def __init__(self):
        super().__init__()
        self.stem = T.Sequential(T.Conv2d(3, 8, 3, bias=False), T.BatchNorm2d(8), T.ReLU())
        self.blocks = T.ModuleList(T.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.embed = T.Linear(8, 6)
        self.classify = T.Linear(6, 8, bias=False)
        self.back = T.Linear(8, 6, bias=False)
        self.back.weight = self.embed.weight
        self.alpha = T.Linear(6, 1)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.alpha(self.back(self.classify(self.embed(x.mean((2, 3))))))


def test_whole_network_loads_and_parameters_have_torch_order() -> None:
    theirs, ours = Theirs(), Net()
    load_torch_state_dict(ours, random_state(theirs))
    x = array(2, 3, 8, 8)
    agree(ours.eval()(Tensor(x)), theirs.eval()(torch.from_numpy(x)))
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_array_equal(mine.numpy().reshape(-1), other.detach().numpy().reshape(-1))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_loaded_values_are_converted_to_float32(dtype: str) -> None:
    theirs, ours = T.Linear(3, 4).to(getattr(torch, dtype)), M.Linear(3, 4)
    load_torch_state_dict(ours, dict(theirs.named_parameters()))  # which want gradients
    np.testing.assert_array_equal(ours.weight.numpy(), theirs.weight.detach().float().numpy())
    assert ours.weight.dtype == np.float32


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_weights_of_8_bits_are_converted_to_float32(dtype: str) -> None:
    state, ours = T.Linear(3, 4).state_dict(), M.Linear(3, 4)
    state = {name: value.to(getattr(torch, dtype)) for name, value in state.items()}
    load_torch_state_dict(ours, state)
    np.testing.assert_array_equal(ours.weight.numpy(), state["weight"].float().numpy())


def test_weights_load_from_safetensors_files(tmp_path: Path) -> None:
    save = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    theirs, ours = T.LSTM(3, 5).bfloat16(), M.LSTM(3, 5)
    save.save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    load_torch_state_dict(ours, tmp_path / "model.safetensors")
    want = theirs.float()(torch.from_numpy(ROWS))[0].detach().numpy()
    np.testing.assert_allclose(ours(Tensor(ROWS))[0].numpy(), want, rtol=2e-5, atol=2e-5)
    with pytest.raises(FileFormatError, match=r"is a pickle of PyTorch.*weights_only=True"):
        load_torch_state_dict(ours, "model.pt")


def test_all_mismatches_are_reported_at_once_and_nothing_changes() -> None:
    ours = M.Sequential(M.Linear(3, 4), M.BatchNorm1d(4))
    before = ours.state_dict()
    state = T.Sequential(T.Linear(3, 4), T.BatchNorm1d(5)).state_dict()
    state["more"], state["0.weight"] = torch.zeros(1), state["0.weight"] + 1
    del state["0.bias"]
    with pytest.raises(StateDictError) as caught:
        load_torch_state_dict(ours, state)
    text = str(caught.value)
    assert "missing: 0.bias; unexpected: more; of another shape: 1.weight: (5,) instead of (4,)" in text
    assert isinstance(caught.value, KeyError) and isinstance(caught.value, ValueError)
    with pytest.raises(StateDictError, match=r"of another shape: 1\.weight"):
        load_torch_state_dict(ours, state, strict=False)
    for name, value in ours.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    left = load_torch_state_dict(ours, {"0.weight": np.ones((4, 3)), "more": [1.0]}, strict=False)
    assert left.unexpected_keys == ["more"] and "1.running_var" in left.missing_keys
    assert (ours[0].weight.numpy() == 1).all()


def test_invalid_state_dict_raises() -> None:
    ours = M.Linear(3, 4)
    with pytest.raises(TypeError, match=r"got Linear; give its state_dict\(\)"):
        load_torch_state_dict(ours, T.Linear(3, 4))  # type: ignore[arg-type]
    wrapped = {f"module.{key}": value for key, value in T.Linear(3, 4).state_dict().items()}
    with pytest.raises(StateDictError, match=r"removeprefix\('module\.'\)"):
        load_torch_state_dict(ours, wrapped)
    with pytest.raises(TypeError, match="bias is not an array of numbers, but str"):
        load_torch_state_dict(ours, {"weight": np.ones((4, 3)), "bias": "zeros"})


def test_custom_layer_can_register_its_entries() -> None:
    class Scale(M.Module):
        def __init__(self):
            super().__init__()
            self.factor = M.Linear(1, 2).weight

        def forward(self, x):
            return x * self.factor

    @entries.register(Scale)
    def _(module):
        yield "factor", [Entry("gamma", (2,), (module.factor,))]

    net = M.Sequential(Scale())
    load_torch_state_dict(net, {"0.gamma": np.array([3.0, 4.0])})
    np.testing.assert_array_equal(net[0].factor.numpy(), [[3], [4]])


def test_core_does_not_import_torch() -> None:
    script = "import sys, mgb; mgb.utils.load_torch_state_dict; print('torch' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "False"
