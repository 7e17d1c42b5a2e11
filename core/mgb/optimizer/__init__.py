"""Optimizers, learning rate schedules and gradient clipping."""

from __future__ import annotations

from ..tensor.arguments import explain as _explain
from .adadelta import Adadelta
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .clip_grad import clip_grad_norm, clip_grad_value
from .lamb import LAMB
from .lbfgs import LBFGS
from .lr_scheduler import LRScheduler, MultiStepLR
from .nadam import Adamax, NAdam
from .optimizer import Optimizer
from .plateau import ReduceLROnPlateau
from .rmsprop import RMSprop
from .schedules import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    OneCycleLR,
    PolynomialLR,
    SequentialLR,
    StepLR,
)
from .sgd import SGD

__all__ = [
    "LAMB",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "NAdam",
    "OneCycleLR",
    "Optimizer",
    "PolynomialLR",
    "RMSprop",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
    "clip_grad_norm",
    "clip_grad_value",
]


def __dir__() -> list[str]:
    return __all__


_explain(globals(), __all__)
