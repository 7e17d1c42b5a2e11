"""Nothing of what a backend claims may go untried: a suite that skips nearly all of itself proves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cases import DTYPES
from .drive import Driver
from .floor import not_compiled, unclaimed, unused_kinds, unused_words


class TestFloor:
    @pytest.fixture(autouse=True)
    def where_the_backend_works(self, driver: Driver) -> Iterator[None]:
        """Tensors are made on a device of the backend."""
        with driver.place.as_default():
            yield

    def test_backend_claims_the_required_traits(self, driver: Driver) -> None:
        lacking = unclaimed(driver.backend.traits)
        assert not lacking, "; ".join(lacking)

    def test_every_claimed_op_is_run(self, driver: Driver) -> None:
        unused = unused_words(driver.backend.traits)
        assert not unused, f"traits has no dtypes, or no kind, to run these words in: {', '.join(unused)}"

    def test_every_claimed_kind_has_ops(self, driver: Driver) -> None:
        unused = unused_kinds(driver.backend.traits)
        assert not unused, f"traits.vocabulary has no op of kind {', '.join(unused)}"

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_programs_are_compiled_in_every_claimed_dtype(self, driver: Driver, dtype: str) -> None:
        """Check programs all the way through the core, which gives a backend only what its traits accept."""
        if dtype not in driver.backend.traits.dtypes:
            pytest.skip(f"traits.dtypes has no {dtype}")
        reason = not_compiled(driver, dtype)
        assert reason is None, f"nothing in {dtype} is compiled: {reason}"
