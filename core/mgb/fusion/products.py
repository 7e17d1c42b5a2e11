"""A matrix product in a group of one domain, and what may be computed for its operands there.

The domain is the shape of the product. What stands after it is element-wise over the domain. What stands
before it is computed for one operand and for nobody else, in the operand's own shape: a kernel computes it
where it reads the operand, once for each block of the result.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from ..backends import Traits
from ..ir import Kind, Node
from ..ops.images.contract import MATMUL

Shape = tuple[int, ...]

#: What stands for the two operands of a product, where the question is what a value is wanted for; and for
#: what is not computed for an operand.
LEFT, RIGHT, AFTER = 0, 1, -1


@dataclass(frozen=True, slots=True)
class Product:
    """The product of a group.

    Attributes
    ----------
    node : Node
    before : tuple of frozenset of Node
        What the group computes for the left operand alone, and for the right one.
    """

    node: Node
    before: tuple[frozenset[Node], frozenset[Node]] = (frozenset(), frozenset())

    def uses(self, value: Node, reader: Node) -> set[int]:
        """Return what `reader`, a node of the group, needs `value` for: `LEFT`, `RIGHT`, `AFTER`."""
        if reader is self.node:
            return {side for side, operand in enumerate(self.node.inputs) if operand is value}
        return {next((side for side, nodes in enumerate(self.before) if reader in nodes), AFTER)}

    def preceded(self, side: int, nodes: Iterable[Node]) -> Product:
        """Return the product with `nodes`, which are computed for one operand."""
        left, right = self.before
        more = frozenset(nodes)
        return replace(self, before=(left | more, right) if side == LEFT else (left, right | more))


def refusal(traits: Traits, node: Node) -> str | None:
    """Return why a contraction may be no part of a group of one domain; None when it may."""
    if node.op is not MATMUL:
        return f"is of kind {node.op.kind.value}"
    if any(i.spec.ndim != 2 for i in node.inputs):
        return "multiplies more than two matrices"
    name = node.spec.dtype.name
    return None if name in traits.products else f"multiplies matrices of {name}"


def holds_product(nodes: Iterable[Node]) -> bool:
    """Return whether there is a contraction among these nodes."""
    return any(n.op.kind is Kind.CONTRACT for n in nodes)


def followers(nodes: Sequence[Node], taken: Container[Node]) -> frozenset[Node]:
    """Return nodes that may join the kernel of a product before them: element-wise, in the same shape.

    Parameters
    ----------
    nodes : sequence of Node
        Each after those that it reads.
    taken : container of Node
        Those that a backend takes.
    """
    found: set[Node] = set()
    for node in nodes:
        if node in taken and node.op.kind is Kind.ELEMENTWISE:
            sources = (i for i in node.inputs if i in found or (i.op.kind is Kind.CONTRACT and i in taken))
            if any(i.spec.size == node.spec.size for i in sources):
                found.add(node)
    return frozenset(found)
