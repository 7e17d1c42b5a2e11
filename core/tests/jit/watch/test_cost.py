"""What watching costs: the lines of mgb that run for each event of a body, once its code has started."""

from __future__ import annotations

import dataclasses
import enum
import logging
import math
import sys
from collections import OrderedDict
from collections.abc import Callable
from fractions import Fraction
from types import FrameType
from typing import Any

import pytest
from mgb.jit.watch import Observer, events

#: Lines of Python for each event. A message that nobody wants is four events for two lines of the body.
MOST = 12
MOST_OF_LOGGING = 30
FIELDS = "{} {x}"
LOG = logging.getLogger("watched_cost")


class Profiling:
    """Stands for `sys`: counts the events that a body tells, and the lines that run in what is told."""

    _getframe = staticmethod(sys._getframe)

    def __init__(self) -> None:
        self.told = self.lines = 0
        self._callback: Any = None

    def setprofile(self, callback: Any) -> None:
        self._callback = callback
        sys.setprofile(None if callback is None else self._relay)

    def getprofile(self) -> Any:
        return self._callback

    def _relay(self, frame: FrameType, event: str, arg: Any) -> None:
        if self._callback is None:
            return
        self.told += 1
        sys.setprofile(None)
        sys.call_tracing(self._traced, (frame, event, arg))
        self.setprofile(self._callback)

    def _traced(self, *told: Any) -> None:
        sys.settrace(self._trace)
        self._callback(*told)
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.lines += event == "line"
        return self._trace


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Vector:
    def __init__(self, a: int, b: int) -> None:
        self.a, self.b = a, b

    @property
    def total(self) -> int:
        return self.a + self.b

    def __add__(self, other: Vector) -> Vector:
        return Vector(self.a + other.a, self.b + other.b)


def dataclass_instances(n: int) -> Any:
    return [dataclasses.replace(Point(i), y=1) for i in range(n)][-1].y


def enum_lookups(n: int) -> Any:
    return [Color(1 + i % 2).value for i in range(n)][-1]


def parsed(text: str, at: int) -> tuple[Any, int]:
    if text[at].isdigit():
        return int(text[at]), at + 1
    found: list[Any] = []
    while text[at] != "]":
        value, at = parsed(text, at + 1)
        found.append(value)
    return found, at + 1


def parsing(n: int) -> Any:
    return len(parsed("[" + ",".join(["[1,[2,3],4]"] * n) + "]", 0)[0])


def sorting_by_key(n: int) -> Any:
    return sorted(range(n), key=lambda i: -i)[0]


def formatted_texts(n: int) -> Any:
    return "".join(f"{i:3d}{i!r}".strip().replace("1", "one") + FIELDS.format(i, x=2) for i in range(n))


def set_operations(n: int) -> Any:
    found: set[int] = set()
    for i in range(n):
        found.add(i % 7)
        found.update(found.union({i, 2}).difference({3}))
    return len(found)


def counted_words(n: int) -> Any:
    found: OrderedDict[str, int] = OrderedDict()
    for word in ["foo", "bar"] * n:
        found[word] = found.get(word, 0) + len(word)
        found.move_to_end(word)
    return found


def vectors(n: int) -> Any:
    total = Vector(0, 0)
    for i in range(n):
        total = total + Vector(i, 1)
    return total.total


def numbers(n: int) -> Any:
    return [math.sin(i) + max(i, 2) + Fraction(i, 3) for i in range(n)][-1]


def debug_messages(n: int) -> None:
    for _ in range(n):
        LOG.debug("nobody wants this")


def errors_handled(n: int) -> Any:
    found = 0
    for i in range(n):
        try:
            Color(i + 3)
        except ValueError as error:
            found += isinstance(error, ValueError)
    return found


def deep(depth: int, function: Callable[..., Any], n: int) -> Any:
    """Call it, far from where the body begins."""
    return deep(depth - 1, function, n) if depth else function(n)


BODIES = (
    dataclass_instances, enum_lookups, parsing, sorting_by_key, formatted_texts, set_operations,
    counted_words, vectors, numbers, debug_messages, errors_handled,
)  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_lines_run_for_each_event_are_few(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def counts(n: int) -> Profiling:
        found = Profiling()
        monkeypatch.setattr(events, "sys", found)
        Observer([]).run(lambda: deep(60, body, n))
        return found

    counts(3)
    few, many = counts(60), counts(160)
    assert many.told - few.told >= 100
    most = MOST_OF_LOGGING if body is debug_messages else MOST
    assert (many.lines - few.lines) / (many.told - few.told) <= most
