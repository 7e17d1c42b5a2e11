"""Bodies that go on from a state outside, and those that look at values."""

from __future__ import annotations

import functools
import itertools
import random
import warnings
import weakref

import mgb.functional as F
import numpy as np
from mgb import tensor
from mgb.jit import exclude_from_trace
from stale_cases import World, case
from stale_cases_shared import Box


@case
def a_finally_that_writes():
    log = []

    def body(x):
        try:
            return x * 2.0
        finally:
            log.append("done")

    return World(body, [(None,)] * 4, lambda: list(log))


@case
def an_error_that_is_kept():
    kept = []

    def body(x):
        try:
            raise ValueError("no")
        except ValueError as error:
            kept.append(str(error))
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: list(kept))


@case(impure=True)
def an_error_after_a_write():
    log = []

    def body(x):
        log.append(1)
        if len(log) == 3:
            raise ArithmeticError
        return x * 2.0

    return World(body, [(None,)] * 5, lambda: list(log))


@case
def a_tensor_that_is_kept():
    kept = []

    def body(x):
        y = x * 2.0
        kept.append(y)
        return y + 1.0

    return World(body, [(None, tensor(float(i))) for i in range(4)], lambda: [k.numpy() for k in kept])


@case
def a_tensor_that_is_kept_in_an_attribute():
    box = Box()

    def body(x):
        box.last = x * 2.0
        return box.last + 1.0

    steps = [(None, tensor(float(i))) for i in range(4)]
    return World(body, steps, lambda: None if box.last is None else box.last.numpy())


@case
def a_tensor_that_is_kept_on_a_class():
    Box.last = tensor(0.0)

    def body(x):
        Box.last = Box.last * 0.5 + x
        return Box.last + 1.0

    return World(body, [(None, tensor(float(i))) for i in range(4)], lambda: Box.last.numpy())


@case
def a_tensor_that_is_carried_over():
    state = {"h": tensor(0.0)}

    def body(x):
        state["h"] = state["h"] * 0.5 + x
        return state["h"]

    return World(body, [(None, tensor(float(i))) for i in range(4)], lambda: state["h"].numpy())


@case
def a_tensor_that_is_updated_in_place():
    total = tensor([0.0, 0.0, 0.0])

    def body(x):
        total[...] = total + x
        return total * 2.0

    return World(body, [(None,)] * 4, total.numpy)


@case(other_ops=True, impure=True)
def a_counter_that_scales():
    log = []

    def body(x):
        log.append(1)
        return x * float(len(log))

    return World(body, [(None,)] * 4, lambda: list(log))


@case(other_ops=True)
def a_body_that_does_something_every_other_call():
    box = Box()

    def body(x):
        box.calls += 1
        return x * 2.0 if box.calls % 2 else x - 1.0

    return World(body, [(None,)] * 4, lambda: box.calls)


@case(other_ops=True, impure=True)
def an_iterator_outside():
    gains = iter([1.0, 2.0, 3.0, 4.0])
    return World(lambda x: x * next(gains), [(None,)] * 4)


@case(other_ops=True, impure=True)
def a_generator_outside():
    def endless():
        gain = 1.0
        while True:
            yield gain
            gain *= 2.0

    gains = endless()
    return World(lambda x: x * next(gains), [(None,)] * 4)


@case(other_ops=True, impure=True)
def a_count_of_itertools():
    ticks = itertools.count(1)
    return World(lambda x: x * float(next(ticks)), [(None,)] * 4)


@case(other_ops=True, impure=True)
def a_cycle_of_itertools():
    turns = itertools.cycle([True, False])
    return World(lambda x: x * 2.0 if next(turns) else x - 1.0, [(None,)] * 4)


@case(other_ops=True, impure=True)
def a_generator_of_random_numbers():
    draw = random.Random(0)
    return World(lambda x: x * draw.random(), [(None,)] * 4)


@case(other_ops=True, impure=True)
def a_generator_of_numpy():
    draw = np.random.default_rng(0)
    return World(lambda x: x * float(draw.standard_normal()), [(None,)] * 4)


@case(other_ops=True, impure=True)
def an_array_of_random_numbers():
    draw = np.random.default_rng(0)
    return World(lambda x: x + draw.standard_normal(3).astype(np.float32), [(None,)] * 4)


@case(other_ops=True, impure=True)
def a_popped_element():
    gains = [4.0, 3.0, 2.0, 1.0]
    return World(lambda x: x * gains.pop(), [(None,)] * 4, lambda: list(gains))


@case
def a_table_that_is_filled_once():
    table = {}

    def gain(key):
        if key not in table:
            table[key] = 2.0
        return table[key]

    return World(lambda x: x * gain("a"), [(None,)] * 3 + [(table.clear,), (None,)], lambda: dict(table))


@case
def an_attribute_that_is_made_once():
    box = Box()

    def body(x):
        if box.last is None:
            box.last = 2.0
        return x * box.last

    return World(body, [(None,), (None,), (lambda: setattr(box, "last", 5.0),), (None,)], lambda: box.last)


@case(impure=True)
def a_warning():
    heard = []

    def body(x):
        warnings.warn("careful", stacklevel=1)
        return x * 2.0

    def install(traced):
        def call(x):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                result = traced(x)
            heard.append(sum("careful" in str(w.message) for w in caught))
            return result

        return call

    return World(body, [(None,)] * 4, lambda: list(heard), install)


@case(impure=True)
def a_weak_reference_that_is_registered():
    alive, box = weakref.WeakSet(), Box()

    def body(x):
        alive.add(box)
        return x * 2.0

    return World(body, [(None,), (alive.clear,), (None,)], lambda: len(alive))


@case
def a_hook_that_counts():
    import mgb.module as M

    net, box = M.ReLU(), Box()
    net.register_forward_hook(lambda module, inputs, out: box.count())
    return World(lambda x: net(x), [(None,)] * 4, lambda: box.calls)


@case(impure=True)
def a_module_that_counts():
    import mgb.module as M

    class Counting(M.ReLU):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    net = Counting()
    return World(lambda x: net(x), [(None,)] * 4, lambda: net.calls)


@case(impure=True)
def a_value_that_is_read():
    def body(x):
        return x * abs(float(x.sum().item()) * 0.0 + 1.0)

    return World(body, [(None, tensor([float(i), 1.0])) for i in range(4)])


@case(impure=True, other_ops=True)
def a_branch_on_a_value():
    def body(x):
        return x * 2.0 if x.sum().item() > 0 else x - 1.0

    return World(body, [(None, tensor([s, 1.0])) for s in (1.0, 2.0, -5.0, 1.0)])


@case(impure=True, other_ops=True)
def a_value_that_is_logged():
    log = []

    def body(x):
        y = (x * 2.0).sum()
        log.append(y.item())
        return y

    return World(body, [(None, tensor([s, 1.0])) for s in (1.0, 2.0, -5.0, 1.0)], lambda: list(log))


@case(impure=True)
def code_that_is_left_out_of_the_trace():
    log = []

    def body(x):
        y = x * 2.0
        with exclude_from_trace():
            log.append(1)
        return F.relu(y)

    return World(body, [(None,)] * 4, lambda: list(log))


@case
def a_decorator_that_counts():
    box = Box()

    def counted(function):
        @functools.wraps(function)
        def call(*args):
            box.calls += 1
            return function(*args)

        return call

    return World(counted(lambda x: x * 2.0), [(None,)] * 4, lambda: box.calls)


@case(impure=True)
def an_array_through_a_view_of_a_view():
    table = np.zeros(4)

    def body(x):
        part = table[1:].reshape(3, 1)[:, 0]
        part += 1
        return x * 2.0

    return World(body, [(None,)] * 4, table.copy)
