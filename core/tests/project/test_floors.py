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
from mgb.storage.formats import EXTRAS

PACKAGE = Path(mgb.__file__).parent
ROOT = PACKAGE.parent.parent
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()

#: ARCHITECTURE.md's table of rooms and floors: a module imports from its own room and from those before it.
ROWS = re.findall(r"^\| (\w+) \| (\d+) \| `(\w+)/?` \|.*\|$", ARCHITECTURE, re.MULTILINE)
FLOOR = {name: int(floor) for _, floor, name in ROWS}
ROOM = {name: part for part, _, name in ROWS}

MODULES = modules_of(PACKAGE)
#: The folders of the plugins.
PLUGINS = sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))


def home(name: str) -> str:
    """Where a module is that may be named by a public alias."""
    first, _, rest = name.partition(".")
    return ".".join(filter(None, (mgb._PUBLIC.get(first, first), rest)))


def may_import(who: str) -> set[str]:
    """The rooms and modules of mgb that they may import, by the second table."""
    (text,) = re.findall(rf"^\| {re.escape(who)} \| ([^|]*) \|$", ARCHITECTURE, re.MULTILINE)
    allowed = {home(name) for name in re.findall(r"`([\w.]+)`", text)}
    for first, last in re.findall(r"\b(\d+)(?:-(\d+))?", text):
        floors = range(int(first), int(last or first) + 1)
        allowed |= {name for name, floor in FLOOR.items() if floor in floors}
    return allowed


def parts_imported(name: str, path: Path) -> set[str]:
    """What a module imports of mgb, below mgb."""
    found = {one.partition(".")[2] for one in imports(name, path) if one.startswith("mgb.")}
    return {home(one) for one in found if home(one).split(".")[0] in ROOM}


def not_allowed(found: set[str], allowed: set[str]) -> set[str]:
    return {one for one in found if not any(f"{one}.".startswith(f"{name}.") for name in allowed)}


def test_each_folder_is_a_room() -> None:
    found = {
        path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert found - {"__init__"} == set(ROOM)


def test_modules_import_only_from_lower_floors() -> None:
    wrong = []
    for name, path in MODULES.items():
        if "." not in name:
            continue  # which puts the parts together
        own = name.split(".")[1]
        above = {one for one in parts_imported(name, path) if FLOOR[one.split(".")[0]] > FLOOR[own]}
        wrong += [f"{name} imports {one} from above" for one in sorted(above)]
    assert len(MODULES) > 200
    assert not wrong, "\n".join(wrong)


def test_rooms_import_only_allowed_parts() -> None:
    assert set(ROOM.values()) == {"compiler", "library", "tools"}
    assert not may_import("compiler") & {name for name, room in ROOM.items() if room != "compiler"}
    wrong = []
    for name, path in MODULES.items():
        if "." in name:
            found = not_allowed(parts_imported(name, path), may_import(ROOM[name.split(".")[1]]))
            wrong += [f"{name} imports {one}" for one in found]
    assert not wrong, "\n".join(wrong)


def test_compiler_does_not_refer_to_the_library() -> None:
    """Neither in an import nor as a text: `"mgb.module"`, `f"mgb.{name}"`."""
    others = {name for name, room in ROOM.items() if room != "compiler"}
    others |= {name for name in mgb._PUBLIC if ROOM[home(name).split(".")[0]] != "compiler"}
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
                assert not not_allowed(parts_imported(name, path), may), name


#: Lines that groups of rooms may have; what is new goes where something goes.
BUDGETS = {
    ("errors", "runtime", "ir", "tensor", "ops", "passes", "backends", "codegen", "fusion"): 23_000,
    ("executor",): 6_050,
    ("jit",): 17_200,
    ("autodiff", "loops", "transforms"): 3_300,
    ("storage", "profiling"): 3_900,
}


@pytest.mark.parametrize("rooms", BUDGETS, ids=", ".join)
def test_rooms_stay_within_their_budget(rooms: tuple[str, ...]) -> None:
    found = [
        path for name, path in MODULES.items() if name.startswith(tuple(f"mgb.{room}" for room in rooms))
    ]
    lines = sum(path.read_text().count("\n") for path in found if path.parent.name != "bodies")
    assert BUDGETS[rooms] * 0.9 <= lines <= BUDGETS[rooms], "lower the budget, or remove something"


def test_architecture_page_is_short() -> None:
    assert ARCHITECTURE.count("\n") <= 250


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
    assert len(new) <= 77
    assert len([name for name in new if name.partition(".")[0] == "mgb"]) <= 64


def test_training_a_transformer_imports_no_scipy() -> None:
    """It takes longer to import than a small network to train a step."""
    script = """if True:
        import sys, mgb, mgb.functional as F
        x, w = mgb.tensor([[0.5] * 64] * 64), mgb.Parameter([[0.1] * 64] * 64)
        with mgb.autodiff.GradManager().attach([w]) as manager:
            rows = F.nn.embedding(mgb.tensor([[0, 1, 1, 2] * 64] * 4), w)
            manager.backward(F.gelu(rows).sum() + F.softmax(x @ w).sum())
        assert "scipy" not in sys.modules
        """
    subprocess.run([sys.executable, "-c", script], check=True)


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
