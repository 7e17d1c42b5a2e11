"""Windows as columns, and pooling along one axis: against torch."""

from __future__ import annotations

from typing import Any

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from differences import check
from mgb import Tensor
from mgb.errors import ShapeError
from mgb.jit import trace

torch = pytest.importorskip("torch", reason="torch is not installed")

RNG = np.random.default_rng(0)
IMAGES, ROWS = RNG.normal(size=(2, 3, 6, 7)), RNG.normal(size=(2, 3, 9))
OPTIONS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "padding": (1, 0), "stride": (2, 1)},
    {"kernel_size": 2, "dilation": (2, 3), "padding": 1, "stride": 2},
]


def t(x: Any) -> Tensor:
    return Tensor(x, dtype="float64")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_unfold_and_fold_match_torch(options: dict[str, Any]) -> None:
    want = torch.nn.functional.unfold(torch.tensor(IMAGES), **options)
    traced = trace(lambda x: F.unfold(x, **options))
    for found in (F.unfold(t(IMAGES), **options), traced(t(IMAGES)), traced(t(IMAGES))):
        np.testing.assert_array_equal(found.numpy(), want.numpy())
    back = torch.nn.functional.fold(want, (6, 7), **options)
    np.testing.assert_allclose(F.fold(t(want.numpy()), (6, 7), **options).numpy(), back.numpy(), rtol=1e-12)
    check(lambda x: F.unfold(x, **options) ** 2, IMAGES[:1, :1])
    check(lambda x: F.fold(x, (6, 7), **options) ** 2, want.numpy()[:1, : want.shape[1] // 3])


@pytest.mark.parametrize(
    "options", [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}], ids=str
)
def test_pool1d_matches_torch(options: dict[str, Any]) -> None:
    functional, row = torch.nn.functional, torch.tensor(ROWS)
    np.testing.assert_array_equal(
        F.max_pool1d(t(ROWS), **options).numpy(), functional.max_pool1d(row, **options)
    )
    want = functional.avg_pool1d(row, **options, count_include_pad=False)
    np.testing.assert_allclose(F.avg_pool1d(t(ROWS), **options).numpy(), want.numpy(), rtol=1e-12)
    check(lambda x: F.max_pool1d(x, **options) ** 2, ROWS)


def test_unfold_fold_and_pool1d_reject_wrong_shapes() -> None:
    for call in (
        lambda: F.unfold(t(ROWS), 2),
        lambda: F.fold(t(ROWS), 4, 2),
        lambda: F.max_pool1d(t(IMAGES), 2),
    ):
        with pytest.raises(ShapeError, match="got shape"):
            call()


def test_pool1d_layers_match_functions() -> None:
    for layer, function in ((M.MaxPool1d, F.max_pool1d), (M.AvgPool1d, F.avg_pool1d)):
        np.testing.assert_array_equal(layer(3, 2, 1)(t(ROWS)).numpy(), function(t(ROWS), 3, 2, 1).numpy())
        assert repr(layer(2)).endswith("Pool1d(kernel_size=2, stride=2, padding=0)")
