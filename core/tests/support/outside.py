"""What lies outside of traced bodies in several files, and what statistics say of a traced function."""

from __future__ import annotations

from typing import Any


class Thing:
    """An object outside."""

    factor = 2.0

    def __init__(self) -> None:
        self.number = 2.0

    @property
    def twice(self) -> float:
        return self.number * 2

    def scaled(self, x: Any) -> Any:
        return x * self.factor


thing = Thing()


def runs(function: Any) -> int:
    return int(function.stats()["body_runs"])


def reasons(function: Any) -> str:
    return "\n".join(function.stats()["reasons"])
