"""The README's Python runs, and its table of backends is what the code says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_python_of_the_readme_runs(code: str, tmp_path: Path) -> None:
    path = tmp_path / "block.py"
    path.write_text(code)
    exec(compile(code, str(path), "exec"), {"__name__": "readme"})


def test_table_of_backends_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import backend_table

    assert backend_table.readme() == (ROOT / "README.md").read_text(), (
        f"run: {sys.executable} docs/backend_table.py --write"
    )
