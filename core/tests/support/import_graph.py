"""Who imports whom, anywhere in a file: in functions too, for types alone, and by a string."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path


def modules_of(package: Path) -> dict[str, Path]:
    """The files of a package by the names of their modules."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All that stands in a file."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports(name: str, path: Path) -> frozenset[str]:
    """What the module imports, as full names; those of what is no module end with the name of that."""
    return frozenset(_imports(name, path))


def _imports(name: str, path: Path) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            asked = node.args[0]
            if isinstance(asked, ast.Constant):
                yield f"{package}{asked.value}" if asked.value.startswith(".") else asked.value


def graph_of(packages: Iterable[Path]) -> dict[str, set[str]]:
    """For each module of the packages those of them that it imports."""
    modules = {name: path for package in packages for name, path in modules_of(package).items()}
    graph = {}
    for name, path in modules.items():
        found = (one if one in modules else one.rpartition(".")[0] for one in imports(name, path))
        graph[name] = {one for one in found if one in modules and one != name}
    return graph


def circle_in(graph: Mapping[str, Iterable[str]]) -> list[str] | None:
    """Modules of which each imports the next one, and the last the first; None: there is no such circle."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str] | None:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return None
        for other in sorted(graph[name]):
            if (found := visit(other, [*path, name])) is not None:
                return found
        done.add(name)
        return None

    return next((found for name in graph if (found := visit(name, [])) is not None), None)
