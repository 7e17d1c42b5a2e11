"""The words: what every other element-wise op is spelt in. Columns: name, NumPy, dtypes, gradient, price.

In a gradient, ``g`` is the gradient of the result, ``y`` the result, then the inputs; a name with a leading
underscore is only looked at for its shape and dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..apply import install_promotion
from ..ir import Kind, Op, Spec
from ..tensor import Tensor
from .declare import COMPARE, COUNTING, FLOATING, INTEGER, LOGICAL, NUMERIC, SAME, SELECT, declare, primitive
from .eager import bitcast as eager_bitcast
from .eager import cast as eager_cast
from .eager import fma as eager_fma
from .eager import iota as eager_iota
from .eager import mulhi as eager_mulhi
from .eager import shl as eager_shl
from .eager import shr as eager_shr
from .eager import where as eager_where

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "elementwise"}

# fmt: off
add = primitive("add", np.add,         NUMERIC,  lambda g, _y, _a, _b: (g, g), cheap=True)
sub = primitive("sub", np.subtract,    NUMERIC,  lambda g, _y, _a, _b: (g, neg(g)), cheap=True)
mul = primitive("mul", np.multiply,    NUMERIC,  lambda g, _y, a, b: (g * b, g * a), cheap=True)
div = primitive("div", np.true_divide, FLOATING, lambda g, y, _a, b: (g / b, neg(g * y / b)))
neg = primitive("neg", np.negative,    NUMERIC,  lambda g, _y, _x: (neg(g),), cheap=True)
fma = primitive("fma", eager_fma,      NUMERIC,  lambda g, _y, a, b, _c: (g * b, g * a, g), cheap=True)
floor_div = primitive("floor_div", np.floor_divide, NUMERIC)
mod       = primitive("mod",       np.remainder,    NUMERIC, lambda g, _y, a, b: (g, neg(g * floor(a / b))))

maximum = primitive("maximum", np.maximum, SAME, lambda g, _y, a, b: _parts(g, le(b, a)), cheap=True)
minimum = primitive("minimum", np.minimum, SAME, lambda g, _y, a, b: _parts(g, le(a, b)), cheap=True)
lt = primitive("lt", np.less,       COMPARE, cheap=True)
le = primitive("le", np.less_equal, COMPARE, cheap=True)
eq = primitive("eq", np.equal,      COMPARE, cheap=True)
logical_and = primitive("logical_and", np.logical_and, LOGICAL, cheap=True)
logical_or  = primitive("logical_or",  np.logical_or,  LOGICAL, cheap=True)
logical_not = primitive("logical_not", np.logical_not, LOGICAL, cheap=True)
where = primitive("where", eager_where, SELECT, lambda g, _y, c, _a, _b: (None, *_parts(g, c)), cheap=True)
floor = primitive("floor", np.floor, FLOATING)
round = primitive("round", np.rint,  FLOATING)  # halfway cases go to the even neighbour
sqrt  = primitive("sqrt",  np.sqrt,  FLOATING, lambda g, y, _x: (0.5 * g / y,))

bit_and = primitive("bit_and", np.bitwise_and, INTEGER)
bit_or  = primitive("bit_or",  np.bitwise_or,  INTEGER)
bit_xor = primitive("bit_xor", np.bitwise_xor, INTEGER)
shl     = primitive("shl",     eager_shl,      COUNTING)  # the shift counts modulo the width
shr     = primitive("shr",     eager_shr,      COUNTING)  # arithmetic on signed integers, likewise
mulhi   = primitive("mulhi",   eager_mulhi,    COUNTING)  # the high half of the double-width product
# fmt: on


def _parts(g: Tensor, first: Tensor) -> tuple[Tensor, Tensor]:
    """`g` for the first operand where `first` holds, for the second elsewhere."""
    return where(first, g, 0), where(first, 0, g)


def _cast_grad(g: Tensor, _y: Spec, _x: Spec, dtype: np.dtype[Any]) -> tuple[Tensor | None]:
    return (cast(g, dtype=_x.dtype) if _x.dtype.kind in "fV" and dtype.kind in "fV" else None,)


CAST = Op(
    "cast",
    Kind.ELEMENTWISE,
    lambda x, dtype: Spec(x.shape, dtype),
    eager_cast,
    _cast_grad,
    cheap=True,
    keeps_bits=True,
)
cast = declare(CAST)

BITCAST = Op(
    "bitcast",
    Kind.ELEMENTWISE,
    lambda x, dtype: Spec(x.shape, dtype),
    eager_bitcast,
    differentiable=False,
    keeps_bits=True,
)
bitcast = declare(BITCAST)


def of_one_sign(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Tensors of uint64 that compare as `a` and `b` do, uint64 and signed: 0 and 1 where one is negative."""
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
)

#: ``iota(shape=, dtype=)``: each element's place in row-major order, 0, 1, 2, ...
iota = declare(IOTA)
