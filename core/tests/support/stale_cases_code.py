"""Functions and other code that is replaced."""

from __future__ import annotations

import functools
import operator
import types

import mgb.functional as F
from mgb.jit import trace
from stale_cases import World, case, changing, numbers
from stale_cases_shared import Layer, helper, other

GAIN = 2.0


def decorated(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args) * GAIN

    return call


@decorated
def scaled(x):
    return x + 1.0


@case
def a_global_function():
    def change():
        global helper
        helper = other

    return changing(lambda x: helper(x), change)


@case
def a_function_in_a_closure():
    inner = helper

    def change():
        nonlocal inner
        inner = other

    return changing(lambda x: inner(x), change)


@case
def a_function_of_a_function():
    def outer(x):
        return helper(x) + 1.0

    def change():
        global helper
        helper = other

    return changing(lambda x: outer(x), change)


@case
def a_number_that_a_helper_reads():
    def reads(x):
        return x * GAIN

    def change():
        global GAIN
        GAIN = 3.0

    return changing(lambda x: reads(x), change)


@case
def a_number_three_helpers_down():
    def first(x):
        return second(x) + 1.0

    def second(x):
        return third(x) * 2.0

    def third(x):
        return x * GAIN

    def change():
        global GAIN
        GAIN = 3.0

    return changing(lambda x: first(x), change)


@case
def the_code_of_a_helper():
    def inner(x):
        return x * 2.0

    def replacement(x):
        return x - 1.0

    return changing(lambda x: inner(x), lambda: setattr(inner, "__code__", replacement.__code__))


@case
def the_code_of_the_function():
    def function(x):
        return x * 2.0

    def replacement(x):
        return x - 1.0

    return changing(function, lambda: setattr(function, "__code__", replacement.__code__))


@case
def a_function_in_a_dict():
    table = {"act": F.relu}
    return changing(lambda x: table["act"](x), lambda: table.update(act=F.tanh))


@case
def a_function_in_a_list():
    table = [F.relu]
    return changing(lambda x: table[0](x), lambda: operator.setitem(table, 0, F.sigmoid))


@case
def a_function_in_an_attribute():
    layer = Layer()
    layer.act = F.relu
    return changing(lambda x: layer.act(x), lambda: setattr(layer, "act", F.exp))


@case
def a_function_of_a_module():
    module = types.ModuleType("layers")
    module.act = F.relu
    return changing(lambda x: module.act(x), lambda: setattr(module, "act", F.exp))


@case
def what_a_decorator_reads():
    def change():
        global GAIN
        GAIN = 4.0

    return changing(lambda x: scaled(x), change)


@case
def what_a_decorator_wraps():
    inner = helper

    def call(x):
        return inner(x) * 2.0

    def change():
        nonlocal inner
        inner = other

    return changing(functools.wraps(helper)(call), change)


@case
def a_traced_function_in_a_traced_one():
    def inner(x):
        return x * GAIN

    def outer(x):
        return inner(x) + 1.0

    def change():
        global GAIN
        GAIN = 8.0

    def install(traced):
        nonlocal inner
        if traced is not outer:
            inner = trace(inner)
        return traced

    return changing(outer, change, install=install)


@case
def an_evaluated_text():
    text = "x * 2.0"

    def change():
        nonlocal text
        text = "x - 2.0"

    return changing(lambda x: eval(text, {"x": x}), change)


@case
def a_function_of_map():
    table = [1.0, 2.0]
    gain = 2.0

    def change():
        nonlocal gain
        gain = 3.0

    return changing(lambda x: x * sum(map(lambda v: v * gain, table)), change)  # noqa: C417


@case
def a_reduction_by_an_operator():
    combine = operator.add

    def change():
        nonlocal combine
        combine = operator.mul

    return changing(lambda x: functools.reduce(combine, [x, x, x]), change)


@case
def an_attribute_by_its_dotted_name():
    layer = Layer()
    layer.inner = Layer()
    get = operator.attrgetter("inner.gain")
    return changing(lambda x: x * get(layer), lambda: setattr(layer.inner, "gain", 3.0))


@case
def a_method_by_its_name():
    layer, name = Layer(), "apply"

    def change():
        nonlocal name
        name = "__call__"

    return changing(lambda x: getattr(layer, name)(x), change)


@case
def an_argument_that_is_a_function():
    steps = [(None, numbers(), f) for f in (F.relu, F.relu, F.tanh, F.relu)]
    return World(lambda x, act: act(x), steps)


@case
def an_argument_whose_closure_changes():
    gain = 2.0

    def act(x):
        return x * gain

    def change():
        nonlocal gain
        gain = 3.0

    return World(
        lambda x, act: act(x), [(None, numbers(), act), (None, numbers(), act), (change, numbers(), act)]
    )


@case
def a_match_statement():
    command = {"kind": "scale", "by": 2.0}

    def matched(x):
        match command:
            case {"kind": "scale", "by": gain}:
                return x * gain
            case {"kind": "shift"}:
                return x + 1.0
        return x

    return changing(
        matched, lambda: command.update(by=3.0), lambda: command.update(kind="shift"), command.clear
    )
