"""The folder floors of ARCHITECTURE.md hold, `import mgb` is light, and the linters pass."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mgb

PACKAGE = Path(mgb.__file__).parent
ROOT = PACKAGE.parent.parent

FLOORS = [
    {"errors", "config", "dtypes", "device", "ir"},
    {"tensor", "apply", "tracing", "memory"},
    {"ops"},
    {"autodiff"},
    {"functional", "module", "optimizer", "random", "data", "serialization", "passes"},
    {"backend", "codegen"},
    {"fusion"},
    {"plugins", "eager_backend", "cache", "executor"},
    {"jit"},
    {"demo", "cli", "__main__"},
]
FLOOR_OF = {name: level for level, names in enumerate(FLOORS) for name in names}
BACKEND_API = {"backend", "codegen", "ir", "plugins"}


def imports(path: Path, package: tuple[str, ...]) -> set[str]:
    """The top-level modules of `mgb` that the file at `path` imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            names = [module] if len(module) > 1 else [(*module, a.name) for a in node.names]
            found |= {n[1] for n in names if n[0] == "mgb"}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("mgb.")}
    return found


MODULES = [p for p in sorted(PACKAGE.rglob("*.py")) if p != PACKAGE / "__init__.py"]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_module_imports_only_from_lower_floors(path: Path) -> None:
    parts = ("mgb", *path.relative_to(PACKAGE).with_suffix("").parts)
    own = parts[1]
    assert own in FLOOR_OF, f"{own} stands on no floor: add it to ARCHITECTURE.md and to this test"
    package = parts[:-1]
    above = {
        m for m in imports(path, package) if m in FLOOR_OF and m != own and FLOOR_OF[m] > FLOOR_OF[own]
    }
    assert not above, f"{own} (floor {FLOOR_OF[own]}) imports {sorted(above)} from above"


PLUGINS = [p for p in sorted((ROOT / "plugins").rglob("mgb_*/*.py"))]


@pytest.mark.parametrize("path", PLUGINS, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_plugin_uses_only_the_backend_api(path: Path) -> None:
    assert imports(path, (path.parent.name,)) <= BACKEND_API


def test_import_is_light() -> None:
    """`import mgb` takes under 150 ms (the best of five) and imports no toolchain and no plugin."""
    script = (
        "import time, numpy; start = time.perf_counter(); import mgb; seconds = time.perf_counter() - start\n"
        "import sys\n"
        "heavy = {'numba', 'llvmlite', 'cupy', 'jax', 'torch', 'scipy', 'rich', 'mgb_cpu_numba'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "print(seconds)"
    )
    run = [sys.executable, "-c", script]
    seconds = min(float(subprocess.check_output(run, text=True)) for _ in range(5))
    assert seconds < 0.150


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
