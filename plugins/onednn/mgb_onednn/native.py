"""oneDNN's shared library through its C interface (version 3): loading, prototypes, error checks.

Names and numbers are those of ``oneapi/dnnl/dnnl.h`` and ``dnnl_types.h``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_float, c_int, c_int64, c_size_t, c_uint, c_void_p
from enum import IntEnum
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from mgb.runtime import forking
from mgb.runtime.forking import cached_property
from mgb.tensor.libraries import LibraryError

#: The wheel that brings the library, and the library's name there; it lies in no package.
WHEEL, FILE = "onednn-cpu-gomp", "libdnnl.so.3"

#: The runtime that the library was built for; it is part of the system.
OPENMP = "libgomp.so.1"


#: How often an idle OpenMP thread looks for work before it sleeps; about 0.2 ms. The runtime's own number is
#: thirty times as large: its threads then stand in the way of those that run the kernels between two calls,
#: and where another process has a core, most of each call is waiting.
SPINS = 5000

#: ``omp_pause_soft``: threads end, settings stay.
_PAUSE = 1


class Arg(IntEnum):
    """``DNNL_ARG_*``: the operands of a primitive."""

    SRC = 1
    SRC_1 = 2
    DST = 17
    WEIGHTS = 33
    WORKSPACE = 64
    SCRATCHPAD = 80
    DIFF_SRC = 129
    DIFF_DST = 145
    DIFF_WEIGHTS = 161


#: ``dnnl_data_type_t``
DATA_TYPES = {"float16": 1, "bfloat16": 2, "float32": 3}

TRAINING = 64  # dnnl_forward_training
DIRECT = 1  # dnnl_convolution_direct
POOLING_MAX, POOLING_AVG_PADDED, POOLING_AVG = 0x1FF, 0x2FF, 0x3FF  # dnnl_pooling_*
SOFTMAX = 0x30000  # dnnl_softmax_accurate
MINIMUM = 0x1FFF3  # dnnl_binary_min
_CPU, _IN_ORDER, _USER_SCRATCHPAD, _ANY = 1, 1, 1, 1
_IMPLEMENTATION, _EXEC_ARG = 8, 255  # dnnl_query_t

_STATUS = {
    1: "out of memory",
    2: "invalid arguments",
    3: "unimplemented",
    4: "no implementation",
    5: "runtime error",
    6: "not required",
}

_PROTOTYPES: dict[str, tuple[type, ...]] = {
    "dnnl_engine_create": (c_void_p, c_int, c_size_t),
    "dnnl_stream_create": (c_void_p, c_void_p, c_uint),
    "dnnl_stream_destroy": (c_void_p,),
    "dnnl_memory_desc_create_with_strides": (c_void_p, c_int, c_void_p, c_int, c_void_p),
    "dnnl_memory_desc_create_with_tag": (c_void_p, c_int, c_void_p, c_int, c_int),
    "dnnl_memory_desc_clone": (c_void_p, c_void_p),
    "dnnl_memory_desc_destroy": (c_void_p,),
    "dnnl_memory_desc_equal": (c_void_p, c_void_p),
    "dnnl_memory_desc_get_size": (c_void_p,),
    "dnnl_memory_create": (c_void_p, c_void_p, c_void_p, c_void_p),
    "dnnl_memory_destroy": (c_void_p,),
    "dnnl_primitive_attr_create": (c_void_p,),
    "dnnl_primitive_attr_set_scratchpad_mode": (c_void_p, c_int),
    "dnnl_primitive_attr_set_post_ops": (c_void_p, c_void_p),
    "dnnl_post_ops_create": (c_void_p,),
    "dnnl_post_ops_destroy": (c_void_p,),
    "dnnl_post_ops_append_sum": (c_void_p, c_float, c_int, c_int),
    "dnnl_primitive_desc_query": (c_void_p, c_int, c_int, c_void_p),
    "dnnl_primitive_desc_query_md": (c_void_p, c_int, c_int),
    "dnnl_primitive_desc_destroy": (c_void_p,),
    "dnnl_primitive_create": (c_void_p, c_void_p),
    "dnnl_primitive_destroy": (c_void_p,),
    "dnnl_primitive_execute": (c_void_p, c_void_p, c_int, c_void_p),
    "dnnl_reorder_primitive_desc_create": (c_void_p,) * 6,
    "dnnl_matmul_primitive_desc_create": (c_void_p,) * 7,
    "dnnl_binary_primitive_desc_create": (c_void_p, c_void_p, c_int, *(c_void_p,) * 4),
    "dnnl_softmax_forward_primitive_desc_create": (
        c_void_p,
        c_void_p,
        c_int,
        c_int,
        c_void_p,
        c_void_p,
        c_int,
        c_void_p,
    ),
    "dnnl_softmax_backward_primitive_desc_create": (
        c_void_p,
        c_void_p,
        c_int,
        c_void_p,
        c_void_p,
        c_void_p,
        c_int,
        c_void_p,
        c_void_p,
    ),
    "dnnl_convolution_forward_primitive_desc_create": (
        c_void_p,
        c_void_p,
        c_int,
        c_int,
        *(c_void_p,) * 9,
    ),
    "dnnl_convolution_backward_data_primitive_desc_create": (c_void_p, c_void_p, c_int, *(c_void_p,) * 9),
    "dnnl_convolution_backward_weights_primitive_desc_create": (
        c_void_p,
        c_void_p,
        c_int,
        *(c_void_p,) * 10,
    ),
    "dnnl_pooling_forward_primitive_desc_create": (c_void_p, c_void_p, c_int, c_int, *(c_void_p,) * 8),
    "dnnl_pooling_backward_primitive_desc_create": (c_void_p, c_void_p, c_int, *(c_void_p,) * 9),
}

_RESULTS = {"dnnl_memory_desc_get_size": c_size_t, "dnnl_primitive_desc_query_md": c_void_p}


class Argument(ctypes.Structure):
    """``dnnl_exec_arg_t``"""

    _fields_ = (("arg", c_int), ("memory", c_void_p))


def dims(values: Sequence[int]) -> ctypes.Array[c_int64]:
    """Return a ``dnnl_dims_t``."""
    return (c_int64 * 12)(*values)


class Native:
    """The loaded library, its one engine, and the attributes that all primitives share."""

    def __init__(self, path: str) -> None:
        openmp = load_openmp()  # before the library brings it in
        self.functions = ctypes.CDLL(path)
        for name, types in _PROTOTYPES.items():
            function = self.functions[name]
            function.argtypes = types
            function.restype = _RESULTS.get(name, c_int)
            setattr(self.functions, name, function)
        self.execute = self.functions.dnnl_primitive_execute
        self.set_data = ctypes.PyDLL(path).dnnl_memory_set_data_handle  # too short to give the GIL away for
        self.set_data.argtypes = (c_void_p, c_void_p)
        self.get_threads, self.set_threads = openmp.omp_get_max_threads, openmp.omp_set_num_threads
        self.engine = self.make("dnnl_engine_create", _CPU, 0)
        self.attributes = self._attributes()

    def _attributes(self) -> int:
        """Make attributes that primitives share: the caller gives the scratchpad."""
        made = self.make("dnnl_primitive_attr_create")
        self.call("dnnl_primitive_attr_set_scratchpad_mode", made, _USER_SCRATCHPAD)
        return made

    @cached_property
    def adding(self) -> int:
        """Attributes of a primitive that adds its result to what is there."""
        added, made = self.make("dnnl_post_ops_create"), self._attributes()
        self.call("dnnl_post_ops_append_sum", added, 1.0, 0, 0)  # times 1, no zero point, the same dtype
        self.call("dnnl_primitive_attr_set_post_ops", made, added)
        self.call("dnnl_post_ops_destroy", added)
        return made

    def call(self, name: str, *args: object) -> None:
        """Call a function by its name.

        Raises
        ------
        LibraryError
            It returned another status than success.
        """
        status = getattr(self.functions, name)(*args)
        if status:
            raise LibraryError(f"{name}: {describe(status)}")

    def make(self, name: str, *args: object) -> int:
        """Call a function that writes a handle to its first argument, and return the handle."""
        made = c_void_p()
        self.call(name, ctypes.byref(made), *args)
        assert made.value is not None
        return made.value

    @contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """Use `count` OpenMP threads in this Python thread; nothing else in the process sees a change."""
        before = self.get_threads()
        self.set_threads(count)
        try:
            yield
        finally:
            self.set_threads(before)

    def layout(self, shape: Sequence[int], strides: Sequence[int], dtype: str) -> int:
        """Return a memory descriptor; `strides` count elements."""
        of_type = DATA_TYPES[dtype]
        create = "dnnl_memory_desc_create_with_strides"
        return self.make(create, len(shape), dims(shape), of_type, dims(strides))

    def any_layout(self, shape: Sequence[int], dtype: str) -> int:
        """Return a memory descriptor that leaves the layout to the primitive."""
        of_type = DATA_TYPES[dtype]
        return self.make("dnnl_memory_desc_create_with_tag", len(shape), dims(shape), of_type, _ANY)

    def copy_layout(self, layout: int) -> int:
        """Return a memory descriptor like `layout`, with an owner of its own."""
        return self.make("dnnl_memory_desc_clone", layout)

    def destroy_layouts(self, *layouts: int) -> None:
        """Free memory descriptors; primitives keep copies."""
        for layout in layouts:
            self.call("dnnl_memory_desc_destroy", layout)

    def wanted(self, description: int, arg: Arg) -> int:
        """Return the memory descriptor that a primitive wants for an operand; the description owns it."""
        found: int | None = self.functions.dnnl_primitive_desc_query_md(description, _EXEC_ARG, arg)
        assert found is not None
        return found

    def implementation(self, description: int) -> str:
        """Return the name of the code behind a primitive, such as ``"jit:avx512_core"``."""
        text = ctypes.c_char_p()
        self.call("dnnl_primitive_desc_query", description, _IMPLEMENTATION, 0, ctypes.byref(text))
        return (text.value or b"").decode()

    def version(self) -> str:
        """Return the version as the library reports it, such as ``"3.2.0"``."""
        get = self.functions.dnnl_version
        get.restype = ctypes.POINTER(c_int * 3)
        return ".".join(map(str, get().contents))


def describe(status: int) -> str:
    """Return a ``dnnl_status_t`` in words."""
    return _STATUS.get(status, f"status {status}")


@cache
def load_openmp() -> ctypes.PyDLL:
    """Load the OpenMP runtime, which reads the environment once, at load; what the user set is kept.

    A thread that forks lets its own OpenMP threads go first, and both processes start new ones when they need
    some: a child would wait for ever for those of its parent.

    Raises
    ------
    OSError
        It cannot be loaded.
    """
    variables = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
    given = any(name in os.environ for name in variables)
    if not given:
        os.environ[variables[0]] = str(SPINS)
    try:
        openmp = ctypes.PyDLL(OPENMP)
    finally:
        if not given:
            del os.environ[variables[0]]
    forking.at_fork(before=lambda: openmp.omp_pause_resource_all(_PAUSE))
    return openmp


def path() -> str | None:
    """Return where the wheel has put the library; None when the wheel is not installed."""
    try:
        files = distribution(WHEEL).files or ()
    except PackageNotFoundError:
        return None
    return next((str(Path(str(f.locate())).resolve()) for f in files if f.name == FILE), None)


@cache
def native() -> Native:
    """Return the library, loaded once.

    Raises
    ------
    OSError
        It cannot be loaded.
    """
    found = path()
    if found is None:
        raise OSError(f"the wheel {WHEEL} is not installed")
    return Native(found)
