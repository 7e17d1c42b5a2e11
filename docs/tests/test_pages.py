"""The Python in the README and on every page of the documentation runs, each block by itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mgb.errors import BackendNotInstalledError, DeviceUnavailableError, FormatMissingError

ROOT = Path(__file__).parent.parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCKS = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("code", BLOCKS)
def test_python_of_a_page_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # what a block writes stays there
    path = tmp_path / "block.py"
    path.write_text(code)
    try:
        exec(compile(code, str(path), "exec", dont_inherit=True), {"__name__": "page"})
    except (BackendNotInstalledError, DeviceUnavailableError, FormatMissingError) as error:
        pytest.skip(str(error))
