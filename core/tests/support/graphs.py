"""Random graphs for property tests, and what they mean: `run`."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from mgb import dtypes
from mgb.ir import Graph, Node, Spec
from mgb.ops import layout, primitives, reduce
from mgb.tensor import Tensor
from mgb.tensor.apply import evaluate
from mgb.tensor.tracing import graph_of

UNARY = (primitives.neg, primitives.floor)
BINARY = (
    primitives.add,
    primitives.sub,
    primitives.mul,
    primitives.maximum,
    primitives.minimum,
    primitives.div,
)
REDUCTIONS = (reduce.reduce_sum, reduce.reduce_max, reduce.reduce_min)
SHAPES = ((4, 3), (4, 1), (1, 3), (3,), (), (2, 4, 3), (4,), (3, 4))


def run(graph: Graph, arrays: Any) -> list[np.ndarray]:
    """The outputs of `graph`, node by node: what every other way to run it is compared with."""

    def rule(node: Node, *values: Any) -> Any:
        if node.op.name == "const":
            return node.params["value"]
        return evaluate(node.op, list(values), dict(node.params))

    return [np.asarray(out) for out in graph.fold(rule, list(arrays))]


def arrays_for(graph: Graph, seed: int = 0, integers: bool = False) -> list[np.ndarray]:
    """Inputs for `graph`: small whole numbers, on which sums in any order are exact, or normal deviates."""
    rng = np.random.default_rng(seed)

    def draw(spec: Spec) -> np.ndarray:
        if integers or spec.dtype.kind in "iub":
            return np.array(rng.integers(-4 if spec.dtype.kind in "if" else 0, 5, spec.shape), spec.dtype)
        return np.array(rng.standard_normal(spec.shape), spec.dtype)

    return [draw(node.spec) for node in graph.inputs]


@st.composite
def random_graphs(
    draw: st.DrawFn,
    min_inputs: int = 1,
    max_inputs: int = 4,
    max_nodes: int = 16,
    layouts: bool = True,
    dtype: np.dtype[Any] = dtypes.float32,
) -> Graph:
    """Element-wise ops, reductions, layout ops and constants that broadcast, with 1 to 3 outputs."""
    specs = [
        Spec(draw(st.sampled_from(SHAPES)), dtype) for _ in range(draw(st.integers(min_inputs, max_inputs)))
    ]

    def body(*inputs: Tensor) -> list[Tensor]:
        values = list(inputs)
        for _ in range(draw(st.integers(1, max_nodes))):
            values.append(_step(draw, values, layouts))
        count = draw(st.integers(1, min(3, len(values) - len(inputs))))
        return [values[-1], *(draw(st.sampled_from(values[len(inputs) :])) for _ in range(count - 1))]

    return graph_of(body, *specs)


def _step(draw: st.DrawFn, values: list[Tensor], layouts: bool) -> Tensor:
    """One more value, computed from those there are."""
    x = draw(st.sampled_from(values))
    kind = draw(st.sampled_from(("unary", "binary", "binary", "constant", "where", "reduce", "layout")))
    if kind == "unary":
        return draw(st.sampled_from(UNARY))(x)
    if kind == "constant":
        return draw(st.sampled_from(BINARY))(x, draw(st.sampled_from((0.0, 1.0, 2.0, -1.0))))
    if kind == "reduce" and x.ndim:
        axes = st.lists(st.integers(0, x.ndim - 1), min_size=1, max_size=x.ndim, unique=True)
        return draw(st.sampled_from(REDUCTIONS))(x, axis=tuple(sorted(draw(axes))))
    if kind == "layout" and layouts:
        return _layout(draw, x)
    y = draw(st.sampled_from([v for v in values if _broadcast(x, v)]))
    if kind == "where":
        return primitives.where(primitives.lt(x, y), x, y)
    return draw(st.sampled_from(BINARY))(x, y)


def _broadcast(x: Tensor, y: Tensor) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(x.shape, y.shape))) <= 256
    except ValueError:
        return False


def _layout(draw: st.DrawFn, x: Tensor) -> Tensor:
    kind = draw(st.sampled_from(("transpose", "squeeze", "unsqueeze", "broadcast")))
    if kind == "transpose":
        return layout.transpose(x, axes=tuple(draw(st.permutations(range(x.ndim)))))
    if kind == "squeeze":
        return layout.reshape(x, shape=tuple(d for d in x.shape if d != 1))
    if kind == "unsqueeze":
        place = draw(st.integers(0, x.ndim))
        return layout.reshape(x, shape=(*x.shape[:place], 1, *x.shape[place:])) if x.ndim < 4 else x
    shape = draw(st.sampled_from([s for s in (x.shape, *SHAPES) if _stretches(x.shape, s)]))
    return layout.broadcast_to(x, shape=shape)


def _stretches(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(small, large) == large
    except ValueError:
        return False
