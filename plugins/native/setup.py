"""Builds the launcher in C, for Linux; elsewhere, and without a compiler, a slower one in Python serves."""

import sys
import sysconfig

import numpy as np
from setuptools import Extension, setup

SOURCES = ["launcher.c", "pool.c", "copies.c", "strides.c"]

#: Without vectors made of elements that lie apart: to put them together takes longer than to store each.
FLAGS = "-std=c11 -O2 -fno-tree-slp-vectorize -fvisibility=hidden -Wall -Werror=implicit".split()

launcher = Extension(
    "mgb_native._launcher",
    sources=[f"mgb_native/{name}" for name in SOURCES],
    depends=["mgb_native/launcher.h"],
    include_dirs=[np.get_include()],
    define_macros=[("Py_LIMITED_API", "0x030b0000")],
    extra_compile_args=FLAGS,
    py_limited_api=True,
    optional=True,  # installing does without a compiler
)

# The stable interface is for Pythons with a GIL, which is also what guards the memory of small calls.
builds = sys.platform == "linux" and not sysconfig.get_config_var("Py_GIL_DISABLED")
setup(
    ext_modules=[launcher] if builds else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if builds else {},
)
