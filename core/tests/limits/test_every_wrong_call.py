"""Every public function and class, called with all that it cannot take: the errors speak of the call."""

from __future__ import annotations

import pytest
from wrong_calls import internal_share


@pytest.mark.slow
def test_errors_of_all_wrong_calls_speak_of_the_call():
    share, found = internal_share(1)
    assert share < 0.02, found
