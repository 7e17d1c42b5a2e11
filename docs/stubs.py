"""The public names as plain source, for mkdocstrings: signatures and docstrings as Python sees them.

Ops come from tables and decorators, and namespaces are sums of others: the real source shows neither.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import raised


def write(folder: Path, modules: Mapping[str, Mapping[str, Any]]) -> None:
    """One package for each module, with a definition for each of its names."""
    for module, members in modules.items():
        place = folder.joinpath(*module.split("."), "__init__.py")
        place.parent.mkdir(parents=True, exist_ok=True)
        text = "\n\n".join(definition(name, value) for name, value in members.items())
        place.write_text(f"from __future__ import annotations\n\n{text}\n", "utf-8")


def definition(name: str, value: Any) -> str:
    """A class or a function of this name, with the docstring of `value` and no body."""
    if not inspect.isclass(value):
        return function(name, value)
    bases = ", ".join(b.__name__ for b in value.__bases__ if b is not object)
    lines = [f"class {name}({bases}):", docstring(value)]
    lines += [_indented(member) for member in _members(value)]
    return "\n".join(lines)


def _members(kind: type) -> Iterator[str]:
    """How it is made, and the public methods that it defines itself."""
    own = vars(kind)
    ours = [vars(k) for k in kind.__mro__ if k.__module__.startswith("mgb")]
    if any("__init__" in members or "__new__" in members for members in ours):
        yield function("__init__", kind.__init__, "pass")
    for name, value in own.items():
        inner = getattr(value, "__func__", value)
        if name.startswith("_") or not inspect.getdoc(inner):
            continue
        if isinstance(value, property):
            yield f"@property\ndef {name}(self):\n{docstring(value)}"
        elif callable(inner):
            marks = {staticmethod: "@staticmethod\n", classmethod: "@classmethod\n"}
            yield marks.get(type(value), "") + function(name, inner)


def function(name: str, value: Callable[..., Any], body: str = "") -> str:
    """A function with the signature of `value`."""
    return f"def {name}{_signature(value)}:\n" + (f"    {body}" if body else docstring(value))


def _signature(value: Callable[..., Any]) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(*args, **kwargs)"
    parameters = [
        p.replace(default=_Source(p.default), annotation=_Text.of(p.annotation))
        for p in signature.parameters.values()
    ]
    text = str(
        signature.replace(parameters=parameters, return_annotation=_Text.of(signature.return_annotation))
    )
    try:
        ast.parse(f"def f{text}: pass")
    except SyntaxError:  # an annotation that is no source
        bare = [p.replace(annotation=p.empty) for p in parameters]
        text = str(inspect.Signature(bare))
    return text


class _Text:
    """An annotation that is a text, without the quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    @classmethod
    def of(cls, annotation: Any) -> Any:
        """`annotation`, if it is no text."""
        return cls(annotation) if isinstance(annotation, str) else annotation


class _Source:
    """A default as it is written."""

    def __new__(cls, value: Any) -> Any:
        return value if value is inspect.Parameter.empty else super().__new__(cls)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        text = repr(self.value)
        try:
            ast.parse(text, mode="eval")
        except SyntaxError:
            return getattr(self.value, "__name__", None) or "..."
        return text


def docstring(value: Any) -> str:
    """As a literal, indented; of an error with what raises it."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and issubclass(value, BaseException):
        text += raised.section(value.__name__)
    return _indented(repr(text))


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())
