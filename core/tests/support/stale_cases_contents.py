"""Lists, dicts, sets, arrays and Tensors whose contents change."""

from __future__ import annotations

import operator
from types import SimpleNamespace

import mgb.functional as F
import numpy as np
from mgb import tensor
from stale_cases import case, changing

WEIGHTS = [1.0, 2.0]
TABLE = np.array([1.0, 2.0, 3.0], np.float32)


@case
def an_element_of_a_list():
    def change():
        WEIGHTS[1] = 9.0

    return changing(lambda x: x * WEIGHTS[0] + WEIGHTS[1], change)


@case
def the_length_of_a_list():
    layers = [1.0, 2.0]
    return changing(lambda x: x * len(layers), lambda: layers.append(3.0), layers.clear)


@case
def a_list_that_is_empty_or_not():
    extra = []
    return changing(lambda x: x + 1.0 if extra else x, lambda: extra.append(0), extra.pop)


@case
def a_list_that_is_iterated():
    factors = [2.0, 3.0]

    def product(x):
        for factor in factors:
            x = x * factor
        return x

    return changing(product, lambda: factors.append(4.0), factors.reverse, lambda: factors.pop(0))


@case
def the_order_of_a_list():
    steps = [lambda x: x * 2.0, lambda x: x + 1.0]

    def chain(x):
        for step in steps:
            x = step(x)
        return x

    return changing(chain, steps.reverse)


@case
def a_list_in_a_list():
    nested = [[1.0], [2.0, [3.0]]]

    def change():
        nested[1][1][0] = 5.0

    return changing(lambda x: x * nested[1][1][0], change)


@case
def a_slice_of_a_list():
    values = [1.0, 2.0, 3.0]

    def change():
        values[:2] = [7.0]

    return changing(lambda x: x + sum(values[:2]), change)


@case
def the_largest_of_a_list():
    values = [1.0, 2.0]
    return changing(lambda x: x * max(values), lambda: values.append(6.0))


@case
def a_list_that_is_sorted_by_a_key():
    values, sign = [3.0, 1.0, 2.0], 1.0

    def change():
        nonlocal sign
        sign = -1.0

    return changing(lambda x: x - sorted(values, key=lambda v: v * sign)[0], change)


@case
def a_value_of_a_dict():
    config = {"scale": 2.0}
    return changing(lambda x: x * config["scale"], lambda: config.update(scale=3.0))


@case
def a_key_that_is_added():
    config = {}
    return changing(lambda x: x * config.get("scale", 1.0), lambda: config.update(scale=3.0), config.clear)


@case
def a_key_that_is_missing():
    config = {"scale": 2.0}

    def scaled(x):
        try:
            return x * config["scale"]
        except KeyError:
            return x - 1.0

    return changing(scaled, config.clear, lambda: config.update(scale=4.0))


@case
def a_key_that_leads_to_an_error():
    config = {"scale": 2.0}
    return changing(lambda x: x * config["scale"], config.clear, lambda: config.update(scale=4.0))


@case
def a_membership_in_a_dict():
    config = {"bias": 0}
    return changing(lambda x: x + 1.0 if "bias" in config else x, config.clear)


@case
def the_order_of_a_dict():
    steps = {"double": lambda x: x * 2.0, "shift": lambda x: x + 1.0}

    def chain(x):
        for step in steps.values():
            x = step(x)
        return x

    def change():
        steps["double"] = steps.pop("double")

    return changing(chain, change)


@case
def a_nested_dict():
    config = {"model": {"layers": [{"gain": 2.0}]}}

    def change():
        config["model"]["layers"][0]["gain"] = 3.0

    return changing(lambda x: x * config["model"]["layers"][0]["gain"], change)


@case
def keywords_from_a_dict():
    options = {"min": -1.0, "max": 1.0}

    def clip(x, *, min, max):
        return F.clip(x, min, max)

    return changing(lambda x: clip(x, **options), lambda: options.update(max=2.0))


@case
def a_set():
    enabled = {"bias"}

    def shifted(x):
        return x + 1.0 if "bias" in enabled else x * 2.0

    return changing(shifted, enabled.clear, lambda: enabled.add("bias"))


@case
def a_frozenset_in_a_variable():
    enabled = frozenset({"bias"})

    def change():
        nonlocal enabled
        enabled = frozenset()

    return changing(lambda x: x + float(len(enabled)), change)


@case
def a_tuple_in_a_variable():
    pair = (1.0, 2.0)

    def change():
        nonlocal pair
        pair = (1.0, 3.0)

    return changing(lambda x: x * pair[0] + pair[1], change)


@case
def a_list_in_a_tuple():
    pair = ([1.0], 2.0)
    return changing(lambda x: x * pair[0][0], lambda: operator.setitem(pair[0], 0, 4.0))


@case
def bytes_in_an_array_of_bytes():
    data = bytearray(b"\x01\x02")
    return changing(lambda x: x * data[1], lambda: operator.setitem(data, 1, 5))


@case
def an_array_written_in_place():
    return changing(lambda x: x * TABLE, lambda: operator.setitem(TABLE, 1, 9.0))


@case
def an_array_written_through_a_view():
    table = np.ones(3, np.float32)
    view = table[1:]
    return changing(lambda x: x + table, lambda: view.fill(6.0))


@case
def an_array_whose_view_is_read():
    table = np.arange(6, dtype=np.float32)
    view = table[::2]
    return changing(lambda x: x + view, lambda: table.__imul__(2.0))


@case
def an_array_in_a_variable():
    def change():
        global TABLE
        TABLE = np.full(3, 4.0, np.float32)

    return changing(lambda x: x - TABLE, change)


@case
def an_array_of_another_dtype():
    table = np.ones(3, np.float32)

    def change():
        nonlocal table
        table = np.ones(3, np.int32)

    return changing(lambda x: x.astype("int32") * table, change)


@case
def an_array_of_another_shape():
    table = np.ones(3, np.float32)

    def change():
        nonlocal table
        table = np.ones((2, 3), np.float32)

    return changing(lambda x: x * table, change)


@case
def an_element_of_an_array_as_a_number():
    table = np.array([2.0, 3.0])
    return changing(lambda x: x * float(table[0]), lambda: operator.setitem(table, 0, 8.0))


@case
def a_sum_of_an_array_as_a_number():
    table = np.array([2.0, 3.0])
    return changing(lambda x: x * table.sum(), lambda: operator.setitem(table, 0, 8.0))


@case
def a_branch_on_an_array():
    mask = np.array([True, True])
    return changing(lambda x: x * 2.0 if mask.all() else x, lambda: operator.setitem(mask, 0, False))


@case
def an_array_as_an_index():
    places = np.array([0, 1])
    return changing(lambda x: x[places], lambda: operator.setitem(places, 0, 2))


@case
def an_array_in_a_dict():
    tables = {"mean": np.zeros(3, np.float32)}
    return changing(lambda x: x - tables["mean"], lambda: operator.iadd(tables["mean"], 1.0))


@case
def the_shape_of_an_array():
    table = np.zeros((2, 3))

    def change():
        table.shape = (3, 2)

    return changing(lambda x: x * table.shape[0], change)


@case
def a_tensor_in_a_variable():
    weight = tensor(2.0)

    def change():
        nonlocal weight
        weight = tensor(3.0)

    return changing(lambda x: x * weight, change)


@case
def a_tensor_written_in_place():
    weight = tensor([1.0, 2.0, 3.0])
    return changing(lambda x: x * weight, lambda: operator.setitem(weight, ..., tensor([4.0, 5.0, 6.0])))


@case
def a_tensor_of_another_dtype():
    weight = tensor([1, 2, 3])

    def change():
        nonlocal weight
        weight = tensor([1.5, 2.5, 3.5])

    return changing(lambda x: x.astype("int32") * weight, change)


@case
def a_tensor_of_another_shape():
    weight = tensor([1.0, 2.0, 3.0])

    def change():
        nonlocal weight
        weight = tensor([[1.0], [2.0]])

    return changing(lambda x: x * weight, change)


@case
def a_tensor_in_a_list():
    weights = [tensor(1.0), tensor(2.0)]
    return changing(lambda x: x * weights[0] + weights[1], lambda: operator.setitem(weights, 1, tensor(7.0)))


@case
def a_tensor_in_a_dict():
    weights = {"w": tensor(1.0)}
    return changing(lambda x: x * weights["w"], lambda: weights.update(w=tensor(7.0)))


@case
def a_tensor_in_an_attribute():
    box = SimpleNamespace(w=tensor(2.0))
    return changing(lambda x: x * box.w, lambda: setattr(box, "w", tensor(3.0)))


@case
def two_tensors_that_become_one():
    first, second = tensor([1.0, 1.0, 1.0]), tensor([2.0, 2.0, 2.0])

    def change():
        nonlocal second
        second = first

    return changing(lambda x: x + 1.0 if first is second else x * second, change)


@case
def two_names_that_swap():
    first, second = 2.0, 3.0

    def change():
        nonlocal first, second
        first, second = second, first

    return changing(lambda x: x * first + second, change)


@case
def fields_of_a_dtype_that_are_renamed():
    kind = np.dtype([("a", np.float32), ("b", np.float32)])
    rows = np.array([(1, 2), (3, 4)], kind.descr)

    def rename(*names):
        kind.names = rows.dtype.names = names

    return changing(
        lambda x: (x * (2.0 if rows.dtype.names[0] == "a" else 3.0), kind.names),
        lambda: rename("b", "a"),
        lambda: rename("y", "z"),
    )


@case
def the_namespace_of_an_object_that_is_returned():
    class Plain:
        pass

    it = Plain()
    it.gain = 1.0
    spaces = []

    def body(x):
        return x * 2.0, [(space.pop("new", None), it.__dict__.get("new")) for space in spaces], vars(it)

    return changing(
        body,
        lambda: setattr(it, "gain", 3.0),
        lambda: spaces.append(vars(it)),
        lambda: it.__dict__.update(new=1.0),
    )
