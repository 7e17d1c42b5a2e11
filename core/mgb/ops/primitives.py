"""The op set that other element-wise ops decompose into. Columns: name, NumPy, dtypes, gradient, price.

In a gradient, ``g`` is the gradient of the result, ``y`` the result, then the inputs; a name with a leading
underscore is only looked at for its shape and dtype.

The gradient of a real number with respect to ``z = x + 1j*y`` is that with respect to `x` plus 1j times that
with respect to `y`, as in torch: the conjugate of JAX's. A rule is given the conjugates of complex operands
and results, so that those of analytic functions read as those of real ones: ``g * b``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import Kind, Op, Spec, dtypes
from ..tensor import Tensor
from ..tensor.apply import install_promotion
from .declare import (
    ANALYTIC,
    COMPARE,
    COUNTING,
    EQUAL,
    FIELD,
    FLOATING,
    INTEGER,
    LOGICAL,
    PART,
    PARTS,
    SAME,
    SELECT,
    declare,
    primitive,
)
from .eager import bitcast as eager_bitcast
from .eager import cast as eager_cast
from .eager import complex_of_parts as eager_complex
from .eager import fma as eager_fma
from .eager import imag as eager_imag
from .eager import iota as eager_iota
from .eager import real as eager_real
from .eager import shl as eager_shl
from .eager import shr as eager_shr
from .eager import where as eager_where

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "elementwise"}


def _counted(shift: Callable[[], Callable[..., Tensor]]) -> Callable[..., Tensor]:
    """Return the guard of a shift: a count modulo the width, which no processor has to take."""
    return lambda x, count: shift()(x, bit_and(count, 8 * x.dtype.itemsize - 1))


# fmt: off
add = primitive("add", np.add,         FIELD,    lambda g, _y, _a, _b: (g, g), cheap=True,
                meaning="``a + b``; integers wrap.")
sub = primitive("sub", np.subtract,    FIELD,    lambda g, _y, _a, _b: (g, neg(g)), cheap=True,
                meaning="``a - b``; integers wrap.")
mul = primitive("mul", np.multiply,    FIELD,    lambda g, _y, a, b: (g * b, g * a), cheap=True,
                signed_zero=True,
                meaning="``a * b``; integers wrap.")
div = primitive("div", np.true_divide, ANALYTIC, lambda g, y, _a, b: (g / b, neg(g * y / b)),
                signed_zero=True,
                meaning="``a / b``: by 0 infinity with the sign of both operands, 0 by 0 NaN.")
neg = primitive("neg", np.negative,    FIELD,    lambda g, _y, _x: (neg(g),), cheap=True,
                exact=True, signed_zero=True,
                meaning="``-x``, the sign of 0 and infinity too; integers wrap, unsigned ones likewise.")
fma = primitive("fma", eager_fma,      FIELD,    lambda g, _y, a, b, _c: (g * b, g * a, g), cheap=True,
                meaning="``a * b + c``, with the product rounded or not, as it suits; integers wrap.")
maximum = primitive("maximum", np.maximum, SAME, lambda g, _y, a, b: _parts(g, le(b, a)), cheap=True,
                    exact=True,
                    meaning="The greater of both. NaN if one is NaN. Of 0 and -0 either.")
minimum = primitive("minimum", np.minimum, SAME, lambda g, _y, a, b: _parts(g, le(a, b)), cheap=True,
                    exact=True,
                    meaning="The smaller of both. NaN if one is NaN. Of 0 and -0 either.")
lt = primitive("lt", np.less,       COMPARE, cheap=True, meaning="``a < b``; False if one is NaN.")
le = primitive("le", np.less_equal, COMPARE, cheap=True, meaning="``a <= b``; False if one is NaN.")
eq = primitive("eq", np.equal,      EQUAL,   cheap=True,
               meaning="``a == b``: -0 is 0, and NaN is nothing, not even itself.")
logical_and = primitive("logical_and", np.logical_and, LOGICAL, cheap=True, meaning="``a and b``.")
logical_or  = primitive("logical_or",  np.logical_or,  LOGICAL, cheap=True, meaning="``a or b``.")
logical_not = primitive("logical_not", np.logical_not, LOGICAL, cheap=True, meaning="``not a``.")
where = primitive("where", eager_where, SELECT, lambda g, _y, c, _a, _b: (None, *_parts(g, c)), cheap=True,
                  exact=True,
                  meaning="`a` where `condition` holds, else `b`; what is not chosen does not count, NaN "
                  "included.")
floor = primitive("floor", np.floor, FLOATING, exact=True, signed_zero=True,
                  meaning="The greatest whole number up to `x`. -0, infinity and NaN stay.")
round = primitive("round", np.rint,  FLOATING, exact=True, signed_zero=True,
                  meaning="The nearest whole number, of two equally near the even one. The sign stays, "
                  "-0.4 gives -0; infinity and NaN stay.")
sqrt  = primitive("sqrt",  np.sqrt,  ANALYTIC, lambda g, y, _x: (0.5 * g / y,), signed_zero=True,
                  meaning="The square root, rounded correctly: of -0 it is -0, of less NaN.")

bit_and = primitive("bit_and", np.bitwise_and, INTEGER, meaning="``a & b``, bit by bit.")
bit_or  = primitive("bit_or",  np.bitwise_or,  INTEGER, meaning="``a | b``, bit by bit.")
bit_xor = primitive("bit_xor", np.bitwise_xor, INTEGER, meaning="``a ^ b``, bit by bit.")
shl     = primitive("shl",     eager_shl,      COUNTING, guard=_counted(lambda: shl),
                    meaning="``x << (count mod width)``; what is shifted out is lost. So -1 counts as "
                    "width - 1.")
shr     = primitive("shr",     eager_shr,      COUNTING, guard=_counted(lambda: shr),
                    meaning="``x >> (count mod width)``: copies of the sign come in from the left, of "
                    "unsigned integers zeros.")

real    = primitive("real",    eager_real,    PART,  lambda g, _y, _x: (complex(g, 0),),
                    meaning="The real part.")
imag    = primitive("imag",    eager_imag,    PART,  lambda g, _y, _x: (complex(0, g),),
                    meaning="The imaginary part.")
complex = primitive("complex", eager_complex, PARTS, lambda g, _y, _a, _b: (real(g), imag(g)),
                    meaning="The complex number with the real part `a` and the imaginary part `b`.")
# fmt: on


def _parts(g: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """Return `g` for the first operand where `first` holds, for the second elsewhere."""
    return where(first, g, 0), where(first, 0, g)


def _cast_grad(g: Tensor, _y: Spec, _x: Spec, dtype: np.dtype[Any]) -> tuple[Tensor | None]:
    if _x.dtype not in dtypes.INEXACT or dtype not in dtypes.INEXACT:
        return (None,)
    if dtype in dtypes.COMPLEX and _x.dtype not in dtypes.COMPLEX:
        g = real(g)
    return (g if g.dtype == _x.dtype else cast(g, dtype=_x.dtype),)


def _cast_infer(x: Spec, dtype: np.dtype[Any]) -> Spec:
    dtypes.check_cast(x.dtype, dtype)
    return Spec(x.shape, dtype)


CAST = Op(
    "cast",
    Kind.ELEMENTWISE,
    _cast_infer,
    eager_cast,
    _cast_grad,
    cheap=True,
    keeps_bits=True,
    meaning="``dtype(x)``, rounded once: to a float to the nearest, of two equally near the even "
    "one, too large ones to infinity, or NaN where there is none; from a float to an integer towards 0. A "
    "float that does not fit in the integer, NaN included, gives any number; it must not trap, nor harm "
    "other elements. Between integers the low bits stay. To bool: ``x != 0``, so that NaN is True; from "
    "bool 0 or 1.",
)
cast = declare(CAST)

BITCAST = Op(
    "bitcast",
    Kind.ELEMENTWISE,
    lambda x, dtype: Spec(x.shape, dtype),
    eager_bitcast,
    differentiable=False,
    keeps_bits=True,
    meaning="The bits of `x` as a number of another dtype of the same width.",
)
bitcast = declare(BITCAST)


def of_one_sign(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Return uint64 Tensors that compare as uint64 `a` and signed `b` do: 0 and 1 where one is negative."""
    if a.dtype == dtypes.uint64:
        second, first = of_one_sign(b, a)
        return first, second
    negative = lt(a, 0)
    return where(negative, 0, cast(a, dtype=dtypes.uint64)), where(negative, 1, b)


install_promotion(cast, of_one_sign)

IOTA = Op(
    "iota",
    Kind.LEAF,
    lambda shape, dtype, device="xpux:0": Spec(shape, dtype, device),
    eager_iota,
    differentiable=False,
    meaning="Each element's place in row-major order of `shape`, 0, 1, 2, ..., cast to `dtype`.",
)

iota = declare(IOTA)
