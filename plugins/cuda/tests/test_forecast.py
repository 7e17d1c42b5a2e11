"""Predictions follow the three bounds; the numbers are the published ones of a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mgb_cuda import Properties
from mgb_cuda.forecast import forecast
from mgb_cuda.ledger import Entry, Ledger

H200 = Properties("H200", (9, 0), 132, clock=1.75e9, bandwidth=4.8e12)
N = 1 << 26

#: A kernel with nothing in its way: it reads and writes a float32 of each element once.
COPY = Entry("copy", 1 << 16, 256, 16, 0, 0, 8, 5.0, 4.0, 4.0, 128 << 10, 16)


def of(entry: Entry, least: tuple[int, int] = (4, 4)) -> float:
    return forecast(Ledger((entry,), *least), N, H200).of_copy


def test_copy_is_forecast_at_copy_speed() -> None:
    assert of(COPY) > 0.95


@pytest.mark.parametrize(
    ("changes", "bound"),
    [
        ({"instructions": 100.0}, "issue"),
        ({"under_way": 4 << 10}, "waiting"),
        ({"read": 12.0}, "memory"),
    ],
)
def test_each_bound_limits_the_forecast(changes: dict[str, float], bound: str) -> None:
    slower = replace(COPY, **changes)
    assert of(slower) < 0.65 * of(COPY)
    assert forecast(Ledger((slower,), 4, 4), N, H200).bound == bound


def test_single_resident_block_does_not_overlap_work() -> None:
    busy = replace(COPY, instructions=40.0)
    assert of(replace(busy, resident=1)) < of(busy)


def test_small_arrays_are_bound_by_launches() -> None:
    found = forecast(Ledger((COPY,), 4, 4), 1 << 12, H200)
    assert found.bound == "launches" and found.of_copy < 0.01
    assert "predicted" in str(found)


def test_forecast_uses_defaults_for_unknown_driver_rates() -> None:
    known, unknown = (
        forecast(Ledger((COPY,), 4, 4), N, p) for p in (H200, replace(H200, clock=0, bandwidth=0))
    )
    assert known.seconds == pytest.approx(unknown.seconds)
