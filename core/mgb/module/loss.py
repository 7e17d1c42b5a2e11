"""Losses as layers, under torch's names: called with what is predicted and what is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .. import functional as F
from ..tensor import Tensor
from .module import Module


class _Loss(Module):
    """A loss whose options are fixed.

    Parameters
    ----------
    reduction : str
        ``"mean"``, ``"sum"``, or ``"none"``.
    name : str, optional
    """

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, reduction: str = "mean", name: str | None = None) -> None:
        super().__init__(name)
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(
                f"{type(self).__name__}: reduction is 'mean', 'sum' or 'none', not {reduction!r}"
            )
        self.reduction = reduction

    def _options(self) -> dict[str, Any]:
        """Return the other arguments of the function."""
        return {}

    def forward(self, pred: Tensor, label: Tensor) -> Tensor:
        """Return the loss."""
        return type(self).function(pred, label, reduction=self.reduction, **self._options())

    def _describe(self) -> str:
        return f"reduction={self.reduction!r}"


def _layer(
    name: str, function: Callable[..., Tensor], text: str, pred: str, label: str, value: str, **options: Any
) -> type[_Loss]:
    """Return a layer of `function`, whose value at `pred` and `label` is the example."""
    text += f"\n\nExamples\n--------\n>>> pred, label = mgb.tensor({pred}), mgb.tensor({label})"
    text += f"\n>>> M.{name}()(pred, label).item()\n{value}"
    members = {"__doc__": text, "__module__": __name__, "function": staticmethod(function)}
    return type(name, (_Loss,), {**members, "_options": lambda self: options} if options else members)


L1Loss = _layer("L1Loss", F.loss.l1_loss, "``abs(pred - label)``.", "[1.0, 4.0]", "[2.0, 2.0]", "1.5")
MSELoss = _layer("MSELoss", F.loss.square_loss, "``(pred - label) ** 2``.", "[1.0, 4.0]", "[2.0, 2.0]", "2.5")
NLLLoss = _layer("NLLLoss", F.loss.nll_loss, "``-pred[label]``, where `pred` are logarithms.",
                 "np.log([[0.25, 0.75]])", "[0]", "1.3862943")  # fmt: skip
KLDivLoss = _layer("KLDivLoss", F.loss.kl_div,
                   "``label * (log(label) - pred)``; see `functional.loss.kl_div`.",
                   "np.log([0.5, 0.5])", "[0.25, 0.75]", "0.0654061")  # fmt: skip
BCELoss = _layer("BCELoss", F.loss.binary_cross_entropy,
                 "The cross entropy of two classes, of their shares.",
                 "[0.25]", "[1.0]", "1.3862943", with_logits=False)  # fmt: skip
BCEWithLogitsLoss = _layer("BCEWithLogitsLoss", F.loss.binary_cross_entropy,
                           "The cross entropy of two classes, of logits.",
                           "[0.0]", "[1.0]", "0.6931472")  # fmt: skip


class SmoothL1Loss(_Loss):
    """Half a square where the difference is below `beta`, straight elsewhere.

    Parameters
    ----------
    reduction : str
        ``"mean"``, ``"sum"``, or ``"none"``.
    beta : float
    name : str, optional

    Examples
    --------
    >>> M.SmoothL1Loss()(mgb.tensor([0.5, 3.0]), mgb.tensor([0.0, 0.0]))
    Tensor(1.3125, device=xpux:0)
    """

    function = staticmethod(F.loss.smooth_l1_loss)

    def __init__(self, reduction: str = "mean", beta: float = 1.0, name: str | None = None) -> None:
        super().__init__(reduction, name)
        self.beta = beta

    def _options(self) -> dict[str, Any]:
        return {"beta": self.beta}


class HuberLoss(_Loss):
    """Half a square where the difference is below `delta`, straight elsewhere, `delta` times as steep.

    Parameters
    ----------
    reduction : str
        ``"mean"``, ``"sum"``, or ``"none"``.
    delta : float
    name : str, optional

    Examples
    --------
    >>> M.HuberLoss(delta=2.0)(mgb.tensor([0.5, 3.0]), mgb.tensor([0.0, 0.0]))
    Tensor(2.0625, device=xpux:0)
    """

    function = staticmethod(F.loss.huber_loss)

    def __init__(self, reduction: str = "mean", delta: float = 1.0, name: str | None = None) -> None:
        super().__init__(reduction, name)
        self.delta = delta

    def _options(self) -> dict[str, Any]:
        return {"delta": self.delta}


class CrossEntropyLoss(_Loss):
    """Minus the logarithm of the probability of the label, of logits; see `functional.loss.cross_entropy`.

    Parameters
    ----------
    reduction : str
        ``"mean"``, ``"sum"``, or ``"none"``.
    label_smoothing : float
        The part of the label's probability that is spread evenly over all classes.
    name : str, optional

    Examples
    --------
    >>> loss = M.CrossEntropyLoss()(F.zeros((1, 4)), mgb.tensor([2]))
    >>> np.allclose(loss.item(), np.log(4))
    True
    """

    function = staticmethod(F.loss.cross_entropy)

    def __init__(
        self, reduction: str = "mean", label_smoothing: float = 0.0, name: str | None = None
    ) -> None:
        super().__init__(reduction, name)
        self.label_smoothing = label_smoothing

    def _options(self) -> dict[str, Any]:
        return {"label_smooth": self.label_smoothing}
