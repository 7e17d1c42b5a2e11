"""Backends of tests, for the process that tests run in and for those that they start."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mgb.backends import Backend
from mgb.backends.eager_backend import EagerBackend
from mgb.backends.plugins import manager

from .bench import provider


def register(backend: Backend) -> None:
    """Have `backend` found by its name in this process.

    Raises
    ------
    ValueError
        It might serve programs that name no backend: those of other tests, too.
    """
    if backend.traits.priority >= EagerBackend().traits.priority:
        raise ValueError(f"{backend.name} has priority {backend.traits.priority}: see bench.unasked")
    if not manager.has_plugin(backend.name):
        manager.register(provider(backend), name=backend.name)


def announced(name: str, helpers: Path) -> Callable[..., Any]:
    """Return a fixture that announces a backend as a distribution does, so that other processes find it.

    Parameters
    ----------
    name : str
        Of the backend.
    helpers : Path
        The module whose ``Plugin`` answers to it.
    """

    @pytest.fixture(scope="session", autouse=True)
    def found_by_other_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        folder = tmp_path_factory.mktemp("announced")
        info = folder / f"mgb_{name}-0.dist-info"
        info.mkdir()
        title = f"mgb-{name.replace('_', '-')}"
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {title}\nVersion: 0\n")
        (info / "entry_points.txt").write_text(f"[mgb.backends]\n{name} = {helpers.stem}:Plugin\n")
        with pytest.MonkeyPatch.context() as patch:
            kept = os.environ.get("PYTHONPATH")
            places = [str(folder), str(helpers.parent), *([kept] if kept else [])]
            patch.setenv("PYTHONPATH", os.pathsep.join(places))
            yield

    return found_by_other_processes
