"""The source of one function, with a hook around everything that may reach outside of it.

Each hook is a call of a constant, which stands among the code's constants: it needs no name that the user
could see. What the user wrote runs natively, in its own frame; a hook is asked before, or handed the value
after, and gives back what it was given. No function, variable or cell is added.
"""

from __future__ import annotations

import ast
from typing import Any

from .scopes import Scope, bind, names_in, scope_of

#: What stands for a hook in the source; nobody's constants are like that.
MARK = "<mgb watches: {}>"

_OPERATORS = {
    "Add": "iadd", "Sub": "isub", "Mult": "imul", "Div": "itruediv", "FloorDiv": "ifloordiv", "Mod": "imod",
    "Pow": "ipow", "MatMult": "imatmul", "LShift": "ilshift", "RShift": "irshift", "BitAnd": "iand",
    "BitOr": "ior", "BitXor": "ixor",
}  # fmt: skip
_UNARY = {"USub": ("__neg__",), "UAdd": ("__pos__",), "Invert": ("__invert__",)}
_COMPARISONS = {
    "Eq": ("__eq__",), "NotEq": ("__ne__", "__eq__"), "Lt": ("__lt__", "__gt__"), "Gt": ("__gt__", "__lt__"),
    "LtE": ("__le__", "__ge__"), "GtE": ("__ge__", "__le__"),
}  # fmt: skip


def _methods(operation: ast.AST) -> tuple[str, ...]:
    """What an operator may call, of either operand."""
    asked = _OPERATORS[type(operation).__name__][1:]
    return f"__{asked}__", f"__r{asked}__"


class Transformer(ast.NodeTransformer):
    """Puts hooks into one function and those in it.

    Parameters
    ----------
    free : tuple of str
        The function's free variables.
    within : str or None
        The class that it stands in, whose private names are mangled.
    """

    def __init__(self, free: tuple[str, ...], within: str | None) -> None:
        self._free, self._class = frozenset(free), within
        self._scopes: list[Scope] = []
        self._writes: list[str] = []

    def function(self, node: Any) -> None:
        """Transform the function `node`, but not what is evaluated where it is defined."""
        self._scopes.append(scope_of(node))
        if isinstance(node, ast.Lambda):
            node.body = self.visit(node.body)
        else:
            node.body = [*self._keywords(node), *self._body(node.body)]
            if len(node.body) > 1 and _is_text(node.body[1]):
                node.body[:2] = node.body[1::-1]  # the docstring first
        self._scopes.pop()

    def _keywords(self, node: Any) -> list[Any]:
        """The dict of other keyword arguments is made by the call."""
        if node.args.kwarg is None:
            return []
        first = node.body[1 if _is_text(node.body[0]) and len(node.body) > 1 else 0]
        name = node.args.kwarg.arg
        return [_at(ast.Expr(self._hook(first, "made", ast.Name(name, ast.Load()))), first)]

    # names

    def _kind(self, name: str) -> str:
        """Where `name` is found from here: local, class, free or global."""
        for depth, scope in enumerate(reversed(self._scopes)):
            if name in scope.globals:
                return "global"
            if name in scope.own and (not scope.is_class or depth == 0):
                return "class" if scope.is_class else "local"
        return "free" if self._mangled(name) in self._free else "global"

    def _mangled(self, name: str) -> str:
        if self._class is None or not name.startswith("__") or name.endswith("__") or "." in name:
            return name
        return f"_{self._class.lstrip('_')}{name}" if self._class.strip("_") else name

    def _hook(self, at: Any, hook: str, *args: Any) -> Any:
        constants: list[Any] = [a if isinstance(a, ast.AST) else ast.Constant(a) for a in args]
        made = ast.Call(ast.Constant(MARK.format(hook)), constants, [])
        return _at(made, at)

    def _store(self, name: str) -> None:
        if self._kind(name) in ("free", "global"):
            self._writes.append(self._mangled(name))

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load):
            self._store(node.id)
            return node
        kind, name = self._kind(node.id), self._mangled(node.id)
        if kind == "local" or name == "__debug__":
            return node
        hook = "cell" if kind == "free" else "name"
        return self._hook(node, "number", ast.BoolOp(ast.Or(), [self._hook(node, hook, name), node]))

    # statements

    def _body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """The statements, and before one what it does to variables outside, or imports."""
        made: list[ast.stmt] = []
        for statement in statements:
            kept, self._writes = self._writes, []
            before: list[Any] = []
            if isinstance(statement, ast.Import):
                before = [self._hook(statement, "imports", a.name, 0, "") for a in statement.names]
            elif isinstance(statement, ast.ImportFrom):
                module, level = statement.module or "", statement.level
                before = [self._hook(statement, "imports", module, level, a.name) for a in statement.names]
            elif isinstance(statement, ast.Match):
                before = self._before_match(statement)
            for name in names_in(statement):
                self._store(name)
            new = self.visit(statement)
            before += [self._hook(statement, "wrote", name) for name in self._writes]
            self._writes = kept
            made += [_at(ast.Expr(call), statement) for call in before]
            made += new if isinstance(new, list) else [new]
        return made

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, old in ast.iter_fields(node):
            if isinstance(old, list):
                if old and isinstance(old[0], ast.stmt):
                    setattr(node, name, self._body(old))
                else:
                    setattr(node, name, [self.visit(v) if isinstance(v, ast.AST) else v for v in old])
            elif isinstance(old, ast.AST):
                setattr(node, name, self.visit(old))
        return node

    def _inner(self, node: Any) -> None:
        """What is evaluated where a function is defined, then its body."""
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        self.function(node)

    def visit_FunctionDef(self, node: Any) -> Any:
        self._store(node.name)
        made = self._hook(node, "made").func
        node.decorator_list = [*map(self.visit, node.decorator_list), made]
        self._inner(node)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        self._inner(node)
        return self._hook(node, "made", node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        self._store(node.name)
        made = self._hook(node, "made").func
        node.decorator_list = [*map(self.visit, node.decorator_list), made]
        node.bases = [self._hook(b, "base", self.visit(b)) for b in node.bases]
        node.keywords = [self.visit(k) for k in node.keywords]
        within, self._class = self._class, node.name
        self._scopes.append(scope_of(node))
        node.body = self._body(node.body)
        self._scopes.pop()
        self._class = within
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        node.value = self.visit(node.value)
        depth = max(map(_depth, node.targets))
        if depth:
            node.value = self._hook(node.value, "unpacked", node.value, depth)
        node.value = self._stored(node.value, node.targets)
        node.targets = [self.visit(t) for t in node.targets]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.value = node.value and self._stored(self.visit(node.value), [node.target])
        node.target = self.visit(node.target)
        return node

    def _stored(self, value: Any, targets: list[Any]) -> Any:
        """`value`, for `targets` that are perhaps no local variables."""
        return value if all(map(self._is_local, targets)) else self._hook(value, "stored", value)

    def _is_local(self, target: Any) -> bool:
        if isinstance(target, ast.Tuple | ast.List):
            return all(map(self._is_local, target.elts))
        if isinstance(target, ast.Starred):
            return self._is_local(target.value)
        return isinstance(target, ast.Name) and self._kind(target.id) == "local"

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        target: Any = node.target
        value = self._operand(node.value, "operand", *_methods(node.op))
        if isinstance(target, ast.Name):
            load = self.visit(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            given: list[Any] = [_OPERATORS[type(node.op).__name__], load, value]
            outside = self._kind(target.id) in ("free", "global")
            hook = "augmented_variable" if outside else "augmented"
            if outside:
                given.insert(0, self._mangled(target.id))
            return _at(ast.Assign([target], self._hook(node, hook, *given)), node)
        target.value = self.visit(target.value)
        if isinstance(target, ast.Attribute):
            target.value = self._hook(target, "augmented_attribute", target.value, self._mangled(target.attr))
        else:
            target.value = self._hook(target, "augmented_item", target.value)
            target.slice = self.visit(target.slice)
        node.value = self._hook(node.value, "stored", value)
        return node

    def visit_For(self, node: Any) -> Any:
        node.iter = self._iterated(node)
        node.target = self.visit(node.target)
        node.body, node.orelse = self._body(node.body), self._body(node.orelse)
        return node

    visit_AsyncFor = visit_For

    def _iterated(self, node: Any) -> Any:
        """What the loop or comprehension `node` goes over."""
        if isinstance(node, ast.AsyncFor) or getattr(node, "is_async", False):
            return self._hook(node.iter, "awaited", self.visit(node.iter))
        return self._hook(node.iter, "iterated", self.visit(node.iter), _depth(node.target))

    def visit_With(self, node: Any) -> Any:
        hook = "entered" if isinstance(node, ast.With) else "awaited"
        for item in node.items:
            item.context_expr = self._hook(item.context_expr, hook, self.visit(item.context_expr))
            item.optional_vars = item.optional_vars and self.visit(item.optional_vars)
        node.body = self._body(node.body)
        return node

    visit_AsyncWith = visit_With

    def visit_Raise(self, node: ast.Raise) -> Any:
        if node.exc is not None:
            node.exc = self._hook(node.exc, "raised", self.visit(node.exc))
        node.cause = node.cause and self.visit(node.cause)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        if node.name:
            self._store(node.name)
        self.generic_visit(node)
        if node.type is not None:
            node.type = self._hook(node.type, "operand", node.type)
        return node

    def visit_If(self, node: Any) -> Any:
        node.test = self._truth(node.test)
        node.body, node.orelse = self._body(node.body), self._body(node.orelse)
        return node

    visit_While = visit_If

    def visit_Assert(self, node: ast.Assert) -> Any:
        node.test = self._truth(node.test)
        node.msg = node.msg and self._hook(node.msg, "stored", self.visit(node.msg))
        return node

    def _before_match(self, node: ast.Match) -> list[Any]:
        """Patterns take no calls: what they read is read before."""
        calls = []
        for part in (p for case in node.cases for p in ast.walk(case.pattern)):
            value = {ast.MatchValue: "value", ast.MatchClass: "cls"}.get(type(part))
            dotted = ast.unparse(getattr(part, value)) if value else ""
            if dotted and isinstance(getattr(part, value), ast.Name | ast.Attribute):  # type: ignore[arg-type]
                kind = self._kind(dotted.partition(".")[0])
                calls.append(self._hook(node, "dotted", dotted if kind == "global" else ""))
        return calls

    def visit_Match(self, node: ast.Match) -> Any:
        names = {n for p in ast.walk(node) if isinstance(p, ast.MatchClass) for n in p.kwd_attrs}
        node.subject = self._hook(node.subject, "matched", self.visit(node.subject), *sorted(names))
        for case in node.cases:
            for name in (n for p in ast.walk(case.pattern) for n in names_in(p)):
                self._store(name)
            case.guard = case.guard and self._truth(case.guard)
            case.body = self._body(case.body)
        return node

    # expressions

    def _truth(self, node: Any) -> Any:
        new = self.visit(node)
        return new if isinstance(node, ast.Compare | ast.Constant) else self._hook(node, "truth", new)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        node.test = self._truth(node.test)
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        node.values = [*map(self._truth, node.values[:-1]), self.visit(node.values[-1])]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        hook = "attribute" if isinstance(node.ctx, ast.Load) else "store_attribute"
        hook = "measured" if hook == "attribute" and node.attr == "shape" else hook
        node.value = self._hook(node.value, hook, self._thing(node.value), self._mangled(node.attr))
        return self._hook(node, "number", node) if hook == "attribute" else node

    def _thing(self, node: Any) -> Any:
        """What is called, or has the attribute or element that is asked for: no number that is followed."""
        new = self.visit(node)
        is_hook = isinstance(new, ast.Call) and isinstance(new.func, ast.Constant)
        return new.args[0] if is_hook and new.func.value == MARK.format("number") else new

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        value, key = self._thing(node.value), self.visit(node.slice)
        if not isinstance(node.ctx, ast.Load):
            has_slice = any(isinstance(part, ast.Slice) for part in (key, *getattr(key, "elts", ())))
            key = key if has_slice or isinstance(key, ast.Constant) else self._hook(key, "stored", key)
            node.value, node.slice = self._hook(node.value, "store_item", value), key
            return node
        return self._hook(node, "item", value, self._key(key))

    def _key(self, key: Any) -> Any:
        """A subscript as a value."""
        if isinstance(key, ast.Slice):
            parts = [p or ast.Constant(None) for p in (key.lower, key.upper, key.step)]
            return self._hook(key, "slice", *parts)
        if isinstance(key, ast.Tuple):
            key.elts = [self._key(e) for e in key.elts]
        return key

    def visit_Starred(self, node: ast.Starred) -> Any:
        node.value = self.visit(node.value)
        if isinstance(node.ctx, ast.Load):
            node.value = self._hook(node.value, "iterated", node.value, 0)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            return node  # it looks at its caller's first variable and class
        function = self._thing(node.func)
        args = [self.visit(a) for a in node.args]
        keywords = [self.visit(k) for k in node.keywords]
        for keyword in keywords:
            if keyword.arg is None:
                keyword.value = self._hook(keyword.value, "operand", keyword.value)
        prepared = self._hook(node, "call", function, *args)
        prepared.keywords = keywords
        return self._hook(node, "called", _at(ast.Call(prepared, [], []), node))

    def _operand(self, node: Any, hook: str, *methods: str) -> Any:
        return node if isinstance(node, ast.Constant) else self._hook(node, hook, self.visit(node), *methods)

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        methods = _methods(node.op)
        node.left = self._operand(node.left, "operand", *methods)
        node.right = self._operand(node.right, "operand", *methods)
        return self._hook(node, "made", node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.Not):
            node.operand = self._truth(node.operand)
            return node
        if isinstance(node.operand, ast.Constant):
            return node
        node.operand = self._operand(node.operand, "operand", *_UNARY[type(node.op).__name__])
        return self._hook(node, "made", node)

    def visit_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
            found = self._hook(node, "contains", self.visit(node.left), self.visit(node.comparators[0]))
            return _at(ast.UnaryOp(ast.Not(), found), node) if isinstance(node.ops[0], ast.NotIn) else found
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot):
            sides = (node.left, node.comparators[0])
            if not any(isinstance(side, ast.Constant) for side in sides):
                found = self._hook(node, "identical", *map(self.visit, sides))
                return (
                    _at(ast.UnaryOp(ast.Not(), found), node) if isinstance(node.ops[0], ast.IsNot) else found
                )
        hook = "operand"
        if all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            constant = any(isinstance(p, ast.Constant) for p in (node.left, *node.comparators))
            hook = "kind" if constant and len(node.ops) == 1 else "identity"
        methods = {m for op in node.ops if hook == "operand" for m in _COMPARISONS.get(type(op).__name__, ())}
        node.left, *node.comparators = [
            self._operand(p, hook, *sorted(methods)) for p in (node.left, *node.comparators)
        ]
        return node if hook != "operand" else self._hook(node, "compared", node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        node.value = self._hook(node.value, "formatted", self.visit(node.value))
        node.format_spec = node.format_spec and self.visit(node.format_spec)
        return node

    def visit_Dict(self, node: ast.Dict) -> Any:
        values = []
        for key, value in zip(node.keys, node.values, strict=True):
            values.append(self.visit(value) if key else self._hook(value, "operand", self.visit(value)))
        node.keys, node.values = [k and self._hook(k, "stored", self.visit(k)) for k in node.keys], values
        return self._hook(node, "made", node)

    def visit_List(self, node: Any) -> Any:
        self.generic_visit(node)
        return (
            self._hook(node, "made", node) if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) else node
        )

    visit_Set = visit_List

    def visit_ListComp(self, node: Any) -> Any:
        first = self._iterated(node.generators[0])
        scope = Scope()
        for part in node.generators:
            bind(part.target, scope)
        self._scopes.append(scope)
        for number, part in enumerate(node.generators):
            part.iter = self._iterated(part) if number else first
            part.target = self.visit(part.target)
            part.ifs = [self._truth(test) for test in part.ifs]
        for name in ("elt", "key", "value"):
            if hasattr(node, name):
                setattr(node, name, self.visit(getattr(node, name)))
        self._scopes.pop()
        return self._hook(node, "made", node)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def visit_YieldFrom(self, node: ast.YieldFrom) -> Any:
        node.value = self._hook(node.value, "iterated", self.visit(node.value), 0)
        return node

    def visit_Await(self, node: ast.Await) -> Any:
        node.value = self._hook(node.value, "awaited", self.visit(node.value))
        return node


def _at(node: Any, place: Any) -> Any:
    """`node`, new, where `place` stands."""
    if not hasattr(node, "lineno"):
        if "lineno" in node._attributes:
            ast.copy_location(node, place)
        for part in ast.iter_child_nodes(node):
            _at(part, place)
    return node


def _is_text(statement: Any) -> bool:
    """Is it a docstring?"""
    value = getattr(statement, "value", None)
    return (
        isinstance(statement, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str)
    )


def _depth(target: Any) -> int:
    """How deep an assignment to `target` unpacks."""
    if isinstance(target, ast.Starred):
        return _depth(target.value)
    return 1 + max(map(_depth, target.elts), default=0) if isinstance(target, ast.Tuple | ast.List) else 0
