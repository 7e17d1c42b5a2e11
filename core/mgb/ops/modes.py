"""The 86 element-wise modes of MegEngine by name, for `Elemwise`; a mode's id is its place in `MODES`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ConversionError
from ..ir import dtypes
from ..tensor import Tensor
from ..tensor.apply import literal, literals
from . import activations as act
from . import elementwise as el
from . import primitives as p
from .bodies import division, integers
from .bodies import hyperbolic as hyp
from .bodies import transcendental as tr
from .declare import FLOATING, NUMERIC, SAME, composite


@dataclass(frozen=True, slots=True)
class Mode:
    """One row of `MODES`.

    Attributes
    ----------
    name : str
    arity : int
    takes : str
        The categories of its inputs: F float, I int, B bool; i: int, computed in float32.
    function : callable
        Tensors to Tensor. The result has the dtype of the inputs; NEQ, ISNAN and ISINF give bools.
    """

    name: str
    arity: int
    takes: str
    function: Callable[..., Tensor]


# what has no name of its own


def _whole(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a rounding that leaves integers as they are."""
    return lambda x: x if x.dtype in dtypes.INTEGERS else function(x)


@composite(SAME, differentiable=False)
def less_as_number(a: Tensor, b: Tensor) -> Tensor:
    """Return 1 where ``a < b``, else 0, in the dtype of both."""
    return p.cast(p.lt(a, b), dtype=a.dtype)


@composite(SAME, differentiable=False)
def less_equal_as_number(a: Tensor, b: Tensor) -> Tensor:
    """Return 1 where ``a <= b``, else 0, in the dtype of both."""
    return p.cast(p.le(a, b), dtype=a.dtype)


@composite(SAME, differentiable=False)
def equal_as_number(a: Tensor, b: Tensor) -> Tensor:
    """Return 1 where ``a == b``, else 0, in the dtype of both."""
    return p.cast(p.eq(a, b), dtype=a.dtype)


@composite(NUMERIC, differentiable=False)
def sign_or_zero(x: Tensor) -> Tensor:
    """Return ``sign``, but 0 for NaN."""
    return p.where(el.isnan(x), 0, el.sign(x))


@composite(NUMERIC, grad=lambda g, y, _a, _b: (el.switch_gt0(y, g),) * 2)
def fuse_add_relu(a: Tensor, b: Tensor) -> Tensor:
    """Return ``relu(a + b)``."""
    return act.relu(a + b)


@composite(FLOATING, grad=lambda g, y, _a, _b: (act.sigmoid_grad(y, g),) * 2)
def fuse_add_sigmoid(a: Tensor, b: Tensor) -> Tensor:
    """Return ``sigmoid(a + b)``."""
    return act.sigmoid(a + b)


@composite(FLOATING, grad=lambda g, y, _a, _b: (act.tanh_grad(y, g),) * 2)
def fuse_add_tanh(a: Tensor, b: Tensor) -> Tensor:
    """Return ``tanh(a + b)``."""
    return tr.tanh(a + b)


@composite(FLOATING, grad=lambda g, _y, a, b: (act.hswish_grad(a + b, g),) * 2)
def fuse_add_hswish(a: Tensor, b: Tensor) -> Tensor:
    """Return ``hswish(a + b)``."""
    return act.hswish(a + b)


def _mod(a: Tensor, b: Tensor) -> Tensor:
    """Return C's remainder for floats, Python's for integers."""
    return division.fmod(a, b) if a.dtype in dtypes.FLOATS else division.mod(a, b)


def _as_given(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Wrap `function`, which counts bools as int32, to return bools for bools."""

    def call(*xs: Tensor) -> Tensor:
        out = function(*xs)
        return p.cast(out, dtype=xs[0].dtype) if xs[0].dtype == dtypes.bool_ else out

    return call


# fmt: off
_ROWS: tuple[tuple[str, int, str, Callable[..., Tensor]], ...] = (
    ("RELU",             1, "FI",  act.relu),
    ("ABS",              1, "FI",  el.abs),
    ("ACOS",             1, "Fi",  hyp.acos),
    ("ASIN",             1, "Fi",  hyp.asin),
    ("CEIL",             1, "FI",  _whole(el.ceil)),
    ("COS",              1, "Fi",  tr.cos),
    ("EXP",              1, "Fi",  tr.exp),
    ("EXPM1",            1, "Fi",  el.expm1),
    ("FLOOR",            1, "FI",  _whole(p.floor)),
    ("LOG",              1, "Fi",  tr.log),
    ("LOG1P",            1, "Fi",  el.log1p),
    ("NEGATE",           1, "FI",  p.neg),
    ("SIGMOID",          1, "F",   act.sigmoid),
    ("SIN",              1, "Fi",  tr.sin),
    ("TANH",             1, "Fi",  tr.tanh),
    ("ABS_GRAD",         2, "FI",  el.abs_grad),
    ("ADD",              2, "FI",  p.add),
    ("FLOOR_DIV",        2, "FI",  division.floor_div),
    ("MAX",              2, "FI",  p.maximum),
    ("MIN",              2, "FI",  p.minimum),
    ("MOD",              2, "FI",  _mod),
    ("MUL",              2, "FI",  p.mul),
    ("POW",              2, "Fi",  tr.pow),
    ("SIGMOID_GRAD",     2, "FI",  act.sigmoid_grad),
    ("SUB",              2, "FI",  p.sub),
    ("SWITCH_GT0",       2, "FI",  el.switch_gt0),
    ("TANH_GRAD",        2, "FI",  act.tanh_grad),
    ("TRUE_DIV",         2, "Fi",  p.div),
    ("LOG_SUM_EXP",      2, "Fi",  el.logaddexp),
    ("LT",               2, "FIB", less_as_number),
    ("LEQ",              2, "FIB", less_equal_as_number),
    ("EQ",               2, "FIB", equal_as_number),
    ("SHL",              2, "I",   integers.left_shift),
    ("SHR",              2, "I",   integers.right_shift),
    ("COND_LEQ_MOV",     3, "FI",  el.cond_le_mov),
    ("FUSE_MUL_ADD3",    3, "FIB", _as_given(el.fma3)),
    ("FUSE_MUL_ADD4",    4, "FIB", _as_given(el.fma4)),
    ("FUSE_ADD_RELU",    2, "FI",  fuse_add_relu),
    ("FUSE_ADD_SIGMOID", 2, "F",   fuse_add_sigmoid),
    ("FUSE_ADD_TANH",    2, "F",   fuse_add_tanh),
    ("FAST_TANH",        1, "F",   act.fast_tanh),
    ("FAST_TANH_GRAD",   2, "F",   act.fast_tanh_grad),
    ("ROUND",            1, "FI",  _whole(el.round_away)),
    ("RMULH",            2, "I",   el.rmulh),
    ("ATAN2",            2, "Fi",  tr.atan2),
    ("ERF",              1, "F",   tr.erf),
    ("ERFINV",           1, "F",   hyp.erfinv),
    ("ERFC",             1, "F",   hyp.erfc),
    ("ERFCINV",          1, "F",   hyp.erfcinv),
    ("H_SWISH",          1, "F",   act.hswish),
    ("H_SWISH_GRAD",     2, "F",   act.hswish_grad),
    ("FUSE_ADD_H_SWISH", 2, "F",   fuse_add_hswish),
    ("NOT",              1, "B",   p.logical_not),
    ("AND",              2, "B",   p.logical_and),
    ("OR",               2, "B",   p.logical_or),
    ("XOR",              2, "B",   el.logical_xor),
    ("SILU",             1, "F",   act.silu),
    ("SILU_GRAD",        2, "F",   act.silu_grad),
    ("GELU",             1, "F",   act.gelu),
    ("GELU_GRAD",        2, "F",   act.gelu_grad),
    ("COND_LT_MOV",      3, "FI",  el.cond_lt_mov),
    ("NEQ",              2, "FIB", el.ne),
    ("ISNAN",            1, "FIB", el.isnan),
    ("ISINF",            1, "FIB", el.isinf),
    ("SINH",             1, "Fi",  hyp.sinh),
    ("COSH",             1, "Fi",  hyp.cosh),
    ("ASINH",            1, "Fi",  hyp.asinh),
    ("ACOSH",            1, "Fi",  hyp.acosh),
    ("ATANH",            1, "Fi",  hyp.atanh),
    ("TAN",              1, "Fi",  hyp.tan),
    ("ASINH_GRAD",       2, "F",   hyp.asinh_grad),
    ("ACOSH_GRAD",       2, "F",   hyp.acosh_grad),
    ("ATANH_GRAD",       2, "F",   hyp.atanh_grad),
    ("PRELU",            2, "FI",  act.prelu),
    ("CLIP",             3, "FI",  el.clip),
    ("PRELU_GRAD",       3, "F",   act.prelu_grad),
    ("SOFTPLUS",         1, "Fi",  act.softplus),
    ("SOFTPLUS_GRAD",    2, "F",   act.softplus_grad),
    ("RELU6",            1, "FI",  act.relu6),
    ("RELU6_GRAD",       2, "F",   act.relu6_grad),
    ("HSIGMOID",         1, "Fi",  act.hsigmoid),
    ("HSIGMOID_GRAD",    2, "F",   act.hsigmoid_grad),
    ("LOGSIGMOID",       1, "Fi",  act.logsigmoid),
    ("SQRT",             1, "Fi",  p.sqrt),
    ("SQUARE",           1, "FI",  el.square),
    ("SIGN",             1, "FI",  sign_or_zero),
)
# fmt: on

#: Every mode by name, in the order of the ids.
MODES: dict[str, Mode] = {row[0]: Mode(*row) for row in _ROWS}

_LETTER = {"float": "F", "int": "I", "bool": "B"}


class Elemwise:
    """An element-wise operation chosen by the name of its mode.

    Parameters
    ----------
    mode : str or Elemwise
        ``"ADD"``, ``"FUSE_ADD_RELU"``, ...; case does not matter.

    Raises
    ------
    ValueError
        `mode` is not one of the known modes.

    Examples
    --------
    ``Elemwise(mode="FUSE_ADD_RELU")(x, y)`` is ``relu(x + y)``.

    Examples
    --------
    >>> F.Elemwise(mode="FUSE_ADD_RELU")(mgb.tensor([1.0, -3.0]), mgb.tensor([1.0, 1.0]))
    Tensor([2., 0.], device=xpux:0)
    """

    __slots__ = ("_mode",)

    def __init__(self, mode: str | Elemwise) -> None:
        name = str(mode).upper()
        if name not in MODES:
            import difflib  # only a mistake needs it

            near = difflib.get_close_matches(name, MODES, 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else f"; choose one of {', '.join(MODES)}"
            raise ValueError(f"{mode!r} is not an element-wise mode{hint}")
        self._mode = MODES[name]

    @property
    def mode(self) -> str:
        """The name, in capitals."""
        return self._mode.name

    @property
    def id(self) -> int:
        """MegEngine's number of the mode."""
        return list(MODES).index(self.mode)

    @property
    def arity(self) -> int:
        """The number of inputs."""
        return self._mode.arity

    def __call__(self, *inputs: Any) -> Tensor:
        """Apply the mode; the operands broadcast, and meet in one dtype as for any op.

        Raises
        ------
        TypeError
            The number of inputs is wrong.
        ConversionError
            The mode does not work on inputs of this category.
        """
        if len(inputs) != self.arity:
            raise TypeError(f"{self.mode} expects {self.arity} inputs; got {len(inputs)} actually")
        operands = literals(self.mode, inputs)
        given = dtypes.common([x.dtype if isinstance(x, Tensor) else type(x) for x in operands])
        dtype = self._accepted(given)
        device = next((x.device for x in operands if isinstance(x, Tensor)), None)
        tensors = (x if isinstance(x, Tensor) else literal(x, dtype, device) for x in operands)
        return self._mode.function(*(x if x.dtype == dtype else p.cast(x, dtype=dtype) for x in tensors))

    def _accepted(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype that inputs of `dtype` are computed in."""
        category = dtypes.category(dtype)
        letter, takes = _LETTER[category], self._mode.takes
        if letter in takes:
            return dtype
        if letter.lower() in takes:
            return dtypes.float32
        if takes == "I" and category == "float":
            raise ConversionError(f"elemwise mode {self.mode} does not allow float input: cast with astype")
        raise ConversionError(f"unsupport mode {self.mode} for {category}: cast with astype")

    def __eq__(self, other: object) -> bool:
        return str(other) == self.mode if isinstance(other, str | Elemwise) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.mode)

    def __str__(self) -> str:
        return self.mode

    def __repr__(self) -> str:
        return f"Elemwise(mode={self.mode!r})"
