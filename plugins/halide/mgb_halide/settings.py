"""The settings of users: environment variables."""

from __future__ import annotations

from mgb.runtime.config import Variable

SCHEDULE = Variable(
    "MGB_HALIDE_SCHEDULE", "", "a schedule for all kernels, tune, or auto= and the name of an autoscheduler"
)
