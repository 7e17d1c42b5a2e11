"""Fixtures that several test files share."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from folding import Fold, use
from mgb.autodiff import GradManager
from mgb.tensor import Tensor


def _weights(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(7).uniform(-1, 1, shape)


def _taped(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``function`` -> all its gradients in one 1-d Tensor, for one fixed gradient of its result."""

    def gradient(*tensors: Tensor) -> Tensor:
        from mgb.ops.layout import concat, reshape

        inputs = [t._alias(t._tape) for t in tensors]
        with GradManager().attach(inputs) as manager:
            out = function(*inputs)
            manager.backward(out, Tensor(_weights(out.shape), dtype="float64"))
        grads = [t.grad if t.grad is not None else t * 0 for t in inputs]
        return concat(*(reshape(g, shape=(g.size,)) for g in grads), axis=0)

    return gradient


def _differences(function: Callable[..., Tensor], arrays: list[np.ndarray], step: float) -> np.ndarray:
    """The same by central differences."""

    def value(flat: np.ndarray) -> float:
        parts = np.split(flat, np.cumsum([a.size for a in arrays])[:-1])
        tensors = [Tensor(p.reshape(a.shape), dtype="float64") for p, a in zip(parts, arrays, strict=True)]
        out = function(*tensors).numpy()
        return float(np.sum(out * _weights(out.shape)))

    start = np.concatenate([a.ravel() for a in arrays])
    shifts = np.eye(start.size) * step
    return np.array([(value(start + s) - value(start - s)) / (2 * step) for s in shifts])


@pytest.fixture
def check_gradient() -> Callable[..., None]:
    """``check_gradient(function, *arrays, order=1)``: the tape against central differences, in float64."""

    def check(
        function: Callable[..., Tensor], *arrays: np.ndarray, order: int = 1, step: float = 1e-5
    ) -> None:
        for _ in range(order):
            gradient = _taped(function)
            got = gradient(*(Tensor(a, dtype="float64") for a in arrays)).numpy()
            want = _differences(function, list(arrays), step)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)
            function = gradient

    return check


@pytest.fixture
def no_cyclic_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def eager_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs run op by op, so that nothing is compiled."""
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")


@pytest.fixture(scope="module")
def kernel_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels on disk are a module's own, and every graph is verified."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MGB_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("MGB_VERIFY", "1")
        yield


@pytest.fixture
def fold(monkeypatch: pytest.MonkeyPatch, kernel_folder: None) -> Fold:
    """What every program here is compiled with."""
    return use(monkeypatch, Fold())
