"""The ops of the backend: for which operands each is supported, and which function runs it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from mgb.backends import num_threads
from mgb.ir import Spec
from mgb.runtime import forking
from mgb.tensor.libraries import Layout, LibraryError, OpLibrary, empty

from .attention import OPS as ATTENTION
from .attention import Attention
from .chain import Chain
from .convolution import ROLES, convolution
from .layouts import Axes, inverse
from .native import DATA_TYPES, OPENMP, WHEEL, load_openmp, native, path
from .pooling import OPS as POOLING
from .pooling import pooling
from .product import factors, is_product, order_of_product, product

#: `DATA_TYPES`, by what NumPy is quick to compare.
_DTYPES = frozenset(map(np.dtype, DATA_TYPES))
_WIDE = frozenset({np.dtype(np.float32)})

_log = logging.getLogger("mgb.libraries")
_lock = forking.lock()  # primitives are made one after the other: each takes milliseconds of all threads


class OneDnn(OpLibrary):
    """Convolutions and matrix products in float32 and 16 bits by oneDNN, attention and pooling in float32.

    They work on the layouts of NumPy. Products of 16-bit floats are summed in float32.

    Its OpenMP threads are as many as ``MGB_NUM_THREADS`` says when an op first meets a layout.
    """

    name, api_version = "onednn", 1
    ops = frozenset({"matmul", *ROLES, *POOLING, *ATTENTION})

    def probe(self) -> str | None:
        """Return whether wheel and OpenMP runtime are here."""
        if path() is None:
            return f"{WHEEL} is not installed: pip install {WHEEL}"
        try:
            load_openmp()
        except OSError:
            return f"{OPENMP} is missing: apt-get install libgomp1, or dnf install libgomp"
        return None

    def version(self) -> str:
        """Return the version of oneDNN."""
        return native().version()

    def implement(
        self, op: str, operands: Sequence[Layout], output: Spec, params: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """Return a function around a chain; see `OpLibrary.implement`."""
        known = _DTYPES if op == "matmul" or op in ROLES else _WIDE
        if any(o.dtype not in known for o in operands):
            return None
        if op in ATTENTION:
            return Attention(native, op, operands, output, params, num_threads())
        make = _product if op == "matmul" else _pooling if op in POOLING else _convolution
        try:
            with _lock:
                return make(op, operands, output, params)
        except LibraryError as error:
            _log.info("oneDNN has no %s for %s: %s", op, operands, error)
            return None


def _convolution(
    op: str, operands: Sequence[Layout], output: Spec, params: Mapping[str, Any]
) -> Callable[..., Any] | None:
    shapes = [o.shape for o in operands] + [output.shape]
    chain = convolution(native(), op, shapes, params, output.dtype.name, num_threads())
    call = _writing(chain, output)
    if call is None or all(o.is_row_major for o in operands):
        return call
    return lambda first, second: call(np.ascontiguousarray(first), np.ascontiguousarray(second))


def _pooling(
    op: str, operands: Sequence[Layout], output: Spec, params: Mapping[str, Any]
) -> Callable[..., Any] | None:
    chain, call = pooling(native(), op, [o.shape for o in operands], output, params, num_threads())
    return None if is_slow(chain) else call


def _product(
    op: str, operands: Sequence[Layout], output: Spec, params: Mapping[str, Any]
) -> Callable[..., Any] | None:
    a, b = factors(operands, params)
    if not is_product(a, b):
        return None
    chain = product(native(), a, b, num_threads())
    order = order_of_product(b) if len(b.shape) == output.ndim else None
    call = chain and _writing(chain, output, order)
    if call is not None or chain is None or not any(0 in o.strides for o in operands):
        return call
    whole = [Layout.row_major(o.shape, o.dtype) if 0 in o.strides else o for o in operands]
    call = _product(op, whole, output, params)
    return call and (lambda *given: call(*(x.copy() if 0 in x.strides else x for x in given)))


def _writing(chain: Chain, output: Spec, order: Axes | None = None) -> Callable[..., Any] | None:
    """Return `chain` as a function of its inputs; None when the library has only its slow reference code.

    `order` is that of the output's axes in memory; None is row-major.
    """
    shape, dtype, axes = output.shape, output.dtype, tuple(range(output.ndim))
    order = axes if order is None else order
    stored, back = tuple(shape[axis] for axis in order), inverse(order)

    def call(first: Any, second: Any) -> Any:
        out = empty(stored, dtype)
        chain(first, second, out)
        return out if back == axes else out.transpose(back)

    return None if is_slow(chain) else call


def is_slow(chain: Chain) -> bool:
    """Return whether the library has nothing but its reference code."""
    return "ref" in chain.implementation
