"""Bodies that write outside themselves."""

from __future__ import annotations

import collections
import contextvars
import heapq
import io
import logging
import os
import tempfile
import types

import numpy as np
from stale_cases import World, case, changing, numbers
from stale_cases_shared import Box

COUNT = 0
VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("WRITTEN", default=0)


class Setter:
    def __init__(self):
        self.log = []

    @property
    def value(self):
        return len(self.log)

    @value.setter
    def value(self, number):
        self.log.append(number)


def calls(write, written):
    """Four calls of a body that writes first and then does always the same."""

    def body(x):
        write()
        return x * 2.0

    return World(body, [(None,)] * 4, written)


@case
def a_list_that_grows():
    log = []
    return calls(lambda: log.append(1), lambda: list(log))


@case(impure=True)
def a_list_that_grows_in_the_body_itself():
    log = []

    def body(x):
        log.append(len(log))
        return x + 1.0

    return World(body, [(None,)] * 4, lambda: list(log))


@case(impure=True)
def a_list_that_is_extended():
    log = []

    def body(x):
        nonlocal log
        log += [x.shape]
        return x + 1.0

    return World(body, [(None,)] * 4, lambda: list(log))


@case
def a_global_counter():
    def body(x):
        global COUNT
        COUNT += 1
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: COUNT)


@case
def a_closure_counter():
    count = 0

    def body(x):
        nonlocal count
        count += 1
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: count)


@case(impure=True)
def a_global_that_is_deleted():
    def body(x):
        global LAST
        LAST = x.shape
        del LAST
        globals()["MADE"] = globals().get("MADE", 0) + 1
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: globals().get("MADE"))


@case
def an_attribute_that_counts():
    box = Box()

    def body(x):
        box.calls += 1
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: box.calls)


@case
def a_method_that_counts():
    box = Box()
    return calls(box.count, lambda: box.calls)


@case
def a_class_attribute_that_counts():
    def body(x):
        Box.total += 1
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: Box.total)


@case
def a_setattr():
    box = Box()
    return calls(lambda: setattr(box, "calls", box.calls + 1), lambda: box.calls)


@case
def a_dict_of_an_object():
    box = Box()
    return calls(lambda: vars(box).update(calls=box.calls + 1), lambda: box.calls)


@case
def a_property_that_is_set():
    box = Setter()

    def body(x):
        box.value = 3
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: list(box.log))


@case(impure=True)
def an_item_of_a_dict():
    table = {}

    def body(x):
        table["calls"] = table.get("calls", 0) + 1
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: dict(table))


@case
def a_key_that_is_set_back_outside():
    table = {}

    def body(x):
        table["seen"] = True
        return x * 2.0

    return World(body, [(None,), (table.clear,), (table.clear,), (None,)], lambda: dict(table))


@case(impure=True)
def a_default_of_a_dict():
    table = collections.defaultdict(int)

    def body(x):
        table["calls"] += 1
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: dict(table))


@case(impure=True)
def a_counter_of_shapes():
    counts = collections.Counter()
    return World(lambda x: (counts.update([x.shape]), x * 2.0)[1], [(None,)] * 4, lambda: dict(counts))


@case(impure=True)
def a_set_that_grows():
    seen = set()
    return World(lambda x: (seen.add(len(seen)), x * 2.0)[1], [(None,)] * 4, lambda: sorted(seen))


@case(impure=True)
def a_deque_that_grows():
    window = collections.deque(maxlen=3)
    return calls(lambda: window.append(len(window)), lambda: list(window))


@case(impure=True)
def a_heap():
    heap = []
    return calls(lambda: heapq.heappush(heap, -len(heap)), lambda: list(heap))


@case
def a_list_that_is_sorted():
    values = [3, 1, 2]
    return World(
        lambda x: (values.sort(), x * 2.0)[1], [(None,), (values.reverse,), (None,)], lambda: list(values)
    )


@case
def a_default_that_grows():
    def body(x, log=[]):  # noqa: B006
        log.append(1)
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: list(body.__defaults__[0]))


@case(impure=True)
def an_attribute_of_the_function():
    def body(x):
        body.calls = getattr(body, "calls", 0) + 1
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: getattr(body, "calls", 0))


@case
def an_attribute_of_a_module():
    module = types.ModuleType("settings")
    module.calls = 0

    def body(x):
        module.calls += 1
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: module.calls)


@case(impure=True)
def an_argument_that_grows():
    log = []

    def body(x, log):
        log.append(1)
        return x * 2.0

    return World(body, [(None, numbers(), log)] * 4, lambda: list(log))


@case(impure=True)
def an_element_of_an_array():
    table = np.zeros(2)

    def body(x):
        table[0] += 1
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: table.copy())


@case(impure=True)
def an_array_by_a_function():
    table = np.zeros(2)
    return calls(lambda: np.add(table, 1.0, out=table), lambda: table.copy())


@case(impure=True)
def bytes_of_an_array():
    data = bytearray(2)

    def body(x):
        data[0] += 1
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: bytes(data))


@case(impure=True)
def what_is_printed():
    return calls(lambda: print("step"), lambda: None)


@case(impure=True)
def what_a_stream_is_given():
    stream = io.StringIO()
    return calls(lambda: stream.write("a"), stream.getvalue)


@case(impure=True)
def what_a_file_is_given():
    handle = tempfile.TemporaryFile("w+")  # noqa: SIM115

    def written():
        handle.flush()
        return os.fstat(handle.fileno()).st_size

    return calls(lambda: handle.write("a"), written)


@case(impure=True)
def a_file_that_is_opened():
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "log")

    def body(x):
        with open(path, "a", encoding="utf-8") as stream:
            stream.write("a")
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: (folder, os.path.exists(path) and os.path.getsize(path))[1])


@case(impure=True, other_ops=True)
def a_file_that_is_read():
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "gain")

    def write(text):
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)

    def body(x):
        with open(path, encoding="utf-8") as stream:
            return x * float(stream.read())

    write("2")
    return changing(body, lambda: write("3"), written=lambda: bool(folder))


@case(impure=True)
def what_is_logged():
    stream = io.StringIO()
    logger = logging.Logger("stale")
    logger.addHandler(logging.StreamHandler(stream))
    return calls(lambda: logger.warning("step"), stream.getvalue)


@case(impure=True)
def an_environment_variable_that_is_set():
    name = f"WRITTEN_{__name__}"

    def body(x):
        os.environ[name] = os.environ.get(name, "") + "a"
        return x * 2.0

    return World(body, [(None,)] * 4, lambda: os.environ.get(name))


@case(impure=True)
def a_context_variable_that_is_set():
    return calls(lambda: VARIABLE.set(VARIABLE.get() + 1), VARIABLE.get)


@case
def a_context_manager_that_writes():
    box = Box()

    class Timer:
        def __enter__(self):
            box.calls += 1

        def __exit__(self, *error):
            box.calls += 10

    def body(x):
        with Timer():
            return x * 2.0

    return World(body, [(None,)] * 4, lambda: box.calls)
