"""autodiff.Function: gradients written by hand."""

from __future__ import annotations

import copy
import pickle
import weakref

import numpy as np
import pytest
from differences import A, B, check, float64, gradients
from mgb.autodiff import Function, GradManager
from mgb.errors import ShapeError
from mgb.tensor import Tensor

# Function


class Square(Function):
    def forward(self, x):
        self.x, self.y = x, x * x
        return self.y

    def backward(self, dy):
        return 2 * dy * self.x


class Reciprocal(Function):
    """Its rule is written with its own output, so the second derivative goes through a kept output."""

    def forward(self, x):
        self.y = 1 / x
        return self.y

    def backward(self, dy):
        return -dy * self.y * self.y


class Divmod(Function):
    def forward(self, a, b):
        self.kept = [a, b]
        return a * b, a / b

    def backward(self, d_product, d_quotient):
        a, b = self.kept
        d_product, d_quotient = (0 if d is None else d for d in (d_product, d_quotient))
        return d_product * b + d_quotient / b, d_product * a - d_quotient * a / (b * b)


def test_function_first_order():
    (dx,) = gradients(lambda x: Square()(x) * x, A)
    np.testing.assert_allclose(dx.numpy(), 3 * A**2)


@pytest.mark.parametrize(
    ("function", "second"),
    [(Square, lambda x: 2 + 0 * x), (Reciprocal, lambda x: 2 / x**3)],
    ids=["input", "output"],
)
def test_function_second_order(function, second):
    x = float64(A)
    inner, outer = GradManager().attach(x), GradManager().attach(x)
    with outer, inner:
        inner.backward(function()(x))
        grad, x.grad = x.grad, None
        outer.backward(grad)
    np.testing.assert_allclose(x.grad.numpy(), second(A))


def test_function_with_two_results():
    check(lambda a, b: (lambda r: r[0] * r[1] + r[0])(Divmod()(a, b)), A, B)
    check(lambda a, b: Divmod()(a, b)[1], A, B)  # the other has none


def test_function_outside_a_tape_and_on_constants():
    y = Square()(Tensor([3.0]))
    assert y.item() == 9.0
    assert y._tape is None


def test_function_hides_its_forward_from_the_tape():
    w = Tensor([2.0])
    gm = GradManager().attach(w)

    class Scale(Function):
        def forward(self, x):
            return x * w

        def backward(self, dy):
            return dy * 1000

    with gm:
        gm.backward(Scale()(w))
    np.testing.assert_array_equal(w.grad.numpy(), [1000])


def test_function_that_returns_its_input():
    class Reverse(Function):
        def forward(self, x):
            return x

        def backward(self, dy):
            return -dy

    (dx,) = gradients(lambda x: Reverse()(x) + x * 3, A)
    np.testing.assert_allclose(dx.numpy(), np.full(A.shape, 2.0))


def test_function_may_return_no_gradient():
    class Stop(Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return None

    x = Tensor([1.0])
    gm = GradManager().attach(x)
    with gm:
        gm.backward(Stop()(x))
    assert x.grad is None


def test_function_rejects_bad_inputs_and_gradients():
    class Bad(Function):
        def __init__(self, result):
            self.result = result

        def forward(self, x):
            return x * 2

        def backward(self, dy):
            return self.result

    with pytest.raises(TypeError, match="op Function expect type Tensor as inputs, got float"):
        Square()(1.0)
    with pytest.raises(ShapeError, match=r"Bad.backward gave a gradient of \(5,\)"):
        gradients(Bad(float64(np.ones(5))), A)
    with pytest.raises(ValueError, match="2 gradients for 1 inputs"):
        gradients(Bad((None, None)), A)


def test_function_can_be_copied_and_pickled():
    for clone in (copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))):
        function = Square()
        function.scale = 3
        again = clone(function)
        assert again.scale == 3
        assert again(Tensor([2.0])).item() == 4.0


def test_function_leaves_no_reference_cycle(no_cyclic_gc):
    x = float64([2.0])
    gm = GradManager().attach(x)
    with gm:
        y = Square()(x)
        array = weakref.ref(y._data)
        del y
        assert array() is None
        z = Square()(x)
        array = weakref.ref(z._data)
        gm.backward(z)
        del z
    assert array() is None


def test_unused_output_has_no_gradient():
    seen = []

    class Twice(Function):
        def forward(self, a, b):
            return a * 2, b * 2, a + 1

        def backward(self, *grads):
            seen.append([g is None for g in grads])
            return None if grads[0] is None else grads[0] * 2, None if grads[1] is None else grads[1] * 2

    a, b = float64(A), float64(B)
    for place, want in ((0, [False, True, True]), (1, [True, False, True])):
        gm = GradManager().attach([a, b])
        with gm:
            gm.backward(Twice()(a, b)[place])
        assert seen.pop() == want
        x, other = (a, b)[place], (b, a)[place]
        np.testing.assert_array_equal(x.grad.numpy(), np.full(x.shape, 2.0))
        assert other.grad is None
        a.grad = b.grad = None


def test_backward_runs_on_the_object_itself():
    class Counted(Function):
        calls = 0

        def __init__(self):
            self.log, self.owner = [], None

        def forward(self, x):
            self.x = x
            return x * x

        def backward(self, dy):
            self.calls += 1
            self.log.append(float(self.x))
            self.owner = self
            return 2 * dy * self.x

    square = Counted()
    for value in (3.0, 4.0):
        x = float64(value)
        gm = GradManager().attach(x)
        with gm:
            gm.backward(square(x))
        assert x.grad.item() == 2 * value and float(square.x) == value
    assert (square.calls, square.log, square.owner) == (2, [3.0, 4.0], square)


def test_each_call_uses_state_saved_by_its_own_forward():
    """Also where a later call set the same number, and one in between another."""

    class Power(Function):
        def forward(self, x):
            self.x, self.n = x, numbers.pop(0)
            return x**self.n

        def backward(self, dy):
            return dy * self.n * self.x ** (self.n - 1)

    numbers = [3, 2, 2, 3]
    power, x = Power(), float64(1.5)
    gm = GradManager().attach(x)
    with gm:
        gm.backward(power(power(power(power(x)))))
    np.testing.assert_allclose(x.grad.numpy(), 36 * 1.5**35)


def test_backward_may_delete_saved_state():
    class Dropping(Square):
        def backward(self, dy):
            grad = super().backward(dy)
            del self.x, self.y
            return grad

    square, x = Dropping(), float64(2.0)
    gm = GradManager().attach(x)
    with gm:
        gm.backward(square(x))
    assert x.grad.item() == 4.0 and not vars(square)


def test_error_in_backward_leaves_the_object_unchanged():
    class Failing(Square):
        def backward(self, dy):
            raise ZeroDivisionError

    square, x = Failing(), float64(2.0)
    gm = GradManager().attach(x)
    with pytest.raises(ZeroDivisionError), gm:
        y = square(x)
        square(float64(5.0))
        gm.backward(y)
    assert square.x.item() == 5.0
