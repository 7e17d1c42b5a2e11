"""What a run found, as JSON for machines and Markdown for people."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

#: The traits that the header shows.
SHOWN = "kinds dtypes devices scope specialize strided max_inputs ieee api_version".split()


def short_id(nodeid: str) -> str:
    """A test's name without the file it was collected through: ``TestCasts::test_bits[int32-float32]``."""
    return nodeid.partition("::")[2]


def describe(name: str) -> dict[str, str]:
    """The backend, its traits and the ``MGB_*`` variables that are set, as text."""
    from mgb.plugins import load_backend

    backend = load_backend(name)
    shown = [f"{field}={_text(getattr(backend.traits, field))}" for field in SHOWN]
    variables = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("MGB_")]
    return {
        "mgb backend": f"{backend.name} {backend.version()}",
        "mgb traits": ", ".join(shown),
        "mgb vocabulary": f"{len(backend.traits.vocabulary)} ops",
        "mgb variables": " ".join(variables) or "none",
    }


def _text(value: Any) -> str:
    if isinstance(value, frozenset):
        return "+".join(sorted(_text(v) for v in value))
    return str(getattr(value, "value", value))


class Reporter:
    """Collects outcomes and writes ``conformance.json`` and ``conformance.md``."""

    def __init__(self, config: pytest.Config) -> None:
        self._folder = Path(config.getoption("--mgb-report"))
        self._backend = config.getoption("--mgb-backend")
        self._tests: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the call of each test, or whatever ended it earlier."""
        if report.when != "call" and report.outcome == "passed":
            return
        name = short_id(report.nodeid)
        outcome = "known failure" if hasattr(report, "wasxfail") else report.outcome
        self._tests.append(
            {
                "id": name,
                "tier": name.partition("::")[0],
                "outcome": outcome,
                "reason": _reason(report),
                "seconds": round(report.duration, 4),
            }
        )

    def pytest_sessionfinish(self) -> None:
        """Write both files."""
        self._folder.mkdir(parents=True, exist_ok=True)
        head = describe(self._backend) if self._backend else {}
        data = {"backend": head, "tests": self._tests}
        (self._folder / "conformance.json").write_text(json.dumps(data, indent=1) + "\n")
        (self._folder / "conformance.md").write_text(_markdown(head, self._tests))


def _reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return crash.message.partition("\n")[0] if crash is not None else ""


def _markdown(head: dict[str, str], tests: list[dict[str, Any]]) -> str:
    outcomes = ("passed", "failed", "known failure", "skipped")
    lines = ["# Conformance", "", *(f"* {key}: {value}" for key, value in head.items()), ""]
    lines += [f"| tier | {' | '.join(outcomes)} |", "| --- |" + " --- |" * len(outcomes)]
    for tier in dict.fromkeys(t["tier"] for t in tests):
        count = Counter(t["outcome"] for t in tests if t["tier"] == tier)
        lines.append(f"| {tier} | {' | '.join(str(count[o]) for o in outcomes)} |")
    for outcome in ("failed", "known failure"):
        found = [t for t in tests if t["outcome"] == outcome]
        if found:
            lines += ["", f"## {outcome}", "", *(f"* `{t['id']}`: {t['reason']}" for t in found)]
    skipped = Counter(t["reason"] for t in tests if t["outcome"] == "skipped")
    if skipped:
        lines += ["", "## skipped", "", *(f"* {reason} ({n} tests)" for reason, n in skipped.items())]
    return "\n".join(lines) + "\n"
