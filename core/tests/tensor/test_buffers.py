"""Arrays in another order of bytes, and memory that other objects lend: they are arrays like any other."""

from __future__ import annotations

import array
import warnings

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb.errors import ConversionError
from mgb.jit import trace

NAMES = ["i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", "<>")
def test_arrays_of_either_order_of_bytes_have_their_values(name, order):
    given = np.arange(6).reshape(2, 3).astype(order + name)
    native = mgb.tensor(given.astype(name))
    for made in (mgb.tensor(given), mgb.Tensor(given), mgb.tensor(given, dtype=native.dtype)):
        assert made.dtype == native.dtype and made.tolist() == given.tolist()
    assert mgb.tensor(given[:, ::2]).tolist() == given[:, ::2].tolist()


def test_ops_and_traces_take_arrays_of_another_order_of_bytes():
    given, x = np.arange(3, dtype=">f4"), mgb.tensor([1.0, 2.0, 3.0])
    for add in (
        lambda a: x + a,
        lambda a: a + x,
        trace(lambda a: x + a),
        lambda a: F.add(x, a),
        lambda a: np.add(x, a),
    ):
        for _ in range(3):
            assert add(given).tolist() == [1.0, 3.0, 5.0]
    x[0] = np.array(7, ">i8")
    assert x[np.array([2, 0], ">i8")].tolist() == [3.0, 7.0]


def test_a_dtype_of_another_order_of_bytes_is_that_of_this_machine():
    assert mgb.tensor([1, 2], dtype=">f4").dtype == mgb.tensor([1]).astype(">f4").dtype == np.float32


@pytest.mark.parametrize(
    "given", [np.array(["a"]), np.array([None]), np.array([b"a"]), np.zeros(2, "M8[s]")], ids=repr
)
def test_what_is_no_number_is_still_refused(given):
    with pytest.raises(ConversionError, match="choose one of"):
        mgb.tensor(given)


@pytest.mark.parametrize(
    "make", [memoryview, lambda a: array.array("f", a), lambda a: memoryview(a).toreadonly()]
)
def test_what_lends_its_memory_is_an_operand(make):
    x, lent = mgb.tensor([1.0, 2.0, 3.0]), make(np.array([4.0, 5.0, 6.0], np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for add in (lambda a: x + a, lambda a: a + x, lambda a: F.add(x, a), lambda a: x + mgb.tensor(a)):
            assert add(lent).tolist() == [5.0, 7.0, 9.0]
        assert F.exp(lent).shape == (3,) and F.maximum(lent, 0).sum().item() == 15.0
        x[:] = lent
    assert x.tolist() == [4.0, 5.0, 6.0]
