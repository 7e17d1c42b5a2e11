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
        """What else the function is given."""
        return {}

    def forward(self, pred: Tensor, label: Tensor) -> Tensor:
        """The loss."""
        return type(self).function(pred, label, reduction=self.reduction, **self._options())

    def _describe(self) -> str:
        return f"reduction={self.reduction!r}"


def _layer(name: str, function: Callable[..., Tensor], text: str, **options: Any) -> type[_Loss]:
    members = {"__doc__": text, "__module__": __name__, "function": staticmethod(function)}
    return type(name, (_Loss,), {**members, "_options": lambda self: options} if options else members)


L1Loss = _layer("L1Loss", F.loss.l1_loss, "``abs(pred - label)``.")
MSELoss = _layer("MSELoss", F.loss.square_loss, "``(pred - label) ** 2``.")
NLLLoss = _layer("NLLLoss", F.loss.nll_loss, "``-pred[label]``, where `pred` are logarithms.")
KLDivLoss = _layer(
    "KLDivLoss", F.loss.kl_div, "``label * (log(label) - pred)``; see `functional.loss.kl_div`."
)
BCELoss = _layer("BCELoss", F.loss.binary_cross_entropy, "The cross entropy of two classes, of their shares.",
                 with_logits=False)  # fmt: skip
BCEWithLogitsLoss = _layer("BCEWithLogitsLoss", F.loss.binary_cross_entropy,
                           "The cross entropy of two classes, of logits.")  # fmt: skip


class SmoothL1Loss(_Loss):
    """Half a square where the difference is below `beta`, straight elsewhere.

    Parameters
    ----------
    reduction : str
        ``"mean"``, ``"sum"``, or ``"none"``.
    beta : float
    name : str, optional
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
    """

    function = staticmethod(F.loss.cross_entropy)

    def __init__(
        self, reduction: str = "mean", label_smoothing: float = 0.0, name: str | None = None
    ) -> None:
        super().__init__(reduction, name)
        self.label_smoothing = label_smoothing

    def _options(self) -> dict[str, Any]:
        return {"label_smooth": self.label_smoothing}
