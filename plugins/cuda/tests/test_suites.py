"""The tests that GPU backends share are found, say what they found, and are each plugin's own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mgb_conformance", reason="mgb-conformance is not installed: pip install ./conformance")

PLUGINS = Path(__file__).parents[2]
MODULES = sorted(PLUGINS.glob("*/tests/*.py"))


def test_shared_test_assertions_are_rewritten_by_pytest() -> None:
    """Those of a package do so only when pytest is told before it is imported."""
    from mgb_cuda.testing import variants

    assert "@pytest_ar" in vars(variants)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: f"{p.parents[1].name}/{p.name}")
def test_imported_helper_module_names_are_unique(path: Path) -> None:
    """Of two, all tests of a run would get the one that is imported first."""
    homes = [p.stem for p in MODULES]
    tree = ast.parse(path.read_text())
    names = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module and not n.level]
    names += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    assert not [name for name in names if homes.count(name) > 1]


@pytest.mark.parametrize("name", ["cuda", "nvrtc", "triton"])
def test_modules_have_no_circular_imports(name: str) -> None:
    """Not within functions either, nor for the types alone."""
    root = PLUGINS / name / f"mgb_{name}"
    modules = {tuple(p.relative_to(root).with_suffix("").parts): p for p in root.rglob("*.py")}
    imports = {module: set(imported(module, path)) & set(modules) for module, path in modules.items()}
    assert sum(map(len, imports.values())) > len(imports), "the imports are found"
    done: set[tuple[str, ...]] = set()
    while len(done) < len(imports):
        free = {module for module in set(imports) - done if imports[module] <= done}
        assert free, f"a circle among {sorted('.'.join(m) for m in set(imports) - done)}"
        done |= free


def imported(module: tuple[str, ...], path: Path) -> Iterator[tuple[str, ...]]:
    """The modules of the same package that one imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            home = (*module[: len(module) - node.level], *(node.module or "").split("."))
            home = tuple(filter(None, home))
            yield home
            yield from ((*home, alias.name) for alias in node.names)
