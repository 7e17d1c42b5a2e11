"""State behind functions, classes and objects that no name of theirs tells: defaults, namespaces, hashes."""

from __future__ import annotations

import functools

from mgb import tensor
from stale_cases import World, case, changing


def scaled(x, gain):
    return x * gain


class Box:
    pass


@case
def a_default_that_the_body_counts_up():
    def inner(x, *, gain=1.0):
        return x * gain

    def body(x):
        inner.__kwdefaults__["gain"] += 1.0
        return inner(x)

    return World(body, [(None,)] * 4, lambda: dict(inner.__kwdefaults__))


@case(impure=True)
def defaults_that_the_body_replaces():
    def inner(x, gain=1.0):
        return x * gain

    def body(x):
        inner.__defaults__ = (inner.__defaults__[0] + 1.0,)
        return inner(x)

    return World(body, [(None,)] * 4, lambda: inner.__defaults__)


@case
def defaults_that_are_another_dict():
    def inner(x, *, gain=1.0):
        return x * gain

    gains = {"gain": 7.0}
    return changing(
        lambda x: inner(x),
        lambda: setattr(inner, "__kwdefaults__", gains),
        lambda: gains.update(gain=8.0),
        lambda: setattr(inner, "__kwdefaults__", {"gain": 1.0}),
    )


@case(impure=True)
def code_that_the_body_replaces():
    def inner(x):
        return x * 2.0

    def later(x):
        return x * 3.0

    def body(x):
        y = inner(x)
        inner.__code__ = later.__code__
        return y

    return World(body, [(None,)] * 3)


@case
def an_attribute_over_a_default_of_the_metaclass():
    class Meta(type):
        gain = 2.0

    class Layer(metaclass=Meta):
        pass

    return changing(
        lambda x: x * Layer.gain,
        lambda: setattr(Layer, "gain", 3.0),
        lambda: delattr(Layer, "gain"),
        lambda: setattr(Meta, "gain", 4.0),
    )


@case
def a_descriptor_of_the_metaclass_over_an_attribute():
    class Nine:
        def __get__(self, thing, kind):
            return 9.0

        def __set__(self, thing, value):
            pass

    class Meta(type):
        pass

    class Layer(metaclass=Meta):
        gain = 2.0

    return changing(
        lambda x: x * Layer.gain, lambda: setattr(Meta, "gain", Nine()), lambda: delattr(Meta, "gain")
    )


@case
def an_object_that_is_given_the_namespace_of_another():
    a, b = Box(), Box()
    a.gain, b.gain = 2.0, 2.0

    def body(x):
        a.gain = 5.0
        return x * b.gain

    def share():
        a.gain, b.__dict__ = 2.0, a.__dict__

    return changing(body, share, written=lambda: b.gain)


@case
def an_attribute_of_a_partial():
    call = functools.partial(scaled, gain=2.0)
    call.more = 2.0
    return changing(lambda x: call(x) * call.more, lambda: setattr(call, "more", 3.0))


@case
def an_attribute_of_a_partial_of_a_class_of_its_own():
    class Call(functools.partial):
        pass

    call = Call(scaled, gain=2.0)
    call.more = 2.0
    return changing(lambda x: call(x) * call.more, lambda: setattr(call, "more", 3.0))


@case
def an_attribute_that_a_partial_gets():
    call = functools.partial(scaled, gain=2.0)
    return changing(
        lambda x: call(x) * (call.more if hasattr(call, "more") else 1.0),
        lambda: setattr(call, "more", 3.0),
    )


@case
def an_attribute_of_a_partial_that_counts():
    call = functools.partial(scaled, gain=2.0)
    call.calls = 0

    def body(x):
        call.calls += 1
        return call(x)

    return World(body, [(None,)] * 4, lambda: call.calls)


def counting(**methods):
    """An object of a class whose methods count their calls, and the counter."""
    count = [0]

    def counted(method):
        def call(self, *args):
            count[0] += 1
            return method(self, *args)

        return call

    return type("Counting", (), {name: counted(method) for name, method in methods.items()})(), count


@case
def a_hash_that_counts():
    key, count = counting(__hash__=lambda self: 1, __eq__=lambda self, other: self is other)
    gains = {key: 2.0}
    return World(lambda x: x * gains[key], [(None,)] * 4, lambda: list(count))


@case(impure=True)
def a_getattribute_that_counts():
    box, count = counting(__getattribute__=object.__getattribute__)
    object.__setattr__(box, "gain", 2.0)
    return World(lambda x: x * box.gain, [(None,)] * 4, lambda: list(count))


@case
def values_at_keys_with_a_hash_of_a_user():
    a, _ = counting(__repr__=object.__repr__)
    b, _ = counting(__repr__=object.__repr__)
    gains = {a: 1.0, b: 2.0}
    return changing(
        lambda x: x * gains[a] + gains[b],
        lambda: gains.update({b: 5.0}),
        lambda: gains.update({a: gains.pop(b), b: gains.pop(a)}),
    )


@case(impure=True)
def a_tensor_in_a_dict_with_a_method_of_its_own():
    class Table(dict):
        def __getitem__(self, key):
            return dict.__getitem__(self, key)

    table = Table(last=tensor(1.0))

    def body(x):
        table["last"] = x.sum() * 2.0
        return x * 2.0

    return changing(body, lambda: table.update(last=tensor(0.0)), written=lambda: table["last"].item())
