"""The folder floors of ARCHITECTURE.md hold, `import mgb` is light, and the linters pass."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import mgb
import pytest
from mgb.formats import EXTRAS

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


#: The folders of the plugins, and of those that bring a format of files.
PLUGINS = {path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml")}
FORMATS = {path for path in PLUGINS if "mgb.formats" in (path / "pyproject.toml").read_text()}


def used_by(plugins: set[Path]) -> dict[str, set[str]]:
    """By each file of `plugins`, what of the core it imports; what they have for tests may import all."""
    files = [path for plugin in plugins for path in sorted(plugin.glob("mgb_*/**/*.py"))]
    files = [path for path in files if "testing" not in path.parts]
    return {str(path.relative_to(ROOT)): imports(path, (path.parent.name,)) for path in files}


def test_plugins_use_only_the_backend_api() -> None:
    used = used_by(PLUGINS - FORMATS)
    assert len(used) > 50
    assert not {path: found - BACKEND_API for path, found in used.items() if found - BACKEND_API}


def test_plugins_of_formats_use_only_what_stands_below_the_trace() -> None:
    used = used_by(FORMATS)
    assert len(used) > 20
    above = set(ORDER[PLACE["jit"] :])
    assert not {path: found & above for path, found in used.items() if found & above}


def test_the_core_names_formats_in_one_place() -> None:
    told = [(path.name, path.read_text().lower()) for path in MODULES]
    for name in EXTRAS:
        assert [file for file, text in told if name in text] == ["formats.py"]


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
