"""The folder floors of ARCHITECTURE.md hold, `import mgb` is light, and the linters pass."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import mgb
import pytest

PACKAGE = Path(mgb.__file__).parent
ROOT = PACKAGE.parent.parent
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()

#: ARCHITECTURE.md's table of floors: a module imports only what stands before it here, or in its own folder.
ORDER = re.findall(r"`(\w+)/?`", "".join(re.findall(r"^\| \d \|(.*)\|$", ARCHITECTURE, re.MULTILINE)))
PLACE = {name: place for place, name in enumerate(ORDER)}
BACKEND_API = {"backend", "cache", "codegen", "ir", "plugins", "libraries", "forking"}


def imports(path: Path, package: tuple[str, ...]) -> set[str]:
    """The top-level modules of `mgb` that the file at `path` imports, anywhere in it, also by a string."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            names = [module] if len(module) > 1 else [(*module, a.name) for a in node.names]
            found |= {n[1] for n in names if n[0] == "mgb"}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("mgb.")}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= set(re.findall(r"^'mgb\.(\w+)", ast.unparse(node.args[0])))
    return found


MODULES = [p for p in sorted(PACKAGE.rglob("*.py")) if p != PACKAGE / "__init__.py"]


def test_modules_import_only_from_lower_floors() -> None:
    wrong = []
    for path in MODULES:
        parts = ("mgb", *path.relative_to(PACKAGE).with_suffix("").parts)
        own = parts[1]
        assert own in PLACE, f"{own} stands on no floor: add it to ARCHITECTURE.md"
        above = {m for m in imports(path, parts[:-1]) if PLACE.get(m, -1) > PLACE[own]}
        wrong += [f"{path.relative_to(PACKAGE)} imports {m} from above" for m in sorted(above)]
    assert len(MODULES) > 200
    assert not wrong, "\n".join(wrong)


PLUGINS = sorted((ROOT / "plugins").rglob("mgb_*/*.py"))


def test_plugins_use_only_the_backend_api() -> None:
    used = {str(path.relative_to(ROOT)): imports(path, (path.parent.name,)) for path in PLUGINS}
    assert len(used) > 50
    assert not {path: found - BACKEND_API for path, found in used.items() if found - BACKEND_API}


def test_import_is_light() -> None:
    """`import mgb` imports no toolchain, no plugin and few modules besides NumPy's."""
    script = "import sys, numpy; before = set(sys.modules); import mgb; print(*(set(sys.modules) - before))"
    new = set(subprocess.check_output([sys.executable, "-c", script], text=True).split())
    toolchains = {
        "numba",
        "llvmlite",
        "cupy",
        "jax",
        "torch",
        "scipy",
        "rich",
        "onnx",
        "pluggy",
        "mgb_cpu_numba",
    }
    assert not new & toolchains
    assert len(new) <= 70
    assert len([name for name in new if name.partition(".")[0] == "mgb"]) <= 55


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["mypy", "--no-error-summary"]],
    ids=["ruff", "mypy"],
)
def test_linters(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
