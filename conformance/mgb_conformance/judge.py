"""Exact results in float64, and bounds of the errors that a backend may make.

A graph is folded over pairs of arrays: the value, computed by NumPy in float64 (integers and booleans in
their own dtype), and a bound of the absolute error that a correct backend may have made on its way there.

For one node with operands ``x_i`` known to ``e_i``, the bound is::

    sum_i max |f(x_i +- e_i) - f(x_i)|  +  own(f)

The first part is what the operands' errors can do to the result, measured by moving each operand both ways;
it is as right for a comparison or a `floor` near a step as for a product. The second is the rounding of the
op itself, in units in the last place of the dtype that the node really has:

* moving, comparing and rounding to integers: nothing (`Op.exact`);
* arithmetic, square root and casts: half a unit, the IEEE rule;
* ``fma``: that and half a unit of its product, which may be rounded or not, and so may overflow or not;
* every other op with a NumPy rule: `ULPS` units, of the larger operand where two of like size cancel
  (`CANCELS`), and the smallest normal number for each unit of its operands: a denormal may be lost when
  ``1 / (1 + exp(-x))`` overflows on its way. An op that is only a body is judged as its body;
* a sum of n terms, of products too: ``(2 sqrt(n) + 2) u sum|x|``, whatever the order of the additions (the
  probabilistic bound of Higham and Mary, SIAM J. Sci. Comput. 41, 2019, with lambda = 2); a product the same,
  relative to itself.

A backend without the trait `denormals` may also read or write 0 for any number below the smallest normal one
of float32 or float64: such a value is known to within itself only, and an op may read 0 for several at once.

float64 itself is judged against NumPy's float64, which rounds too: there the ops' own errors count twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
from mgb import dtypes
from mgb.codegen import EXTENT
from mgb.ir import CONST, Graph, Kind, Node
from mgb.ops.declare import OPS
from mgb.passes import decompose
from mgb.passes.widen import widen
from mgb.tensor.apply import evaluate

#: Units in the last place for an op that is neither exact nor IEEE arithmetic; some are allowed more.
ULPS = 4.0
MORE_ULPS = {"erfinv": 8.0, "erfcinv": 8.0}

#: Where the C library is the float64 reference: SciPy's ``erfc`` is 9 units off at 0.83, 100 in its tail.
C_LIBRARY: dict[str, Callable[..., Any]] = {"erfc": np.frompyfunc(math.erfc, 1, 1)}

#: What depends on the bits of a dtype is computed in it, not in float64.
OF_BITS = frozenset({"bitcast", "nextafter"})

#: Kinds of ops that move numbers, or count.
_UNROUNDED = frozenset({Kind.LAYOUT, Kind.LEAF})

CANCELS = frozenset({"logaddexp", "gelu_grad"})
ROUNDED = frozenset({"add", "sub", "mul", "div", "sqrt", "square", "cast"})


@dataclass(frozen=True, slots=True)
class Judged:
    """A value and a bound of its error; floats are carried in float64."""

    value: np.ndarray
    error: np.ndarray


def judge(graph: Graph, arrays: Sequence[np.ndarray], denormals: bool = True) -> tuple[Judged, ...]:
    """Compute each output of `graph` on `arrays`, and how far from it a backend may be.

    Parameters
    ----------
    graph : Graph
        As a user made it, before any lowering.
    arrays : sequence of ndarray
        The inputs, exact.
    denormals : bool
        Do numbers below the smallest normal one count?
    """
    graph = decompose(widen(graph), frozenset(name for name, op in OPS.items() if op.eager is not None))
    with np.errstate(all="ignore"):
        inputs = [_exact(a, a.dtype) for a in arrays]
        if denormals:
            return graph.fold(_judge_node, inputs)
        return graph.fold(_judge_flushed, [_flushed(x, a.dtype) for x, a in zip(inputs, arrays, strict=True)])


def problem(got: np.ndarray, want: Judged, signed_zero: bool = False) -> str | None:
    """Describe the error of `got` in one line; None when it is within the bound.

    Parameters
    ----------
    signed_zero : bool
        Must zeros have the right sign?
    """
    with np.errstate(all="ignore"):
        wrong = ~_within(got, want)
        if signed_zero:
            zero = (want.value == 0) & (want.error == 0)
            wrong |= zero & (np.signbit(_wide(got)) != np.signbit(want.value))
    if not wrong.any():
        return None
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {got.size} elements are wrong; at {place}: {got[place]!r} where "
        f"{want.value[place]!r} is right, give or take {want.error[place]:.3g}"
    )


def _within(got: np.ndarray, want: Judged) -> np.ndarray:
    wide = _wide(got)
    if got.dtype.kind in "biu":
        apart = np.abs(wide.astype(float) - want.value.astype(float))
        return (wide == want.value) | (want.error >= 1) & (apart <= want.error)
    near = np.abs(wide - want.value) <= want.error * (1 + 1e-9)
    overflows = np.abs(want.value) + want.error >= float(largest(got.dtype))
    if dtypes.ROWS[dtypes.real_of(got.dtype)].infinite:
        overflows &= np.isinf(wide) & (np.sign(wide) == np.sign(want.value))
    else:
        overflows &= np.isnan(wide)
    lost = np.isinf(want.error)
    return (wide == want.value) | np.isnan(wide) & np.isnan(want.value) | near | overflows | lost


def largest(dtype: np.dtype[Any]) -> float:
    """Return the largest finite number of a float dtype."""
    return float(_finfo(dtype).max)


def ulp(value: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the distance between neighbours of `dtype` around `value`, which is float64."""
    info = _finfo(dtype)
    low = int(np.frexp(float(info.smallest_normal))[1])
    exponent = np.where(value == 0, low, np.frexp(np.abs(value))[1])  # frexp gives 0 the exponent of 1/2
    return np.ldexp(float(info.eps), np.maximum(exponent, low) - 1)


def _finfo(dtype: np.dtype[Any]) -> Any:
    return ml_dtypes.finfo(dtypes.real_of(dtype))


def _judge_flushed(node: Node, *xs: Judged) -> Judged:
    """Judge like `_judge_node`, where each operand that may be 0 may be so together with the others."""
    known = _judge_node(node, *xs)
    if xs:
        values = [np.where((np.abs(x.value) <= x.error) & (x.error > 0), 0, x.value) for x in xs]
        flushed = _meaning(node)(*(v.astype(x.value.dtype) for v, x in zip(values, xs, strict=True)))
        error = np.maximum(known.error, _apart(flushed, known.value))
        if node.op.kind is Kind.ELEMENTWISE and node.op.name != "where":
            for x in xs:  # infinity or NaN, or any number in its place
                error = np.where(np.isinf(x.error) & ~np.isfinite(x.value), np.inf, error)
        known = Judged(known.value, error)
    return _flushed(known, node.spec.dtype)


def _flushed(known: Judged, dtype: np.dtype[Any]) -> Judged:
    """Judge as if 0 stood where a number is too small to be normal; narrow floats are computed in float32."""
    if dtype not in dtypes.FLOATS or dtypes.ROWS[dtype].bias < dtypes.ROWS[dtypes.float32].bias:
        return known
    small = np.abs(known.value) - known.error < float(_finfo(dtype).smallest_normal)
    return Judged(known.value, np.where(small, np.maximum(known.error, np.abs(known.value)), known.error))


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype in dtypes.FLOATS else array


def _exact(array: Any, dtype: np.dtype[Any]) -> Judged:
    return Judged(_wide(np.asarray(array, dtype)), np.zeros(np.shape(array)))


def _judge_node(node: Node, *xs: Judged) -> Judged:
    if node.op is CONST:
        return _exact(node.params["value"], node.spec.dtype)
    values = [x.value for x in xs]
    run = _meaning(node)
    out = run(*values)
    error = np.zeros(out.shape)
    for i, x in enumerate(xs):
        if x.error.any():
            error = error + _moved(run, out, values, i, x.error)
    if node.spec.dtype in dtypes.FLOATS:
        error = error + _own_error(node, out, values)
        out = _overflowed(out, node.spec.dtype)
    return Judged(out, np.where(np.isnan(error), np.inf, error))


def _meaning(node: Node) -> Callable[..., np.ndarray]:
    """Return the node as a function of float64 arrays."""
    name, dtype = node.op.name, node.spec.dtype
    if name == "cast":
        return lambda x: _wide(x.astype(np.float64 if dtype in dtypes.FLOATS else dtype))
    if name in OF_BITS:
        sources = [i.spec.dtype for i in node.inputs]

        def of_bits(*xs: np.ndarray) -> np.ndarray:
            given = [x.astype(source) for x, source in zip(xs, sources)]
            return _wide(np.asarray(evaluate(node.op, given, dict(node.params))))

        return of_bits
    if name in C_LIBRARY:
        return lambda *xs: np.asarray(C_LIBRARY[name](*xs), np.float64)
    return lambda *xs: _wide(np.asarray(evaluate(node.op, xs, dict(node.params))))


def _moved(run: Callable[..., Any], out: Any, values: list[Any], i: int, error: np.ndarray) -> np.ndarray:
    """Return how far `run` moves when operand `i` moves by `error`, up or down."""
    worst = np.zeros(out.shape)
    for sign in (1, -1):
        moved = run(*values[:i], _step(values[i], error, sign), *values[i + 1 :])
        worst = np.maximum(worst, _apart(moved, out))
    return worst


def _apart(moved: np.ndarray, out: np.ndarray) -> np.ndarray:
    apart = np.abs(moved.astype(float) - out.astype(float))
    same = (moved == out) | (moved != moved) & (out != out)
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _step(value: np.ndarray, error: np.ndarray, sign: int) -> np.ndarray:
    if value.dtype == bool:
        return value ^ (error > 0)
    if value.dtype.kind in "iu":
        info = np.iinfo(value.dtype)
        moved = value.astype(object) + sign * np.ceil(np.minimum(error, 2.0**64)).astype(object)
        return np.clip(moved, info.min, info.max).astype(value.dtype)
    return value + sign * error


def _own_error(node: Node, out: np.ndarray, values: list[np.ndarray]) -> np.ndarray:
    name, dtype = node.op.name, node.spec.dtype
    twice = 2.0 if dtype == np.float64 else 1.0
    if node.op.exact or node.op.kind in _UNROUNDED or node.op is EXTENT or name in OF_BITS:
        return np.zeros(out.shape)
    if name in ROUNDED:
        # NumPy rounds to float64 as everybody does.
        known = name == "cast" and (dtype == np.float64 or dtypes.exact(node.inputs[0].spec.dtype, dtype))
        return np.zeros(out.shape) if known else twice * 0.5 * ulp(out, dtype)
    if name == "fma":
        a, b, _ = values
        lost = np.isfinite(a) & np.isfinite(b) & (np.abs(a * b) >= largest(dtype))
        return np.where(lost, np.inf, twice * 0.5 * (ulp(out, dtype) + ulp(a * b, dtype)))
    if name == "dot":
        size, terms = _meaning(node)(*(np.abs(v) for v in values)), _terms(node)
        return twice * (2 * np.sqrt(terms) + 2) * float(_finfo(dtype).eps) / 2 * size
    if node.op.kind is Kind.CONTRACT:
        size = _meaning(node)(*(np.abs(v) for v in values))
        return twice * (2 * np.sqrt(max(values[0].shape)) + 2) * float(_finfo(dtype).eps) / 2 * size
    if name in ("reduce_sum", "reduce_prod"):
        axis = node.params["axis"]
        length = np.prod([node.inputs[0].spec.shape[a] for a in axis])
        size = np.sum(np.abs(values[0]), axis=axis, keepdims=True) if name == "reduce_sum" else np.abs(out)
        return twice * (2 * np.sqrt(length) + 2) * float(_finfo(dtype).eps) / 2 * size
    if name in ("cumsum", "cumprod"):
        axis = node.params["axis"]
        size = np.cumsum(np.abs(values[0]), axis=axis) if name == "cumsum" else np.abs(out)
        return twice * (2 * np.sqrt(out.shape[axis]) + 2) * float(_finfo(dtype).eps) / 2 * size
    if name in ("scatter_sum", "scatter_prod"):
        given = dict(node.params)
        length = evaluate(OPS["scatter_sum"], [np.ones_like(values[0]), *values[1:]], given)
        size = evaluate(node.op, [np.abs(values[0]), *values[1:]], given)
        return twice * (2 * np.sqrt(length) + 2) * float(_finfo(dtype).eps) / 2 * size
    size = reduce(np.maximum, (np.nan_to_num(np.abs(v), posinf=0) for v in values), np.ones(()))
    unit = ulp(size if name in CANCELS else out, dtype)
    return twice * MORE_ULPS.get(name, ULPS) * unit + float(_finfo(dtype).smallest_normal) * size


def _terms(node: Node) -> int:
    """Return how many products a `dot` sums."""
    return int(node.inputs[0].spec.shape[node.params["along"][0].index(None)])


def _overflowed(out: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return infinity where `dtype` has nothing larger, or NaN where it has no infinity."""
    if dtype == np.float64:
        return out
    limit = largest(dtype) + float(ulp(np.array(largest(dtype)), dtype)) / 2
    if not dtypes.ROWS[dtype].infinite:
        return np.where(np.abs(out) > limit, np.nan, out)
    return np.where(np.abs(out) >= limit, np.copysign(np.inf, out), out)
