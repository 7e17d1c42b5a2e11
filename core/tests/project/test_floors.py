"""The folder floors of ARCHITECTURE.md hold, `import mgb` is light, and the linters pass."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import mgb
import pytest
from import_graph import circle_in, graph_of, imports, modules_of, nodes_of
from mgb.formats import EXTRAS

PACKAGE = Path(mgb.__file__).parent
ROOT = PACKAGE.parent.parent
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()

#: ARCHITECTURE.md's table of rooms and floors: a module imports what stands before it here or in its folder.
ROWS = re.findall(r"^\| (\w+) \| (\d+) \|(.*)\|$", ARCHITECTURE, re.MULTILINE)
ORDER = [name for *_, modules in ROWS for name in re.findall(r"`(\w+)/?`", modules)]
PLACE = {name: place for place, name in enumerate(ORDER)}
FLOOR = {name: int(floor) for _, floor, modules in ROWS for name in re.findall(r"`(\w+)/?`", modules)}
ROOM = {name: room for room, _, modules in ROWS for name in re.findall(r"`(\w+)/?`", modules)}

MODULES = modules_of(PACKAGE)
#: The folders of the plugins.
PLUGINS = sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))


def may_import(who: str) -> set[str]:
    """The parts of mgb that they may import, by the second table."""
    (text,) = re.findall(rf"^\| {re.escape(who)} \| ([^|]*) \|$", ARCHITECTURE, re.MULTILINE)
    allowed = set(re.findall(r"`(\w+)`", text))
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        floors = range(int(first), int(last or first) + 1)
        allowed |= {name for name, floor in FLOOR.items() if floor in floors}
    return allowed


def parts_imported(name: str, path: Path) -> set[str]:
    """The parts of mgb that a module imports."""
    found = [one.split(".") for one in imports(name, path)]
    return {parts[1] for parts in found if parts[0] == "mgb" and len(parts) > 1}


def test_modules_import_only_from_lower_floors() -> None:
    wrong = []
    for name, path in MODULES.items():
        own = name.split(".")[1] if "." in name else None
        if own is None:
            continue  # which puts the parts together
        assert own in PLACE, f"{own} stands on no floor: add it to ARCHITECTURE.md"
        above = {m for m in parts_imported(name, path) if PLACE.get(m, -1) > PLACE[own]}
        wrong += [f"{name} imports {m} from above" for m in sorted(above)]
    assert len(MODULES) > 200
    assert not wrong, "\n".join(wrong)


def test_rooms_import_only_allowed_parts() -> None:
    assert set(ROOM.values()) == {"compiler", "library", "tools"}
    assert not may_import("compiler") & {name for name, room in ROOM.items() if room != "compiler"}
    wrong = []
    for name, path in MODULES.items():
        if "." in name:
            found = parts_imported(name, path) & ROOM.keys()
            wrong += [f"{name} imports {m}" for m in found - may_import(ROOM[name.split(".")[1]])]
    assert not wrong, "\n".join(wrong)


def test_compiler_does_not_refer_to_the_library() -> None:
    """Neither in an import nor as a text: `"mgb.module"`, `f"mgb.{name}"`."""
    others = {name for name, room in ROOM.items() if room != "compiler"}
    wrong = []
    for name, path in MODULES.items():
        if ROOM.get(name.partition(".")[2].split(".")[0]) != "compiler":
            continue
        for node in nodes_of(path):
            text = node.value if isinstance(node, ast.Constant) else None
            if not isinstance(text, str) or not re.fullmatch(r"[\w./ ]+", text):  # it is for a reader
                continue
            if re.search(rf"\bmgb[./]({'|'.join(others)})\b", text):
                wrong.append(f"{name}, line {node.lineno}: {text!r}")
    assert not wrong, "\n".join(wrong)


def test_imports_have_no_cycle() -> None:
    packages = [path for plugin in PLUGINS for path in plugin.glob("mgb_*") if path.is_dir()]
    graph = graph_of([PACKAGE, ROOT / "conformance" / "mgb_conformance", *packages])
    assert len(graph) > 400
    assert circle_in(graph) is None


def test_import_cycle_is_detected() -> None:
    assert circle_in({"a": ["b"], "b": ["c"], "c": ["b"], "d": []}) == ["b", "c"]
    assert circle_in({"a": ["b", "c"], "b": ["c"], "c": []}) is None


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_plugins_import_only_allowed_parts(plugin: Path) -> None:
    """What they have for tests may import all; a module that is announced for itself, what its group may."""
    settings = tomllib.loads((plugin / "pyproject.toml").read_text())
    groups = settings["project"].get("entry-points", {})
    group_of = {at.partition(":")[0]: group for group, points in groups.items() for at in points.values()}
    for package in plugin.glob("mgb_*"):
        whole = group_of.get(package.name, "mgb.backends")
        for name, path in modules_of(package).items() if package.is_dir() else ():
            if "testing" not in path.parts:
                may = may_import(f"plugins of `{group_of.get(name, whole)}`")
                assert not (parts_imported(name, path) & ROOM.keys()) - may, name


def test_core_mentions_formats_in_one_file() -> None:
    told = [(path.name, path.read_text().lower()) for path in MODULES.values()]
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
        "mgb_cpu_llvm",
        "mgb_cpu_numba",
    }
    assert not new & toolchains
    assert len(new) <= 70
    assert len([name for name in new if name.partition(".")[0] == "mgb"]) <= 57


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["mypy", "--no-error-summary"]],
    ids=["ruff", "mypy"],
)
def test_linters_pass(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
