"""One formula, written once, said in the language of every peer.

A formula is a function ``f(words, *values)`` of operators and of the functions in `words`. Array libraries
call it with their own words; for NumPy with ready buffers, numexpr and Numba it is called with symbols, and
what was recorded is printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from .arrays import Array, Arrays, aligned_like
from .case import Stateful
from .peers import Loop, Peer

Formula = Callable[..., Any]

#: What a formula may call, beside operators and ``cast(x, dtype)``.
FUNCTIONS = ("exp", "log", "tanh", "erf", "sqrt", "relu")

#: Up to so many elements one core is quicker alone than Numba's threads.
SERIAL = 1 << 15


@dataclass(frozen=True, eq=False)
class Symbol:
    """An operation on other symbols; an input or a constant has none."""

    op: str
    operands: tuple[Any, ...]
    dtype: np.dtype[Any]

    def _with(self, op: str, other: Any, swap: bool = False) -> Symbol:
        if not isinstance(other, Symbol):
            other = Symbol("constant", (float(other),), self.dtype)
        return Symbol(op, (other, self) if swap else (self, other), self.dtype)

    def __add__(self, other: Any) -> Symbol:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Symbol:
        return self._with("+", other, swap=True)

    def __sub__(self, other: Any) -> Symbol:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Symbol:
        return self._with("-", other, swap=True)

    def __mul__(self, other: Any) -> Symbol:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Symbol:
        return self._with("*", other, swap=True)

    def __truediv__(self, other: Any) -> Symbol:
        return self._with("/", other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self._with("/", other, swap=True)

    def __neg__(self) -> Symbol:
        return Symbol("negative", (self,), self.dtype)


def _symbolic(name: str) -> Callable[[Symbol], Symbol]:
    return lambda x: Symbol(name, (x,), x.dtype)


_SYMBOLIC = SimpleNamespace(
    **{name: _symbolic(name) for name in FUNCTIONS},
    cast=lambda x, dtype: Symbol("cast", (x,), _dtype(dtype)),
)


def _dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def record(formula: Formula, arrays: Arrays) -> tuple[list[Symbol], tuple[Symbol, ...]]:
    """Return the symbols of a formula, operands first, and those that it returns."""
    inputs = [Symbol("input", (place,), array.dtype) for place, array in enumerate(arrays)]
    value = formula(_SYMBOLIC, *inputs)
    results = value if isinstance(value, tuple) else (value,)
    order: dict[int, Symbol] = {}

    def visit(symbol: Symbol) -> None:
        if id(symbol) not in order:
            for operand in symbol.operands:
                if isinstance(operand, Symbol):
                    visit(operand)
            order[id(symbol)] = symbol

    for result in results:
        visit(result)
    return list(order.values()), results


# NumPy into ready buffers


def _numpy_functions() -> dict[str, Callable[..., Any]]:
    from scipy.special import erf

    return {
        "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "negative": np.negative,
        "exp": np.exp, "log": np.log, "tanh": np.tanh, "sqrt": np.sqrt, "erf": erf,
        "relu": lambda x, out: np.maximum(x, 0, out=out),
        "cast": lambda x, out: np.copyto(out, x, casting="unsafe"),
    }  # fmt: skip


def into_buffers(formula: Formula) -> Stateful:
    """Return NumPy's best form: every operation writes into a ready array, which later ones use again."""

    def build(peer: Peer, arrays: Arrays) -> Callable[[], Any]:
        symbols, results = record(formula, arrays)
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        functions, last = _numpy_functions(), _last_uses(symbols, results)
        where: dict[int, Any] = {}
        free: dict[np.dtype[Any], list[Array]] = {}
        steps: list[tuple[Callable[..., Any], tuple[Any, ...], Array]] = []
        for place, symbol in enumerate(symbols):
            if symbol.op in ("input", "constant"):
                value = symbol.operands[0]
                where[id(symbol)] = arrays[value] if symbol.op == "input" else symbol.dtype.type(value)
                continue
            operands = tuple(where[id(operand)] for operand in symbol.operands)
            for operand in {id(o): o for o in symbol.operands if o.op not in ("input", "constant")}.values():
                if last[id(operand)] == place:
                    free.setdefault(operand.dtype, []).append(where[id(operand)])
            ready = free.get(symbol.dtype)
            buffer = ready.pop() if ready else aligned_like(shape, symbol.dtype)
            where[id(symbol)] = buffer
            steps.append((functions[symbol.op], operands, buffer))
        outputs = tuple(where[id(result)] for result in results)

        def call() -> Any:
            for function, operands, buffer in steps:
                function(*operands, out=buffer)
            return outputs

        return call

    return Stateful(build)


def _last_uses(symbols: Sequence[Symbol], results: Sequence[Symbol]) -> dict[int, int]:
    last = {id(o): place for place, symbol in enumerate(symbols) for o in symbol.operands}
    return last | {id(result): len(symbols) for result in results}


# numexpr


def in_numexpr(formula: Formula) -> Stateful:
    """Compile expressions, one for each result, into ready outputs; constants have the inputs' dtype."""

    def build(peer: Peer, arrays: Arrays) -> Callable[[], Any]:
        import numexpr

        symbols, results = record(formula, arrays)
        constants: dict[str, Array] = {}
        texts: dict[int, str] = {}
        for symbol in symbols:
            texts[id(symbol)] = _numexpr_text(symbol, texts, constants)
        read = sorted(symbol.operands[0] for symbol in symbols if symbol.op == "input")
        names = [f"x{place}" for place in read] + list(constants)
        values = [*(arrays[place] for place in read), *constants.values()]
        kinds = {"float32": float, "float64": np.double}  # numexpr's names: its `float` has 32 bits
        signature = [(name, kinds[value.dtype.name]) for name, value in zip(names, values, strict=True)]
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        jobs = [
            (numexpr.NumExpr(texts[id(result)], signature), aligned_like(shape, result.dtype))
            for result in results
        ]
        outputs = tuple(out for _, out in jobs)

        def call() -> Any:
            for compiled, out in jobs:
                compiled(*values, out=out, order="K", casting="same_kind", ex_uses_vml=False)
            return outputs

        return call

    return Stateful(build)


def _numexpr_text(symbol: Symbol, texts: dict[int, str], constants: dict[str, Array]) -> str:
    if symbol.op == "input":
        return f"x{symbol.operands[0]}"
    if symbol.op == "constant":
        name = f"k{len(constants)}"
        constants[name] = np.array(symbol.operands[0], symbol.dtype)
        return name
    operands = [texts[id(operand)] for operand in symbol.operands]
    if symbol.op == "negative":
        return f"(-{operands[0]})"
    if symbol.op == "relu":
        return f"where({operands[0]} > 0, {operands[0]}, 0)"
    if len(operands) == 2:
        return f"({operands[0]} {symbol.op} {operands[1]})"
    return f"{symbol.op}({operands[0]})"


# Numba


def in_numba(formula: Formula, arrays: Arrays) -> Loop:
    """Return the loop that one would write by hand; an input with fewer axes is read along the last ones."""
    symbols, results = record(formula, arrays)
    ndim = max(a.ndim for a in arrays)
    index = "ij"[:ndim]
    names = [f"x{place}" for place in range(len(arrays))]
    constants: dict[str, Any] = {}
    body: list[str] = []
    values: dict[int, str] = {}
    for place, symbol in enumerate(symbols):
        if symbol.op == "constant":
            name = f"k{place}"
            constants[name] = symbol.dtype.type(symbol.operands[0])
        else:
            name = f"v{place}"
            body.append(f"{name} = {_numba_text(symbol, values, arrays, index)}")
        values[id(symbol)] = name
    outs = [f"out{place}" for place in range(len(results))]
    body += [f"{out}[{', '.join(index)}] = {values[id(r)]}" for out, r in zip(outs, results, strict=True)]
    lines = [f"def loop({', '.join(outs + names)}):"]
    for depth, i in enumerate(index):
        lines.append(
            f"{'    ' * (depth + 1)}for {i} in {'range' if depth else 'prange'}(out0.shape[{depth}]):"
        )
    lines += ["    " * (ndim + 1) + line for line in body]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    dtypes = [result.dtype for result in results]
    parallel = math.prod(shape) > SERIAL
    return Loop(
        _defined("\n".join(lines), constants), lambda *_: [aligned_like(shape, d) for d in dtypes], parallel
    )


def _numba_text(symbol: Symbol, values: dict[int, str], arrays: Arrays, index: str) -> str:
    if symbol.op == "input":
        place = symbol.operands[0]
        return f"x{place}[{', '.join(index[-arrays[place].ndim :])}]"
    operands = [values[id(operand)] for operand in symbol.operands]
    if symbol.op == "negative":
        return f"-{operands[0]}"
    if symbol.op == "relu":
        return f"max({operands[0]}, x0.dtype.type(0))"
    if len(operands) == 2:
        return f"{operands[0]} {symbol.op} {operands[1]}"
    return f"math.{symbol.op}({operands[0]})"


def _defined(text: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Return the function `loop` that `text` defines."""
    from numba import prange

    scope: dict[str, Any] = {"math": math, "prange": prange, **names}
    exec(text, scope)
    loop: Callable[..., Any] = scope["loop"]
    return loop


def numba_way(formula: Formula) -> Stateful:
    """Compile like `in_numba`, for inputs that are known when the call is built."""
    return Stateful(lambda peer, arrays: peer.prepare(in_numba(formula, arrays), arrays))


# Halide


def in_halide(formula: Formula) -> Callable[..., Callable[[], Any]]:
    """Return a pipeline over 1-D buffers: vectors of 16 in blocks that the cores share."""

    def schedule(*arrays: Array) -> Callable[[], Any]:
        import halide as hl

        x, outer, inner = hl.Var("x"), hl.Var("outer"), hl.Var("inner")
        value = formula(_halide_words(), *(hl.Buffer(array)[x] for array in arrays))
        function = hl.Func("f")
        function[x] = value
        block = 1 << 14
        if arrays[0].size > 2 * block:
            function.split(x, outer, inner, block).parallel(outer).vectorize(inner, 16)
        else:
            function.vectorize(x, 16)
        function.compile_jit()
        out = aligned_like(arrays[0].shape, arrays[0].dtype)
        buffer = hl.Buffer(out)

        def call() -> Any:
            function.realize(buffer)
            return out

        return call

    return schedule


def _halide_words() -> Any:
    import halide as hl

    return SimpleNamespace(exp=hl.exp, log=hl.log, tanh=hl.tanh, erf=hl.erf, sqrt=hl.sqrt,
                           relu=lambda x: hl.max(x, 0.0))  # fmt: skip


# libraries of arrays


def mgb_words() -> Any:
    """Return the functions of mgb by the names that formulas use."""
    import mgb.functional as F

    return SimpleNamespace(
        **{name: getattr(F, name) for name in FUNCTIONS}, cast=lambda x, dtype: x.astype(dtype)
    )


def jax_words() -> Any:
    """Return the functions of JAX by the same names."""
    import jax
    import jax.numpy as jnp

    return SimpleNamespace(exp=jnp.exp, log=jnp.log, tanh=jnp.tanh, erf=jax.scipy.special.erf, sqrt=jnp.sqrt,
                           relu=jax.nn.relu, cast=lambda x, dtype: x.astype(dtype))  # fmt: skip


def torch_words() -> Any:
    """Return the functions of PyTorch by the same names."""
    import torch

    names = {name: getattr(torch, name) for name in FUNCTIONS}
    return SimpleNamespace(**names, cast=lambda x, dtype: x.to(getattr(torch, dtype)))


def numpy_words() -> Any:
    """Return the functions of NumPy, in float64 but for casts, which round: these words are for the truth."""
    from scipy.special import erf

    return SimpleNamespace(
        exp=np.exp, log=np.log, tanh=np.tanh, erf=erf, sqrt=np.sqrt, relu=lambda x: np.maximum(x, 0),
        cast=lambda x, dtype: x.astype(_dtype(dtype)).astype(np.float64),
    )  # fmt: skip


def _calling(formula: Formula, words: Callable[[], Any]) -> Stateful:
    """Return `formula` as a function of arrays alone; its words are looked up when it is first compiled."""

    def build(peer: Peer, arrays: Arrays) -> Callable[[], Any]:
        found = words()
        return peer.prepare(lambda *values: formula(found, *values), arrays)

    return Stateful(build)


def ways(formula: Formula, without: Sequence[str] = ()) -> dict[str, Any]:
    """Return the formula for every dialect but those named in `without`."""
    every = {
        "mgb": _calling(formula, mgb_words),
        "numpy": into_buffers(formula),
        "numexpr": in_numexpr(formula),
        "numba": numba_way(formula),
        "jax": _calling(formula, jax_words),
        "torch": _calling(formula, torch_words),
        "halide": in_halide(formula),
    }
    return {dialect: way for dialect, way in every.items() if dialect not in without}


def truth(formula: Formula) -> Callable[..., Any]:
    """Return the formula in NumPy and float64."""
    return lambda *arrays: formula(numpy_words(), *arrays)
