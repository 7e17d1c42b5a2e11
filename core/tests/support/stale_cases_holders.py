"""One number that changes, in what holds several values or is shared by all."""

from __future__ import annotations

import array
import collections
import contextvars
import ctypes
import enum
import functools
import os
import sys
import threading
import types
import typing
import weakref
from dataclasses import dataclass, field, replace

import numpy as np
from mgb import tensor
from stale_cases import World, case, changing, numbers

LOCAL = threading.local()
VARIABLE: contextvars.ContextVar[float] = contextvars.ContextVar("VARIABLE", default=2.0)


class Plain:
    scale = 2.0

    def __init__(self) -> None:
        self.gain = 2.0


class Mode(enum.Enum):
    FAST = 1.0
    EXACT = 2.0


class Level(enum.IntFlag):
    ONE = 1
    TWO = 2


@dataclass
class Config:
    gain: float = 2.0
    names: list[str] = field(default_factory=lambda: ["a"])


@dataclass(frozen=True)
class Frozen:
    gain: float = 2.0


class Pair(typing.NamedTuple):
    first: float
    second: float


class Options(typing.TypedDict):
    gain: float


@case
def a_member_of_an_enum():
    mode = Mode.FAST

    def change():
        nonlocal mode
        mode = Mode.EXACT

    return changing(lambda x: x * mode.value if mode is Mode.FAST else x - 1.0, change)


@case
def a_flag_of_an_enum():
    box = Plain()
    box.level = Level.ONE

    def change():
        box.level |= Level.TWO

    return changing(lambda x: x * 2.0 if Level.TWO in box.level else x, change)


@case
def a_field_of_a_dataclass():
    config = Config()
    return changing(lambda x: x * config.gain, lambda: setattr(config, "gain", 3.0))


@case
def a_list_in_a_dataclass():
    config = Config()
    return changing(lambda x: x * len(config.names), lambda: config.names.append("b"))


@case
def a_frozen_dataclass_that_is_replaced():
    config = Frozen()

    def change():
        nonlocal config
        config = replace(config, gain=3.0)

    return changing(lambda x: x * config.gain, change)


@case
def a_frozen_dataclass_that_is_written():
    config = Frozen()
    return changing(lambda x: x * config.gain, lambda: object.__setattr__(config, "gain", 3.0))


@case
def a_named_tuple_that_is_replaced():
    pair = Pair(2.0, 1.0)

    def change():
        nonlocal pair
        pair = pair._replace(first=3.0)

    return changing(lambda x: x * pair.first + pair.second, change)


@case
def a_typed_dict():
    options = Options(gain=2.0)
    return changing(lambda x: x * options["gain"], lambda: options.update(gain=3.0))


@case
def a_default_dict():
    table = collections.defaultdict(lambda: 1.0, gain=2.0)
    return changing(lambda x: x * table["gain"], lambda: table.update(gain=3.0))


@case
def a_chain_of_dicts():
    local, shared = {}, {"gain": 2.0}
    chain = collections.ChainMap(local, shared)
    return changing(
        lambda x: x * chain["gain"],
        lambda: shared.update(gain=3.0),
        lambda: local.update(gain=4.0),
        local.clear,
    )


@case
def an_ordered_dict():
    table = collections.OrderedDict(first=2.0, second=3.0)
    return changing(lambda x: x * next(iter(table.values())), lambda: table.move_to_end("first"))


@case
def a_deque():
    window = collections.deque([1.0, 2.0], maxlen=2)
    return changing(lambda x: x * window[0], lambda: window.append(3.0), window.rotate)


@case
def a_counter():
    counts = collections.Counter(a=2)
    return changing(lambda x: x * counts["a"], lambda: counts.update("aab"))


@case
def a_read_only_view_of_a_dict():
    table = {"gain": 2.0}
    view = types.MappingProxyType(table)
    return changing(lambda x: x * view["gain"], lambda: table.update(gain=3.0))


@case
def the_keys_of_a_dict():
    table = {"a": 1.0}
    keys = table.keys()
    return changing(lambda x: x * len(keys), lambda: table.update(b=2.0))


@case
def a_subclass_of_a_list():
    class Stack(list):
        def top(self):
            return self[-1]

    stack = Stack([1.0, 2.0])
    return changing(lambda x: x * stack.top(), lambda: stack.append(5.0))


@case
def a_subclass_of_a_dict():
    class Attributes(dict):
        __getattr__ = dict.__getitem__

    config = Attributes(gain=2.0)
    return changing(lambda x: x * config.gain, lambda: config.update(gain=3.0))


@case
def a_user_dict():
    table = collections.UserDict(gain=2.0)
    return changing(lambda x: x * table["gain"], lambda: table.update(gain=3.0))


@case
def an_array_of_the_standard_library():
    values = array.array("d", [2.0, 3.0])
    return changing(lambda x: x * values[0], lambda: values.__setitem__(0, 4.0))


@case
def a_view_of_memory():
    table = np.array([2.0, 3.0])
    view = memoryview(table)
    return changing(lambda x: x * view[0], lambda: table.__setitem__(0, 4.0))


@case
def views_of_a_dict():
    table = {"first": 1.0}
    keys, pairs = table.keys(), table.items()
    return changing(
        lambda x: x * len(keys) + sum(value for _, value in pairs) + ("second" in keys),
        lambda: table.update(second=2.0),
        lambda: table.update(first=5.0),
    )


@case
def an_array_of_c():
    values = (ctypes.c_float * 2)(1.0, 2.0)
    return changing(
        lambda x: x * values[1] + sum(values),
        lambda: values.__setitem__(1, 8.0),
        lambda: values.__setitem__(0, 4.0),
    )


@case
def a_weak_set():
    parts = [Plain(), Plain()]
    parts[1].gain = 5.0
    alive = weakref.WeakSet(parts[:1])
    return changing(lambda x: x * sum(part.gain for part in alive), lambda: alive.add(parts[1]))


@case
def a_structured_array():
    table = np.zeros(1, dtype=[("gain", "f8")])
    return changing(lambda x: x * (1.0 + float(table[0]["gain"])), lambda: table["gain"].fill(4.0))


@case
def a_thread_local():
    LOCAL.gain = 2.0
    return changing(lambda x: x * LOCAL.gain, lambda: setattr(LOCAL, "gain", 3.0))


@case
def a_context_variable():
    return changing(lambda x: x * VARIABLE.get(), lambda: VARIABLE.set(3.0))


@case
def a_context_variable_that_is_reset():
    tokens = []
    return changing(
        lambda x: x * VARIABLE.get(),
        lambda: tokens.append(VARIABLE.set(3.0)),
        lambda: VARIABLE.reset(tokens.pop()),
    )


@case
def an_environment_variable():
    name = f"GAIN_{__name__}"
    return changing(
        lambda x: x * float(os.environ.get(name, "2")),
        lambda: os.environ.update({name: "3"}),
        lambda: os.environ.pop(name),
    )


@case
def an_attribute_of_an_imported_module():
    settings = types.ModuleType("settings")
    settings.gain = 2.0
    return changing(lambda x: x * settings.gain, lambda: setattr(settings, "gain", 3.0))


@case
def an_attribute_of_a_module_in_a_package():
    package, settings = types.ModuleType("package"), types.ModuleType("package.settings")
    package.settings, settings.gain = settings, 2.0
    return changing(lambda x: x * package.settings.gain, lambda: setattr(settings, "gain", 3.0))


@case
def a_module_that_the_body_looks_up():
    settings = types.ModuleType("settings")
    settings.gain = 2.0
    name = f"settings_{__name__}"
    sys.modules[name] = settings

    def change():
        sys.modules[name] = types.SimpleNamespace(gain=3.0)

    return changing(lambda x: x * sys.modules[name].gain, change)


@case
def a_global_by_its_name():
    globals()["LATE"] = 2.0
    return changing(lambda x: x * globals()["LATE"], lambda: globals().update(LATE=3.0))


@case
def an_argument_of_a_partial():
    def scaled(x, box):
        return x * box["gain"]

    box = {"gain": 2.0}
    helper = functools.partial(scaled, box=box)
    return changing(lambda x: helper(x), lambda: box.update(gain=3.0))


@case
def keywords_of_a_partial():
    def scaled(x, gain):
        return x * gain

    helper = functools.partial(scaled, gain=2.0)
    return changing(lambda x: helper(x), lambda: helper.keywords.update(gain=3.0))


@case
def what_a_weak_reference_leads_to():
    it = Plain()
    reference = weakref.ref(it)
    world = changing(lambda x: x * reference().gain, lambda: setattr(it, "gain", 3.0))
    return world


@case
def a_weak_reference_that_dies():
    held = [Plain()]
    reference = weakref.ref(held[0])
    return changing(lambda x: x * 2.0 if reference() is None else x, held.clear)


@case
def a_method_of_an_object():
    class Scale:
        def __init__(self, gain):
            self.gain = gain

        def apply(self, x):
            return x * self.gain

    it = Scale(2.0)

    def install(traced):
        if traced is not Scale.apply:
            Scale.apply = traced
        return lambda x: it.apply(x)

    return changing(Scale.apply, lambda: setattr(it, "gain", 3.0), install=install)


@case
def two_objects_of_a_method():
    class Scale:
        def __init__(self, gain):
            self.gain = gain

        def apply(self, x):
            return x * self.gain

    one, two = Scale(2.0), Scale(3.0)
    change = lambda: setattr(two, "gain", 5.0)  # noqa: E731
    steps = [(None, one), (None, two), (None, one), (None, two), (change, two), (None, one)]
    return World(
        lambda it, x=None: it.apply(tensor(2.0) if x is None else x) * 1.0,
        [(c, it, numbers()) for c, it in steps],
    )


@case
def a_tensor_that_is_or_is_not_another():
    known = numbers()
    steps = [(None, known), (None, numbers()), (None, known), (None, numbers())]
    return World(lambda x: x * 2.0 if x is known else x - 1.0, steps)
