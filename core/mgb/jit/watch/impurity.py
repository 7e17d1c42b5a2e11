"""The reason why a body cannot be skipped, and whose line says so."""

from __future__ import annotations

from dataclasses import dataclass
from types import FrameType

from ...runtime.trusted import is_library
from .known import is_trusted


@dataclass(frozen=True, slots=True)
class Impurity:
    """The reason why a body cannot be skipped, and the line of the user that made it so."""

    reason: str
    file: str
    line: int
    once: bool = False  # may another call do without it?
    writes: bool = False  # does it change something outside?

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


def line_of(frame: FrameType | None) -> tuple[str, int]:
    """Return the innermost line of the user."""
    library = None
    while frame is not None:
        code = frame.f_code
        if not is_trusted(code):
            if not is_library(frame.f_globals.get("__name__")):
                return code.co_filename, frame.f_lineno
            library = library or (code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return library or ("?", 0)
