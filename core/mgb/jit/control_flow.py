"""`scan`, `while_loop`, `cond`, `fori_loop` with the signatures of `jax.lax`, over nested containers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import loops
from ..errors import LoopError
from ..ir import Graph, Spec
from ..ir.scalars import Size, fixed
from ..ops.primitives import cast
from ..tensor import Tensor
from ..tensor.tracing import copy_node, rebuild
from .control_flow_trees import NotedFunction, Tree, as_tensor, cast_weak_leaves, check_carry


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Carry a value from step to step, and stack what each step returns.

    The body is called once, on Tensors without values, whatever the length. Tensors that it captures, such as
    parameters of layers, have gradients too.

    Parameters
    ----------
    f : callable
        ``f(carry, x) -> (carry, y)``. The carry that it returns has the nesting and types of its argument.
    init : nested Tensors
        The first carry. Python numbers take the dtype that the body returns for them.
    xs : nested Tensors, optional
        Each step receives one row of each.
    length : int, optional
        The number of steps; required without `xs`.
    reverse : bool
        From the last row to the first.

    Returns
    -------
    carry, ys
        The last carry, and the rows `y` stacked along a new first axis.

    Raises
    ------
    LoopError
        The carry changes its type, lengths differ, or the body cannot be a graph: it reads a value or changes
        a Tensor from outside.

    Notes
    -----
    The signature is that of ``jax.lax.scan``.

    Examples
    --------
    >>> x = mgb.tensor([1.0, 2.0, 3.0])
    >>> scan(lambda total, x: (total + x, total + x), mgb.tensor(0.0), x)
    (Tensor(6., device=xpux:0), Tensor([1., 3., 6.], device=xpux:0))
    """
    return _scan("scan", f, init, xs, length, reverse)


def _scan(
    name: str,
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Do what `scan` does, with `name` in error messages."""
    carry, rows = Tree(init, name, "carry"), Tree(xs, name, "xs")
    count = _count_steps(rows, length)
    specs = [t.spec for t in rows.leaves]
    inner = [Spec(s.shape[1:], s.dtype, s.device) for s in specs]

    def unpack(values: Sequence[Tensor]) -> tuple[Any, ...]:
        first = len(carry.leaves)
        return carry.build(values[:first]), rows.build(values[first:])

    parts: list[Tree] = []

    def check(result: Any) -> None:
        if not isinstance(result, tuple) or len(result) != 2:
            raise LoopError(f"{name}: the body gives {type(result).__name__}, not a pair (carry, y)")
        parts[:] = Tree(result[0], name, "carry"), Tree(result[1], name, "y")

    while True:
        given = [*(t.spec for t in carry.leaves), *inner]
        noted = NotedFunction(name, f, given, unpack, "the result", carry, check)
        if not cast_weak_leaves(carry, check_carry(name, parts[0], carry, noted.graph)):
            break
    last, ys = loops.scan_graph(noted.graph, noted.outside, carry.leaves, rows.leaves, count, bool(reverse))
    return carry.build(last), parts[1].build(ys)


def _count_steps(rows: Tree, length: int | None) -> int:
    """Return the number of steps."""
    for n, tensor in enumerate(rows.leaves):
        if not tensor.ndim:
            raise LoopError(
                f"scan: {rows.name(n)} must have at least one axis to scan along, got a single number"
            )
    found = [(tensor.shape[0], rows.name(n)) for n, tensor in enumerate(rows.leaves)]
    if length is not None:
        found.append((_to_int(length), "length"))
    if not found:
        raise LoopError("scan: the number of steps is not known: give xs or length")
    if any(count != found[0][0] for count, _ in found):
        differing = {int(count): name for count, name in reversed(found)}
        listed = ", ".join(f"{name} has {count}" for count, name in reversed(differing.items()))
        raise LoopError(f"scan: the lengths differ: {listed} steps")
    return found[0][0]


def _to_int(number: Any) -> Any:
    """Return an integer. A symbolic length stays symbolic."""
    return number if type(number) is Size else operator.index(fixed(number))


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """Repeat `body_fun` while `cond_fun` returns True.

    Parameters
    ----------
    cond_fun : callable
        From the carry to one Boolean.
    body_fun : callable
        From the carry to the next carry, of the same nesting and types.
    init_val : nested Tensors

    Returns
    -------
    The last value.

    Raises
    ------
    LoopError
        As for `scan`; or `cond_fun` does not return one Boolean.
    NoGradientError
        In the backward pass: it has tangents (`mgb.jvp`), but no gradients in reverse mode.

    Notes
    -----
    The signature is that of ``jax.lax.while_loop``.

    Examples
    --------
    >>> from mgb.jit import while_loop
    >>> while_loop(lambda x: x < 100, lambda x: x * 2, mgb.tensor(3.0)).item()
    192.0
    """
    carry = Tree(init_val, "while_loop", "carry")

    def unpack(values: Sequence[Tensor]) -> tuple[Any, ...]:
        return (carry.build(values),)

    while True:
        specs = [t.spec for t in carry.leaves]
        body = NotedFunction("while_loop", body_fun, specs, unpack, "carry", carry)
        if not cast_weak_leaves(carry, check_carry("while_loop", body.result, carry, body.graph)):
            break
    test = NotedFunction("while_loop", cond_fun, specs, unpack, "the result of cond_fun")
    found = [(n.spec.shape, n.spec.dtype.name) for n in test.graph.outputs]
    if found != [((), "bool")]:
        shown = ", ".join(str(n.spec) for n in test.graph.outputs)
        raise LoopError(f"while_loop: cond_fun gives {shown}, not one Boolean: bool[]")
    outside = [test.outside, body.outside]
    return carry.build(loops.while_loop(test.graph, body.graph, outside, carry.leaves))


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """Run ``for i in range(lower, upper): val = body_fun(i, val)``.

    With bounds that are Python numbers it is a `scan` and has gradients; with Tensors a `while_loop`.

    Parameters
    ----------
    lower, upper : int or Tensor
    body_fun : callable
        ``body_fun(i, val) -> val``, where `i` is a Tensor of one int32.
    init_val : nested Tensors

    Returns
    -------
    The last value.

    Notes
    -----
    The signature is that of ``jax.lax.fori_loop``.

    Examples
    --------
    >>> from mgb.jit import fori_loop
    >>> fori_loop(0, 4, lambda i, x: x * 2, mgb.tensor(1.0)).item()
    16.0
    """
    if not isinstance(lower, Tensor) and not isinstance(upper, Tensor):
        first = _to_int(lower)
        count = max(0, _to_int(upper) - first)

        def step(carry: Any, _row: None) -> tuple[Any, None]:
            i, value = carry
            return (i + 1, body_fun(i, value)), None

        begin = as_tensor(first, "fori_loop: a bound")
        return _scan("fori_loop", step, (begin, init_val), None, count)[0][1]
    begin, end = (as_tensor(bound, "fori_loop: a bound") for bound in (lower, upper))
    last = while_loop(
        lambda carry: carry[0] < carry[1],
        lambda carry: (carry[0] + 1, carry[1], body_fun(carry[0], carry[2])),
        (begin, end, init_val),
    )
    return last[2]


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """Return ``true_fun(*operands) if pred else false_fun(*operands)``, decided at run time.

    Parameters
    ----------
    pred : bool or Tensor
        One Boolean, or a number, of which 0 is False.
    true_fun, false_fun : callable
        Both are recorded, and return results of the same nesting and types.
    *operands : nested Tensors

    Returns
    -------
    The result of the chosen function; the other one does not run.

    Raises
    ------
    LoopError
        `pred` has axes, the results differ, or a function cannot be a graph.

    Notes
    -----
    The signature is that of ``jax.lax.cond``.

    Examples
    --------
    >>> from mgb.jit import cond
    >>> cond(mgb.tensor(True), lambda x: x + 1, lambda x: x - 1, mgb.tensor(5.0)).item()
    6.0
    """
    index = as_tensor(pred, "cond: the predicate")
    if index.ndim:
        raise LoopError(f"cond: the predicate is {index.spec}, not one Boolean: use where")
    given = Tree(operands, "cond", "operand")
    specs = [t.spec for t in given.leaves]
    names = "true_fun", "false_fun"
    ways = [
        NotedFunction("cond", function, specs, given.build, f"the result of {name}")
        for name, function in zip(names, (true_fun, false_fun), strict=True)
    ]
    yes, no = ways
    if yes.result.form != no.result.form:
        raise LoopError(
            f"cond: true_fun gives {yes.result}, false_fun {no.result}; return the same nesting in both"
        )
    graphs = _unify_types(yes, no)
    outs = loops.cond(index != 0, [graphs[1], graphs[0]], [no.outside, yes.outside], given.leaves)
    return yes.result.build(outs)


def _unify_types(yes: NotedFunction, no: NotedFunction) -> tuple[Graph, Graph]:
    """Return the graphs of two branches, where Python numbers take the dtype of the other branch."""
    graphs = [yes.graph, no.graph]
    for n, (a, b) in enumerate(zip(yes.graph.outputs, no.graph.outputs, strict=True)):
        if (a.spec.shape, a.spec.dtype) == (b.spec.shape, b.spec.dtype):
            continue
        weak = [way.result.weak[n] for way in (yes, no)]
        if a.spec.shape != b.spec.shape or not any(weak):
            raise LoopError(
                f"cond: {yes.result.name(n)} is {a.spec}, {no.result.name(n)} is {b.spec}: both "
                "branches give the same shape and dtype; cast one with astype"
            )
        k = 0 if weak[0] else 1
        graphs[k] = _cast_output(graphs[k], n, (a, b)[1 - k].spec.dtype)
    return graphs[0], graphs[1]


def _cast_output(graph: Graph, n: int, dtype: np.dtype[Any]) -> Graph:
    def rule(*values: Tensor) -> list[Tensor]:
        outs = list(graph.fold(copy_node, values))
        outs[n] = cast(outs[n], dtype=dtype)
        return outs

    return rebuild(rule, graph.inputs)
