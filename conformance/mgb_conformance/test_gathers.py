"""Elements at places that other values say: tables of kernels, and programs that index by arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb.jit import trace
from mgb.ops.look_up import look_up
from mgb.ops.primitives import cast, iota
from mgb.ops.reduce import reduce_max, reduce_sum

from .cases import DTYPES, check, of, require, samples
from .drive import Driver

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

#: Of a table the shape, where its axes lie, and the shapes of indices.
TABLES: dict[str, tuple[tuple[int, ...], tuple[int | None, ...], tuple[tuple[int, ...], ...]]] = {
    "elements": ((50,), (None,), ((4, 33),)),
    "many elements": ((5000,), (None,), ((70_003,),)),
    "rows": ((50, 37), (None, -1), ((4, 5, 1),)),
    "long rows": ((7, 5000), (None, -1), ((11, 1),)),
    "one row": ((7, 33), (None, -1), ((1,),)),
    "columns": ((40, 50), (-2, None), ((33,),)),
    "an element of each row": ((40, 50), (-2, None), ((40, 33),)),
    "an element of each column": ((40, 50), (None, -1), ((33, 50),)),
    "middle": ((3, 50, 7), (-3, None, -1), ((5, 1),)),
    "two of three axes": ((9, 6, 8), (None, -1, None), ((5, 4, 1), (4, 1))),
    "axes in another order": ((9, 6, 8), (-1, None, -3), ((5, 1),)),
    "every axis": ((9, 6), (None, None), ((33,), (5, 1))),
    "broadcast": ((1, 50), (-2, None), ((3, 8, 33),)),
}


def places(shape: tuple[int, ...], length: int, dtype: str, seed: int) -> Any:
    """Return integers that are indices along an axis of `length`, negative ones too."""
    least = 0 if dtype.startswith("u") else -length
    return np.random.default_rng(seed).integers(least, length, shape).astype(dtype)


def case(name: str, table: str = "float32", index: str = "int32") -> tuple[Any, list[Any]]:
    shape, along, indices = TABLES[name]
    reached = [d for d, at in zip(shape, along, strict=True) if at is None]
    found = [places(s, d, index, k) for k, (s, d) in enumerate(zip(indices, reached, strict=True))]
    return along, [samples(table, shape), *found]


class TestGathers:
    @pytest.mark.parametrize("name", TABLES)
    def test_tables(self, driver: Driver, name: str) -> None:
        along, arrays = case(name)
        check(driver, of(lambda x, *i: look_up(x, *i, along=along) * 2 + 1, *arrays), arrays)

    @pytest.mark.parametrize("name", TABLES)
    @pytest.mark.parametrize("axis", [0, -1])
    def test_reductions_of_gathered_elements(self, driver: Driver, name: str, axis: int) -> None:
        along, arrays = case(name)

        def folded(x: Any, *indices: Any) -> list[Any]:
            found = look_up(x, *indices, along=along)
            total = reduce_sum(found, axis=(axis % found.ndim,))
            return [total, found - total, reduce_max(found, axis=(axis % found.ndim,))]

        check(driver, of(folded, *arrays), arrays)

    @pytest.mark.parametrize("axis", [0, 1])
    def test_one_look_up_for_each_row_and_places_of_the_domain(self, driver: Driver, axis: int) -> None:
        """Compare what each row looks up with the places along the axis that is folded."""
        shape = (20, 333) if axis == 0 else (333, 20)
        row = tuple(1 if a == axis else d for a, d in enumerate(shape))
        x, table, index = samples("float32", shape), samples("float32", (50,)), places(row, 50, "int32", 0)

        def program(x: Any, table: Any, index: Any) -> Any:
            own = tuple(d if a == axis else 1 for a, d in enumerate(shape))
            place = iota(shape=own, dtype=np.dtype("float32"), device="xpux:0")
            total = reduce_sum(x, axis=(axis,))
            return x * look_up(table, index, along=(None,)) + place + total

        check(driver, of(program, x, table, index), [x, table, index])

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("name", ["elements", "rows", "an element of each row"])
    def test_table_dtypes(self, driver: Driver, dtype: str, name: str) -> None:
        along, arrays = case(name, table=dtype)
        check(driver, of(lambda x, i: look_up(x, i, along=along), *arrays), arrays)

    @pytest.mark.parametrize("dtype", INTEGERS)
    @pytest.mark.parametrize("name", ["elements", "rows", "columns"])
    def test_index_dtypes(self, driver: Driver, dtype: str, name: str) -> None:
        along, arrays = case(name, index=dtype)
        check(driver, of(lambda x, i: look_up(x, i, along=along) + 1, *arrays), arrays)

    def test_computed_index(self, driver: Driver) -> None:
        x, y = samples("float32", (256,)), np.random.default_rng(0).random((40, 301), np.float32)
        graph = of(lambda x, y: look_up(x, cast(y * 255, dtype=np.dtype("int32")), along=(None,)) * y, x, y)
        require(driver, graph)
        (got,) = driver.run(graph, [x, y])
        np.testing.assert_array_equal(got, x[(y * np.float32(255)).astype(np.int32)] * y)

    def test_index_of_an_index(self, driver: Driver) -> None:
        i, j = places((33,), 20, "int32", 0), places((5, 70), 33, "int64", 1)
        x = samples("float32", (20,))
        graph = of(lambda x, i, j: look_up(x, look_up(i, j, along=(None,)), along=(None,)) - 1, x, i, j)
        check(driver, graph, [x, i, j])

    def test_input_used_as_table_and_operand(self, driver: Driver) -> None:
        """Check an input that is looked up and read directly, and another result of its shape."""
        x, i = samples("float32", (501,)), places((501,), 501, "int32", 0)
        check(driver, of(lambda x, i: [look_up(x, i, along=(None,)) - x, x * 2], x, i), [x, i])

    def test_gather_from_a_strided_view(self, driver: Driver) -> None:
        if driver.backend.traits.strided.value != "any":
            pytest.skip(f"traits.strided is {driver.backend.traits.strided.value}")
        x, i = samples("float32", (60, 90))[::-2, 5:75:3].T, places((41, 1), 24, "int32", 0)
        check(driver, of(lambda x, i: look_up(x, i % 23, along=(None, -1)) * 2, x, i), [x, i])

    @pytest.mark.parametrize("name", ["many elements", "rows", "columns"])
    @pytest.mark.parametrize("wrong", [-1, 0])
    def test_out_of_range_index_raises(self, driver: Driver, name: str, wrong: int) -> None:
        along, (x, i) = case(name)
        length = x.shape[along.index(None)]
        graph = of(lambda x, i: look_up(x, i, along=along) * 2, x, i)
        require(driver, graph)
        i = i.copy()
        i.reshape(-1)[-1] = length if wrong == 0 else -length - 1
        with pytest.raises(IndexError, match=rf"{i.reshape(-1)[-1]} is out of bounds .* size {length}"):
            driver.run(graph, [x, i])
        i.reshape(-1)[-1] = length - 1
        check(driver, graph, [x, i])


def embedded(lib: Any, w: Any, i: Any, x: Any) -> Any:
    return w[i] * 2 + x


def normalised(lib: Any, w: Any, i: Any, x: Any) -> Any:
    rows = w[i]
    return (rows - rows.mean(axis=-1, keepdims=True)) / rows.std(axis=-1, keepdims=True)


def picked(lib: Any, w: Any, i: Any, x: Any) -> Any:
    return w[i[0], i[1]] + w[:, i[0] % 16][3] * x[0]


def along_axis(lib: Any, w: Any, i: Any, x: Any) -> Any:
    return lib.take_along_axis(w, i[:, :16], axis=0) - 1


def looked_up_after(lib: Any, w: Any, i: Any, x: Any) -> Any:
    """Look up elements of a computed array at a computed index."""
    return lib.exp(w * 0.1)[i % 30] + lib.exp(w * 0.1)[:1] * x


class TestIndexing:
    @pytest.fixture(autouse=True)
    def where_the_backend_works(self, driver: Driver) -> Iterator[None]:
        """Tensors are made on a device of the backend."""
        with driver.place.as_default():
            yield

    @pytest.mark.parametrize("function", [embedded, normalised, picked, along_axis, looked_up_after])
    def test_indexing_matches_numpy(self, driver: Driver, function: Callable[..., Any]) -> None:
        w, x = samples("float32", (40, 16)) % 5, samples("float32", (16,)) % 7
        i = places((6, 33), 16, "int32", 1) % 16 if function is picked else places((6, 33), 40, "int32", 1)
        run = trace(lambda w, i, x: function(mgb.numpy, w, i, x), backend=driver.backend.name)
        if function is picked:
            x = np.resize(x, (1, 33))
        want = function(np, w.astype(np.float64), i, x.astype(np.float64))
        for _ in range(2):
            got = run(mgb.tensor(w), mgb.tensor(i), mgb.tensor(x)).numpy()
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)

    def test_embedding_gradient(self, driver: Driver) -> None:
        """Check an embedding under a loss: each row gets what its words do."""
        w, i = samples("float32", (11, 5)) % 3, places((4, 6), 11, "int32", 2)
        run = trace(mgb.grad(lambda w, i: (w[i] ** 2).sum()), backend=driver.backend.name)
        counts = np.bincount(i.reshape(-1) % 11, minlength=11)
        found = run(mgb.tensor(w), mgb.tensor(i)).numpy()
        np.testing.assert_allclose(found, 2 * w * counts[:, None], rtol=1e-5)

    def test_out_of_range_index_raises(self, driver: Driver) -> None:
        run = trace(lambda w, i: F.exp(w[i]) * 2, backend=driver.backend.name)
        w = mgb.tensor(samples("float32", (5,)) % 3)
        run(w, mgb.tensor(np.zeros(70_000, np.int32)))
        if driver.backend.traits.scope.value == "graph":
            pytest.skip("a compiler that takes whole programs cannot refuse")
        with pytest.raises(IndexError, match=r"5 is out of bounds .* size 5"):
            run(w, mgb.tensor(np.full(70_000, 5, np.int32)))
