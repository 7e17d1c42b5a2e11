"""The source of one function, with a hook around everything that may reach outside of it.

Each hook is a call of a constant, which stands among the code's constants: it needs no name that the user
could see. What the user wrote runs natively, in its own frame; a hook is asked before, or handed the value
after, and gives back what it was given. No function, variable or cell is added.
"""

from __future__ import annotations

import ast
import copy
from typing import Any

from .known import DEBUGGERS
from .scopes import Names, Scope, bind, names_in, scope_of

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

#: What is given to a hook, by the kind of node and its field: the hook, and what else it is given.
_GIVEN: dict[tuple[type[ast.AST], str], tuple[Any, ...]] = {
    **{(kind, "test"): ("truth",) for kind in (ast.Assert, ast.If, ast.IfExp, ast.While)},
    (ast.Assert, "msg"): ("stored",),
    (ast.match_case, "guard"): ("truth",),
    (ast.Raise, "exc"): ("raised",),
    (ast.ExceptHandler, "type"): ("operand",),
    (ast.FormattedValue, "value"): ("formatted",),
    (ast.YieldFrom, "value"): ("iterated", 0),
    (ast.withitem, "context_expr"): ("entered",),
    (ast.Await, "value"): ("awaited",),
    (ast.Set, "elts"): ("keyed",),
}
#: Methods that are given an instance that is being made.
_BEGINNING = ("__init__", "__post_init__")

#: Methods whose results Python takes only as numbers and texts of its own.
_ASKED_BY_C = frozenset(
    "__index__ __int__ __float__ __complex__ __len__ __length_hint__ __hash__ __bool__ __str__ __repr__ "
    "__format__ __bytes__".split()
)

#: Hooks that make comparisons, or their opposites.
_SINGLE = {ast.In: "contains", ast.NotIn: "contains", ast.Is: "identical", ast.IsNot: "identical"}


def _methods(operation: ast.AST) -> tuple[str, ...]:
    """What an operator may call, of either operand."""
    asked = _OPERATORS[type(operation).__name__][1:]
    return f"__{asked}__", f"__r{asked}__"


class Transformer(ast.NodeTransformer):
    """Puts hooks into one function, in which `names` are found, and those in it."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._writes: list[list[Any]] = []  # what the hook of a variable is given

    def function(self, node: Any) -> None:
        """Transform the function `node`, but not what is evaluated where it is defined."""
        self._names.scopes.append(scope_of(node))
        if isinstance(node, ast.Lambda):
            node.body = ast.BoolOp(ast.Or(), [self._hook(node.body, "begins"), self.visit(node.body)])
            _at(node.body, node)
        else:
            node.body = self._body(node.body)
            first = int(ast.get_docstring(node, clean=False) is not None)
            node.body[first:first] = self._beginning(node, (node.body[first:] or node.body)[0])
        self._names.scopes.pop()

    def _beginning(self, node: Any, first: Any) -> list[ast.stmt]:
        """What a call makes is new; what an operator gives a method is what the user gave the operator."""
        given = [*node.args.posonlyargs, *node.args.args]
        made = [node.args.kwarg, *(given[:1] if node.name in _BEGINNING else ())]
        new: list[ast.stmt] = [_at(ast.Expr(self._hook(first, "begins")), first)]
        new += [self._made(first, one.arg) for one in made if one is not None]
        for name in [one.arg for one in given[1:] if node.name.startswith("__")]:
            itself = self._hook(first, "itself", ast.Name(name, ast.Load()))
            new.append(_at(ast.Assign([ast.Name(name, ast.Store())], itself), first))
        return new

    # names

    def _hook(self, at: Any, hook: str, *args: Any) -> Any:
        constants: list[Any] = [a if isinstance(a, ast.AST) else ast.Constant(a) for a in args]
        made = ast.Call(ast.Constant(MARK.format(hook)), constants, [])
        return _at(made, at)

    def _variable(self, name: str) -> list[Any]:
        """The name of one that is outside; and a function that has it, if it is that of a function around."""
        within = [_function(ast.Name(name, ast.Load()))] if self._names.kind(name) == "free" else []
        return [self._names.mangled(name), *within]

    def _store(self, name: str) -> None:
        if self._names.is_outside(name):
            self._writes.append(self._variable(name))

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load):
            self._store(node.id)
            return node
        if self._names.kind(node.id) == "local" or node.id == "__debug__":
            return node
        asked = self._hook(node, "name", *self._variable(node.id))
        return self._hook(node, "number", ast.BoolOp(ast.Or(), [asked, node]))

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
            for name in names_in(statement):
                self._store(name)
            new = self.visit(statement)
            before += [self._hook(statement, "wrote", *given) for given in self._writes]
            self._writes = kept
            made += [_at(ast.Expr(call), statement) for call in before]
            made += new if isinstance(new, list) else [new]
        return made

    def generic_visit(self, node: ast.AST) -> Any:
        for name, old in ast.iter_fields(node):
            given = _GIVEN.get((type(node), name))
            if isinstance(old, list):
                is_body = old and isinstance(old[0], ast.stmt)
                setattr(node, name, self._body(old) if is_body else [self._visited(v, given) for v in old])
            else:
                setattr(node, name, self._visited(old, given))
        is_target = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        is_new = isinstance(node, ast.List | ast.Set) and not is_target
        return self._hook(node, "made", node) if is_new else node

    def _visited(self, value: Any, given: tuple[Any, ...] | None) -> Any:
        """A part of a node, which a hook is given as well."""
        if given is not None and isinstance(value, ast.Starred):
            value.value = self._hook(value.value, "spread", self.visit(value.value), *given)
            return value
        new = self.visit(value) if isinstance(value, ast.AST) else value
        if given is None or value is None or isinstance(value, ast.Constant):
            return new
        return self._hook(value, given[0], new, *given[1:])

    def _inner(self, node: Any) -> None:
        """What is evaluated where a function is defined, then its body."""
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        self.function(node)

    def visit_FunctionDef(self, node: Any) -> Any:
        self._store(node.name)
        node.decorator_list = self._decorators(node)
        self._inner(node)
        return node

    visit_AsyncFunctionDef = visit_FunctionDef

    def _decorators(self, node: Any) -> list[ast.expr]:
        """Those of a function or class, each is asked before its call; the last, called first, tells it."""
        asked = [self._hook(d, "decorator", self._thing(d)) for d in node.decorator_list]
        return [*asked, self._hook(node, "made").func]

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        self._inner(node)
        return self._hook(node, "made", node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        self._store(node.name)
        node.decorator_list = self._decorators(node)
        node.bases = [self._visited(base, ("base",)) for base in node.bases]
        node.keywords = [self.visit(k) for k in node.keywords]
        within, self._names.within = self._names.within, node.name
        self._names.scopes.append(scope_of(node))
        node.body = self._body(node.body)
        self._names.scopes.pop()
        self._names.within = within
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:
        depth = max(map(_depth, node.targets))
        node.value = self._visited(node.value, ("unpacked", depth) if depth else None)
        names = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        if any(map(self._names.is_outside, names)):
            node.value = self._hook(node.value, "stored", node.value)
        new = self._rest(node.targets)
        node.targets = [self.visit(t) for t in node.targets]
        return [node, *new]

    def _rest(self, targets: list[ast.expr]) -> list[ast.stmt]:
        """Lists that unpacking makes are new."""
        stars = [part.value for t in targets for part in ast.walk(t) if isinstance(part, ast.Starred)]
        return [self._made(star, star.id) for star in stars if isinstance(star, ast.Name)]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        node.target = self.visit(node.target)
        outside = isinstance(node.target, ast.Name) and self._names.is_outside(node.target.id)
        node.value = node.value and self._visited(node.value, ("stored",) if outside else None)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        target: Any = node.target
        value = self._visited(node.value, ("operand", *_methods(node.op)))
        if isinstance(target, ast.Name):
            load = self.visit(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            variable = self._variable(target.id) if self._names.is_outside(target.id) else ()
            result = self._hook(node, "augmented", _OPERATORS[type(node.op).__name__], load, value, *variable)
            return _at(ast.Assign([target], result), node)
        variable = node.target = self.visit(target)
        node.value = value
        variable.value.args.append(_at(ast.Constant(_OPERATORS[type(node.op).__name__]), node))
        return node

    def visit_For(self, node: Any) -> Any:
        node.iter = self._iterated(node)
        new = self._rest([node.target])
        node.target = self.visit(node.target)
        node.body, node.orelse = [*new, *self._body(node.body)], self._body(node.orelse)
        return node

    visit_AsyncFor = visit_For

    def _iterated(self, node: Any) -> Any:
        """What the loop or comprehension `node` goes over."""
        if isinstance(node, ast.AsyncFor) or getattr(node, "is_async", False):
            return self._hook(node.iter, "awaited", self.visit(node.iter))
        return self._hook(node.iter, "iterated", self.visit(node.iter), _depth(node.target))

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> Any:
        self.generic_visit(node)
        if node.name:
            self._store(node.name)
            node.body = [self._made(node.body[0], node.name), *node.body]
        return node

    def _made(self, at: Any, name: str) -> ast.stmt:
        """The variable `name` holds what Python has just made."""
        made: ast.stmt = _at(ast.Expr(self._hook(at, "made", ast.Name(name, ast.Load()))), at)
        return made

    def visit_Return(self, node: ast.Return) -> Any:
        is_asked_by_c = self._names.scopes[-1].name in _ASKED_BY_C
        node.value = node.value and self._visited(node.value, ("stored",) if is_asked_by_c else None)
        return node

    def visit_Match(self, node: ast.Match) -> Any:
        parts = [part for case in node.cases for part in ast.walk(case.pattern)]
        names = {name for part in parts if isinstance(part, ast.MatchClass) for name in part.kwd_attrs}
        dotted = [p.value if isinstance(p, ast.MatchValue) else getattr(p, "cls", None) for p in parts]
        read = [  # patterns take no calls: what they name is read before
            _function(self.visit(copy.deepcopy(p))) for p in dotted if isinstance(p, ast.Name | ast.Attribute)
        ]
        subject = self.visit(node.subject)
        node.subject = self._hook(node.subject, "matched", subject, " ".join(sorted(names)), *read)
        for case in node.cases:
            for name in (n for p in ast.walk(case.pattern) for n in names_in(p)):
                self._store(name)
            case.guard = self._visited(case.guard, ("truth",))
            case.body = self._body(case.body)
        return node

    # expressions

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        asked = [self._visited(value, ("truth",)) for value in node.values[:-1]]
        node.values = [*asked, self.visit(node.values[-1])]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        value, name = self._thing(node.value), self._names.mangled(node.attr)
        if not isinstance(node.ctx, ast.Load):
            return self._entry(node, "field", value, name)
        node.value = self._hook(node.value, "attribute", value, name)
        return self._hook(node, "number", node)

    def _thing(self, node: Any) -> Any:
        """What is called, or has the attribute or element that is asked for: no number that is followed."""
        new = self.visit(node)
        is_hook = isinstance(new, ast.Call) and isinstance(new.func, ast.Constant)
        return new.args[0] if is_hook and new.func.value == MARK.format("number") else new

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        value, key = self._thing(node.value), self._key(self.visit(node.slice))
        if not isinstance(node.ctx, ast.Load):
            return self._entry(node, "element", value, key)
        return self._hook(node, "item", value, key)

    def _entry(self, node: Any, hook: str, *args: Any) -> Any:
        """What stands for an attribute or element where it is written or deleted."""
        return _at(ast.Subscript(self._hook(node.value, hook, *args), ast.Constant(None), node.ctx), node)

    def _key(self, key: Any) -> Any:
        """A subscript as a value."""
        if isinstance(key, ast.Slice):
            parts = [p or ast.Constant(None) for p in (key.lower, key.upper, key.step)]
            return self._hook(key, "slice", *parts)
        if isinstance(key, ast.Tuple):
            key.elts = [self._key(e) for e in key.elts]
        return key

    def visit_Starred(self, node: ast.Starred) -> Any:
        node.value = self._visited(node.value, ("iterated", 0) if isinstance(node.ctx, ast.Load) else None)
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
            return node  # it looks at its caller's first variable and class
        function = self._thing(node.func)
        if _name_of(node.func) not in DEBUGGERS:
            return self._call(node, function)
        # no hook may stand after a debugger: it would stop there
        plain = _at(ast.Call(self._hook(node, "asked"), *copy.deepcopy((node.args, node.keywords))), node)
        watched = self._call(node, self._hook(node, "asked"))
        return _at(ast.IfExp(self._hook(node, "debugs", function), plain, watched), node)

    def _call(self, node: ast.Call, function: Any) -> Any:
        """The call `node` of what `function` gives."""
        args = [self.visit(a) for a in node.args]
        keywords = [self.visit(k) for k in node.keywords]
        for keyword in keywords:
            if keyword.arg is None:
                keyword.value = self._hook(keyword.value, "operand", keyword.value)
        prepared = self._hook(node, "call", function, *args)
        prepared.keywords = keywords
        return self._hook(node, "called", _at(ast.Call(prepared, [], []), node))

    def visit_BinOp(self, node: ast.BinOp) -> Any:
        given = ("operand", *_methods(node.op))
        node.left, node.right = self._visited(node.left, given), self._visited(node.right, given)
        return self._hook(node, "made", node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.operand, ast.Constant):
            return node
        methods = _UNARY.get(type(node.op).__name__)
        node.operand = self._visited(node.operand, ("operand", *methods) if methods else ("truth",))
        return self._hook(node, "made", node) if methods else node

    def visit_Compare(self, node: ast.Compare) -> Any:
        if len(node.ops) == 1 and type(node.ops[0]) in _SINGLE:
            sides = self.visit(node.left), self.visit(node.comparators[0])
            found = self._hook(node, _SINGLE[type(node.ops[0])], *sides)
            is_opposite = isinstance(node.ops[0], ast.NotIn | ast.IsNot)
            return _at(ast.UnaryOp(ast.Not(), found), node) if is_opposite else found
        hook = "identity" if all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops) else "operand"
        methods = {m for op in node.ops if hook == "operand" for m in _COMPARISONS.get(type(op).__name__, ())}
        node.left, *node.comparators = [
            self._visited(p, (hook, *sorted(methods))) for p in (node.left, *node.comparators)
        ]
        return node if hook != "operand" else self._hook(node, "made", node)

    def visit_Dict(self, node: ast.Dict) -> Any:
        given = [("operand",) if key is None else None for key in node.keys]
        node.values = [self._visited(value, g) for value, g in zip(node.values, given, strict=True)]
        node.keys = [key and self._visited(key, ("keyed",)) for key in node.keys]
        return self._hook(node, "made", node)

    def visit_ListComp(self, node: Any) -> Any:
        first = self._iterated(node.generators[0])
        scope = Scope()
        for part in node.generators:
            bind(part.target, scope)
        self._names.scopes.append(scope)
        for number, part in enumerate(node.generators):
            part.iter = self._iterated(part) if number else first
            part.target = self.visit(part.target)
            part.ifs = [self._visited(test, ("truth",)) for test in part.ifs]
        for name in ("elt", "key", "value"):
            if hasattr(node, name):
                is_key = name == "key" or isinstance(node, ast.SetComp)
                setattr(node, name, self._visited(getattr(node, name), ("keyed",) if is_key else None))
        self._names.scopes.pop()
        return self._hook(node, "made", node)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp


def _function(value: Any) -> ast.Lambda:
    """One without arguments that gives `value`."""
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)


def _name_of(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _at(node: Any, other: Any) -> Any:
    """`node`, new, where `other` stands."""
    if not hasattr(node, "lineno"):
        if "lineno" in node._attributes:
            ast.copy_location(node, other)
        for part in ast.iter_child_nodes(node):
            _at(part, other)
    return node


def _depth(target: Any) -> int:
    """How deep an assignment to `target` unpacks."""
    if isinstance(target, ast.Starred):
        return _depth(target.value)
    return 1 + max(map(_depth, target.elts), default=0) if isinstance(target, ast.Tuple | ast.List) else 0
