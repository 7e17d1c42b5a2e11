"""`autocast`: which of two dtypes each op computes in."""

from __future__ import annotations

from contextlib import ContextDecorator
from contextvars import Token
from typing import Any

from ..ir import dtypes
from ..runtime.precision import AUTOCAST

_LOW = tuple(d for d in dtypes.HALVES if d.itemsize == 2)


class autocast(ContextDecorator):
    """Compute products in 16 bits inside a ``with`` block, or in a decorated function.

    Matrix products, convolutions, their biases and attention cast floats of up to 32 bits to
    `low_prec_dtype`. What may overflow 16 bits or needs many digits casts 16-bit floats to `high_prec_dtype`:
    exponentials, logarithms, powers, quotients, roots, trigonometric and hyperbolic functions but `tanh`;
    sums, products, means and norms; softmax, losses and normalisations, of which a batch norm gives back the
    dtype of its input. Other ops take what comes, and 16 and 32 bits meet in 32. Parameters keep their dtype,
    and gradients are computed in the dtypes of the forward pass, wherever `backward` is called.

    A trace that is called inside is recorded once for each of these settings; inside a body that is traced it
    is part of the record.

    Parameters
    ----------
    enabled : bool
        False: inside, operands stay what they are.
    low_prec_dtype, high_prec_dtype : dtype
        ``"float16"`` or ``"bfloat16"``, and ``"float32"`` or ``"float64"``.

    Raises
    ------
    ValueError
        A dtype is none of these.

    Examples
    --------
    >>> import mgb
    >>> import mgb.functional as F
    >>> x = mgb.tensor([[1.0, 2.0]])
    >>> with mgb.amp.autocast(low_prec_dtype="bfloat16"):
    ...     y = F.matmul(x, x.T)
    ...     print(y.dtype, F.exp(y).dtype)
    bfloat16 float32
    """

    def __init__(
        self, enabled: bool = True, low_prec_dtype: Any = "float16", high_prec_dtype: Any = "float32"
    ) -> None:
        self.enabled = enabled
        self.low_prec_dtype = _one_of("low_prec_dtype", low_prec_dtype, _LOW)
        self.high_prec_dtype = _one_of("high_prec_dtype", high_prec_dtype, (dtypes.float32, dtypes.float64))
        self._tokens: list[Token[tuple[str, str] | None]] = []

    def __enter__(self) -> autocast:
        names = (self.low_prec_dtype, self.high_prec_dtype) if self.enabled else None
        self._tokens.append(AUTOCAST.set(names))
        return self

    def __exit__(self, *exception: object) -> None:
        AUTOCAST.reset(self._tokens.pop())

    def _recreate_cm(self) -> autocast:
        """Return one copy for each call of a decorated function, which several threads may call."""
        return autocast(self.enabled, self.low_prec_dtype, self.high_prec_dtype)

    def __repr__(self) -> str:
        return (
            f"autocast(enabled={self.enabled}, low_prec_dtype={self.low_prec_dtype!r}, "
            f"high_prec_dtype={self.high_prec_dtype!r})"
        )


def _one_of(option: str, given: Any, known: Any) -> str:
    dtype = dtypes.as_dtype(given)
    if dtype not in known:
        names = " or ".join(d.name for d in known)
        raise ValueError(f"autocast: {option}={dtype.name} is not supported: give {names}")
    return dtype.name
