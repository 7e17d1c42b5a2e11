"""The conformance suite, run on this communicator."""

from mgb_conformance.test_communicators import *  # noqa: F403

MGB_COMMUNICATOR = "mpi"
