"""The conformance suite, run on this backend."""

from mgb_conformance import *  # noqa: F403

MGB_BACKEND = "cpu_llvm"
