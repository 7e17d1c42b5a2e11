"""The words of GPUs: those of CPUs, and exponentials that the hardware has a part of.

Float32 alone has them; for float64 the graph spells them out.
"""

from __future__ import annotations

from mgb.codegen import spell_out
from mgb.ir import Graph, Node
from mgb_native.folds import held
from mgb_native.nest.body import Body
from mgb_native.nest.words import SPELLINGS as OF_CPUS
from mgb_native.nest.words import Word

#: The intrinsics of the target, within 2 ULP: ``2**x`` and ``1 / x``, without numbers below the normal.
_POWER, _RECIPROCAL = "llvm.nvvm.ex2.approx.ftz.f", "llvm.nvvm.rcp.approx.ftz.f"

#: 1 / log(2): its nearest float32, and the rest of it.
_LOG2E, _LOG2E_REST = 1.4426950216293335, 1.9259629911266175e-08

#: Added to a number, what is below 1 is rounded away, and the last bits are the whole number plus 127.
_ROUND = 12583039.0

#: Whole exponents of normal numbers; the rest of larger ones is left to the hardware.
_LEAST, _MOST = -126.0, 126.0


def _call(body: Body, intrinsic: str, x: str) -> str:
    return body.builder.op(f'llvm.call_intrinsic "{intrinsic}"({x}) : (f32) -> f32')


def exponential(body: Body, x: str) -> str:
    """``exp(x)`` of float32 within 2 ULP: ``2**n * 2**f`` with ``n + f = x / log(2)``."""
    f32, number = body.type("float32"), lambda value: body.constant(value, "float32")
    scaled = body.op("fmul", (x, number(_LOG2E)), f32)
    for bound, of in ((_LEAST, "maxnumf"), (_MOST, "minnumf")):  # NaN becomes a bound, and stays in the rest
        scaled = body.builder.op(f"arith.{of} {scaled}, {number(bound)} : f32")
    shifted = body.op("fadd", (scaled, number(_ROUND)), f32)
    whole = body.op("fsub", (shifted, number(_ROUND)), f32)
    rest = body.op("fma", (x, number(_LOG2E), body.op("fneg", (whole,), f32)), f32)
    rest = body.op("fma", (x, number(_LOG2E_REST), rest), f32)
    bits = body.change("bitcast", shifted, "f32", "i32")
    bits = body.op("shl", (bits, body.number(23, "i32")), body.lanes.of("i32"))
    return body.op("fmul", (_call(body, _POWER, rest), body.change("bitcast", bits, "i32", "f32")), f32)


def term(body: Body, x: str) -> str:
    """``exp(x)`` as a term of a sum: its error grows with -x, and it falls much faster than that."""
    f32 = body.type("float32")
    return _call(body, _POWER, body.op("fmul", (x, body.constant(_LOG2E, "float32")), f32))


#: Below this the hyperbolic tangent is ``x + x**3 * p(x**2)``: coefficients of p, the last one first.
_SMALL = 0.55
_SERIES = (0.0164375795697, -0.052671812793, 0.133207250461, -0.333329466362)


def _tanh(body: Body, node: Node, x: str) -> str:
    """``1 - 2 / (exp(2 a) + 1)`` with the sign of x, where a is its size."""
    f32, number = body.type("float32"), lambda value: body.constant(value, "float32")
    size = body.op("fabs", (x,), f32)
    grown = _call(body, _POWER, body.op("fmul", (size, number(2 * _LOG2E)), f32))
    part = _call(body, _RECIPROCAL, body.op("fadd", (grown, number(1.0)), f32))
    large = body.op("copysign", (body.op("fma", (part, number(-2.0), number(1.0)), f32), x), f32)
    square = body.op("fmul", (x, x), f32)
    series = number(_SERIES[0])
    for coefficient in _SERIES[1:]:
        series = body.op("fma", (series, square, number(coefficient)), f32)
    small = body.op("fma", (body.op("fmul", (series, square), f32), x, x), f32)
    return body.select(body.compare("lt", size, number(_SMALL), "float32"), small, large, f32)


def _exp(body: Body, node: Node, x: str) -> str:
    return exponential(body, x)


#: Those that are of float32 alone.
NARROW: dict[str, Word] = {"exp": _exp, "tanh": _tanh}

SPELLINGS: dict[str, Word] = {**OF_CPUS, **NARROW}


def decompose_narrow(graph: Graph) -> Graph:
    """Decompose the ops of `NARROW` of other dtypes than float32."""
    return spell_out(graph, lambda node: node.op.name not in NARROW or held(node) == "float32")
