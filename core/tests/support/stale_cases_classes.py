"""Methods, operators and classes that are replaced."""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import types
import typing

from mgb.autodiff import Function
from stale_cases import case, changing
from stale_cases_shared import Layer


class Base:
    def apply(self, x):
        return x + 1.0


class Derived(Base):
    def apply(self, x):
        return super().apply(x) * 2.0


@case
def a_method_patched_on_its_class():
    layer = Layer()
    return changing(lambda x: layer.apply(x), lambda: setattr(Layer, "apply", lambda self, x: x - self.gain))


@case
def a_method_patched_on_its_instance():
    layer = Layer()
    return changing(
        lambda x: layer.apply(x),
        lambda: setattr(layer, "apply", lambda x: x - 1.0),
        lambda: delattr(layer, "apply"),
    )


@case
def a_bound_method_kept():
    layer = Layer()
    apply = layer.apply
    return changing(lambda x: apply(x), lambda: setattr(layer, "gain", 3.0))


@case
def a_method_of_a_base_class():
    it = Derived()
    return changing(lambda x: it.apply(x), lambda: setattr(Base, "apply", lambda self, x: x - 1.0))


@case
def an_override_that_is_added():
    class Leaf(Base):
        pass

    it = Leaf()
    return changing(
        lambda x: it.apply(x),
        lambda: setattr(Leaf, "apply", lambda self, x: x * 5.0),
        lambda: delattr(Leaf, "apply"),
    )


@case
def a_call_operator():
    layer = Layer()
    return changing(lambda x: layer(x), lambda: setattr(Layer, "__call__", lambda self, x: x * 7.0))


@case
def an_operator_of_a_class():
    layer = Layer()
    return changing(lambda x: x * (layer + 2.0), lambda: setattr(Layer, "__add__", lambda self, n: n + 1.0))


@case
def a_length_of_a_class():
    layer = Layer()
    return changing(lambda x: x * len(layer), lambda: setattr(Layer, "__len__", lambda self: 5))


@case
def a_truth_of_a_class():
    layer = Layer()
    return changing(lambda x: x * 2.0 if layer else x, lambda: setattr(Layer, "__bool__", lambda self: False))


@case
def an_equality_of_a_class():
    first, second = Layer(), Layer()

    def change():
        Layer.__eq__ = lambda self, other: self.gain == other.gain

    return changing(lambda x: x * 2.0 if first == second else x, change, lambda: setattr(second, "gain", 3.0))


@case
def a_hash_of_a_class():
    class Key:
        number = 1

        def __hash__(self):
            return 0

        def __eq__(self, other):
            return self.number == other.number

    key, table = Key(), {Key(): 2.0}
    return changing(lambda x: x * table.get(key, 1.0), lambda: setattr(key, "number", 2))


@case
def an_order_of_a_class():
    class Ranked:
        def __init__(self, gain):
            self.gain = gain

        def __lt__(self, other):
            return self.gain < other.gain

    ranked = [Ranked(2.0), Ranked(3.0)]
    return changing(lambda x: x * min(ranked).gain, lambda: setattr(ranked[1], "gain", 1.0))


@case
def a_static_method():
    change = lambda: setattr(Layer, "fixed", staticmethod(lambda x: x - 1.0))  # noqa: E731
    return changing(lambda x: Layer.fixed(x), change)


@case
def a_class_method():
    layer = Layer()
    change = lambda: setattr(Layer, "made", classmethod(lambda cls, x: x - 1.0))  # noqa: E731
    return changing(lambda x: layer.made(x), change)


@case
def a_class_that_is_replaced():
    made = Layer

    class Doubled(Layer):
        def apply(self, x):
            return x * 9.0

    def change():
        nonlocal made
        made = Doubled

    return changing(lambda x: made().apply(x), change)


@case
def an_isinstance_that_changes():
    layer = Layer()

    def change():
        layer.__class__ = type("Sub", (Base, Layer), {})

    return changing(lambda x: x * 2.0 if isinstance(layer, Base) else x, change)


@typing.runtime_checkable
class Gained(typing.Protocol):
    def gained(self): ...


@case
def a_protocol_that_a_class_comes_to_fit():
    layer = Layer()
    return changing(
        lambda x: x * 2.0 if isinstance(layer, Gained) else x - 1.0,
        lambda: setattr(Layer, "gained", lambda self: 1),
        lambda: delattr(Layer, "gained"),
    )


@case
def another_base_behind_super():
    class Mixed(Base):
        def shift(self, x):
            return super().shift(x) - 1.0

    class Leaf(Base):
        def shift(self, x):
            return super().shift(x) + 0.5

    Base.shift = lambda self, x: x * 2.0
    leaf = Leaf()
    return changing(lambda x: leaf.shift(x), lambda: setattr(Leaf, "__bases__", (Mixed,)))


@case
def the_name_of_a_class():
    layer, table = Layer(), {"Layer": 2.0, "Other": 3.0}
    return changing(lambda x: x * table[type(layer).__name__], lambda: setattr(Layer, "__name__", "Other"))


@case
def a_property_over_what_a_new_object_is_given():
    fixed = property(lambda self: 8.0, lambda self, value: None)
    return changing(lambda x: x * Layer().gain, lambda: setattr(Layer, "gain", fixed))


@case
def a_way_to_copy():
    layer = Layer()
    changed = Layer()
    changed.gain = 7.0
    return changing(
        lambda x: x * copy.copy(layer).gain, lambda: setattr(Layer, "__copy__", lambda self: changed)
    )


@case(impure=True)
def a_way_to_read_attributes():
    def read(self, name):
        return 9.0 if name == "gain" else object.__getattribute__(self, name)

    layer = Layer()
    return changing(lambda x: x * layer.gain, lambda: setattr(Layer, "__getattribute__", read))


@case
def a_reflected_operator():
    layer = Layer()
    Layer.__rmul__ = lambda self, number: number + 1.0
    return changing(lambda x: x * (2.0 * layer), lambda: setattr(Layer, "__rmul__", lambda self, number: 7.0))


@case
def the_forward_of_a_differentiable_function():
    class Scaled(Function):
        def forward(self, x):
            return x * 2.0

        def backward(self, grad):
            return grad * 2.0

    return changing(lambda x: Scaled()(x), lambda: setattr(Scaled, "forward", lambda self, x: x * 3.0))


@case
def the_class_that_is_caught():
    caught, raised = {"class": (KeyError,)}, {"class": KeyError}

    def body(x):
        try:
            raise raised["class"]()
        except caught["class"]:
            return x * 2.0
        except Exception:
            return x - 1.0

    return changing(
        body,
        lambda: raised.update({"class": TypeError}),
        lambda: caught.update({"class": (KeyError, TypeError)}),
        lambda: caught.update({"class": (ValueError,)}),
    )


@case
def a_variable_that_has_no_value_for_a_time():
    gain = 2.0

    def empty():
        nonlocal gain
        del gain

    def fill():
        nonlocal gain
        gain = 5.0

    def body(x):
        try:
            return x * gain
        except NameError:
            return x - 1.0

    return changing(body, empty, fill)


@case
def a_method_that_is_chosen_by_a_class():
    class Chosen:
        @functools.singledispatchmethod
        def gain(self, key):
            return 1.0

    chosen = Chosen()
    return changing(
        lambda x: x * chosen.gain(3) + chosen.gain("s"),
        lambda: Chosen.gain.register(int, lambda self, key: 5.0),
        lambda: Chosen.gain.register(str, lambda self, key: 2.0),
    )


@case
def the_subclasses_of_a_class():
    class Root:
        pass

    class First(Root):
        gain = 2.0

    kept = [First]
    return changing(
        lambda x: x * sum(kind.gain for kind in Root.__subclasses__()),
        lambda: kept.append(type("Second", (Root,), {"gain": 5.0})),
    )


class _Always:
    def __get__(self, instance, owner=None):
        return 1.0


def _overridden(method):
    base = type("Base", (), {"gain": method})
    leaf = type("Leaf", (base,), {})
    it = leaf()
    return changing(
        lambda x: x * it.gain,
        lambda: setattr(leaf, "gain", 5.0),
        lambda: delattr(leaf, "gain"),
        lambda: setattr(leaf, "gain", property(lambda self: 7.0)),
    )


@case
def a_property_in_whose_place_comes_a_value():
    return _overridden(property(lambda self: 1.0))


@case
def a_descriptor_in_whose_place_comes_a_value():
    return _overridden(_Always())


@case
def a_property_of_super_in_whose_place_comes_a_value():
    class Root:
        @property
        def gain(self):
            return 1.0

    class Middle(Root):
        pass

    class Leaf(Middle):
        @property
        def gain(self):
            return super().gain * 2.0

    it = Leaf()
    return changing(lambda x: x * it.gain, lambda: setattr(Middle, "gain", 5.0))


def _of_a_library(kind):
    it = kind()
    return changing(
        lambda x: x * it.gain * it.apply(),
        lambda: setattr(kind, "gain", 5.0),
        lambda: setattr(kind, "apply", lambda self: 7.0),
    )


def _members():
    return {"gain": 1.0, "apply": lambda self: 2.0}


@case
def a_class_by_make_dataclass():
    return _of_a_library(dataclasses.make_dataclass("Made", [], namespace=_members()))


@case
def a_class_by_new_class():
    return _of_a_library(types.new_class("Made", (), {}, lambda space: space.update(_members())))


@case
def a_class_by_its_metaclass():
    return _of_a_library(abc.ABCMeta("Made", (), _members()))


@case
def a_class_that_says_another_module():
    return _of_a_library(type("Made", (), {**_members(), "__module__": "numpy"}))


@case
def a_class_of_a_namespace_without_a_name():
    space = {}
    exec("class Made:\n    gain = 1.0\n    def apply(self): return 2.0", space)
    return _of_a_library(space["Made"])


@typing.runtime_checkable
class WithGain(typing.Protocol):
    gain: float


class Plain:
    pass


@case
def a_protocol_that_an_object_comes_to_have():
    it = Plain()
    return changing(
        lambda x: x * (2.0 if isinstance(it, WithGain) else 3.0),
        lambda: setattr(it, "gain", 1.0),
        lambda: delattr(it, "gain"),
        lambda: setattr(Plain, "gain", 1.0),
    )


class Once:
    use = True
    asked = 0

    @functools.cached_property
    def gain(self):
        Once.asked += 1
        return 2.0


@case
def a_cached_property_that_nobody_asks_for():
    once = Once()
    new = []

    def change():
        nonlocal once
        Once.use, once = False, Once()
        new.append(once)

    return changing(
        lambda x: (x * (once.gain if Once.use else 5.0), [len(vars(one)) for one in new]),
        lambda: None,
        change,
        change,
    )
