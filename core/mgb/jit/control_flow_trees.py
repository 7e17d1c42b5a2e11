"""Arguments of `scan`, `while_loop` and `cond`: nested containers of Tensors, and functions of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import loops
from ..errors import LoopError
from ..ir import Graph, Spec
from ..ir.dtypes import WEAK
from ..ir.scalars import SCALARS, plain
from ..ops.primitives import cast
from ..tensor import Tensor
from ..tensor.apply import follow, literal, literals
from .arguments import leaf_names
from .tree import Structure, flatten
from .watch import writes_of


class Tree:
    """A nested container of Tensors. Numbers and arrays became Tensors; None stays None."""

    def __init__(self, value: Any, name: str, what: str) -> None:
        leaves, self.structure = flatten(value)
        self.names = list(leaf_names(self.structure, what))
        self.indices = [n for n, leaf in enumerate(leaves) if leaf is not None]
        self.weak = [type(plain(leaves[n])) in WEAK for n in self.indices]
        self.leaves = [as_tensor(leaves[n], f"{name}: {self.names[n]}") for n in self.indices]
        #: The dtypes of arrays whose Tensors have another dtype.
        self.arrays = {
            k: leaves[n].dtype
            for k, n in enumerate(self.indices)
            if isinstance(leaves[n], np.ndarray) and leaves[n].dtype != self.leaves[k].dtype
        }

    @property
    def form(self) -> tuple[Structure, list[int]]:
        """Return what is equal for trees of the same nesting."""
        return self.structure, self.indices

    def build(self, tensors: Sequence[Tensor]) -> Any:
        """Return the same nesting of other Tensors."""
        values = dict(zip(self.indices, tensors, strict=True))
        return self.structure.build(iter([values.get(n) for n in range(len(self.names))]))

    def name(self, n: int) -> str:
        """Return the position of Tensor `n` as text."""
        return self.names[self.indices[n]]

    def __str__(self) -> str:
        return str(self.build(["*"] * len(self.indices))).replace("'*'", "*")  # type: ignore[list-item]


def as_tensor(value: Any, what: str) -> Tensor:
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
        raise LoopError(f"{what} is {value!r:.60}, which is not an array; give Tensors or numbers") from None
    return made  # type: ignore[no-any-return]


class NotedFunction:
    """A function of trees, recorded as a graph of their leaves.

    Attributes
    ----------
    graph, outside
        As `loops.note` returns them.
    result : Tree
        The result of the function.
    """

    result: Tree

    def __init__(self, name: str, function: Callable[..., Any], specs: Sequence[Spec],
                 unpack: Callable[[Sequence[Tensor]], tuple[Any, ...]], result: str,
                 like: Tree | None = None,
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
            self.result = Tree(value, name, result)
            return self.result.leaves if like is None else _cast_weak_results(self.result, like)

        self.graph, self.outside = loops.note(name, of_leaves, specs)


def _cast_weak_results(result: Tree, carry: Tree) -> list[Tensor]:
    """Return the leaves of `result`, where Python numbers take the dtypes of the carried values."""
    leaves = list(result.leaves)
    for n, (new, old) in enumerate(zip(leaves, carry.leaves)):
        if result.weak[n] and new.dtype != old.dtype:
            leaves[n] = cast(new, dtype=old.dtype)
    return leaves


def check_carry(name: str, result: Tree, carry: Tree, graph: Graph) -> list[np.dtype[Any] | None]:
    """Raise a `LoopError` where a step returns another type than it was given.

    Returns
    -------
    list
        For each leaf the dtype to cast its first value to, if that is a Python number; otherwise None.
    """
    if result.form != carry.form:
        raise LoopError(
            f"{name}: the body gives a carry that is nested otherwise than init: {result} instead of "
            f"{carry}; return what is carried as it came"
        )
    dtypes: list[np.dtype[Any] | None] = []
    for n, node in enumerate(graph.outputs[: len(carry.leaves)]):
        old, new = carry.leaves[n].spec, node.spec
        if (old.shape, old.dtype, old.device) == (new.shape, new.dtype, new.device):
            dtypes.append(None)
        elif old.shape == new.shape and carry.weak[n]:
            dtypes.append(new.dtype)
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
    return dtypes


def cast_weak_leaves(carry: Tree, dtypes: Sequence[np.dtype[Any] | None]) -> bool:
    """Cast the Python numbers of a carry to the dtypes that the body returns; return whether any exist."""
    for n, dtype in enumerate(dtypes):
        if dtype is not None:
            carry.leaves[n] = cast(carry.leaves[n], dtype=dtype)
            carry.weak[n] = False
    return any(dtypes)
