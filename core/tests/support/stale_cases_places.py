"""One number that changes, in closures, defaults and attributes."""

from __future__ import annotations

import functools

from stale_cases import case, changing


class Plain:
    scale = 2.0

    def __init__(self) -> None:
        self.gain = 2.0


class Child(Plain):
    pass


class Slotted:
    __slots__ = ("gain",)

    def __init__(self) -> None:
        self.gain = 2.0


class Computed:
    def __init__(self) -> None:
        self._gain = 1.0

    @property
    def gain(self) -> float:
        return self._gain * 2.0

    @functools.cached_property
    def kept(self) -> float:
        return self._gain * 3.0


class Meta(type):
    rate = 2.0

    @property
    def doubled(cls) -> float:
        return cls.rate * 2.0


class WithMeta(metaclass=Meta):
    pass


class Fallback:
    def __init__(self) -> None:
        self.table = {"gain": 2.0}

    def __getattr__(self, name: str) -> float:
        try:
            return self.__dict__["table"][name]
        except KeyError:
            raise AttributeError(name) from None


class Descriptor:
    def __init__(self, value: float) -> None:
        self.value = value

    def __get__(self, instance: object, owner: type) -> float:
        return self.value


class Described:
    gain = Descriptor(2.0)


@case
def a_closure():
    gain = 2.0

    def change():
        nonlocal gain
        gain = 3.0

    return changing(lambda x: x * gain, change)


@case
def a_closure_of_a_closure():
    gain = 2.0

    def outer():
        def inner(x):
            return x * gain

        return inner

    def change():
        nonlocal gain
        gain = 3.0

    return changing(outer(), change)


@case
def a_cell_written_from_outside():
    gain = 2.0

    def scaled(x):
        return x * gain

    return changing(scaled, lambda: setattr(scaled.__closure__[0], "cell_contents", 3.0))


@case
def a_default_argument():
    def scaled(x, gain=2.0):
        return x * gain

    return changing(scaled, lambda: setattr(scaled, "__defaults__", (3.0,)))


@case
def a_default_that_can_be_written():
    def scaled(x, gains=[2.0]):  # noqa: B006
        return x * gains[0]

    return changing(scaled, lambda: scaled.__defaults__[0].__setitem__(0, 3.0))


@case
def a_default_of_a_helper():
    def helper(x, gain=2.0):
        return x * gain

    return changing(lambda x: helper(x), lambda: setattr(helper, "__defaults__", (3.0,)))


@case
def a_keyword_default_of_a_helper():
    def helper(x, *, gain=2.0):
        return x * gain

    return changing(lambda x: helper(x), lambda: helper.__kwdefaults__.update(gain=3.0))


@case
def an_attribute_of_a_function():
    def helper(x):
        return x * helper.gain

    helper.gain = 2.0
    return changing(lambda x: helper(x), lambda: setattr(helper, "gain", 3.0))


@case
def an_attribute_of_the_function_itself():
    def scaled(x):
        return x * scaled.gain

    scaled.gain = 2.0
    return changing(scaled, lambda: setattr(scaled, "gain", 3.0))


@case
def an_attribute_of_an_instance():
    it = Plain()
    return changing(lambda x: x * it.gain, lambda: setattr(it, "gain", 3.0))


@case
def an_attribute_in_the_dict_of_an_instance():
    it = Plain()
    return changing(lambda x: x * it.gain, lambda: vars(it).update(gain=3.0))


@case
def an_attribute_of_a_class():
    return changing(lambda x: x * Plain.scale, lambda: setattr(Plain, "scale", 3.0))


@case
def an_attribute_of_a_class_by_its_instance():
    it = Plain()
    return changing(lambda x: x * it.scale, lambda: setattr(Plain, "scale", 3.0))


@case
def an_instance_that_hides_its_class():
    it = Plain()
    return changing(lambda x: x * it.scale, lambda: setattr(it, "scale", 3.0), lambda: delattr(it, "scale"))


@case
def an_attribute_of_a_base_class():
    it = Child()
    return changing(lambda x: x * it.scale, lambda: setattr(Plain, "scale", 3.0))


@case
def a_class_that_hides_its_base():
    it = Child()
    return changing(lambda x: x * it.scale, lambda: setattr(Child, "scale", 3.0))


@case
def a_base_that_is_replaced():
    class Other:
        scale = 5.0

    class Middle(Plain):
        pass

    it = Middle()
    return changing(
        lambda x: x * it.scale, lambda: setattr(Middle, "__bases__", (type("New", (Plain,), {"scale": 5.0}),))
    )


@case
def another_class_of_an_instance():
    class Other(Plain):
        scale = 5.0

    it = Plain()
    return changing(lambda x: x * it.scale, lambda: setattr(it, "__class__", Other))


@case
def another_instance():
    it = Plain()

    def change():
        nonlocal it
        it = Plain()
        it.gain = 3.0

    return changing(lambda x: x * it.gain, change)


@case
def an_object_in_an_object():
    outer = Plain()
    outer.inner = Plain()
    outer.inner.inner = Plain()
    return changing(lambda x: x * outer.inner.inner.gain, lambda: setattr(outer.inner.inner, "gain", 3.0))


@case
def an_object_in_a_list_in_a_dict():
    table = {"all": [Plain(), Plain()]}
    return changing(lambda x: x * table["all"][1].gain, lambda: setattr(table["all"][1], "gain", 3.0))


@case
def a_slot():
    it = Slotted()
    return changing(lambda x: x * it.gain, lambda: setattr(it, "gain", 3.0))


@case
def a_slot_that_is_emptied():
    it = Slotted()
    return changing(lambda x: x * getattr(it, "gain", 1.0), lambda: delattr(it, "gain"))


@case
def what_a_property_reads():
    it = Computed()
    return changing(lambda x: x * it.gain, lambda: setattr(it, "_gain", 3.0))


@case
def a_property_that_is_replaced():
    it = Computed()
    return changing(lambda x: x * it.gain, lambda: setattr(Computed, "gain", property(lambda self: 7.0)))


@case(impure=True)  # the body computes it again
def a_cached_property_that_is_dropped():
    it = Computed()

    def change():
        it._gain = 2.0
        vars(it).pop("kept", None)

    assert it.kept == 3.0
    return changing(lambda x: x * it.kept, change)


@case
def an_attribute_of_a_metaclass():
    return changing(lambda x: x * WithMeta.rate, lambda: setattr(Meta, "rate", 3.0))


@case
def a_property_of_a_metaclass():
    return changing(lambda x: x * WithMeta.doubled, lambda: setattr(Meta, "rate", 3.0))


@case
def what_getattr_falls_back_to():
    it = Fallback()
    return changing(
        lambda x: x * it.gain, lambda: it.table.update(gain=3.0), lambda: setattr(it, "gain", 9.0)
    )


@case
def an_attribute_that_is_missing():
    it = Plain()
    return changing(lambda x: x * getattr(it, "rate", 1.0), lambda: setattr(it, "rate", 3.0))


@case
def an_attribute_that_is_asked_for():
    it = Plain()
    return changing(lambda x: x + 1.0 if hasattr(it, "bias") else x, lambda: setattr(it, "bias", None))


@case
def what_a_descriptor_holds():
    it = Described()
    return changing(lambda x: x * it.gain, lambda: setattr(vars(Described)["gain"], "value", 3.0))
