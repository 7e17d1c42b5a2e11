"""Optimizers, learning rate schedules and gradient clipping."""

from __future__ import annotations

from .adadelta import Adadelta
from .adagrad import Adagrad
from .adam import Adam, AdamW
from .clip_grad import clip_grad_norm, clip_grad_value
from .lamb import LAMB
from .lr_scheduler import LRScheduler, MultiStepLR
from .optimizer import Optimizer
from .sgd import SGD

__all__ = [
    "LAMB",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "LRScheduler",
    "MultiStepLR",
    "Optimizer",
    "clip_grad_norm",
    "clip_grad_value",
]
