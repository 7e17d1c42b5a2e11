"""The README's table of backends is what the code says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_table_of_backends_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import backend_table

    assert backend_table.readme() == (ROOT / "README.md").read_text(), (
        f"run: {sys.executable} docs/backend_table.py --write"
    )
