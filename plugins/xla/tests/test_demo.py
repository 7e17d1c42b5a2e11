"""The digits demo: compiled by XLA it learns as it does eagerly."""

from __future__ import annotations

import numpy as np
from mgb.jit import trace
from mgb.tools import demo


def test_losses_match_eager_training() -> None:
    ways = [("eager", lambda step: step), ("xla", lambda step: trace(step, backend="xla"))]
    eager, xla = demo.train(ways, epochs=1)
    np.testing.assert_allclose(xla.losses, eager.losses, atol=demo.TOLERANCE)
    assert abs(xla.accuracy - eager.accuracy) < 0.01
