"""What users set by environment variables."""

from __future__ import annotations

import os


class _Setting:
    def __init__(self, name: str) -> None:
        self.name = name

    def get(self) -> str:
        """The value now, or an empty text."""
        return os.environ.get(self.name, "").strip()


#: A schedule for all kernels; see `mgb_halide.schedule.parse`.
SCHEDULE = _Setting("MGB_HALIDE_SCHEDULE")
