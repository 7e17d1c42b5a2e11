"""The conformance suite, run on this backend where there is a C compiler."""

import pytest
from mgb.backends.plugins import import_backend
from mgb_conformance import *  # noqa: F403

MGB_BACKEND = "c"
missing = import_backend(MGB_BACKEND).probe()
pytestmark = pytest.mark.skipif(missing is not None, reason=str(missing))
