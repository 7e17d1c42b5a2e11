"""Type checkers see what decorators and Modules take and give, in examples and documentation too."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import mgb
import pytest

ROOT = Path(mgb.__file__).parent.parent.parent
SAMPLE = Path(__file__).with_name("typing_sample.py")
#: By line, the error that mypy is to find there.
WRONG = {
    number: found[1]
    for number, line in enumerate(SAMPLE.read_text().splitlines(), 1)
    if (found := re.search(r"# wrong: ([\w-]+)$", line))
}
#: Samples of the documentation have no annotations; what they do with mgb is checked nevertheless.
RELAXED = (
    "# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs, "
    "disable-error-code=var-annotated\n"
)


def mypy(*files: Path) -> list[tuple[str, int, str]]:
    """File, line and code of each error, under the settings of the core, which are strict."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    done = subprocess.run([*command, *map(str, files)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    found = re.findall(r"^(.+?):(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    return [(Path(file).name, int(line), code) for file, line, code in found]


def test_mypy_reports_exactly_the_wrong_lines_of_the_sample() -> None:
    assert len(WRONG) == 8
    assert {line: code for _, line, code in mypy(SAMPLE)} == WRONG


def samples(folder: Path) -> list[Path]:
    """The samples of MegEngine's guide and the decorators of the documentation, as files in `folder`."""
    examples = [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples" / "guide").glob("*.py")]
    texts = {f"example_{path.stem}": path.read_text() for path in examples}
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
            if re.search(r"@(jit\.)?(partial_|xla_)?trace\b", code):
                texts[f"{page.stem}_{number}"] = code
    assert len(texts) > 40
    files = []
    for name, text in texts.items():
        text = text.replace("from common import", "from example_common import")
        files.append(folder / f"{name}.py")
        files[-1].write_text(RELAXED + text)
    return files


def test_mypy_accepts_examples_and_documented_decorators(tmp_path: Path) -> None:
    assert mypy(*samples(tmp_path)) == []


#: Examples of libraries that have no types, or wrong ones: SciPy, Dask and Ray.
UNTYPED = {"array_api", "parallel"}


@pytest.mark.slow  # half a minute
def test_pyright_agrees_with_mypy(tmp_path: Path) -> None:
    """It finds the same lines of the sample wrong, and none of the examples and decorators."""
    if find_spec("pyright") is None:
        pytest.skip("pyright is not installed: pip install 'pyright[nodejs]'")
    samples(tmp_path)
    shutil.copy(SAMPLE, tmp_path)
    for path in (ROOT / "examples").iterdir():
        if path.is_dir() and path.name not in UNTYPED:
            for example in path.glob("*.py"):
                shutil.copy(example, tmp_path)
    installed = [ROOT / "core", ROOT / "conformance", *(ROOT / "plugins").iterdir()]
    config = {
        "extraPaths": [str(path) for path in installed if path.is_dir()],
        "typeCheckingMode": "standard",
        "reportPossiblyUnboundVariable": False,  # what a loop that runs at least once has made
        "reportFunctionMemberAccess": False,  # a decorator of what has no annotations counts as none
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = [one for one in json.loads(done.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    of_sample = [one for one in found if Path(one["file"]).name == SAMPLE.name]
    assert {one["range"]["start"]["line"] + 1 for one in of_sample} == WRONG.keys()
    others = [f"{Path(one['file']).name}: {one['message']}" for one in found if one not in of_sample]
    assert others == []
