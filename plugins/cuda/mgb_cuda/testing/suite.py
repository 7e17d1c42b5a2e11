"""Tests that several backends share: test classes derive from these, and say of which backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from .bench import Bench


class Suite:
    """The base of all shared tests.

    Attributes
    ----------
    bench : Bench
        Of the backend.
    tables : mapping
        For a parameter of tests its values, where these differ between backends.
    """

    bench: ClassVar[Bench]
    tables: ClassVar[Mapping[str, Iterable[Any]]] = {}

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Give each test the values of its parameters that stand in `tables`."""
        for name in metafunc.fixturenames:
            if name in self.tables:
                metafunc.parametrize(name, list(self.tables[name]))
