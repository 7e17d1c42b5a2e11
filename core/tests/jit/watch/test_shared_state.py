"""State that lives in C, in another process or in shared memory is read at each call."""

from __future__ import annotations

import ctypes
import http.cookies
import math
import multiprocessing
import operator
import struct
import typing
from array import array
from collections.abc import Callable, Iterator
from multiprocessing.shared_memory import ShareableList
from typing import Any

import pytest
from mgb import Tensor
from mgb.jit import trace


def is_fresh(body: Callable[[Tensor], Tensor], change: Callable[[], object]) -> bool:
    """Does the traced body give after `change` what eager code gives then, which is another value?"""
    traced, x = trace(body), Tensor(1.5)
    before = [traced(x).item() for _ in range(3)][-1]
    change()
    return before != traced(x).item() == body(x).item()


#: What is made of a number of another library.
CONVERSIONS: dict[str, Callable[[Any], float]] = {
    "float": float,
    "int": int,
    "abs": lambda w: float(abs(w)),
    "range": lambda w: len(range(int(w))),
    "max": lambda w: float(max(w, 1)),
    "min": lambda w: float(min(w, 100.0)),
    "sqrt": math.sqrt,
    "fsum": lambda w: math.fsum([w, 1]),
    "pack": lambda w: struct.unpack("d", struct.pack("d", w))[0],
    "index": lambda w: operator.index(w.int()),
    "complex": lambda w: complex(w).real,
    "truth": lambda w: 2.0 if w > 2.5 else 1.0,
    "format": lambda w: float(f"{w:.2f}"),
    "item": lambda w: w.item(),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_number_of_another_library_is_read_again(name: str) -> None:
    torch = pytest.importorskip("torch", reason="a library whose numbers change in C")
    w = torch.tensor(2.0)
    assert is_fresh(lambda x: x * CONVERSIONS[name](w), lambda: w.fill_(3.0))


def test_arrays_and_values_shared_by_processes_are_read_again() -> None:
    shared, value = multiprocessing.Array("d", [2.0]), multiprocessing.Value("d", 2.0)
    raw = multiprocessing.RawArray("d", [2.0])
    assert is_fresh(lambda x: x * shared[0], lambda: shared.__setitem__(0, 3.0))
    assert is_fresh(lambda x: x * value.value, lambda: setattr(value, "value", 3.0))
    assert is_fresh(lambda x: x * raw[0], lambda: raw.__setitem__(0, 3.0))


@pytest.fixture
def shareable() -> Iterator[ShareableList[float]]:
    numbers = ShareableList([2.0])
    yield numbers
    numbers.shm.close()
    numbers.shm.unlink()


@pytest.mark.parametrize("read", [lambda n: n[0], sum, lambda n: min(*n, 9)], ids=["item", "sum", "unpacked"])
def test_shareable_list_is_read_again(shareable: Any, read: Any) -> None:
    assert is_fresh(lambda x: x * read(shareable), lambda: shareable.__setitem__(0, 3.0))


def test_namespace_of_a_manager_is_read_again() -> None:
    with multiprocessing.Manager() as manager:
        space, pairs = manager.Namespace(), manager.dict(k=2.0)
        space.lr = 2.0
        assert is_fresh(lambda x: x * space.lr, lambda: setattr(space, "lr", 3.0))
        assert is_fresh(lambda x: x * pairs["k"], lambda: pairs.__setitem__("k", 3.0))


def test_value_of_a_cookie_is_read_again() -> None:
    cookie: Any = http.cookies.SimpleCookie()
    cookie["a"] = "2.0"
    assert is_fresh(lambda x: x * float(cookie["a"].value), lambda: cookie["a"].set("a", "3.0", "3.0"))


def test_arrays_of_the_standard_library_and_ctypes_are_read_again() -> None:
    numbers, number = array("d", [2.0]), ctypes.c_double(2.0)
    assert is_fresh(lambda x: x * numbers[0], lambda: numbers.__setitem__(0, 3.0))
    assert is_fresh(lambda x: x * sum(numbers), lambda: numbers.__setitem__(0, 4.0))
    assert is_fresh(lambda x: x * number.value, lambda: setattr(number, "value", 3.0))


class Annotated:
    a: int


def test_type_hints_are_read_again() -> None:
    def annotate() -> None:
        Annotated.__annotations__["b"] = int

    assert is_fresh(lambda x: x * len(typing.get_type_hints(Annotated)), annotate)
