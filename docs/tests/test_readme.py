"""The tables of backends are what the code says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def test_tables_of_backends_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import backends

    command = f"run: {sys.executable} docs/backends.py --write"
    assert backends.readme() == backends.README.read_text(), command
    assert backends.page() == backends.PAGE.read_text(), command
    assert backends.rows() == json.loads(backends.DATA.read_text()), command
