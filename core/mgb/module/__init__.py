"""Layers, and `Module`, of which they and whole networks are made."""

from __future__ import annotations

from . import init
from .activation import (
    GELU,
    HSigmoid,
    HSwish,
    Identity,
    LeakyReLU,
    LogSigmoid,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from .attention import MultiHeadAttention
from .conv import Conv2d, ConvTranspose2d
from .dropout import Dropout
from .embedding import Embedding
from .linear import Linear
from .module import Module
from .normalization import BatchNorm1d, BatchNorm2d, GroupNorm, LayerNorm, RMSNorm
from .pooling import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from .sequential import Sequential

__all__ = [
    "GELU",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv2d",
    "ConvTranspose2d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "HSigmoid",
    "HSwish",
    "Identity",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "MaxPool2d",
    "Module",
    "MultiHeadAttention",
    "PReLU",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "init",
]
