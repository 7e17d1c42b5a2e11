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
from .conv import Conv1d, Conv2d, ConvTranspose2d
from .dropout import Dropout
from .embedding import Embedding
from .linear import Linear
from .module import Module
from .normalization import (
    BatchNorm1d,
    BatchNorm2d,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
    SyncBatchNorm,
)
from .pooling import AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, MaxPool2d, PixelShuffle
from .rnn import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from .sequential import Sequential

__all__ = [
    "GELU",
    "GRU",
    "LSTM",
    "RNN",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AvgPool2d",
    "BatchNorm1d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose2d",
    "Dropout",
    "Embedding",
    "GRUCell",
    "GroupNorm",
    "HSigmoid",
    "HSwish",
    "Identity",
    "InstanceNorm",
    "LSTMCell",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSigmoid",
    "MaxPool2d",
    "Module",
    "MultiHeadAttention",
    "PReLU",
    "PixelShuffle",
    "RMSNorm",
    "RNNCell",
    "ReLU",
    "ReLU6",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "SyncBatchNorm",
    "Tanh",
    "init",
]
