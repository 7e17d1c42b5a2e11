"""Tensors of more elements than int32 counts: 2 GiB each."""

from __future__ import annotations

import mgb
import mgb.functional as F
import numpy as np
import pytest

PLACE = 2**31 + 5


@pytest.mark.slow
def test_places_beyond_int32_do_not_wrap():
    given = np.zeros(2**31 + 1000, np.int8)
    given[PLACE] = 7
    x = mgb.tensor(given, dtype="int8")
    del given
    assert F.argmax(x, axis=0).item() == F.argmin(-x, axis=0).item() == PLACE
    assert [place.tolist() for place in F.nonzero(x)] == [[PLACE]]
