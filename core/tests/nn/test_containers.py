"""Lists and dicts of modules, flattening, and losses as layers: against torch."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from differences import check
from mgb import Tensor
from mgb.jit import trace

RNG = np.random.default_rng(0)
PRED, OTHER = RNG.normal(size=(4, 3)), RNG.normal(size=(4, 3))
SHARES = np.exp(OTHER) / np.exp(OTHER).sum(1, keepdims=True)
LABELS = np.array([0, 2, 1, 2])

LOSSES: list[tuple[str, Any, Any, dict[str, Any]]] = [
    ("L1Loss", PRED, OTHER, {}),
    ("MSELoss", PRED, OTHER, {}),
    ("SmoothL1Loss", PRED, OTHER, {"beta": 0.5}),
    ("HuberLoss", PRED, OTHER, {"delta": 0.5}),
    ("BCELoss", SHARES, SHARES[::-1].copy(), {}),
    ("BCEWithLogitsLoss", PRED, SHARES, {}),
    ("KLDivLoss", PRED, SHARES, {}),
    ("NLLLoss", PRED, LABELS, {}),
    ("CrossEntropyLoss", PRED, LABELS, {}),
    ("CrossEntropyLoss", PRED, LABELS, {"label_smoothing": 0.2}),
    ("CrossEntropyLoss", PRED, SHARES, {}),
    ("CrossEntropyLoss", PRED, SHARES, {"label_smoothing": 0.2}),
]


def given(x: Any) -> Tensor:
    return Tensor(x, dtype="float64" if x.dtype.kind == "f" else "int32")


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("name", "pred", "label", "options"), LOSSES)
def test_losses_match_torch(
    name: str, pred: Any, label: Any, options: dict[str, Any], reduction: str
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    want = getattr(torch.nn, name)(reduction=reduction, **options)(torch.tensor(pred), torch.tensor(label))
    layer = getattr(M, name)(reduction=reduction, **options)
    traced = trace(layer)
    for found in (layer, traced, traced):
        np.testing.assert_allclose(found(given(pred), given(label)).numpy(), want.numpy(), rtol=1e-6)
    assert repr(layer).startswith(f"{name}(reduction={reduction!r}")


def test_cross_entropy_of_probabilities_has_correct_gradients() -> None:
    check(lambda p, q: F.loss.cross_entropy(p, q, label_smooth=0.1), PRED, SHARES)
    check(lambda p, q: F.loss.cross_entropy(p, q, with_logits=False, axis=-1), SHARES[::-1].copy(), SHARES)


def test_unknown_reduction_is_rejected() -> None:
    with pytest.raises(ValueError, match="'most'"):
        M.MSELoss("most")


def test_flatten() -> None:
    x = Tensor(RNG.normal(size=(2, 3, 4, 5)))
    assert M.Flatten()(x).shape == (2, 60)
    assert M.Flatten(0, 1)(x).shape == (6, 4, 5)
    assert repr(M.Flatten()) == "Flatten(start_axis=1, end_axis=-1)"


class Net(M.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = M.ModuleList([M.Linear(3, 3) for _ in range(3)])
        self.heads = M.ModuleDict({"a": M.Linear(3, 2), "b": M.Linear(3, 1)})

    def forward(self, x: Tensor, head: str) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.heads[head](x)


def test_modules_in_lists_and_dicts_are_registered() -> None:
    net, x = Net(), Tensor(PRED, dtype="float32")
    names = {name.rpartition(".")[0] for name, _ in net.named_parameters()}
    assert names == {"layers.0", "layers.1", "layers.2", "heads.a", "heads.b"}
    traced = trace(net)
    for head in "abab":
        np.testing.assert_allclose(traced(x, head).numpy(), net(x, head).numpy(), rtol=1e-6)
    other = Net()
    other.load_state_dict(net.state_dict())
    np.testing.assert_array_equal(other(x, "a").numpy(), net(x, "a").numpy())


def test_module_list_behaves_like_a_list() -> None:
    a, b, c, d = (M.Linear(1, n) for n in range(1, 5))
    modules = M.ModuleList([a, b])
    modules.append(c)
    modules.insert(1, d)
    assert list(modules) == [a, d, b, c] and len(modules) == 4 and modules[-1] is c
    del modules[0]
    modules[0] = a
    assert list(modules) == [a, b, c] and list(modules[1:]) == [b, c]
    assert [n for n, _ in modules.named_children()] == ["0", "1", "2"]
    with pytest.raises(IndexError):
        modules[3]
    with pytest.raises(NotImplementedError, match="Sequential"):
        modules(a)


def test_module_dict_behaves_like_a_dict() -> None:
    a, b = M.Linear(1, 1), M.Linear(1, 2)
    modules = M.ModuleDict([("x", a)])
    modules["y"] = b
    assert list(modules) == modules.keys() == ["x", "y"] and modules.items() == [("x", a), ("y", b)]
    assert modules.pop("x") is a and "x" not in modules and modules.values() == [b] and len(modules) == 1
    with pytest.raises(KeyError):
        modules["x"]
    with pytest.raises(KeyError, match="itself"):
        modules["forward"] = a
    with pytest.raises(NotImplementedError, match="not called"):
        modules(a)
