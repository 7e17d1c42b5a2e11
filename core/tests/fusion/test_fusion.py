"""The fusion detector: which steps come out, that they compute the same, and that it is fast."""

from __future__ import annotations

import numpy as np
import pytest
from fusing import (
    TRAITS,
    adam,
    batch_norm,
    cross_entropy,
    execute,
    f32,
    fused,
    layer_norm,
    mean,
    ops,
    softmax,
    steps_of,
    total,
)
from graphs import arrays_for, run
from mgb import dtypes
from mgb.autodiff import GradManager
from mgb.fusion import detect
from mgb.ir import Spec
from mgb.ops import layout, primitives
from mgb.ops.activations import gelu, relu
from mgb.ops.bodies import transcendental as tr
from mgb.ops.declare import OPS
from mgb.ops.images import contract
from mgb.passes import hoist_transposes, simplify
from mgb.tensor import Tensor
from mgb.tensor.apply import apply
from mgb.tensor.tracing import graph_of

# what becomes one group


def test_softmax_is_one_group() -> None:
    (step,) = steps_of(softmax, f32(6, 5))
    assert step.fused and len(step.writes) == 1


def test_output_smaller_than_domain_gets_its_own_kernel() -> None:
    steps = steps_of(lambda x, y: [n := tr.exp(x), n * y + 1.0], f32(3, 1), f32(3, 4))
    assert all(len({o.spec.shape for o in s.graph.outputs}) == 1 for s in steps)


def test_layer_norm_is_one_group() -> None:
    (step,) = steps_of(layer_norm, f32(6, 5), f32(5), f32(5))
    assert step.fused and len(step.reads) == 3


def test_batch_norm_statistics_and_normalisation_are_one_group() -> None:
    row = f32(1, 3, 1, 1)
    (step,) = steps_of(batch_norm, f32(4, 3, 5, 5), row, row, row, row)
    assert step.fused and len(step.writes) == 3


def test_bias_and_gelu_after_a_matmul_are_one_group() -> None:
    product, step = steps_of(lambda x, w, b: gelu(contract.matmul(x, w) + b), f32(4, 3), f32(3, 5), f32(5))
    assert not product.fused and "contract" in product.reason
    assert step.fused and len(step.reads) == 2


def test_single_composite_is_fused_but_single_primitive_is_not() -> None:
    assert [s.fused for s in steps_of(gelu, f32(7))] == [True]
    (step,) = steps_of(primitives.neg, f32(7))
    assert not step.fused and "is one of 1 ops, a kernel takes 2 or more" in step.reason


def test_bias_gradient_fuses_with_its_producers() -> None:
    def body(g: Tensor, x: Tensor) -> Tensor:
        return layout.reshape(total(primitives.where(primitives.lt(x, 0), 0, g), 0), shape=(5,))

    steps = steps_of(body, f32(6, 5), f32(6, 5))
    assert len(fused(steps)) == 1 and {op for s in steps if not s.fused for op in ops(s)} <= {"reshape"}


def test_bias_gradient_fuses_into_bias_update() -> None:
    def body(g: Tensor, bias: Tensor) -> Tensor:
        return bias - 0.1 * layout.reshape(total(g, 0), shape=(5,))

    assert len(fused(steps_of(body, f32(6, 5), f32(5)))) == 1


def test_adam_update_is_one_group() -> None:
    (step,) = steps_of(adam, f32(8, 7), f32(8, 7), f32(8, 7), f32(8, 7), f32())
    assert step.fused and len(step.writes) == 3


def test_adam_over_many_tensors_shares_kernels_by_shape() -> None:
    shapes = [(4 + i % 5, 3) for i in range(20)]

    def body(rate: Tensor, *tensors: Tensor) -> list[Tensor]:
        parts = [tensors[4 * i : 4 * i + 4] for i in range(20)]
        return [out for part in parts for out in adam(*part, rate)]

    steps = steps_of(body, f32(), *(f32(*s) for s in shapes for _ in range(4)))
    assert all(s.fused for s in steps) and len(steps) == 5
    assert sum(len(s.writes) for s in steps) == 60


def test_cross_entropy_is_one_group() -> None:
    def body(logits: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(logits, labels)

    graph = graph_of(body, f32(6, 5), Spec((6,), dtypes.int32))
    steps = detect(simplify(graph, 3), TRAITS)
    assert len(fused(steps)) == 1
    assert {op for s in steps if not s.fused for op in ops(s)} <= {"reshape"}


def test_mean_of_loss_is_a_second_group() -> None:
    def body(logits: Tensor, labels: Tensor) -> Tensor:
        return layout.reshape(mean(cross_entropy(logits, labels), 0), shape=())

    graph = graph_of(body, f32(6, 5), Spec((6,), dtypes.int32))
    steps = detect(simplify(graph, 3), TRAITS)
    assert len(fused(steps)) == 2
    assert {op for s in steps if not s.fused for op in ops(s)} <= {"reshape"}


def test_row_values_fuse_with_reduction_whose_axis_is_dropped() -> None:
    def body(x: Tensor, y: Tensor) -> Tensor:
        return tr.exp(layout.reshape(total(x * x, 1), shape=(6,)) * 0.1) - tr.sin(y)

    assert len(fused(steps_of(body, f32(6, 5), f32(6)))) == 1


def test_transposes_do_not_split_groups() -> None:
    def body(x: Tensor, y: Tensor) -> Tensor:
        return layout.transpose(tr.exp(x) * 2.0, axes=(1, 0)) + y

    steps = steps_of(body, f32(6, 5), f32(5, 6))
    assert [ops(s) for s in steps] == [["transpose"], ["exp", "mul", "add"]]
    graph = simplify(graph_of(body, f32(6, 5), f32(5, 6)), 3, skip=frozenset({hoist_transposes}))
    assert len(fused(detect(graph, TRAITS))) == 1


def test_broadcasts_do_not_split_groups() -> None:
    def body(g: Tensor, x: Tensor) -> Tensor:
        return layout.broadcast_to(g, shape=(6, 5)) * x + layout.broadcast_to(g * 2.0, shape=(6, 5))

    (step,) = steps_of(body, f32(6, 1), f32(6, 5))
    assert step.fused


def test_16_bit_floats_and_integers_fuse() -> None:
    def body(x: Tensor, n: Tensor) -> Tensor:
        return primitives.cast(x * 2.0 + n, dtype=dtypes.float16)

    graph = graph_of(body, Spec((6,), dtypes.float16), Spec((6,), dtypes.int32))
    (step,) = detect(simplify(graph, 3), TRAITS)
    assert step.fused


def test_argmax_fuses_with_its_producers() -> None:
    (step,) = steps_of(lambda x: apply(OPS["argmax"], tr.exp(x) + 1.0, axis=(1,)), f32(6, 5))
    assert step.fused


def test_training_step_fuses_everything_between_matmuls() -> None:
    def body(x: Tensor, labels: Tensor, *rest: Tensor) -> list[Tensor]:
        w, b, v, rate, *state = rest
        with GradManager().attach([w, b, v]) as manager:
            loss = mean(cross_entropy(contract.matmul(relu(contract.matmul(x, w) + b), v), labels), 0)
            manager.backward(layout.reshape(loss, shape=()))
        out = [loss]
        for i, p in enumerate((w, b, v)):
            assert p.grad is not None
            out += adam(p, p.grad, state[2 * i], state[2 * i + 1], rate)
        return out

    weights = [f32(7, 6), f32(6), f32(6, 5)]
    moments = [s for s in weights for _ in range(2)]
    graph = graph_of(body, f32(8, 7), Spec((8,), dtypes.int32), *weights, f32(), *moments)
    simple = simplify(graph, 3)
    steps = detect(simple, TRAITS)
    eager = [op for s in steps if not s.fused for op in ops(s)]
    assert set(eager) <= {"matmul", "reshape"} and eager.count("matmul") == 5
    assert len(fused(steps)) <= 7
    arrays = arrays_for(graph)
    arrays[1] = arrays[1] % 5
    for expected, found in zip(run(graph, arrays), execute(simple, steps, arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# the cases of MegEngine's own tests


def test_elementwise_chain_with_broadcasts_is_one_group() -> None:
    def body(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        return a * b + c * a + d + d + d

    (step,) = steps_of(body, f32(3, 3), f32(3, 1), f32(1, 1), f32(1, 1))
    assert step.fused and len(step.reads) == 4


@pytest.mark.parametrize("count", [120, 64])
def test_groups_split_at_max_inputs(count: int) -> None:
    def body(*xs: Tensor) -> Tensor:
        out = xs[0]
        for x in xs[1:]:
            out = out + x
        return out

    steps = steps_of(body, *[f32(4, 3, 2, 1)] * count)
    assert all(s.fused for s in steps) and all(len(s.reads) <= TRAITS.max_inputs for s in steps)
    assert len(steps) == (2 if count == 120 else 1)


def test_two_slices_of_one_input_feed_a_group() -> None:
    def body(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        first = layout.slice_(x, window=((0, 2, 1), (0, 3, 1)))
        second = layout.slice_(x, window=((2, 4, 1), (0, 3, 1)))
        return first * y + second * z - first

    steps = steps_of(body, f32(4, 3), f32(2, 3), f32(2, 3))
    assert [s.fused for s in steps] == [False, False, True]


def test_broadcasting_operands_fuse() -> None:
    (step,) = steps_of(lambda x, y, z: tr.exp(x) * y + z / y, f32(3, 3), f32(1, 3), f32(3, 1))
    assert step.fused


def test_repeated_squaring_does_not_duplicate_nodes() -> None:
    def body(y: Tensor) -> Tensor:
        for _ in range(32):
            y = y * y + y
        return y

    graph = graph_of(body, f32(3))
    (step,) = detect(simplify(graph, 3), TRAITS)
    assert step.fused and len(step.graph.nodes) == 64


def test_scalar_constants_are_not_group_inputs() -> None:
    (step,) = steps_of(lambda x: (x * x + 1) / (tr.sin(x) + 1.2) * 0.3, f32(4))
    assert step.fused and len(step.reads) == 1


def test_matmul_and_slice_results_are_group_inputs() -> None:
    def body(x: Tensor, w: Tensor) -> Tensor:
        return tr.exp(layout.slice_(x, window=((0, 3, 1), (0, 3, 1)))) * 0.5 + contract.matmul(w, w)

    steps = steps_of(body, f32(4, 3), f32(3, 3))
    assert [s.fused for s in steps] == [False, False, True] and len(steps[-1].reads) == 2
