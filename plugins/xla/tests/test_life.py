"""Memory that results keep, memory that is taken over, refused indices, and what is kept on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mgb.backends import Adopted, adopt
from mgb.backends.plugins import load_backend
from mgb.ir import Spec
from mgb.ir.dtypes import as_dtype
from mgb.ops.bodies.transcendental import exp
from mgb.ops.images.contract import matmul
from mgb.ops.index import index_get
from mgb.ops.sort import argsort_
from mgb.passes import lower
from mgb.tensor.tracing import graph_of
from mgb_xla.launch import DonationError
from xla_helpers import new_process, program


class Owner:
    """Holds a parameter as a Tensor does."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


def descend(p: Any, g: Any) -> list[Any]:
    return [p - g * 0.5, g + 1]


def test_results_do_not_share_memory_and_are_writable() -> None:
    x = np.arange(6.0)
    graph = graph_of(lambda x: [x, x * 2, x, x * 2, x + 1], Spec(x.shape, x.dtype))
    backend = load_backend("xla")
    results = backend.compile(lower(graph, backend.traits)).results
    assert results is not None
    for _ in range(3):
        found = results(x)
        for k, array in enumerate(found):
            array += 100 + k
        np.testing.assert_array_equal(x, np.arange(6.0))
        wants = [x, x * 2, x, x * 2, x + 1]
        for k, (array, want) in enumerate(zip(found, wants, strict=True)):
            np.testing.assert_array_equal(array, want + 100 + k)


def test_updated_parameter_reuses_its_array() -> None:
    compiled = program(descend, np.ones(1000), np.ones(1000), updates={0: 0})
    owner, g = Owner(np.ones(1000)), np.ones(1000)
    seen = []
    for _ in range(5):
        owner.array = compiled.call([owner.array, g])[0]
        seen.append((id(owner.array), owner.array.ctypes.data, owner.array[7]))
    assert len({place for _, place, _ in seen[1:]}) == 1
    assert len({name for name, _, _ in seen[1:]}) == 1
    assert [value for _, _, value in seen] == [0.5, 0.0, -0.5, -1.0, -1.5]


def test_array_with_other_references_is_not_donated() -> None:
    compiled = program(descend, np.ones(1000), np.ones(1000), updates={0: 0})
    owner, g = Owner(np.ones(1000)), np.ones(1000)
    for _ in range(3):
        owner.array = compiled.call([owner.array, g])[0]
    held, view = owner.array, owner.array[3:5]
    owner.array = compiled.call([owner.array, g])[0]
    assert held[0] == -0.5 and owner.array[0] == -1.0
    del held
    owner.array = compiled.call([owner.array, g])[0]
    assert view[0] == -0.5 and owner.array[0] == -1.5


def test_donated_arrays_of_one_shape_are_not_swapped() -> None:
    """JAX gives memory to results of the same shape in their order, which must be that of the inputs."""

    def step(p: Any, m: Any, q: Any) -> list[Any]:
        return [q * 2, m * 0.5 + p, p - m]

    arrays = [np.full(100, v) for v in (1.0, 2.0, 3.0)]
    compiled = program(step, *arrays, updates={2: 0, 1: 1, 0: 2})
    p, m, q = (Owner(a.copy()) for a in arrays)
    want = [1.0, 2.0, 3.0]
    for _ in range(6):
        q.array, m.array, p.array = compiled.call([p.array, m.array, q.array])
        want = [want[0] - want[1], want[1] * 0.5 + want[0], want[2] * 2]
        assert [p.array[5], m.array[5], q.array[5]] == want


class Failing:
    """An executable whose next call fails.

    Parameters
    ----------
    real : callable
        What it is else.
    how : str
        At once, when it has taken the memory of its donated arguments, or after it has given out results.
    """

    def __init__(self, real: Any, how: str) -> None:
        self._real, self._how = real, how

    def __call__(self, *arguments: Any) -> Any:
        if self._how == "at once":
            raise MemoryError("no memory for a temporary")
        if self._how == "interrupted":
            raise KeyboardInterrupt
        results = self._real(*arguments)
        if self._how == "when it has taken them":
            del results
            raise RuntimeError("the executable failed")
        return [*results[:-1], self]

    def block_until_ready(self) -> None:
        raise RuntimeError("the executable failed")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("how", ["at once", "interrupted", "when it has taken them", "later"])
def test_failing_call_leaves_no_dangling_arrays(
    how: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that XLA took are lost, which it says; others are as they were. Nothing lies on freed memory."""
    ones = np.ones(100_000, as_dtype(dtype))
    error = {"at once": MemoryError, "interrupted": KeyboardInterrupt}
    compiled = program(lambda p, q, g: [p - g, q + g, g * 2], ones, ones, ones, updates={0: 0, 1: 1})
    p, q = Owner(ones.copy()), Owner(ones.copy())
    for _ in range(3):
        p.array, q.array, _ = compiled.call([p.array, q.array, ones])
    held = q.array  # this one is not taken
    launcher = compiled.kernels[0].results.__self__
    with monkeypatch.context() as patched:
        patched.setattr(launcher, "_call", Failing(launcher._call, how))
        with pytest.raises(error.get(how, DonationError)) as raised:
            compiled.call([p.array, q.array, ones])
    assert (held == 4).all()
    if how in error:
        assert (p.array == -2).all()
    else:
        assert "1 parameters" in str(raised.value) and "MGB_XLA_DONATE=0" in str(raised.value)
        assert isinstance(raised.value.__cause__, RuntimeError)
        assert not isinstance(p.array.base, Adopted) and p.array.flags.writeable
        assert (p.array == 0).all() if dtype == "int64" else (p.array != p.array).all()
        p.array[...] = -2  # from a checkpoint
    for k in range(3):
        p.array, q.array, _ = compiled.call([p.array, q.array, ones])
        assert (p.array == -3 - k).all() and (q.array == 5 + k).all()


@pytest.mark.parametrize("bad", [7, -8, 1 << 40])
def test_out_of_bounds_index_changes_nothing(bad: int) -> None:
    def step(table: Any, index: Any) -> list[Any]:
        return [table * 2, index_get(table, index, axes=(0,), place=0)]

    table, good = np.ones((7, 3)), np.array([0, 6, -7], np.int64)
    compiled = program(step, table, good, updates={0: 0})
    owner = Owner(table)
    for _ in range(3):
        owner.array, _ = compiled.call([owner.array, good])
    with pytest.raises(IndexError, match=f"index {bad} is out of bounds for axis 0 with size 7"):
        compiled.call([owner.array, np.array([0, bad, 1], np.int64)])
    assert (owner.array == 8).all()
    owner.array, rows = compiled.call([owner.array, good])
    assert (owner.array == 16).all() and (rows == 8).all()


def test_adopted_array_keeps_its_owner_alive() -> None:
    source = np.arange(10.0)
    array = adopt(source.ctypes.data, (2, 5), source.dtype, source)
    view = array[1:, ::2]
    assert isinstance(array.base, Adopted) and array.base.owner is source and view.base is array
    array[1, 0] = 50
    assert source[5] == 50
    del source, array
    np.testing.assert_array_equal(view, [[50, 7, 9]])


def test_transposed_and_read_only_arguments() -> None:
    a, b = np.arange(12.0).reshape(3, 4), np.arange(20.0).reshape(4, 5)
    a.flags.writeable = False
    compiled = program(lambda a, b: matmul(a, b), a, b)
    np.testing.assert_array_equal(compiled.run(a, b)[0], a @ b)
    np.testing.assert_array_equal(compiled.run(np.asfortranarray(a), b[:, ::-1])[0], a @ b[:, ::-1])


def test_training_step_is_loaded_from_the_disk_cache(tmp_path: Path) -> None:
    script = """
        from mgb.executor import kernels
        p, g = np.ones(100), np.ones(100)
        compiled = program(lambda p, g: [p - g * 0.5, g + 1], p, g, updates={0: 0})
        for _ in range(4):
            p = compiled.call([p, g])[0]
        print(kernels.stats().compiles, kernels.stats().disk_hits, p[3], len(compiled.kernels[0].replaces))
    """
    assert new_process(script, tmp_path).strip() == "1 0 -1.0 1"
    assert new_process(script, tmp_path).strip() == "0 1 -1.0 1"


def test_loaded_kernel_can_be_saved_again() -> None:
    """XLA leaves the machine code out when it writes what it has loaded."""
    x, w = np.ones((4, 3), np.float32), np.ones((3, 2), np.float32)
    backend = load_backend("xla")
    graph = lower(graph_of(matmul, *(Spec(a.shape, a.dtype) for a in (x, w))), backend.traits)
    kernel = backend.compile(graph)
    for _ in range(3):
        blob = backend.save(kernel)
        assert blob is not None
        kernel = backend.load(graph, blob)
        assert kernel.results is not None
        np.testing.assert_array_equal(kernel.results(x, w)[0], x @ w)


def test_jax_compilation_cache_does_not_break_saving(tmp_path: Path) -> None:
    """The user's cache may give JAX an executable that cannot be written again."""
    script = f"""
        import jax
        jax.config.update("jax_compilation_cache_dir", {str(tmp_path / "of_jax")!r})
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        from mgb.executor import kernels
        from mgb.ops.images.contract import matmul
        x = np.ones((4, 3), np.float32)
        y, = program(lambda x, w: matmul(x, w) + 1, x, x.T.copy()).run(x, x.T.copy())
        print(y[0, 0], kernels.stats().compiles)
    """
    for cache in "abbb":  # a new cache of ours for the second process, which JAX's own serves
        assert new_process(script, tmp_path / cache).split()[0] == "4.0"


def test_kernel_runs_whether_or_not_it_can_be_saved() -> None:
    backend, x = load_backend("xla"), np.array([3.0, 1.0, 2.0])
    graph = graph_of(lambda x: argsort_(x, axis=0, descending=False), Spec(x.shape, x.dtype))
    kernel = backend.compile(lower(graph, backend.traits))
    assert kernel.results is not None
    blob = backend.save(kernel)
    for again in (kernel, *(() if blob is None else (backend.load(graph, blob),))):
        np.testing.assert_array_equal(again.results(x)[0], [1, 2, 0])


def test_donation_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = np.ones(1001), np.ones(1001)
    assert len(program(descend, *arrays, updates={0: 0}).kernels[0].replaces) == 1
    monkeypatch.setenv("MGB_XLA_DONATE", "0")
    compiled = program(descend, *arrays, updates={0: 0})
    assert compiled.kernels[0].replaces == ()
    owner, places = Owner(arrays[0]), []
    for _ in range(3):
        owner.array = compiled.call([owner.array, arrays[1]])[0]
        places.append(owner.array)
    assert len({a.ctypes.data for a in places}) == 3 and [a[0] for a in places] == [0.5, 0.0, -0.5]
    monkeypatch.setenv("MGB_XLA_DONATE", "never")
    with pytest.raises(ValueError, match="MGB_XLA_DONATE='never'"):
        program(descend, *arrays, updates={0: 0})


def test_float16_cast_round_trip_is_not_removed(tmp_path: Path) -> None:
    x = np.linspace(-3, 3, 50, dtype=np.float32)
    (y,) = program(lambda x: exp(x.astype("float16").astype("float32")), x).run(x)
    want = np.exp(x.astype(np.float16).astype(np.float64))
    np.testing.assert_allclose(y, want, rtol=1e-6)
