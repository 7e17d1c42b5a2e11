"""The words that ONNX has for our ops, and the dtypes in which runtimes have them.

ONNX itself allows more dtypes than its runtimes implement. A value of a dtype that an operator lacks is
*carried*: cast to a wider one in which the result is the same, and back. Where no dtype serves, the op has
no word and becomes a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from mgb import dtypes
from mgb.ir import Node
from mgb.ir.dtypes import (
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

from .export_nodes import (
    avg_pool,
    bitcast,
    cast,
    conv,
    conv_transpose,
    cumsum,
    dense,
    expand,
    extent,
    first_axis,
    gather,
    has_windows,
    iota,
    is_cover,
    matmul,
    max_pool,
    numbers,
    one_axis,
    one_folded,
    one_sided,
    order,
    pad,
    place,
    plainly,
    put,
    reduce,
    reshape,
    scatter,
    scatter_fold,
    shift,
    slice_,
    take,
    transfer,
    transpose,
    with_params,
)

Dtype = np.dtype[Any]
Dtypes = frozenset[Dtype]
Emit = Callable[..., str]

_SMALL: dict[Dtype, Dtype] = dict.fromkeys((bool_, int8, int16, uint8, uint16), int32)

#: What carries a value through what is for floats only.
WIDE: dict[Dtype, tuple[Dtype, ...]] = {d: (float32,) for d in dtypes.HALVES if d != float16}

#: The same through an operator that compares.
ORDER: dict[Dtype, tuple[Dtype, ...]] = {
    **{d: (wide, int64) for d, wide in _SMALL.items()},
    int32: (int64,),
    uint32: (int64,),
    float16: (float32,),
    **WIDE,
}
#: The same through sums, products and moves, where only the low bits of an integer matter.
WRAP: dict[Dtype, tuple[Dtype, ...]] = {**ORDER, uint32: (int32, int64), uint64: (int64,)}

HALF_SINGLE: Dtypes = frozenset({float16, float32})
FLOATS: Dtypes = HALF_SINGLE | {float64}
INTEGERS: Dtypes = frozenset(dtypes.INTEGERS)
NUMBERS: Dtypes = FLOATS | INTEGERS
PLAIN: Dtypes = FLOATS | {int32, int64}  # what every kernel of every runtime has
ALL: Dtypes = frozenset(dtypes.DTYPES)
MOVED: Dtypes = ALL - {d for d in dtypes.HALVES if d.itemsize < 2}  # of floats of 8 bits ONNX has few moves


def _always(_node: Node) -> bool:
    return True


def _own_dtype(node: Node) -> Dtype:
    return node.spec.dtype


@dataclass(frozen=True, slots=True)
class Word:
    """One way to write an op.

    Attributes
    ----------
    emit : callable
        ``(sheet, node, *names) -> name`` writes it.
    takes : frozenset of dtype
        In which dtypes of its operands; those of indices and conditions do not count.
    carry : mapping
        What carries other dtypes, the first that is taken.
    operands : tuple of int
        The range of inputs that `takes` speaks of.
    returns : callable
        From a node to the dtype that the operator gives, if nothing is carried.
    when : callable
        From a node to whether the operator can say it at all.
    """

    emit: Emit
    takes: Dtypes = ALL
    carry: Mapping[Dtype, tuple[Dtype, ...]] | None = None
    operands: tuple[int, int | None] = (0, None)
    returns: Callable[[Node], Dtype | None] = _own_dtype
    when: Callable[[Node], bool] = _always

    def places(self, node: Node) -> range:
        """Return the operands that `takes` speaks of, by number."""
        return range(len(node.inputs))[slice(*self.operands)]

    def carried(self, node: Node) -> dict[Dtype, Dtype] | None:
        """Return which dtypes must be carried and by which; None: this word does not serve."""
        if not self.when(node):
            return None
        found: dict[Dtype, Dtype] = {}
        for number in self.places(node):
            dtype = node.inputs[number].spec.dtype
            if dtype in self.takes:
                continue
            wide = next((w for w in (self.carry or {}).get(dtype, ()) if w in self.takes), None)
            if wide is None:
                return None
            found[dtype] = wide
        return found


def _no_dtype(_node: Node) -> None:
    """Return None, no dtype to carry: the result is true or false, or an index."""
    return None


# fmt: off
_ARITHMETIC = {"add": "Add", "sub": "Sub", "mul": "Mul"}
_CHOICE     = {"maximum": "Max", "minimum": "Min"}
_COMPARE    = {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
_LOGIC      = {"logical_and": "And", "logical_or": "Or", "logical_not": "Not", "logical_xor": "Xor"}
_BITS       = {"bit_and": "BitwiseAnd", "bit_or": "BitwiseOr", "bit_xor": "BitwiseXor",
               "bit_not": "BitwiseNot"}
_BOOLS      = {"bit_and": "And", "bit_or": "Or", "bit_xor": "Xor", "bit_not": "Not",
               "maximum": "Or", "minimum": "And"}
_SMOOTH     = {"div": "Div", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sqrt": "Sqrt", "exp": "Exp",
               "log": "Log", "sin": "Sin", "cos": "Cos", "tanh": "Tanh", "reciprocal": "Reciprocal",
               "pow": "Pow", "sigmoid": "Sigmoid"}
_SINGLE     = {"erf": "Erf", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
               "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "softplus": "Softplus",
               "selu": "Selu", "mish": "Mish", "hswish": "HardSwish", "softsign": "Softsign", "gelu": "Gelu"}
_REDUCE     = {"reduce_max": "ReduceMax", "reduce_min": "ReduceMin"}

_SIGNED: Dtypes = FLOATS | frozenset(dtypes.SIGNED)
_SHIFTED: Dtypes = frozenset({uint8, uint32, uint64})
_BOOL: Dtypes = frozenset({bool_})

_ROWS: list[tuple[str, Word]] = [
    *((op, Word(plainly(word), NUMBERS, WRAP)) for op, word in _ARITHMETIC.items()),
    *((op, Word(plainly(word), _BOOL)) for op, word in _BOOLS.items()),
    *((op, Word(plainly(word), NUMBERS - {int16, uint16}, ORDER)) for op, word in _CHOICE.items()),
    *((op, Word(plainly(word), NUMBERS, ORDER, returns=_no_dtype)) for op, word in _COMPARE.items()),
    *((op, Word(plainly(word), _BOOL)) for op, word in _LOGIC.items()),
    *((op, Word(plainly(word), INTEGERS)) for op, word in _BITS.items()),
    *((op, Word(plainly(word), FLOATS, WIDE)) for op, word in _SMOOTH.items()),
    *((op, Word(plainly(word), HALF_SINGLE, WIDE)) for op, word in _SINGLE.items()),
    *((op, Word(reduce(word), PLAIN | {int8, uint8}, ORDER)) for op, word in _REDUCE.items()),
    ("eq",          Word(plainly("Equal"), NUMBERS | _BOOL, ORDER, returns=_no_dtype)),
    ("neg",         Word(plainly("Neg"), _SIGNED, WRAP)),
    ("abs",         Word(plainly("Abs"), NUMBERS, WRAP)),
    ("sign",        Word(plainly("Sign"), INTEGERS)),
    ("isnan",       Word(plainly("IsNaN"), FLOATS, ORDER, returns=_no_dtype)),
    ("isinf",       Word(plainly("IsInf"), FLOATS, ORDER, returns=_no_dtype)),
    ("where",       Word(plainly("Where"), PLAIN | {uint8}, WRAP,
                         operands=(1, None))),
    *((n, Word(plainly("Mod", fmod=1), FLOATS, WIDE)) for n in ("fmod", "fmod_float", "fmod_double")),
    ("gelu_tanh",   Word(plainly("Gelu", approximate="tanh"), HALF_SINGLE, WIDE)),
    ("hsigmoid",    Word(plainly("HardSigmoid", alpha=1 / 6, beta=0.5), HALF_SINGLE, WIDE)),
    ("leaky_relu",  Word(with_params("LeakyRelu", alpha="negative_slope"), HALF_SINGLE, WIDE)),
    ("elu",         Word(with_params("Elu", alpha="alpha"), HALF_SINGLE, WIDE)),
    ("celu",        Word(with_params("Celu", alpha="alpha"), frozenset({float32}), ORDER)),
    ("relu",        Word(plainly("Relu"), FLOATS | {int8, int32}, WIDE | {int16: (int32,)})),
    ("prelu",       Word(plainly("PRelu"), HALF_SINGLE, WIDE, when=one_sided)),
    ("clip",        Word(plainly("Clip"), NUMBERS - {int16, uint16}, ORDER, when=numbers)),
    ("file_quotient", Word(plainly("Div"), INTEGERS)),
    ("file_remainder", Word(plainly("Mod"), INTEGERS)),
    ("unslice",     Word(pad, PLAIN | {bool_, int8, uint8}, WRAP, when=dense)),
    ("shl",         Word(shift("LEFT"), _SHIFTED, {uint16: (uint32,)})),
    ("shr",         Word(shift("RIGHT"), _SHIFTED, {uint16: (uint32,)})),
    ("cast",        Word(cast)),
    ("bitcast",     Word(bitcast, ALL - _BOOL, when=lambda node: node.spec.dtype != bool_)),
    ("iota",        Word(iota)),
    ("reshape",     Word(reshape)),
    ("transpose",   Word(transpose)),
    ("broadcast_to", Word(expand)),
    ("slice",       Word(slice_, MOVED, WIDE)),
    ("concat",      Word(with_params("Concat", axis="axis"), MOVED, WIDE)),
    ("extent",      Word(extent)),
    ("transfer",    Word(transfer)),
    ("reduce_sum",  Word(reduce("ReduceSum"), PLAIN, WRAP)),
    ("reduce_prod", Word(reduce("ReduceProd"), PLAIN, WRAP)),
    ("argmax",      Word(place("ArgMax"), PLAIN, ORDER, returns=_no_dtype, when=one_folded)),
    ("argmin",      Word(place("ArgMin"), PLAIN, ORDER, returns=_no_dtype, when=one_folded)),
    ("argsort",     Word(order, PLAIN, ORDER, returns=_no_dtype)),
    ("argtopk",     Word(order, PLAIN, ORDER, returns=_no_dtype)),
    ("cumsum",      Word(cumsum, PLAIN, WRAP)),
    ("matmul",      Word(matmul, PLAIN | {uint32, uint64}, WRAP)),
    ("conv2d",      Word(conv, HALF_SINGLE, WIDE, when=has_windows)),
    ("conv_bias",   Word(conv, HALF_SINGLE, WIDE, when=has_windows)),
    ("conv2d_grad_input", Word(conv_transpose, HALF_SINGLE, WIDE, when=is_cover)),
    ("max_pool2d",  Word(max_pool, FLOATS | {int8, uint8}, WIDE | {int16: (float32,),
                         uint16: (float32,), int32: (float64,), uint32: (float64,)}, when=has_windows)),
    ("avg_pool2d",  Word(avg_pool, HALF_SINGLE, WIDE, when=has_windows)),
    ("index_get",   Word(take, MOVED, WIDE, operands=(0, 1), when=one_axis)),
    ("index_set",   Word(put("none"), ALL - WIDE.keys(), ORDER, operands=(0, 2), when=first_axis)),
    ("index_add",   Word(put("add"), NUMBERS - {float16}, ORDER, operands=(0, 2), when=first_axis)),
    ("gather",      Word(gather, MOVED, WIDE, operands=(0, 1))),
    ("scatter",     Word(scatter("none"), MOVED, WIDE, operands=(0, 2))),
    ("scatter_add", Word(scatter("add"), NUMBERS - {float16}, ORDER, operands=(0, 2))),
    ("scatter_fold", Word(scatter_fold, NUMBERS - {float16}, ORDER, operands=(0, 2))),
]
# fmt: on

#: For each op the ways to write it, the best first.
WORDS: dict[str, list[Word]] = {}
for _op, _word in _ROWS:
    WORDS.setdefault(_op, []).append(_word)
