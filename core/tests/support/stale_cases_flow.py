"""Decorators, generators, recursion, errors and names that the body goes through."""

from __future__ import annotations

import contextlib
import functools

from stale_cases import case, changing
from stale_cases_shared import Layer, helper, other

GAIN = 2.0


@functools.singledispatch
def dispatched(kind):
    return 1.0


@case
def a_type_that_is_registered():
    class Kind:
        pass

    kind = Kind()
    return changing(lambda x: x * dispatched(kind), lambda: dispatched.register(Kind, lambda kind: 6.0))


@case
def a_generator_that_helps():
    gains = [1.0, 2.0]

    def terms(x):
        for gain in gains:
            yield x * gain

    return changing(lambda x: sum(terms(x), x * 0.0), lambda: gains.append(5.0))


@case
def a_generator_that_reads_a_global():
    def terms(x):
        yield x
        yield x * GAIN

    def change():
        global GAIN
        GAIN = 6.0

    return changing(lambda x: sum(terms(x), x * 0.0), change)


@case
def a_comprehension():
    gains = {"a": 1.0, "b": 2.0}
    return changing(lambda x: x * sum([v for k, v in gains.items() if k != "a"]), lambda: gains.update(c=3.0))


@case
def a_depth_of_recursion():
    depth = 2

    def deeper(x, level):
        return x if level == 0 else deeper(x * 2.0, level - 1)

    def change():
        nonlocal depth
        depth = 4

    return changing(lambda x: deeper(x, depth), change)


@case
def a_recursion_that_is_patched():
    def deeper(x, level):
        return x if level == 0 else step(deeper(x, level - 1))

    step = helper

    def change():
        nonlocal step
        step = other

    return changing(lambda x: deeper(x, 2), change)


@case
def a_context_manager():
    layer = Layer()

    @contextlib.contextmanager
    def gain():
        yield layer.gain

    def inside(x):
        with gain() as number:
            return x * number

    return changing(inside, lambda: setattr(layer, "gain", 3.0))


@case
def an_error_that_is_caught():
    limit = 2

    def checked():
        if limit > 2:
            raise ValueError(limit)
        return 1.0

    def caught(x):
        try:
            return x * checked()
        except ValueError as error:
            return x + float(error.args[0])

    def change():
        nonlocal limit
        limit += 1

    return changing(caught, change, change)


@case
def an_error_that_is_not_caught():
    limit = 2

    def checked(x):
        if limit > 2:
            raise ArithmeticError(limit)
        return x * 2.0

    def change():
        nonlocal limit
        limit = 3

    def back():
        nonlocal limit
        limit = 1

    return changing(checked, change, back)


@case
def a_builtin_that_is_hidden():
    def change():
        global max
        max = lambda *numbers: 7.0  # noqa: E731

    def back():
        global max
        del max

    return changing(lambda x: x * max(2.0, 3.0), change, back)


@case
def a_name_that_is_deleted():
    globals()["EXTRA"] = 2.0

    def guarded(x):
        try:
            return x * EXTRA
        except NameError:
            return x - 1.0

    return changing(guarded, lambda: globals().pop("EXTRA"), lambda: globals().update(EXTRA=4.0))


@case
def a_function_made_in_the_body():
    def outer(x):
        def inner(y):
            return y * GAIN

        return inner(x)

    def change():
        global GAIN
        GAIN = 8.0

    return changing(outer, change)


@case
def a_class_made_in_the_body():
    def outer(x):
        class Local:
            gain = GAIN

        return x * Local.gain

    def change():
        global GAIN
        GAIN = 8.0

    return changing(outer, change)


class Thing:
    """Told apart from others by which one it is."""


FIRST, SECOND = Thing(), Thing()
SPOT = [SECOND]


def asked(question):
    """Whether the body asks of what stands in SPOT if it is FIRST."""

    def change():
        SPOT[0] = FIRST

    return changing(lambda x: x * (3.0 + question(SPOT[0])), change)


@case
def an_object_that_is_compared():
    return asked(lambda thing: thing == FIRST)


@case
def an_object_that_is_compared_for_being_another():
    return asked(lambda thing: thing != FIRST)


@case
def an_object_with_a_hash():
    return asked(lambda thing: hash(thing) == hash(FIRST))


@case
def an_object_that_is_looked_for_in_a_list():
    return asked(lambda thing: thing in [FIRST])


@case
def an_object_that_is_looked_for_in_a_dict():
    return asked(lambda thing: thing in {FIRST: 1.0})


@case
def an_object_that_is_a_key():
    return asked(lambda thing: {FIRST: 4.0}.get(thing, 1.0))


@case
def an_object_that_is_counted():
    return asked(lambda thing: [FIRST, SECOND].count(thing) + [FIRST, SECOND].index(thing))


@case
def an_object_in_a_set():
    return asked(lambda thing: len({thing, FIRST}))


@case
def an_object_in_tuples_that_are_compared():
    return asked(lambda thing: (thing, 1) == (FIRST, 1))


@case
def an_object_in_lists_that_are_compared():
    return asked(lambda thing: [[thing]] == [[FIRST]])
