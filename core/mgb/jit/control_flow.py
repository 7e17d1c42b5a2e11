"""`scan`, `while_loop`, `cond`, `fori_loop` with the signatures of `jax.lax`, over nested containers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import loops
from ..apply import follow, literal, literals
from ..dtypes import WEAK
from ..errors import LoopError
from ..ir import Graph, Spec
from ..ops.primitives import cast
from ..scalars import SCALARS, Size, fixed, plain
from ..tensor import Tensor
from ..tracing import copy_node, rebuild
from .arguments import leaf_names
from .tree import Structure, flatten
from .watch import writes_of


class _Tree:
    """A nesting of Tensors: numbers and arrays became Tensors, None stays what it is."""

    def __init__(self, value: Any, name: str, what: str) -> None:
        leaves, self.structure = flatten(value)
        self.names = leaf_names(self.structure, what)
        self.places = [n for n, leaf in enumerate(leaves) if leaf is not None]
        self.weak = [type(plain(leaves[n])) in WEAK for n in self.places]
        self.leaves = [_as_tensor(leaves[n], f"{name}: {self.names[n]}") for n in self.places]
        #: The dtypes of arrays, where those of their Tensors are others.
        self.arrays = {
            k: leaves[n].dtype
            for k, n in enumerate(self.places)
            if isinstance(leaves[n], np.ndarray) and leaves[n].dtype != self.leaves[k].dtype
        }

    @property
    def form(self) -> tuple[Structure, list[int]]:
        """What is equal for trees that are nested alike."""
        return self.structure, self.places

    def build(self, tensors: Sequence[Tensor]) -> Any:
        """The nesting, of other Tensors."""
        values = dict(zip(self.places, tensors, strict=True))
        return self.structure.build(iter([values.get(n) for n in range(len(self.names))]))

    def name(self, n: int) -> str:
        """Where the Tensor `n` stands."""
        return self.names[self.places[n]]


def _as_tensor(value: Any, what: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if type(value) in SCALARS:
        made = literal(value.value)
        follow(made, value)
        return made
    if type(value) in WEAK:
        return literal(value)
    try:
        (made,) = literals(what, [value])
    except (TypeError, ValueError):
        raise LoopError(f"{what} is {value!r:.60}, which is no array; give Tensors or numbers") from None
    return made  # type: ignore[no-any-return]


class _Noted:
    """A function of trees, noted as a graph of their leaves.

    Attributes
    ----------
    graph, outside
        As `loops.note` gives them.
    result : _Tree
        What the function gave.
    """

    result: _Tree

    def __init__(self, name: str, function: Callable[..., Any], specs: Sequence[Spec],
                 unpack: Callable[[Sequence[Tensor]], tuple[Any, ...]], result: str,
                 like: _Tree | None = None,
                 check: Callable[[Any], object] = lambda _: None) -> None:  # fmt: skip
        def of_leaves(*values: Tensor) -> list[Tensor]:
            value, writes = writes_of(function, *unpack(values))
            if writes:
                reason, place = writes[0].reason, f"{writes[0].file}:{writes[0].line}"
                raise LoopError(
                    f"{name}: the body {reason} at {place}; it is noted once, not called at each step: "
                    "return what is to be kept, stacked by scan, or carry it"
                )
            check(value)
            self.result = _Tree(value, name, result)
            return self.result.leaves if like is None else _weakly_like(self.result, like)

        self.graph, self.outside = loops.note(name, of_leaves, specs)


def _weakly_like(result: _Tree, carry: _Tree) -> list[Tensor]:
    """The leaves of `result`, of which Python numbers take the dtypes of what was carried into the step."""
    leaves = list(result.leaves)
    for n, (new, old) in enumerate(zip(leaves, carry.leaves)):
        if result.weak[n] and new.dtype != old.dtype:
            leaves[n] = cast(new, dtype=old.dtype)
    return leaves


def _check_carry(name: str, result: _Tree, carry: _Tree, graph: Graph) -> list[np.dtype[Any] | None]:
    """Raise a `LoopError` where a step hands on something else than it was given.

    Returns
    -------
    list
        For each leaf the dtype that it needs to begin with: those given as Python numbers have no own.
    """
    if result.form != carry.form:
        raise LoopError(
            f"{name}: the body gives a carry that is nested otherwise than init: {_shown(result)} instead of "
            f"{_shown(carry)}; return what is carried as it came"
        )
    wanted: list[np.dtype[Any] | None] = []
    for n, node in enumerate(graph.outputs[: len(carry.leaves)]):
        old, new = carry.leaves[n].spec, node.spec
        if (old.shape, old.dtype, old.device) == (new.shape, new.dtype, new.device):
            wanted.append(None)
        elif old.shape == new.shape and carry.weak[n]:
            wanted.append(new.dtype)
        else:
            where = "" if old.device == new.device else f", on {old.device} and on {new.device}"
            begin = str(new)
            if n in carry.arrays and old.shape == new.shape:
                where += f"; it is an array of {carry.arrays[n]}, of which Tensors of {old.dtype} are made"
                begin = f"mgb.tensor(array, dtype={str(new.dtype)!r})"
            raise LoopError(
                f"{name}: {carry.name(n)} changes its type in the body: comes as {old} and leaves as {new}"
                f"{where}; what is carried keeps its type: begin with {begin}, or cast with astype"
            )
    return wanted


def _shown(tree: _Tree) -> str:
    return str(tree.build(["*"] * len(tree.places))).replace("'*'", "*")  # type: ignore[list-item]


def _begun(carry: _Tree, wanted: Sequence[np.dtype[Any] | None]) -> bool:
    """Cast Python numbers that a carry begins with to what the body makes of them; is there such a one?"""
    for n, dtype in enumerate(wanted):
        if dtype is not None:
            carry.leaves[n] = cast(carry.leaves[n], dtype=dtype)
            carry.weak[n] = False
    return any(wanted)


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Carry a value from step to step, and stack what each step gives.

    The body is called once, on Tensors without values, whatever the length; Tensors that it finds outside, as
    parameters of layers, have gradients too.

    Parameters
    ----------
    f : callable
        ``f(carry, x) -> (carry, y)``. The carry that it returns is nested and typed as the one it is given.
    init : nested Tensors
        The first carry. Python numbers take the dtype that the body makes of them.
    xs : nested Tensors, optional
        A step is given the same row of each.
    length : int, optional
        The number of steps, where `xs` does not say it.
    reverse : bool
        From the last row to the first.

    Returns
    -------
    carry, ys
        The last carry, and the rows `y` stacked along a new first axis.

    Raises
    ------
    LoopError
        The carry changes its type, lengths differ, or the body cannot be held by a graph: it reads a value or
        changes a Tensor from outside.

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
    """`scan`, known to its user as `name`."""
    carry, rows = _Tree(init, name, "carry"), _Tree(xs, name, "xs")
    count = _length_of(rows, length)
    specs = [t.spec for t in rows.leaves]
    inner = [Spec(s.shape[1:], s.dtype, s.device) for s in specs]

    def unpack(values: Sequence[Tensor]) -> tuple[Any, ...]:
        first = len(carry.leaves)
        return carry.build(values[:first]), rows.build(values[first:])

    parts: list[_Tree] = []

    def check(result: Any) -> None:
        if not isinstance(result, tuple) or len(result) != 2:
            raise LoopError(f"{name}: the body gives {type(result).__name__}, not a pair (carry, y)")
        parts[:] = _Tree(result[0], name, "carry"), _Tree(result[1], name, "y")

    while True:
        given = [*(t.spec for t in carry.leaves), *inner]
        noted = _Noted(name, f, given, unpack, "the result", carry, check)
        if not _begun(carry, _check_carry(name, parts[0], carry, noted.graph)):
            break
    last, ys = loops.scan_graph(noted.graph, noted.outside, carry.leaves, rows.leaves, count, bool(reverse))
    return carry.build(last), parts[1].build(ys)


def _length_of(rows: _Tree, length: int | None) -> int:
    """The number of steps."""
    for n, tensor in enumerate(rows.leaves):
        if not tensor.ndim:
            raise LoopError(f"scan: {rows.name(n)} has no axis to go along, it is one number")
    found = [(tensor.shape[0], rows.name(n)) for n, tensor in enumerate(rows.leaves)]
    if length is not None:
        found.append((_whole(length), "length"))
    if not found:
        raise LoopError("scan: there is nothing to go along: give xs or length")
    if any(count != found[0][0] for count, _ in found):
        differing = {int(count): name for count, name in reversed(found)}
        listed = ", ".join(f"{name} has {count}" for count, name in reversed(differing.items()))
        raise LoopError(f"scan: the lengths differ: {listed} steps")
    return found[0][0]


def _whole(number: Any) -> Any:
    """An integer; a length is one, and followed."""
    return number if type(number) is Size else operator.index(fixed(number))


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """Repeat `body_fun` while `cond_fun` gives True.

    Parameters
    ----------
    cond_fun : callable
        From what is carried to one Boolean.
    body_fun : callable
        From what is carried to what is carried on, nested and typed alike.
    init_val : nested Tensors

    Returns
    -------
    The last value.

    Raises
    ------
    LoopError
        As for `scan`; or the test is not one Boolean.
    NoGradientError
        On the way back: it has tangents (`mgb.jvp`), but no gradients in reverse mode.

    Notes
    -----
    The signature is that of ``jax.lax.while_loop``.

    Examples
    --------
    >>> from mgb.jit import while_loop
    >>> while_loop(lambda x: x < 100, lambda x: x * 2, mgb.tensor(3.0)).item()
    192.0
    """
    carry = _Tree(init_val, "while_loop", "carry")

    def unpack(values: Sequence[Tensor]) -> tuple[Any, ...]:
        return (carry.build(values),)

    while True:
        specs = [t.spec for t in carry.leaves]
        body = _Noted("while_loop", body_fun, specs, unpack, "carry", carry)
        if not _begun(carry, _check_carry("while_loop", body.result, carry, body.graph)):
            break
    test = _Noted("while_loop", cond_fun, specs, unpack, "the result of cond_fun")
    found = [(n.spec.shape, n.spec.dtype.name) for n in test.graph.outputs]
    if found != [((), "bool")]:
        shown = ", ".join(str(n.spec) for n in test.graph.outputs)
        raise LoopError(f"while_loop: cond_fun gives {shown}, not one Boolean: bool[]")
    outside = [test.outside, body.outside]
    return carry.build(loops.while_loop(test.graph, body.graph, outside, carry.leaves))


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """``for i in range(lower, upper): val = body_fun(i, val)``.

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
        first = _whole(lower)
        count = max(0, _whole(upper) - first)

        def step(carry: Any, _row: None) -> tuple[Any, None]:
            i, value = carry
            return (i + 1, body_fun(i, value)), None

        begin = _as_tensor(first, "fori_loop: a bound")
        return _scan("fori_loop", step, (begin, init_val), None, count)[0][1]
    begin, end = (_as_tensor(bound, "fori_loop: a bound") for bound in (lower, upper))
    last = while_loop(
        lambda carry: carry[0] < carry[1],
        lambda carry: (carry[0] + 1, carry[1], body_fun(carry[0], carry[2])),
        (begin, end, init_val),
    )
    return last[2]


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """``true_fun(*operands) if pred else false_fun(*operands)``, decided when it runs.

    Parameters
    ----------
    pred : bool or Tensor
        One Boolean, or a number, of which 0 is False.
    true_fun, false_fun : callable
        Both are noted, and give results that are nested and typed alike.
    *operands : nested Tensors

    Returns
    -------
    What the chosen one gives; the other one does not run.

    Raises
    ------
    LoopError
        `pred` has axes, the results differ, or a function cannot be held by a graph.

    Notes
    -----
    The signature is that of ``jax.lax.cond``.

    Examples
    --------
    >>> from mgb.jit import cond
    >>> cond(mgb.tensor(True), lambda x: x + 1, lambda x: x - 1, mgb.tensor(5.0)).item()
    6.0
    """
    index = _as_tensor(pred, "cond: the predicate")
    if index.ndim:
        raise LoopError(f"cond: the predicate is {index.spec}, not one Boolean: use where")
    given = _Tree(operands, "cond", "operand")
    specs = [t.spec for t in given.leaves]
    names = "true_fun", "false_fun"
    ways = [
        _Noted("cond", function, specs, given.build, f"the result of {name}")
        for name, function in zip(names, (true_fun, false_fun), strict=True)
    ]
    yes, no = ways
    if yes.result.form != no.result.form:
        raise LoopError(
            f"cond: true_fun gives {_shown(yes.result)}, false_fun {_shown(no.result)}; return the same "
            "nesting in both"
        )
    graphs = _of_one_type(yes, no)
    outs = loops.cond(index != 0, [graphs[1], graphs[0]], [no.outside, yes.outside], given.leaves)
    return yes.result.build(outs)


def _of_one_type(yes: _Noted, no: _Noted) -> tuple[Graph, Graph]:
    """The graphs of two branches, of which Python numbers take the dtype of the other one's result."""
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
