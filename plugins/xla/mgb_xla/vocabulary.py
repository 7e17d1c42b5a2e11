"""The ops that XLA is given; the tables of their meaning import JAX, and so stand elsewhere."""

from __future__ import annotations

# fmt: off
_ARITHMETIC = {
    "add", "sub", "mul", "neg", "div", "fma", "floor_div", "mod", "quotient", "fmod_double",
    "maximum", "minimum",
    "lt", "le", "eq", "logical_and", "logical_or", "logical_not", "where", "floor", "round", "sqrt",
    "bit_and", "bit_or", "bit_xor", "shl", "shr", "bitcast", "abs", "ceil",
    "exp", "log", "sin", "cos", "pow", "cbrt", "tan",
    "asin", "acos", "atan", "asinh", "acosh", "sign",
}
_ARRAYS = {
    "reshape", "transpose", "broadcast_to", "slice", "unslice", "concat", "slice_set",
    "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "extent", "cumsum", "argsort", "argtopk",
}
_CONTRACTIONS = {
    "matmul", "conv2d", "conv2d_grad_input", "conv2d_grad_weight",
    "max_pool2d", "max_pool2d_grad", "max_pool2d_pick", "avg_pool2d", "avg_pool2d_grad",
    "adaptive_avg_pool2d", "adaptive_avg_pool2d_grad",
}
_INDICES = {"index_get", "index_set", "index_add", "gather", "scatter", "scatter_add"}
# fmt: on

VOCABULARY = frozenset(_ARITHMETIC | _ARRAYS | _CONTRACTIONS | _INDICES)
