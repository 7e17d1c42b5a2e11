"""The conformance suite on a backend of tests: a sample at each run, the whole in the long tier."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import mgb_conformance as suite
import pytest
from mgb_conformance.cases import elementwise
from mgb_conformance.drive import Driver
from mgb_conformance.test_elementwise import BATCHES


def tiers(quick: Collection[str], without: Collection[str] = ()) -> dict[str, Any]:
    """Return the classes of the suite, in its order, for the names of a test module.

    Parameters
    ----------
    quick : collection of str
        Those that run each time; the others are marked as slow.
    without : collection of str, optional
        Those that are left out.
    """
    assert {*quick, *without} <= set(suite.__all__)
    found: dict[str, Any] = {}
    for name in suite.__all__:
        if name not in without:
            tier = getattr(suite, name)
            found[name] = tier if name in quick else pytest.mark.slow(type(name, (tier,), {}))
    return found


class Sample:
    """Every element-wise op in some dtypes; a module sets ``MGB_BACKEND`` and gives the dtypes."""

    def test_every_elementwise_op(self, driver: Driver, dtype: str) -> None:
        for d, name in elementwise():
            if d == dtype:
                BATCHES.ask(driver, d, name)
