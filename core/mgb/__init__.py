"""mgb: trace, fuse, compile."""

from .tensor import Parameter, Tensor, tensor

__all__ = ["Parameter", "Tensor", "tensor"]
