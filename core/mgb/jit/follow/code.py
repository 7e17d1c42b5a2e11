"""A code object with marks for hooks in it, made from its source; or none."""

from __future__ import annotations
import __future__

import ast
import functools
import linecache
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType
from typing import Any

from ...runtime import forking
from .transform import MARKS, Transformer

_FUTURE = functools.reduce(
    int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)

#: Files of more characters are not read: that takes longer than a body is worth.
_LONGEST = 1 << 18

#: How names of code begin whose file is the module's: Python's own, and what cloudpickle has carried here.
_OF_A_FILE = ("<frozen ", "<dynamic-code>")

#: Of code objects that are alive, by identity (equal ones stand in different files): what was made.
_made: dict[int, tuple[weakref.ref[CodeType], CodeType | None]] = {}

#: CPython's parser makes trees in one thread at a time: in several it raises a SystemError.
_lock = forking.lock()

#: What two codes have in common that differ in hooks alone.
_KEPT = (
    "co_name", "co_qualname", "co_filename", "co_firstlineno", "co_flags", "co_freevars", "co_varnames",
    "co_argcount", "co_posonlyargcount", "co_kwonlyargcount",
)  # fmt: skip


def instrumented(code: CodeType, module: Mapping[str, Any]) -> CodeType | None:
    """Return `code` with the marks of `transform` where hooks are to be.

    Parameters
    ----------
    code : CodeType
        A function's.
    module : mapping
        The globals of that function.

    Returns
    -------
    CodeType or None
        None: it has no source that could be read again, or no call in it.
    """
    known = _made.get(id(code))
    if known is not None and known[0]() is code:
        return known[1]
    try:
        with _lock:
            made = _instrument(code, module)
    except (SyntaxError, ValueError, RecursionError, OSError, AttributeError):
        made = None
    key = id(code)
    _made[key] = weakref.ref(code, functools.partial(_forget, _made, key)), made
    return made


def with_hooks(
    made: CodeType, own: CodeType, hooks: Mapping[str, Any], note: Callable[[CodeType, CodeType], object]
) -> CodeType:
    """Return `made` with hooks where marks stand; `note` gets each code with hooks, and its original.

    Code without hooks is given as it is in `own`.
    """
    if not is_marked(made):
        return own
    inner = iter(codes_in(own))
    constants = [
        with_hooks(constant, next(inner), hooks, note) if isinstance(constant, CodeType)
        else hooks.get(constant, constant) if type(constant) is str
        else constant
        for constant in made.co_consts
    ]  # fmt: skip
    result = made.replace(co_consts=tuple(constants))
    note(result, own)
    return result


def is_marked(code: CodeType) -> bool:
    """Return whether there are marks in it, or in a function inside."""
    return not set(MARKS).isdisjoint(c for c in code.co_consts if type(c) is str) or any(
        map(is_marked, codes_in(code))
    )


def codes_in(code: CodeType) -> list[CodeType]:
    """Return the codes of the functions, comprehensions and classes in one."""
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _forget(known: dict[int, Any], key: int, _: object) -> None:
    known.pop(key, None)


def _instrument(code: CodeType, module: Mapping[str, Any]) -> CodeType | None:
    text = _text(code.co_filename, module)
    made = _made_of(text, code, module)
    if made is None:  # a module that was loaded again has another source than the one that is kept
        linecache.checkcache(code.co_filename)
        fresh = _text(code.co_filename, module)
        made = _made_of(fresh, code, module) if fresh != text else None
    return made if made is not None and is_marked(made) else None


def _made_of(text: str, code: CodeType, module: Mapping[str, Any]) -> CodeType | None:
    """Return `code` with marks, of the source `text`; None where it is of another source."""
    if not 0 < len(text) <= _LONGEST:
        return None
    for number in _statements(text, code.co_firstlineno):
        for loader in (None, _rewriter(module)):
            given = text, number, loader, code.co_filename, code.co_flags & _FUTURE
            path = next(_paths(_compiled(*given), code), None)
            if path is not None:
                made = _inside(_marked(*given), path)
                return made if _is_like(made, code) else None
    return None


def _is_like(made: CodeType, code: CodeType) -> bool:
    """Return whether they, and all functions in them, differ in nothing but hooks."""
    inner = codes_in(made), codes_in(code)
    return (
        all(getattr(made, name) == getattr(code, name) for name in _KEPT)
        and len(inner[0]) == len(inner[1])
        and all(map(_is_like, *inner))
    )


def _inside(code: CodeType, path: tuple[int, ...]) -> CodeType:
    for step in path:
        code = codes_in(code)[step]
    return code


def _rewriter(module: Mapping[str, Any]) -> Any:
    """Return Pytest's loader of a test module, where it has put more into each `assert`."""
    loader = module.get("__loader__")
    return loader if type(loader).__module__ == "_pytest.assertion.rewrite" else None


def _text(filename: str, module: Mapping[str, Any]) -> str:
    """Return the source of the file, if there is any."""
    if filename.startswith(_OF_A_FILE):
        filename = module.get("__file__") or ""
    if filename == "<string>" and module.get("__name__") == "__main__" and "-c" in sys.orig_argv[:-1]:
        return sys.orig_argv[sys.orig_argv.index("-c") + 1]  # whether it is that shows when it is compiled
    return "".join(linecache.getlines(filename, dict(module)))


@lru_cache(maxsize=16)
def _module(text: str) -> tuple[list[ast.stmt], list[tuple[int, int]]]:
    """Return the imports of a module, which say how calls of what they bind are compiled.

    Each statement's lines.
    """
    body = _parse(text)
    return list(_imports(body)), [(_first_line(s), s.end_lineno or s.lineno) for s in body]


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Silence the compiler's warnings. `warnings.catch_warnings` would make Python show old ones again."""
    before = warnings.filters
    warnings.filters = [("ignore", None, Warning, None, 0)]
    try:
        yield
    finally:
        warnings.filters = before


def _parse(text: str) -> list[ast.stmt]:
    with _no_warnings():
        return ast.parse(text).body


def _statement(text: str, number: int) -> ast.stmt:
    """Return a new tree of one statement."""
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
    """Return a new tree of one statement of a file, after the imports; `loader` has rewritten it."""
    body = [*_module(text)[0], _statement(text, number)]
    if loader is not None:
        tree = ast.Module(body, [])
        sys.modules[type(loader).__module__].rewrite_asserts(tree, text.encode(), None, loader.config)
        body = tree.body
    return body


@lru_cache(maxsize=64)
def _compiled(text: str, number: int, loader: Any, filename: str, flags: int) -> CodeType:
    """Return one statement of a file, with its imports, as Python compiles it."""
    return _compile(_body(text, number, loader), filename, flags)


@lru_cache(maxsize=64)
def _marked(text: str, number: int, loader: Any, filename: str, flags: int) -> CodeType:
    """Return the same code with marks in all its functions: line numbers stay as they are without them."""
    body = _body(text, number, loader)
    return _compile([*body[:-1], Transformer().visit(body[-1])], filename, flags)


def _compile(body: list[ast.stmt], filename: str, flags: int) -> CodeType:
    with _no_warnings():  # Python would warn that constants are not callable
        made: CodeType = compile(ast.Module(body, []), filename, "exec", flags, dont_inherit=True)
    return made


def _paths(outer: CodeType, wanted: CodeType) -> Iterator[tuple[int, ...]]:
    """Yield where in the tree of code objects of `outer` one like `wanted` stands."""
    for number, inner in enumerate(codes_in(outer)):
        if inner == wanted and inner.co_qualname == wanted.co_qualname:
            yield (number,)
        yield from ((number, *path) for path in _paths(inner, wanted))


def _first_line(node: Any) -> int:
    lines = [node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]
    return int(min(lines))
