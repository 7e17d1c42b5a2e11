"""The intermediate representation: graphs of ops, their types, symbolic lengths."""

from .graph import (
    CONST,
    INPUT,
    Body,
    Graph,
    Kind,
    Node,
    Op,
    Reduction,
    Spec,
    State,
    const_node,
    digest,
    exact_text,
    input_node,
    is_own,
)

__all__ = [
    "CONST", "INPUT", "Body", "Graph", "Kind", "Node", "Op", "Reduction", "Spec", "State", "const_node",
    "digest", "exact_text", "input_node", "is_own",
]  # fmt: skip
