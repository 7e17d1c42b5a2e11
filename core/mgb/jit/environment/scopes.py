"""Which names a function, comprehension or class binds."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Scope:
    """A function, comprehension or class, with the names that it binds."""

    name: str = ""
    is_class: bool = False
    bound: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)

    @property
    def own(self) -> set[str]:
        return self.bound - self.globals - self.nonlocals


def scope_of(node: Any) -> Scope:
    """That of a function, lambda or class."""
    scope = Scope(getattr(node, "name", ""), isinstance(node, ast.ClassDef))
    if not scope.is_class:
        arguments = node.args
        every = [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ]
        scope.bound.update(a.arg for a in every if a is not None)
    for part in node.body if isinstance(node.body, list) else [node.body]:
        bind(part, scope)
    return scope


def bind(node: ast.AST, scope: Scope) -> None:
    """Add the names that `node` binds in the scope around it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        scope.bound.add(node.name)
        outer: Iterable[Any] = [*node.decorator_list, *(getattr(node, "bases", None) or ())]
        arguments = getattr(node, "args", None)
        if arguments is not None:
            outer = [*outer, *arguments.defaults, *(d for d in arguments.kw_defaults if d)]
    elif isinstance(node, ast.Lambda):
        outer = [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
    elif isinstance(node, _COMPREHENSIONS):
        inner = Scope()
        for part in ast.iter_child_nodes(node):
            bind(part, inner)
        walrus = {n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)}
        scope.bound |= inner.bound & walrus
        return
    else:
        scope.bound.update(names_in(node))
        if isinstance(node, ast.Global):
            scope.globals.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            scope.nonlocals.update(node.names)
        outer = ast.iter_child_nodes(node)
    for part in outer:
        bind(part, scope)


def names_in(node: ast.AST) -> Iterator[str]:
    """The names that `node` itself binds."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((a.asname or a.name).partition(".")[0] for a in node.names)
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest


class Names:
    """Where names are found from the place in a function that is looked at.

    Parameters
    ----------
    free : tuple of str
        The function's free variables.
    within : str or None
        The class that it stands in, whose private names are mangled.
    """

    def __init__(self, free: tuple[str, ...], within: str | None) -> None:
        self._free, self.within = frozenset(free), within
        self.scopes: list[Scope] = []

    def kind(self, name: str) -> str:
        """Where `name` is found from here: local, class, free or global."""
        for depth, scope in enumerate(reversed(self.scopes)):
            if name in scope.globals:
                return "global"
            if name in scope.own and (not scope.is_class or depth == 0):
                return "class" if scope.is_class else "local"
        return "free" if self.mangled(name) in self._free else "global"

    def is_outside(self, name: str) -> bool:
        """Is it no variable of the function?"""
        return self.kind(name) in ("free", "global")

    def mangled(self, name: str) -> str:
        """The name that Python uses."""
        within = (self.within or "").lstrip("_")
        is_private = name.startswith("__") and not name.endswith("__") and "." not in name
        return f"_{within}{name}" if is_private and within else name
