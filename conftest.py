"""What all tests of the checkout share: examples, and the kernels that a run compiles."""

import os
import shutil
import tempfile

import pytest
from hypothesis import HealthCheck, settings

#: A busy machine may stop a test for as long as it likes: no example is late, none is slow.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

#: Each run has the same examples, so that the same code has the same verdict; "explore" has others.
settings.register_profile("same", _PATIENT, derandomize=True)
settings.register_profile("explore", _PATIENT)
settings.load_profile("same")

#: Names the folder of kernels, which is kept then; without it each run has one of its own.
KEPT = "MGB_TEST_CACHE"


def pytest_configure(config: pytest.Config) -> None:
    """All tests, workers and processes of a run share one folder of kernels, which nobody else has."""
    if hasattr(config, "workerinput"):
        return  # it inherits what the first process has set
    folder = os.environ.get(KEPT) or tempfile.mkdtemp(prefix="mgb-kernels-")
    os.environ["MGB_CACHE_DIR"] = folder
    if KEPT not in os.environ:
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
