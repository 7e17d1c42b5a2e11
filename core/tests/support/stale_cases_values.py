"""Numbers, flags, strings and arguments that change."""

from __future__ import annotations

import math
from types import SimpleNamespace

import mgb.functional as F
import numpy as np
from mgb import tensor
from stale_cases import World, case, changing, numbers

SCALE = 2.0
DOUBLE = True
ACTIVATION = "relu"
OFFSET = None
DTYPE = "float32"
COUNT = 2


@case
def a_number_in_a_global():
    def change():
        global SCALE
        SCALE = 5.0

    return changing(lambda x: x * SCALE, change)


@case
def a_number_that_comes_back():
    def other():
        global SCALE
        SCALE = 7.0

    def back():
        global SCALE
        SCALE = 2.0

    return changing(lambda x: x * SCALE, other, back, other)


@case
def an_integer_that_becomes_a_float():
    scale = 3

    def change():
        nonlocal scale
        scale = 3.5

    return changing(lambda x: x.astype("int32") * scale, change)


@case
def an_integer_that_becomes_an_equal_float():
    scale = 3

    def change():
        nonlocal scale
        scale = 3.0

    return changing(lambda x: x.astype("int32") * scale, change)


@case
def one_that_becomes_true():
    scale = 1

    def change():
        nonlocal scale
        scale = True

    return changing(lambda x: x * 2.0 if scale is True else x, change)


@case
def zero_that_becomes_minus_zero():
    zero = 0.0

    def change():
        nonlocal zero
        zero = -0.0

    return changing(lambda x: 1.0 / (F.abs(x) * zero), change)


@case
def a_number_that_becomes_nan():
    scale = 1.0

    def change():
        nonlocal scale
        scale = math.nan

    return changing(lambda x: x * scale, change)


@case
def a_number_that_becomes_infinite():
    top = 1.0

    def change():
        nonlocal top
        top = math.inf

    return changing(lambda x: F.minimum(x, top), change)


@case
def a_number_of_numpy():
    scale = np.float32(2)

    def change():
        nonlocal scale
        scale = np.float64(3)

    return changing(lambda x: x * scale, change)


@case
def a_flag_that_is_branched_on():
    def change():
        global DOUBLE
        DOUBLE = not DOUBLE

    return changing(lambda x: x * 2.0 if DOUBLE else x - 1.0, change, change)


@case
def a_flag_in_a_where():
    flag = True

    def change():
        nonlocal flag
        flag = False

    return changing(lambda x: F.where(x > 0, x, x * float(flag)), change)


@case
def a_string_that_names_a_function():
    def change():
        global ACTIVATION
        ACTIVATION = "tanh"

    return changing(lambda x: getattr(F, ACTIVATION)(x), change)


@case
def a_string_that_is_compared():
    mode = "mean"

    def change():
        nonlocal mode
        mode = "sum"

    return changing(lambda x: x.mean() if mode == "mean" else x.sum(), change)


@case
def a_string_that_is_formatted():
    name, number = "a", 1
    table = {"a1": 2.0, "a2": 3.0}

    def change():
        nonlocal number
        number = 2

    return changing(lambda x: x * table[f"{name}{number:d}"], change)


@case
def none_that_becomes_a_number():
    def change():
        global OFFSET
        OFFSET = 4.0

    return changing(lambda x: x if OFFSET is None else x + OFFSET, change)


@case
def none_that_becomes_a_tensor():
    offset = None

    def change(value):
        nonlocal offset
        offset = value

    given = tensor([4.0, 5.0, 6.0])
    return changing(
        lambda x: x if offset is None else x + offset, lambda: change(given), lambda: change(None)
    )


@case
def a_number_that_becomes_none():
    offset = 4.0

    def change():
        nonlocal offset
        offset = None

    return changing(lambda x: x + (offset or 1.0), change)


@case
def a_number_of_turns():
    def change():
        global COUNT
        COUNT = 3

    def repeated(x):
        for _ in range(COUNT):
            x = x * 2.0
        return x

    return changing(repeated, change)


@case
def an_axis():
    axis = 0

    def change():
        nonlocal axis
        axis = 1

    argument = tensor(np.arange(9, dtype=np.float32).reshape(3, 3))
    return World(lambda x: x.sum(axis=axis), [(None, argument), (None, argument), (change, argument)])


@case
def a_shape():
    shape = (3, 1)

    def change():
        nonlocal shape
        shape = (1, 3)

    return changing(lambda x: x.reshape(shape), change)


@case
def a_dtype():
    def change():
        global DTYPE
        DTYPE = "float16"

    return changing(lambda x: (x / 3.0).astype(DTYPE), change)


@case
def a_dtype_of_numpy():
    dtype = np.dtype("float32")

    def change():
        nonlocal dtype
        dtype = np.dtype("int32")

    return changing(lambda x: x.astype(dtype), change)


@case
def a_slice():
    part = slice(0, 2)

    def change():
        nonlocal part
        part = slice(1, None)

    return changing(lambda x: x[part], change)


@case
def an_index():
    place = 0

    def change():
        nonlocal place
        place = -1

    return changing(lambda x: x[place], change)


@case
def a_range():
    turns = range(2)

    def change():
        nonlocal turns
        turns = range(3)

    return changing(lambda x: sum((x * float(i) for i in turns), x), change)


@case
def an_argument_that_is_a_number():
    return World(lambda x, scale: x * scale, [(None, numbers(), s) for s in (2.0, 2.0, 3.0, 2, True, 2.0)])


@case
def an_argument_that_is_a_list():
    scales = [1.0, 2.0]
    steps = [(None, numbers(), scales), (None, numbers(), scales), (scales.reverse, numbers(), scales)]
    return World(lambda x, scales: x * scales[0], steps)


@case
def an_argument_that_is_an_array():
    table = np.ones(3, np.float32)
    change = lambda: table.fill(3.0)  # noqa: E731
    return World(
        lambda x, table: x * table,
        [(None, numbers(), table), (None, numbers(), table), (change, numbers(), table)],
    )


@case
def an_argument_that_is_an_object():
    config = SimpleNamespace(scale=2.0)
    change = lambda: setattr(config, "scale", 3.0)  # noqa: E731
    steps = [(None, numbers(), config), (None, numbers(), config), (change, numbers(), config)]
    return World(lambda x, config: x * config.scale, steps)
