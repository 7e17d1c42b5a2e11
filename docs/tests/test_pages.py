"""The Python in README, ARCHITECTURE and on every page of the documentation runs, each block by itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mgb.errors import BackendNotInstalledError, DeviceUnavailableError, FormatImportError

ROOT = Path(__file__).parent.parent.parent
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PAGES = (ROOT / "README.md", ARCHITECTURE, *sorted((ROOT / "docs").glob("*.md")))
BLOCKS = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


def run(code: str, path: Path) -> None:
    """Run `code` as a file at `path`."""
    path.write_text(code)
    exec(compile(code, str(path), "exec", dont_inherit=True), {"__name__": "page"})


@pytest.mark.parametrize("code", BLOCKS)
def test_code_block_of_a_page_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what a block writes stays there
    try:
        run(code, tmp_path / "block.py")
    except (BackendNotInstalledError, DeviceUnavailableError, FormatImportError) as error:
        pytest.skip(str(error))
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        pytest.skip("JAX is not installed: pip install jax")


def test_fast_backend_page_quotes_the_example() -> None:
    """Which examples/tests runs."""
    pieces = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "fast_backends.md").read_text(), re.DOTALL)
    example = (ROOT / "examples" / "backend_fast_c" / "mgb_backend_fast_c.py").read_text()
    assert len(pieces) > 4
    assert [piece for piece in pieces if piece not in example] == []


def test_architecture_example_records_the_documented_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = ARCHITECTURE.read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (graph,) = re.findall(r"^graph\(.*?\n  return %\d+$", text, re.DOTALL | re.MULTILINE)
    (program,) = re.findall(r"^def run\(arrays\):\n(?:    .*\n)+", text, re.MULTILINE)
    run(code, tmp_path / "block.py")
    shown = capsys.readouterr().out
    assert graph in shown and program in shown
