"""What the pages name is there: files, links, variables, errors, commands, tiers, MegEngine's names."""

from __future__ import annotations

import builtins
import importlib
import re
from functools import cache
from pathlib import Path

import pytest
from mgb.tools.cli import _parser

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("plugins/*/README.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
    ROOT / "conformance" / "README.md",
    ROOT / "benchmarks" / "README.md",
]
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

#: Made by mkdocs.
MADE = {"reference/index.md"}

#: Folders whose files are named by their whole paths.
FOLDERS = r"(?:core|docs|plugins|examples|benchmarks|conformance|\.ci|\.github)"


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def heads(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in lines}


@cache
def sources() -> str:
    """All text of the checkout that is no page."""
    found = [
        path
        for ending in ("py", "toml", "yml", "ll", "txt", "h", "c", "cuh")
        for folder in ("core", "plugins", "conformance", "benchmarks", "examples", "docs")
        for path in (ROOT / folder).rglob(f"*.{ending}")
    ]
    found += [ROOT / "conftest.py"]
    return "\n".join(path.read_text("utf-8", errors="replace") for path in found if path.is_file())


@EACH_PAGE
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    wrong = []
    for target, anchor in re.findall(r"\]\(([^)#\s*]*)(#[^)\s]*)?\)", prose(page)):
        if target.startswith("http") or target in MADE:
            continue
        file = page.parent / target if target else page
        if not file.exists() or (anchor and anchor[1:] not in heads(file)):
            wrong.append(target + anchor)
    assert wrong == []


@EACH_PAGE
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(rf"(?<![\w./-]){FOLDERS}/[\w./-]+", page.read_text())
    named += re.findall(r"`(tests/[\w/]+\.py)`", page.read_text())
    folders = [page.parent, ROOT]  # a link is from the page, a command from the root
    wrong = [
        name
        for name in named
        if "NAME" not in name
        and not any((folder / name.rstrip("./")).exists() for folder in folders)
        and not list(ROOT.glob(name.rstrip("./") + ".*"))
    ]
    assert wrong == []


@EACH_PAGE
def test_variables_and_errors_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    variables = set(re.findall(r"\bMGB_[A-Z0-9_]*[A-Z0-9]\b", text))
    assert {name for name in variables if not re.search(rf"\b{name}\b", sources())} == set()
    named = set(re.findall(r"`(?:mgb\.errors\.)?([A-Z]\w+(?:Error|Warning))`", text))
    ours = {name for name in named if not hasattr(builtins, name)}
    assert {name for name in ours if f"class {name}" not in sources()} == set()


def test_page_of_the_suite_lists_its_tiers() -> None:
    folder = ROOT / "conformance" / "mgb_conformance"
    tiers = {
        name
        for path in folder.glob("test_*.py")
        for name in re.findall(r"^class (Test\w+)", path.read_text(), re.MULTILINE)
    }
    text = (ROOT / "conformance" / "README.md").read_text()
    rows = re.findall(r"^\| (`Test.*?) \|", text, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(Test\w+)`", row)} == tiers


#: The modules behind the rows of docs/megengine.md.
PACKAGES = {
    "megengine": "mgb",
    "functional.loss": "mgb.functional.loss",
    "functional.nn": "mgb.functional.nn",
}


def rows() -> list[tuple[str, str, str]]:
    """The table of docs/megengine.md: a package, what is here, what is not."""
    text = (ROOT / "docs" / "megengine.md").read_text()
    return re.findall(r"^\| `([\w.]+)` \| (.*?) \| (.*?) \|$", text, re.MULTILINE)


def names(cell: str) -> list[str]:
    """The names of a cell that are names of the package alone."""
    return [name for name in re.findall(r"`([^`]+)`", cell) if name.isidentifier()]


@pytest.mark.parametrize(("package", "here", "missing"), rows(), ids=lambda text: text[:20])
def test_megengine_page_knows_what_is_here(package: str, here: str, missing: str) -> None:
    name = PACKAGES.get(package, f"mgb.{package}")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        assert not names(here) or package == "functional.vision"
        return
    assert [n for n in names(here) if not hasattr(module, n) and n not in ("dump", "ctc_loss")] == []
    assert [n for n in names(missing) if hasattr(module, n) and n not in names(here)] == []


def test_commands_of_the_pages_are_those_of_mgb() -> None:
    """``mgb NAME`` in a page is a command, with options that it has."""
    actions = [action for action in _parser()._actions if action.choices]
    commands = {name: parser.format_help() for name, parser in dict(actions[0].choices or {}).items()}
    wrong = []
    for page in PAGES:
        blocks = re.split(r"^```.*$", page.read_text(), flags=re.MULTILINE)[1::2]
        lines = re.findall(r"(?:^|&& )mgb (.*)$", "\n".join(blocks), re.MULTILINE)
        for line in lines + re.findall(r"`mgb ([\w-]+ [^`]*)`", prose(page)):
            words = re.split(r"#|&&", line)[0].split()
            if words[0] not in commands:
                wrong.append((page.name, *words))
                continue
            options = [word.split("=")[0] for word in words[1:] if word.startswith("--")]
            wrong += [(page.name, words[0], o) for o in options if o not in commands[words[0]]]
    assert wrong == []
