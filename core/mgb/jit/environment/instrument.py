"""A code object with hooks in it, made from its source; or the reason why there is none."""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import itertools
import linecache
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from .scopes import Names
from .transform import MARK, Transformer

_FUTURE = functools.reduce(
    int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)

#: Files of more characters are not read: that takes longer than a body is worth.
_LONGEST = 1 << 18

#: How names of code begin whose file is the module's: Python's own, and what cloudpickle has carried here.
_OF_A_FILE = ("<frozen ", "<dynamic-code>")

#: Of code objects that are alive, by identity (equal ones stand in different files): what was made.
_made: dict[int, tuple[weakref.ref[CodeType], CodeType | str]] = {}


def instrumented(
    code: CodeType, module: Mapping[str, Any], hooks: Mapping[str, Callable[..., Any]]
) -> CodeType | str:
    """`code` with hooks.

    Parameters
    ----------
    code : CodeType
        A function's.
    module : mapping
        The globals of that function.
    hooks : mapping
        By their names in `Transformer`.

    Returns
    -------
    CodeType or str
        A text says why it cannot be.
    """
    known = _made.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    try:
        made = _instrument(code, module, hooks)
    except (SyntaxError, ValueError, RecursionError, OSError, AttributeError) as error:
        made = f"its source cannot be read again: {error}"
    key = id(code)
    _made[key] = weakref.ref(code, functools.partial(_forget, _made, key)), made
    return made


def has_source(function: Any) -> bool:
    """Is there a text of `function` to put hooks into? Without one, nobody settles what is followed."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType):
        return True
    return bool(_text(function.__code__.co_filename, function.__globals__))


def _forget(known: dict[int, Any], key: int, _: object) -> None:
    known.pop(key, None)


def _instrument(
    code: CodeType, module: Mapping[str, Any], hooks: Mapping[str, Callable[..., Any]]
) -> CodeType | str:
    text = _text(code.co_filename, module)
    made = _made_of(text, code, module)
    if made is None:  # a module that was loaded again has another source than the one that is kept
        linecache.checkcache(code.co_filename)
        fresh = _text(code.co_filename, module)
        made = _made_of(fresh, code, module) if fresh != text else None
    if made is None:
        return "its source is not what was compiled: the file has changed, or something rewrites it"
    return made if isinstance(made, str) else _with(made, hooks)


def _made_of(text: str, code: CodeType, module: Mapping[str, Any]) -> CodeType | str | None:
    """`code` with marks for hooks, of the source `text`; why not, or None where it is of another source."""
    if not text:
        return "it has no source"
    if len(text) > _LONGEST:
        return f"its file has {len(text)} characters, more than {_LONGEST}"
    for number in _statements(text, code.co_firstlineno):
        for loader in (None, _rewriter(module)):
            given = text, number, loader
            path = next(_paths(_compiled(*given, code.co_filename, code.co_flags & _FUTURE), code), None)
            if path is not None:
                made = _transformed(given, code, path)
                if made.co_freevars != code.co_freevars or made.co_name != code.co_name:
                    return "its source with hooks is another function"
                return made
    return None


def _transformed(given: tuple[str, int, Any], code: CodeType, path: tuple[int, ...]) -> CodeType:
    """What stands at `path` when the function of `code` has hooks.

    Of those in its line it is one by whose hooks that is changed: itself comes before those around it.
    """
    body = _kept_body(*given)
    found = [*_functions(body[-1], code, None)]
    if len(found) == 1:
        alone = _alone_in_its_class(body, *found[0], code)
        if alone is not None:
            return alone
    for number in itertools.count(1):
        body = _body(*given)
        found = [*_functions(body[-1], code, None)]
        node, within = found[-number]
        Transformer(Names(code.co_freevars, within)).function(node)
        made = _inside(_compile(body, code.co_filename, code.co_flags & _FUTURE), path)
        if number == len(found) or _alone(made) != _alone(code):
            break
    return made


def _alone_in_its_class(
    body: list[ast.stmt], function: Any, within: str | None, code: CodeType
) -> CodeType | None:
    """The function with hooks, compiled without the other methods of its class; None: it is not found there.

    A class may be large, and each of its methods is transformed.
    """
    memo: dict[int, Any] = {}
    alone = _only(body[-1], function, memo)
    Transformer(Names(code.co_freevars, within)).function(memo[id(function)])
    whole = _compile([*body[:-1], alone], code.co_filename, code.co_flags & _FUTURE)
    first = code.co_qualname, code.co_firstlineno
    found = [part for part in codes_in(whole) if (part.co_qualname, part.co_firstlineno) == first]
    return found[0] if len(found) == 1 else None


def _only(node: Any, function: Any, memo: dict[int, Any]) -> Any:
    """A copy of a statement, of whose classes only what leads to `function` is left."""
    if isinstance(node, ast.ClassDef) and node is not function:
        way = next((part for part in node.body if any(inner is function for inner in ast.walk(part))), None)
        if way is not None:
            fields = {**vars(node), "bases": [], "keywords": [], "decorator_list": []}
            return ast.ClassDef(**{**fields, "body": [_only(way, function, memo)]})
    return copy.deepcopy(node, memo)


def _alone(code: CodeType) -> CodeType:
    """Without those inside it."""
    return code.replace(co_consts=tuple(c for c in code.co_consts if not isinstance(c, CodeType)))


def _inside(code: Any, path: tuple[int, ...]) -> CodeType:
    for step in path:
        code = [c for c in code.co_consts if isinstance(c, CodeType)][step]
    made: CodeType = code
    return made


def _rewriter(module: Mapping[str, Any]) -> Any:
    """Pytest's loader of a test module, where it has put more into each `assert`."""
    loader = module.get("__loader__")
    return loader if type(loader).__module__ == "_pytest.assertion.rewrite" else None


def _text(filename: str, module: Mapping[str, Any]) -> str:
    """The source of the file, if there is any."""
    if filename.startswith(_OF_A_FILE):
        filename = module.get("__file__") or ""
    if filename == "<string>" and module.get("__name__") == "__main__" and "-c" in sys.orig_argv[:-1]:
        return sys.orig_argv[sys.orig_argv.index("-c") + 1]  # whether it is that shows when it is compiled
    return "".join(linecache.getlines(filename, dict(module)))


@lru_cache(maxsize=16)
def _module(text: str) -> tuple[list[ast.stmt], list[tuple[int, int]]]:
    """The imports of a module, which say how calls of what they bind are compiled; each statement's lines."""
    body = _parse(text)
    return list(_imports(body)), [(_first_line(s), s.end_lineno or s.lineno) for s in body]


def _parse(text: str) -> list[ast.stmt]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text).body


def _statement(text: str, number: int) -> ast.stmt:
    """A new tree of one statement."""
    first, last = _module(text)[1][number]
    alone = [lines for lines in _module(text)[1] if lines[0] <= last and lines[1] >= first]
    if len(alone) > 1:  # others stand in its lines
        return _parse(text)[number]
    lines = text.splitlines(keepends=True)[first - 1 : last]
    return _parse("\n" * (first - 1) + "".join(lines))[0]


def _imports(body: Sequence[ast.AST]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
            yield from _imports([*ast.iter_child_nodes(node)])


def _statements(text: str, line: int) -> Iterator[int]:
    return (n for n, (first, last) in enumerate(_module(text)[1]) if first <= line <= last)


def _body(text: str, number: int, loader: Any) -> list[ast.stmt]:
    """A new tree of one statement of a file, after the imports; `loader` has rewritten it."""
    body = [*_module(text)[0], _statement(text, number)]
    if loader is not None:
        tree = ast.Module(body, [])
        sys.modules[type(loader).__module__].rewrite_asserts(tree, text.encode(), None, loader.config)
        body = tree.body
    return body


_kept_body = lru_cache(maxsize=16)(_body)  # which nobody changes


@lru_cache(maxsize=64)
def _compiled(text: str, number: int, loader: Any, filename: str, flags: int) -> CodeType:
    """One statement of a file, with its imports, as Python compiles it."""
    return _compile(_body(text, number, loader), filename, flags)


def _compile(body: list[ast.stmt], filename: str, flags: int) -> CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constants are no functions, it would say
        made: CodeType = compile(ast.Module(body, []), filename, "exec", flags, dont_inherit=True)
    return made


def _paths(outer: CodeType, wanted: CodeType) -> Iterator[tuple[int, ...]]:
    """Where in the tree of code objects of `outer` one like `wanted` stands."""
    for number, inner in enumerate(c for c in outer.co_consts if isinstance(c, CodeType)):
        if inner == wanted and inner.co_qualname == wanted.co_qualname:
            yield (number,)
        yield from ((number, *path) for path in _paths(inner, wanted))


def _functions(node: ast.AST, code: CodeType, within: str | None) -> Iterator[tuple[Any, str | None]]:
    """Those that may be of `code`, with the classes around them."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        if _first_line(node) == code.co_firstlineno and getattr(node, "name", "<lambda>") == code.co_name:
            yield node, within
    elif isinstance(node, ast.ClassDef):
        within = node.name
    for part in ast.iter_child_nodes(node):
        yield from _functions(part, code, within)


def _first_line(node: Any) -> int:
    lines = [node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]
    return int(min(lines))


def _with(code: CodeType, hooks: Mapping[str, Callable[..., Any]]) -> CodeType:
    """`code` with functions where their marks stand."""
    marks = {MARK.format(name): hook for name, hook in hooks.items()}
    constants: list[Any] = [
        _with(c, hooks) if isinstance(c, CodeType) else marks.get(c, c) if type(c) is str else c
        for c in code.co_consts
    ]
    return code.replace(co_consts=tuple(constants))


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """A code object and those inside it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from codes_in(part)
