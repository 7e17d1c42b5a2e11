"""Who races over short rows: whoever is here and can."""

from __future__ import annotations

import mgb.plugins
import pytest
from mgb.backends import Scope
from mgb.errors import BackendImportError
from mgb.plugins import import_backend
from mgb_bench import short_rows


def test_broken_backend_is_reported_and_excluded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = short_rows.backends()

    def imported(name: str) -> object:
        if name == "broken":
            raise BackendImportError("backend 'broken' cannot be imported: pip install broken")
        return import_backend(name)

    installed = {"broken": "broken", **mgb.plugins.installed()}
    monkeypatch.setattr(short_rows, "installed", lambda: installed)
    monkeypatch.setattr(short_rows, "import_backend", imported)
    assert short_rows.backends() == here
    assert "without broken: backend 'broken' cannot be imported: pip install" in capsys.readouterr().err


def test_all_contestants_are_cpu_domain_backends() -> None:
    for name in short_rows.backends():
        traits = import_backend(name).traits
        assert "cpu" in traits.devices and traits.scope is Scope.DOMAIN
