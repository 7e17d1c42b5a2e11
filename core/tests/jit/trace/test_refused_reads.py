"""The error of a refused read is what the user sees, whatever C code around it makes of that."""

import struct

import numpy as np
import pytest
from mgb import errors, tensor, vmap
from mgb.jit import partial_trace, trace, xla_trace

X = tensor([1.0, 2.0, 3.0])


def one_element(x):
    found = np.zeros(3)
    found[0] = x.mean()
    return found


def elements_in_a_loop(x, bins=2):
    """As NPBench's azimint_naive."""
    found = np.zeros(bins)
    for i in range(bins):
        found[i] = (x * i).mean()
    return found


def in_blocks(x):
    found = np.zeros(3)
    with np.errstate(all="ignore"):
        try:
            found[0] = x.sum()
        finally:
            found[1] = 1.0
    return found


def filled(x):
    found = np.zeros(3)
    found.fill(x.sum())
    return found


def packed(x):  # an error without a cause
    return struct.pack("f", x.sum())


def appended(x):
    return np.append(np.zeros(2), [x.sum()])


BODIES = [one_element, elements_in_a_loop, in_blocks, filled, packed, appended]
KINDS = {
    "symbolic": (lambda f: trace(f, symbolic=True), errors.SymbolicReadError, "trace.symbolic=False"),
    "skipped": (lambda f: trace(f, run_body=False), errors.ImpureBodyError, "have to run at each call"),
    "xla": (lambda f: xla_trace(f, capture_as_const=True), errors.SymbolicReadError, "compiled whole"),
    "partial": (partial_trace, errors.SymbolicReadError, "partially traced"),
    "vmap": (vmap, errors.TransformError, "differs along the axis"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", BODIES)
def test_refused_read_is_the_error_that_the_user_sees(body, kind):
    decorate, error, text = KINDS[kind]
    function = decorate(body)
    x = tensor(np.ones((2, 3), "float32")) if kind == "vmap" else X
    for _ in range(2):
        with pytest.raises(error, match=text) as caught:
            function(x)
        assert f"{__file__}:" in str(caught.value)


def test_refused_read_names_the_op_its_line_and_what_helps():
    with pytest.raises(errors.SymbolicReadError) as caught:
        trace(lambda x: one_element(x * 2), symbolic=True)(X)
    line = one_element.__code__.co_firstlineno + 2
    for part in ("reshape(", f"{__file__}:{line}", "symbolic=False", "mgb.numpy"):
        assert part in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "setting an array element" in str(caught.value.__cause__)


def test_what_the_user_makes_of_a_refused_read_stays():
    def own(x):
        try:
            float(x.sum())
        except errors.MgbError as error:
            raise KeyError("mine") from error

    def handled(x):
        found = np.zeros(3)
        try:
            found[0] = x.sum()
        except ValueError:
            found[0] = 5.0
        return found

    def another_one(x):
        handled(x)
        np.zeros(3)[0] = "a"

    with pytest.raises(KeyError, match="mine"):
        trace(own, symbolic=True)(X)
    np.testing.assert_array_equal(trace(handled, symbolic=True)(X), [5, 0, 0])
    with pytest.raises(ValueError, match="could not convert string"):
        trace(another_one, symbolic=True)(X)


def test_the_remedies_work():
    from mgb import numpy as mnp

    def in_tensors(x):
        found = mnp.zeros(2)
        for i in range(2):
            found[i] = (x * i).mean()
        return found

    np.testing.assert_array_equal(trace(in_tensors, symbolic=True)(X).numpy(), [0, 2])
    function = trace(elements_in_a_loop)
    for _ in range(2):
        np.testing.assert_array_equal(function(X), [0, 2])
