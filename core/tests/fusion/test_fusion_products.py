"""Matrix products in groups of one domain: which groups come out, and the law that all of them keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fusing import TRAITS, WHOLE, execute, f32, fused, layer_norm, ops, steps_of, total
from graphs import BINARY, REDUCTIONS, UNARY, arrays_for, run
from hypothesis import given, settings
from hypothesis import strategies as st
from mgb import dtypes
from mgb.backends import Scope, Traits
from mgb.codegen import structure_key
from mgb.executor.plan import reads_in_place
from mgb.fusion import FusionConfig, Step, accepts, detect, duplicate, recompute
from mgb.ir import Graph, Kind, Node, Spec
from mgb.ops import layout, primitives
from mgb.ops.activations import gelu, relu
from mgb.ops.bodies import transcendental as tr
from mgb.ops.images.contract import conv2d, matmul
from mgb.passes import lower, simplify, verify
from mgb.tensor import Tensor
from mgb.tensor.tracing import graph_of

#: A backend of one domain that multiplies matrices of these dtypes.
PRODUCTS = replace(
    TRAITS, kinds=TRAITS.kinds | {Kind.CONTRACT}, products=frozenset({"float16", "bfloat16", "float32"})
)


def products(function: Callable[..., Any], *specs: Spec) -> list[Step]:
    """The steps of `function` that are kernels with a product; all steps compute what it computes."""
    return [s for s in steps_of(function, *specs, traits=PRODUCTS) if s.fused and "matmul" in ops(s)]


# the law, in the words of sets


def ancestors(node: Node) -> set[Node]:
    """What `node` is computed from, and itself, without leaves."""
    found: set[Node] = set()
    waiting = [node]
    while waiting:
        n = waiting.pop()
        if n not in found and n.op.kind is not Kind.LEAF:
            found.add(n)
            waiting += n.inputs
    return found


def obeys(step: Step) -> None:
    """Assert the law of groups with a product."""
    graph = step.graph
    computed = {n for n in graph.nodes if n.op.kind is not Kind.LEAF}
    (product,) = (n for n in computed if n.op.kind is Kind.CONTRACT)
    assert product.op.name == "matmul" and product.spec.ndim == 2
    left, right = (ancestors(i) for i in product.inputs)
    after = computed - left - right - {product}
    assert not left & right and computed - {product}, "there is something to fuse, and it has one place"
    assert all(n.op.kind is Kind.ELEMENTWISE for n in computed - {product})
    for side, operand in zip((left, right), product.inputs, strict=True):
        for n in side:
            assert n.op.name in CHEAP_HERE and np.broadcast_shapes(n.spec.shape, operand.spec.shape)
            assert np.broadcast_shapes(n.spec.shape, operand.spec.shape) == operand.spec.shape
            assert set(graph.readers[n]) <= side | {product} and n not in graph.outputs
    for n in after:
        assert bare(np.broadcast_shapes(n.spec.shape, product.spec.shape)) == bare(product.spec.shape)
    assert {bare(o.spec.shape) for o in graph.outputs} == {bare(product.spec.shape)}


#: What a kernel may compute again for each of its blocks, of the ops that the random graphs are made of.
CHEAP_HERE = {"neg", "add", "sub", "mul", "maximum", "minimum", "where", "lt", "cast", "relu", "square"}


def bare(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if not shape or shape[0] != 1 else bare(shape[1:])


# random graphs

SHAPES = ((4, 4), (4, 4), (4, 3), (3, 4), (4, 1), (1, 4), (1, 3), (4,), (3,), (), (2, 4, 4))


@st.composite
def graphs_with_products(draw: st.DrawFn) -> Graph:
    """Element-wise ops, some reductions, and products of whatever multiplies, with 1 to 3 outputs."""
    specs = [f32(*draw(st.sampled_from(SHAPES))) for _ in range(draw(st.integers(1, 4)))]

    def body(*inputs: Tensor) -> list[Tensor]:
        values = list(inputs)
        for _ in range(draw(st.integers(5, 20))):
            values.append(step(draw, values))
        made = values[len(inputs) :]
        return [made[-1], *(draw(st.sampled_from(made)) for _ in range(draw(st.integers(0, 2))))]

    return graph_of(body, *specs)


def step(draw: st.DrawFn, values: list[Tensor]) -> Tensor:
    x = draw(st.sampled_from(values))
    kind = draw(st.sampled_from(("unary", "binary", "binary", "binary", "reduce", "matmul", "matmul")))
    if kind == "matmul" and x.ndim >= 2:
        flips = [(a, b) for a in (False, True) for b in (False, True)]
        fits = [(y, a, b) for y in values for a, b in flips if multiply(x, y, a, b)]
        if fits:
            y, a, b = draw(st.sampled_from(fits))
            return matmul(x, y, transpose_a=a, transpose_b=b)
    if kind == "reduce" and x.ndim:
        return draw(st.sampled_from(REDUCTIONS))(x, axis=(draw(st.integers(0, x.ndim - 1)),))
    if kind == "unary":
        return draw(st.sampled_from((*UNARY, relu)))(x)
    y = draw(st.sampled_from([v for v in values if broadcasts(x, v)]))
    return draw(st.sampled_from(BINARY))(x, y)


def multiply(x: Tensor, y: Tensor, a: bool, b: bool) -> bool:
    if y.ndim < 2 or (x.ndim, y.ndim) == (3, 3):
        return False
    return x.shape[-2 if a else -1] == y.shape[-1 if b else -2]


def broadcasts(x: Tensor, y: Tensor) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(x.shape, y.shape))) <= 256
    except ValueError:
        return False


@settings(max_examples=400)
@given(graph=graphs_with_products(), level=st.sampled_from((0, 3)), fuel=st.sampled_from((None, None, 5)))
def test_random_groups_satisfy_invariants_and_match_the_graph(
    graph: Graph, level: int, fuel: int | None
) -> None:
    graph = duplicate(simplify(graph, level), PRODUCTS)
    steps = recompute(graph, detect(graph, PRODUCTS, FusionConfig(fuel=fuel)), PRODUCTS)
    arrays = arrays_for(graph)
    with np.errstate(all="ignore"):
        pairs = zip(run(graph, arrays), execute(graph, steps, arrays), strict=True)
        for expected, found in pairs:
            np.testing.assert_array_equal(found, expected)
    for s in fused(steps):
        verify(lower(s.graph, PRODUCTS))
        if "matmul" in ops(s):
            obeys(s)
            obeys_lowered(lower(s.graph, PRODUCTS))


def obeys_lowered(graph: Graph) -> None:
    """A backend finds one product, and what its operands need has nothing to do with the result."""
    (product,) = (n for n in graph.nodes if n.op.kind is Kind.CONTRACT)
    assert all(product not in ancestors(i) for i in product.inputs)
    assert all(n.op.kind in (Kind.LEAF, Kind.ELEMENTWISE) for n in graph.nodes if n is not product)


# what becomes one kernel


def test_bias_activation_and_residual_fuse_into_matmul() -> None:
    (step,) = steps_of(
        lambda x, w, b, r: gelu(matmul(x, w) + b) + r,
        *(f32(4, 3), f32(3, 5), f32(5), f32(4, 5)),
        traits=PRODUCTS,
    )
    assert step.fused and len(step.reads) == 4
    obeys(step)


def test_elementwise_ops_on_operands_fuse_into_matmul() -> None:
    def body(x: Tensor, s: Tensor, w: Tensor) -> Tensor:
        return matmul(relu(x) * s, w * 2.0)

    (step,) = steps_of(body, f32(4, 3), f32(3), f32(3, 5), traits=PRODUCTS)
    assert step.fused and "relu" in ops(step)
    obeys(step)


@pytest.mark.parametrize(("a", "b"), [(False, True), (True, False), (True, True)])
def test_transposed_matmul_operands_fuse(a: bool, b: bool) -> None:
    left, right = f32(*((3, 4) if a else (4, 3))), f32(*((5, 3) if b else (3, 5)))
    assert products(lambda x, w: relu(matmul(-x, w, transpose_a=a, transpose_b=b)), left, right)


def test_operand_cast_fuses_into_matmul() -> None:
    def body(x: Tensor, w: Tensor) -> Tensor:
        return matmul(primitives.cast(x, dtype=dtypes.float16), w)

    graph = simplify(graph_of(body, f32(4, 3), Spec((3, 5), dtypes.float16)), 3)
    (step,) = detect(graph, PRODUCTS)
    assert step.fused and ops(step) == ["cast", "matmul"]


def test_each_network_layer_is_one_kernel() -> None:
    def body(x: Tensor, *rest: Tensor) -> Tensor:
        for w, b in zip(rest[::2], rest[1::2], strict=True):
            x = relu(matmul(x, w) + b)
        return x

    layers = [s for _ in range(3) for s in (f32(4, 4), f32(4))]
    steps = steps_of(body, f32(6, 4), *layers, traits=PRODUCTS)
    assert [ops(s) for s in steps] == [["matmul", "add", "relu"]] * 3


# what does not


def reasons(function: Callable[..., Any], *specs: Spec) -> str:
    return "; ".join(s.reason for s in steps_of(function, *specs, traits=PRODUCTS))


def test_lone_matmul_is_not_fused() -> None:
    for size in (4, 512):
        (step,) = detect(graph_of(lambda x: matmul(x, x), f32(size, size)), PRODUCTS)
        assert not step.fused and "nothing around it" in step.reason


def test_value_read_on_both_sides_of_a_matmul_is_stored() -> None:
    def floor(x: Tensor) -> Tensor:
        return primitives.maximum(x, 0.5) * 2.0

    assert not products(lambda x: matmul(floor(x), floor(x)), f32(4, 4))
    both = steps_of(lambda x: matmul(floor(x), x) + floor(x), f32(4, 4), traits=PRODUCTS)
    assert [ops(s) for s in both] == [["maximum", "mul"], ["matmul", "add"]]
    assert "not all that it is wanted for" in both[0].reason
    assert products(lambda x: matmul(x, x) + x, f32(4, 4)), "an input is read where it is wanted"


def test_shared_or_expensive_operands_are_not_fused_into_matmul() -> None:
    def shared(x: Tensor, w: Tensor) -> list[Tensor]:
        y = primitives.maximum(x, 0.5) * 2.0
        return [matmul(y, w) + 1.0, y]

    for width in (3, 4):  # 4: what is shared has the shape of the product
        (step,) = products(shared, f32(4, width), f32(width, 4))
        assert ops(step) == ["matmul", "add"]
    for step in products(lambda x, w: matmul(tr.exp(x), w) + 1.0, f32(4, 3), f32(3, 5)):
        assert "exp" not in ops(step)
    assert "each block of the product" in reasons(
        lambda x, w: matmul(tr.exp(x * 2.0), w) + 1.0, f32(4, 3), f32(3, 5)
    )


def test_reductions_and_second_matmuls_get_their_own_kernels() -> None:
    def norm(x: Tensor, w: Tensor, g: Tensor, b: Tensor) -> Tensor:
        return layer_norm(matmul(x, w), g, b)

    assert not products(norm, f32(4, 3), f32(3, 5), f32(5), f32(5))
    assert not products(lambda x, w: total(matmul(x, w), 0), f32(4, 3), f32(3, 5))
    plain = graph_of(lambda x, w: total(matmul(x, w), 1) * 2.0 + 1.0, f32(4, 3), f32(3, 1))
    assert not any(s.fused and "matmul" in ops(s) for s in detect(plain, PRODUCTS))
    twice = products(lambda x, w: matmul(x, w) + matmul(w, x), f32(4, 4), f32(4, 4))
    assert len(twice) == 1


def test_broadcasting_beyond_the_matmul_shape_prevents_fusion() -> None:
    assert not products(lambda x, w, y: matmul(x, w) + y, f32(4, 3), f32(3, 5), f32(2, 4, 5))
    assert not products(lambda x, w, y: matmul(x, w) * y, f32(1, 3), f32(3, 5), f32(4, 5))


def test_ops_that_only_share_an_input_are_not_fused_with_matmul() -> None:
    def body(x: Tensor, w: Tensor) -> list[Tensor]:
        return [matmul(x, w) + 1.0, relu(x) * 2.0]

    assert [len(s.writes) for s in products(body, f32(4, 4), f32(4, 4))] == [1]


def test_unsupported_contractions_are_rejected_with_a_reason() -> None:
    def reason(function: Callable[..., Any], *specs: Spec, traits: Traits = PRODUCTS) -> str | None:
        return accepts(traits, graph_of(function, *specs).outputs[0])

    assert reason(matmul, f32(4, 3), f32(3, 5)) is None
    assert reason(matmul, f32(4, 3), f32(3, 5), traits=TRAITS) == "is of kind contract"
    few = replace(PRODUCTS, products=frozenset({"float16"}))
    assert reason(matmul, f32(4, 3), f32(3, 5), traits=few) == "multiplies matrices of float32"
    assert "more than two matrices" in str(reason(matmul, f32(2, 4, 3), f32(3, 5)))
    assert "more than two matrices" in str(reason(matmul, f32(4, 3), f32(2, 3, 5)))
    integers = Spec((3, 3), dtypes.int32)
    assert reason(matmul, integers, integers) == "multiplies matrices of int32"
    assert reason(matmul, f32(4, 0), f32(0, 5)) == "has no elements"
    window = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    images = graph_of(lambda x, w: conv2d(x, w, **window), f32(1, 1, 4, 4), f32(1, 1, 2, 2)).outputs[0]
    assert accepts(PRODUCTS, images) == "is of kind contract"
    assert accepts(WHOLE, images) is None and WHOLE.scope is Scope.GRAPH


def test_recompute_does_not_split_kernels_with_a_matmul() -> None:
    """What others compute again from a stored product would leave its kernel nothing but the product."""

    def body(x: Tensor, w: Tensor) -> list[Tensor]:
        y = matmul(x, w)
        z = y * 2.0
        return [y, total(layout.transpose(z, axes=(1, 0)) * 3.0, 0), total(z, 0)]

    graph = simplify(graph_of(body, f32(64, 3), f32(3, 50)), 3)
    for step in recompute(graph, detect(graph, PRODUCTS), PRODUCTS):
        if step.fused and "matmul" in ops(step):
            obeys(step)


def test_output_never_overwrites_matmul_operands() -> None:
    """Blocks of the result read all of a row and of a column."""
    (step,) = products(lambda x, w: matmul(x, w) - x, f32(4, 4), f32(4, 4))
    (new,) = step.graph.outputs
    assert not any(reads_in_place(step.graph, old, new) for old in step.graph.inputs)


def key(function: Callable[..., Any], *specs: Spec) -> str:
    return structure_key(lower(graph_of(function, *specs), PRODUCTS))


def test_structure_key_is_shared_across_matmul_sizes() -> None:
    def layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return relu(matmul(x, w) + b)

    def places(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        inner = primitives.iota(shape=(x.shape[0], w.shape[0]), dtype=dtypes.float32)
        return matmul(inner * x, w + 1.0) + b

    small, large, square = ([f32(m, k), f32(k, n), f32(n)] for m, k, n in ((4, 3, 5), (7, 8, 9), (6, 6, 6)))
    assert key(layer, *small) == key(layer, *large) == key(layer, *square)
    assert key(layer, *small) != key(layer, f32(1, 3), f32(3, 5), f32(5))
    flipped = key(lambda x, w, b: relu(matmul(x, w, transpose_a=True) + b), *square)
    assert flipped != key(layer, *square)
    columns = [[f32(6, 1), f32(6, 6), f32(6)], [f32(8, 1), f32(8, 8), f32(8)]]
    assert key(places, *columns[0]) != key(places, *columns[1]), "an iota has a shape of its own"


# 16 bits


def test_lowered_16_bit_matmul_has_16_bit_operands_and_result() -> None:
    def body(x: Tensor, w: Tensor) -> Tensor:
        return relu(matmul(x * 1.5, w))

    half = dtypes.float16
    graph = lower(graph_of(body, Spec((4, 3), half), Spec((3, 5), half)), PRODUCTS)
    (product,) = (n for n in graph.nodes if n.op.kind is Kind.CONTRACT)
    assert product.spec.dtype == dtypes.float32
    assert [i.op.name for i in product.inputs] == ["cast", "cast"]
    assert [i.inputs[0].spec.dtype for i in product.inputs] == [half, half]
    assert [r.spec.dtype for r in graph.readers[product]] == [half]
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 3)).astype(half) * 100, rng.normal(size=(3, 5)).astype(half)
    (found,) = run(graph, [x, w])
    scaled = (x.astype(np.float64) * 1.5).astype(half).astype(np.float64)
    want = np.maximum((scaled @ w.astype(np.float64)), 0)
    np.testing.assert_allclose(found.astype(np.float64), want, rtol=2.0**-11, atol=1e-3)
