"""Fusion rules: the nodes that a backend takes, and the sets that form a group. They merge nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from ..backends import Scope, Traits
from ..errors import GraphError
from ..ir import Graph, Kind, Node, Op, Spec, input_node
from ..ir.dtypes import COMPLEX, HALVES
from ..ir.sizes import about, broadcast, is_sized, key, same_shape
from ..loops import RECURRENCE
from ..ops.reduce import EXTENT
from ..passes import decompose
from ..passes.rewrite import stretches
from ..runtime.device import device_type
from ..tensor.tracing import make_node
from .products import Product, refusal

Shape = tuple[int, ...]

_IN_DOMAIN = frozenset({Kind.ELEMENTWISE, Kind.REDUCE, Kind.CONTRACT, Kind.GATHER, Kind.SCAN, Kind.SCATTER})

#: A reduction to fewer rows than `FEW_ROWS`, over `MANY` elements or more, does not go on at full size in one
#: kernel: each row is one worker's, and the others would have nothing to do.
FEW_ROWS, MANY = 8, 1 << 18


@dataclass(frozen=True, slots=True)
class FusionConfig:
    """Limits of fusion that the user sets.

    Attributes
    ----------
    reduce : bool
        Reductions may join groups.
    dimshuffle : bool
        Transposes are moved out of the way of fusion, by a pass that runs before.
    fuel : int or None
        Stop after so many merges; for finding the merge that breaks a program, by bisection.
    largest : int
        A larger group, counted in ops of the backend, is cut into several kernels, where values that
        the kernels hand on cost less than their ops. Compilers need a time that grows with the square.
    """

    reduce: bool = True
    dimshuffle: bool = True
    fuel: int | None = None
    largest: int = 512


DEFAULT = FusionConfig()


# one node


def accepts(traits: Traits, node: Node, config: FusionConfig = DEFAULT) -> str | None:
    """Return why a backend with these traits cannot have `node` in a group; None when it can."""
    kind = node.op.kind
    if kind is Kind.LEAF:
        return "is not a computation"
    if kind not in traits.kinds or (traits.scope is Scope.DOMAIN and kind not in _IN_DOMAIN):
        return f"is of kind {kind.value}"
    if kind is Kind.REDUCE and not config.reduce:
        return "is a reduction, which the configuration keeps out of groups"
    if kind is Kind.SCATTER and (problem := _not_scattered(node)):
        return problem
    if kind is Kind.CONTRACT and traits.scope is Scope.DOMAIN and (problem := refusal(traits, node)):
        return problem
    if device_type(node.spec.device) not in traits.devices:
        return f"is on {node.spec.device}"
    if not all(s.size for s in (node.spec, *(i.spec for i in node.inputs))):
        return "has no elements"
    if node.op.over_mesh:
        return None if traits.meshes else "is an exchange over a mesh"
    return _spelling(traits, node)[0]


def _not_scattered(node: Node) -> str | None:
    if node.spec.dtype in HALVES:
        return "folds 16-bit floats, which kernels fold in float32"
    return None if folded_axes(node) else "folds no elements"


def folded_axes(node: Node) -> frozenset[int]:
    """Return the axes that a scatter folds, counted from the end of the shape of its operands."""
    shape, kept = scattered(node), frozenset(node.params["along"])
    return frozenset(a for a in range(-len(shape), 0) if a not in kept and shape[a] != 1)


def weight(traits: Traits, node: Node) -> int:
    """Count the ops that `node` is for a backend that takes it; a fold is worth a kernel of its own.

    A product in a domain is not: alone it is left to a library.
    """
    if node.op.kind in (Kind.REDUCE, Kind.SCATTER) or node.op is RECURRENCE:
        return 0 if node.op is EXTENT else max(1, traits.min_ops)
    if node.op.kind is Kind.CONTRACT and traits.scope is Scope.DOMAIN:
        return 0
    return 1 if node.op.over_mesh else _spelling(traits, node)[1]


def _spelling(traits: Traits, node: Node) -> tuple[str | None, int]:
    specs = [i.spec for i in node.inputs]
    if node.op.kind is Kind.ELEMENTWISE:  # shapes do not matter: cache one answer for all
        specs = [Spec((), s.dtype) for s in specs]
    spell = _spell.__wrapped__ if any(is_sized(s.shape) for s in specs) else _spell  # sizes cannot be keys
    return spell(traits.vocabulary, traits.dtypes, node.op, tuple(specs), tuple(sorted(node.params.items())))


@lru_cache(maxsize=8192)
def _spell(
    vocabulary: frozenset[str],
    dtypes: frozenset[str],
    op: Op,
    specs: tuple[Spec, ...],
    params: tuple[tuple[str, Any], ...],
) -> tuple[str | None, int]:
    """Return why an instance of `op` cannot be decomposed, or None; and into how many ops it can be."""
    inputs = tuple(input_node(s) for s in specs)
    if complicated := [s.dtype.name for s in specs if s.dtype in COMPLEX and s.dtype.name not in dtypes]:
        return f"needs {complicated[0]}", 0
    try:
        graph = decompose(Graph(inputs, (make_node(op, inputs, dict(params)),)), vocabulary)
    except GraphError as error:
        return str(error), 0
    for node in (*inputs, *graph.nodes):
        name = node.spec.dtype.name
        if name not in dtypes:
            return f"needs {name}", 0
        if node.spec.dtype in HALVES and "float32" not in dtypes:
            return f"needs float32 to compute in {name}", 0
    return None, sum(n.op.kind is not Kind.LEAF for n in graph.nodes)


# sets of nodes


@dataclass(frozen=True, slots=True)
class Group:
    """Properties of a group that the fusion rules need.

    Attributes
    ----------
    device : str
    domain : tuple of int
        The shape that a kernel loops over, without leading axes of length 1.
    axes : frozenset of int
        The axes of the domain that its reductions fold, counted from the end, so negative.
    shapes : tuple of (tuple of int, bool)
        The shapes of its element-wise values, and whether all ops of that shape are cheap.
    reduces : bool
        It has reductions, if only of axes of length 1, or scans.
    scans : bool
        It has scans, along `axes`: that has the whole domain anyway.
    reverse : bool
        These go from the last element to the first.
    product : Product or None
        Its matrix product, with what it computes for the operands: that is not among `shapes`.
    """

    device: str
    domain: Shape
    axes: frozenset[int] = frozenset()
    shapes: tuple[tuple[Shape, bool], ...] = ()
    reduces: bool = False
    product: Product | None = None
    scans: bool = False
    reverse: bool = False


def group_of(scope: Scope, node: Node) -> Group:
    """Return the group of one node; without a domain it is the device that counts."""
    device, shape = node.spec.device, bare(node.spec.shape)
    if scope is Scope.GRAPH:
        return Group(device, shape)
    if node.op.kind is Kind.REDUCE:
        (source,) = (i.spec.shape for i in node.inputs)
        axes = frozenset(a - len(source) for a in node.params["axis"] if source[a] != 1)
        return Group(device, bare(source), axes, reduces=True)
    if node.op.kind is Kind.CONTRACT:
        return Group(device, shape, product=Product(node))
    if node.op.kind is Kind.SCAN:
        axis = node.params["axis"]
        axes = frozenset({axis - node.spec.ndim} if node.spec.shape[axis] != 1 else ())
        reverse = node.params.get("reverse", False)
        return Group(device, shape, axes, ((shape, False),), reduces=True, scans=True, reverse=reverse)
    if node.op.kind is Kind.SCATTER:
        return Group(device, bare(scattered(node)), folded_axes(node), reduces=True)
    return Group(device, shape, shapes=((shape, node.op.cheap),))


def scattered(node: Node) -> Shape:
    """Return the shape of what a scatter folds elements of: that of its operands, broadcast."""
    shape = broadcast([i.spec.shape for i in node.inputs])
    assert shape is not None
    return shape


def joined(scope: Scope, first: Group, then: Group, feeds: bool) -> Group | str:
    """Return the group of both, or why they cannot be one; `feeds`: `then` waits for `first`."""
    problem = _apart(first, then)
    if problem or scope is Scope.GRAPH:
        return problem or first
    group, product = _in_one_domain(first, then, feeds), first.product or then.product
    if product is None or isinstance(group, str):
        return group
    shape = bare(product.node.spec.shape)
    if not same_shape(group.domain, shape):
        return f"{group.domain} is larger than the product of {shape}"
    return replace(group, product=product)


def before_product(first: Group, then: Group, side: int, nodes: Iterable[Node]) -> Group | str:
    """Return the group of both; `first`, of these nodes, is computed for one operand of `then`'s product.

    Each block of the product computes it again.
    """
    problem = _apart(first, then)
    if problem:
        return problem
    assert then.product is not None
    for shape, cheap in first.shapes:
        if not cheap:
            return f"values of shape {shape} would be computed again for each block of the product"
    return replace(then, product=then.product.preceded(side, nodes))


def _apart(first: Group, then: Group) -> str | None:
    """Return why two groups cannot be one, whatever their domains."""
    if first.device != then.device:
        return f"{first.device} and {then.device} are different devices"
    if first.product and then.product:
        return "each has a product, of which a kernel has one"
    if (first.product or then.product) and (first.reduces or then.reduces):
        return "reductions are in no kernel with a product"
    return None


def _in_one_domain(first: Group, then: Group, feeds: bool) -> Group | str:
    domain = _larger(first.domain, then.domain)
    if domain is None:
        return f"{first.domain} and {then.domain} are different domains"
    if first.axes and then.axes and first.axes != then.axes:
        return f"it folds axes {sorted(first.axes)}, what follows {sorted(then.axes)}"
    for group in (first, then):
        if group.axes and not same_shape(group.domain, domain):
            return f"its reductions fold {group.domain}, not all of {domain}"
    if first.scans and then.scans and first.reverse != then.reverse:
        return "one scans from the first element on, one from the last"
    axes = first.axes | then.axes
    shapes = tuple(
        {(key(shape), cheap): (shape, cheap) for shape, cheap in first.shapes + then.shapes}.values()
    )
    for shape, cheap in shapes:
        if not cheap and not _hoists(shape, domain, axes):
            return f"values of shape {shape} would be computed again for each of {domain}"
    scans = first.scans or then.scans
    mixed = bool(first.axes) != bool(then.axes) and same_shape(first.domain, then.domain) and not scans
    if mixed and not (feeds and then.axes) and _idle(domain, axes):
        return f"{prod(row(domain, axes))} rows keep too few workers busy to go on at full size"
    reduces, reverse = first.reduces or then.reduces, first.reverse or then.reverse
    return Group(first.device, domain, axes, shapes, reduces, scans=scans, reverse=reverse)


def bare(shape: Shape) -> Shape:
    """Return `shape` without leading axes of length 1, which make no difference to broadcasting."""
    lead = 0
    while lead < len(shape) and shape[lead] == 1:
        lead += 1
    return shape[lead:]


def row(domain: Shape, axes: frozenset[int]) -> Shape:
    """Return the shape of what a reduction of `domain` over `axes` gives."""
    return bare(tuple(1 if i - len(domain) in axes else d for i, d in enumerate(domain)))


def _larger(a: Shape, b: Shape) -> Shape | None:
    """Return the one of two shapes that the other broadcasts to."""
    return b if stretches(a, b) else a if stretches(b, a) else None


def _hoists(shape: Shape, domain: Shape, axes: frozenset[int]) -> bool:
    """Return whether a value of `shape` varies along outer loops only. The folded axes are the inner ones."""
    lead = len(domain) - len(shape)
    order = sorted(range(len(domain)), key=lambda i: (i - len(domain) in axes, i))
    varies = [i >= lead and shape[i - lead] != 1 for i in order if domain[i] != 1]
    return varies == sorted(varies, reverse=True)


def _idle(domain: Shape, axes: frozenset[int]) -> bool:
    return bool(about(prod(domain)) >= MANY and about(prod(row(domain, axes))) < FEW_ROWS)
