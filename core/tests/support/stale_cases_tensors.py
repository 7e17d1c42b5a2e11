"""Which Tensor it is, what it is called, and what else arguments carry than their elements."""

from __future__ import annotations

import numpy as np
from mgb import Parameter, Tensor, tensor
from stale_cases import World, case, changing, numbers

LEFT = tensor(np.array([1.0, -2.0, 3.0], np.float32))
WEIGHT = Parameter(np.ones(3, np.float32))
PLACES, VALUES = [1, 0], [8.0, 9.0]


class Marked(list):
    mark = 1.0


class Attributed(dict):
    pass


class Counted(int):
    pass


def called_with(function, *values):
    """Each value, twice."""
    return World(function, [(None, value) for value in values for _ in range(2)])


@case
def places_that_are_written():
    def f(x):
        y = x * 1.0
        y[PLACES] = 8.0
        return y

    return changing(f, lambda: PLACES.__setitem__(0, 2))


@case
def values_that_are_written():
    def f(x):
        y = x * 1.0
        y[:2] = VALUES
        return y

    return changing(f, lambda: VALUES.__setitem__(0, -1.0))


@case
def places_that_are_added_to():
    def f(x):
        y = x * 1.0
        y[PLACES] += 1.0
        return y

    return changing(f, lambda: PLACES.__setitem__(0, 2))


@case
def a_place_that_an_object_stands_for():
    class Place:
        def __init__(self):
            self.number = 0

        def __index__(self):
            return self.number

    place = Place()

    def f(x):
        y = x * 1.0
        y[place] = 8.0
        return y

    numbered = iter(range(1, 3))
    changes = [lambda: setattr(place, "number", next(numbered))] * 2
    return changing(f, *changes)


@case
def an_attribute_that_a_parameter_gets():
    def change():
        WEIGHT.frozen = True

    return changing(lambda x: x if getattr(WEIGHT, "frozen", False) else x * WEIGHT * 2.0, change)


@case
def the_name_of_an_argument():
    def named(name):
        x = numbers()
        x.name = name
        return x

    return called_with(lambda x: x * len(x.name), named("a"), named("bias"), named("a"))


@case
def the_format_of_an_argument():
    def noted(kind):
        x = numbers()
        x.format = kind
        return x

    return called_with(lambda x: x * 2.0 if x.format == "nchw" else x, noted("nchw"), noted("nhwc"))


@case
def an_attribute_of_a_parameter_that_counts():
    weight = Parameter(np.ones(3, np.float32))
    weight.hits = 0

    def f(x):
        weight.hits += 1
        return x * weight

    return World(f, [(None,)] * 5, written=lambda: weight.hits)


@case
def the_argument_that_a_global_holds():
    return called_with(lambda x: tensor([1.0]) * (2.0 if x is LEFT else 3.0), LEFT, numbers(), LEFT)


@case
def the_argument_in_a_dict_that_a_global_holds():
    mine = tensor(np.array([1.0], np.float32))
    held = {"mine": mine}

    def f(given):
        return tensor([1.0]) * (2.0 if given["x"] is held["mine"] else 3.0)

    return called_with(f, {"x": mine}, {"x": numbers()}, {"x": mine})


@case
def the_argument_that_is_a_grad():
    weight, one, two = Parameter(np.ones(3, np.float32)), numbers(), numbers()
    weight.grad = one

    def f(x):
        return x * (2.0 if weight.grad is x else 3.0)

    def change():
        weight.grad = two

    return World(f, [(None, one), (None, two), (change, one), (None, two), (None, one)])


@case
def the_argument_that_is_a_key():
    mine = tensor(np.array([1.0], np.float32))
    held = {mine: 2.0}
    return called_with(lambda x: x * held.get(x, 3.0), mine, numbers(), mine)


@case(impure=True)
def an_attribute_that_a_list_gets():
    one, two = Marked([numbers()]), Marked([numbers()])
    two.mark = 5.0
    return called_with(lambda given: given[0] * given.mark, one, two, one)


@case(impure=True)
def an_attribute_that_a_dict_lacks():
    one, two = Attributed(x=numbers()), Attributed(x=numbers())
    two.mark = 5.0
    return called_with(lambda given: given["x"] * getattr(given, "mark", 3.0), one, two, one)


@case(impure=True)
def attributes_of_a_dict_that_are_counted():
    one, two = Attributed(x=numbers()), Attributed(x=numbers())
    two.mark = 5.0
    return called_with(lambda given: given["x"] * (1.0 + len(vars(given))), one, two, one)


@case
def a_number_with_attributes_that_is_handed_on():
    one, two = Counted(1), Counted(1)
    one.mark, two.mark = 2.0, 3.0

    def install(traced):
        return lambda count: [traced(count).mark]

    return called_with(lambda count: count, one, two, one)._replace(install=install)


@case
def the_flags_of_an_argument():
    whole = np.arange(16, dtype=np.float32).reshape(4, 4)

    def f(a):
        return tensor(a) * (2.0 if a.flags.c_contiguous else 3.0)

    return called_with(f, whole, whole.T, whole)


@case
def the_base_of_an_argument():
    whole = np.arange(16, dtype=np.float32)
    copied = whole.copy()
    return called_with(lambda a: tensor(a) * (2.0 if a.base is None else 3.0), whole, copied[:], whole)


@case
def the_pattern_of_a_name():
    one, two = numbers(), numbers()
    two.name = "bias"

    def f(x):
        match x:
            case Tensor(name="bias"):
                return x * 2.0
        return x

    return called_with(f, one, two, one)


@case
def the_argument_among_keys_that_the_body_makes():
    def f(x):
        return x * (2.0 if x in {LEFT: 1.0} else 3.0)

    return called_with(f, LEFT, numbers(), LEFT)
