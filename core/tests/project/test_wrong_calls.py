"""What a call with wrong arguments says: the function, the argument, what it takes, what was given."""

from __future__ import annotations

import inspect
import pickle
import re

import mgb
import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb.jit import trace
from wrong_calls import internal_share, names_private, outcome

X = mgb.tensor([[1.0, 2.0], [3.0, 4.0]])


def test_errors_of_a_sample_of_wrong_calls_speak_of_the_call():
    share, found = internal_share(151)
    assert share < 0.02, found


SAYS = {
    "softmax": (lambda: F.softmax("a"), TypeError, "softmax: inp is a Tensor, and got 'a'"),
    "celu": (lambda: F.celu(), TypeError, "celu() "),
    "broadcast_to": (lambda: F.broadcast_to(X), TypeError, "broadcast_to() missing 1 required"),
    "ConstantLR": (
        lambda: mgb.optimizer.ConstantLR(X),
        TypeError,
        "ConstantLR: optimizer is an Optimizer, and got Tensor",
    ),
    "Conv2d": (
        lambda: M.Conv2d(1, 1, 0),
        ValueError,
        "Conv2d: it cannot be computed of in_channels=1, out_channels=1, kernel_size=0",
    ),
    "device": (
        lambda: F.zeros((2,), device=int),
        TypeError,
        "zeros: device is a text or None, and got <class 'int'>",
    ),
    "inherited": (
        lambda: M.LSTM(3),
        TypeError,
        "LSTM() takes no such arguments: missing a required argument: 'hidden_size'",
    ),
    "save": (lambda: mgb.save(X, 3), TypeError, "save: f is "),
}


@pytest.mark.parametrize("case", SAYS)
@pytest.mark.parametrize("traced", [False, True])
def test_an_error_names_the_function_the_argument_and_what_was_given(case, traced):
    call, kind, says = SAYS[case]
    with pytest.raises(kind, match=re.escape(says)) as caught:
        (trace(call) if traced else call)()
    assert not names_private(caught.value)


ALONG = {"axis": 0}
FUNCTIONS = {
    "softmax": ALONG, "argmax": ALONG, "log_softmax": ALONG, "logsumexp": ALONG, "flip": ALONG, "flatten": {},
    "max": {}, "min": {}, "sum": {}, "mean": {}, "var": {}, "cumprod": ALONG, "cumsum": ALONG, "sort": {},
    "argsort": {}, "triu": {}, "expand_dims": ALONG, "roll": {"shift": 1}, "zeros_like": {},
}  # fmt: skip


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_lists_are_arrays_where_a_tensor_is_taken(name, traced):
    function, options = getattr(F, name), FUNCTIONS[name]
    call = trace(lambda a: function(a, **options)) if traced else lambda a: function(a, **options)
    given = [[1.0, 5.0, 2.0], [4.0, 0.0, 3.0]]
    for _ in range(3):
        got, want = call(given), function(mgb.tensor(given), **options)
        for one, other in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)), strict=True):
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_errors_of_what_a_user_wrote_are_passed_on():
    class Odd:
        def __index__(self):
            raise KeyError("mine")

        __float__ = __iter__ = __index__

    for call in (lambda: F.zeros(Odd()), lambda: M.Linear(Odd(), 3), lambda: F.topk(X, Odd())):
        with pytest.raises(KeyError, match="mine"):
            call()


def test_an_index_that_is_out_of_bounds_is_an_index_error():
    with pytest.raises(IndexError, match=r"cross_entropy: .*label 7 is out of range for 2 classes"):
        F.loss.cross_entropy(X, mgb.tensor([7, 0]))


def test_a_better_error_keeps_the_first_one_as_its_cause():
    error = outcome(("", F.softmax, ("a",), {}))
    assert isinstance(error.__cause__, AttributeError)


def test_explained_functions_are_still_found_by_their_names():
    assert pickle.loads(pickle.dumps(F.softmax)) is F.softmax and F.nn.relu is F.relu
    assert list(inspect.signature(F.softmax).parameters) == ["inp", "axis"]
    assert F.softmax.__doc__ and F.softmax.__name__ == "softmax"
