"""Hooks at calls and at ``is`` in the source of functions; everything else stays as it is written.

Each hook is a call of a constant, which stands among the code's constants: it needs no name that the user
could see. No function, variable or cell is added, and what the user calls is called in the user's own frame.
"""

from __future__ import annotations

import ast
from typing import Any

#: What stands for a hook in the source; nobody's constants are like that.
MARK = "<mgb follows: {}>"
#: The hooks: what makes a call, what a call has given, whether two are one object, what ``is`` looks at.
CALL, RESULT, IDENTICAL, IDENTITY = MARKS = tuple(
    MARK.format(name) for name in ("call", "result", "identical", "identity")
)

#: Constants of which there is one each.
_SINGLE = (None, True, False, ...)
#: Fields that are texts, or are evaluated late, if at all.
_LEFT = frozenset({"annotation", "returns", "type_params"})


class Transformer(ast.NodeTransformer):
    """Puts hooks into all functions in a statement.

    Those in what surrounds a function, such as its defaults, are in no function's code.
    """

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit the parts of `node` but annotations."""
        for name, old in ast.iter_fields(node):
            if name not in _LEFT:
                if isinstance(old, ast.AST):
                    setattr(node, name, self.visit(old))
                elif isinstance(old, list):
                    old[:] = [self.visit(part) if isinstance(part, ast.AST) else part for part in old]
        return node

    def visit_TypeAlias(self, node: ast.AST) -> ast.AST:
        """Leave it as it is, since it is evaluated late."""
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrite a call as ``RESULT(CALL(f, *args, **kwargs)())``."""
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not (node.args or node.keywords):
            return node  # it looks at its caller's first variable and class
        self.generic_visit(node)
        prepared = _hook(node, CALL, node.func, *node.args)
        prepared.keywords = node.keywords
        return _hook(node, RESULT, ast.copy_location(ast.Call(prepared, [], []), node))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Rewrite ``a is b`` as ``IDENTICAL(a, b)``; in a chain, each operand of ``is`` as ``IDENTITY``."""
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        asked = {
            index
            for number, operator in enumerate(node.ops)
            if isinstance(operator, ast.Is | ast.IsNot)
            and not any(map(_is_single, sides[number : number + 2]))
            for index in (number, number + 1)
        }
        if not asked:
            return node
        if len(node.ops) == 1:
            found = _hook(node, IDENTICAL, *sides)
            is_opposite = isinstance(node.ops[0], ast.IsNot)
            return ast.copy_location(ast.UnaryOp(ast.Not(), found), node) if is_opposite else found
        node.left, *node.comparators = [
            _hook(side, IDENTITY, side) if index in asked else side for index, side in enumerate(sides)
        ]
        return node


def _is_single(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and any(node.value is one for one in _SINGLE)


def _hook(at: Any, mark: str, *args: Any) -> ast.Call:
    """Return a call of a hook, which stands where `at` does."""
    function = ast.copy_location(ast.Constant(mark), at)
    return ast.copy_location(ast.Call(function, [*args], []), at)
