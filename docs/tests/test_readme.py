"""The tables of backends are what the code says, and the picture has the rows that `mgb demo` prints."""

from __future__ import annotations

import json
import re
import sys
from html import unescape
from pathlib import Path

import pytest
from mgb.tools import demo

ROOT = Path(__file__).parent.parent.parent


def test_tables_of_backends_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import backends

    command = f"run: {sys.executable} docs/backends.py --write"
    assert backends.readme() == backends.README.read_text(), command
    assert backends.page() == backends.PAGE.read_text(), command
    assert backends.rows() == json.loads(backends.DATA.read_text()), command


def test_picture_of_the_demo_has_its_rows_and_columns() -> None:
    """Else: ``mgb demo --picture docs/demo.svg``, on a quiet machine."""
    texts = re.findall(r"<text[^>]*>(.*?)</text>", (ROOT / "docs" / "demo.svg").read_text())
    shown = [unescape(text).replace("\xa0", " ").strip(" │┃") for text in texts]
    table = shown[next(n for n, text in enumerate(shown) if text.startswith("┏")) :]
    assert [text for text in table if text in demo.COLUMNS] == list(demo.COLUMNS)
    names = [name for name, _ in demo.WAYS]
    assert [text for text in table if text in names] == names
    assert not [text for text in shown if "busy" in text]


def test_tables_of_speed_are_those_of_the_results() -> None:
    """And what they are of is the backend that is taken by default."""
    report = pytest.importorskip("mgb_bench.report", reason="not installed: pip install ./benchmarks")
    from mgb_bench import results, summary

    found = results.parse(json.loads((ROOT / "docs" / "benchmarks" / "results.json").read_text("utf-8")))
    page = (ROOT / "README.md").read_text("utf-8")
    assert summary.renewed(page, found) == page, (
        "python -m mgb_bench.summary docs/benchmarks/results.json README.md"
    )
    assert report.markdown(found) == (ROOT / "docs" / "benchmarks" / "report.md").read_text("utf-8")
    assert {name.split()[0] for name in found.contestants} == {"mgb:cpu_llvm"}
