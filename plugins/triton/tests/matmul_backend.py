"""Shared helpers of tests of products: a backend with the user's settings, bounds of errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mgb.functional as F
import numpy as np
import pytest
from mgb import config, dtypes
from mgb.backends import Traits
from mgb.backends.plugins import hookimpl, manager
from mgb.executor import kernels
from mgb.ir import Graph, Spec
from mgb.passes import lower
from mgb.tensor.tracing import graph_of
from mgb_cuda.testing.bench import unasked
from mgb_triton import products
from mgb_triton.backend import Claims, text_version
from mgb_triton.testing.interpreter import Interpreter
from triton_helpers import OnInterpreter

EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}


class Unasked(Claims):
    def __get__(self, backend: object, kind: type) -> Traits:
        return unasked(super().__get__(backend, kind))


class Multiplying(OnInterpreter):
    """Takes products as the user says."""

    name = "triton_multiplying"
    traits = Unasked("cpu")

    def version(self) -> str:
        return text_version() + self.chosen()


BACKEND = Multiplying()


class Plugin:
    @staticmethod
    @hookimpl
    def mgb_backend(name: str) -> Multiplying | None:
        return BACKEND if name == BACKEND.name else None


if not manager.has_plugin(BACKEND.name):
    manager.register(Plugin, name=BACKEND.name)


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(config.CACHE_DIR.name, str(tmp_path))
    monkeypatch.setenv(config.CACHE.name, "1")
    monkeypatch.setenv(products.USE.name, "always")
    monkeypatch.delenv(products.PRECISION.name, raising=False)
    monkeypatch.setattr(BACKEND, "device", Interpreter())
    kernels.forget()
    yield
    kernels.forget()


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtypes.as_dtype(dtype))


def near(found: np.ndarray, want: np.ndarray, dtype: str, size: np.ndarray, product: Any = 0.0) -> None:
    """Assert that a result may be so: it is within a bound.

    It is of sums in float32 of numbers whose magnitudes add up to `size`, and is rounded to `dtype`, as
    `product` was on the way.
    """
    bound = 40 * 2.0**-24 * size + 1.01 * EPS[dtype] * (np.abs(want) + np.abs(product))
    assert (np.abs(found.astype(np.float64) - want) <= bound).all()


def layer(x: Any, w: Any, b: Any) -> Any:
    return F.relu(F.matmul(x, w) + b)


def lowered(function: Callable[..., Any], *arrays: np.ndarray) -> Graph:
    return lower(graph_of(function, *(Spec(a.shape, a.dtype) for a in arrays)), BACKEND.traits)
