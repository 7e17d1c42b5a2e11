"""Builds the bridge in C to Halide's pipelines, on Linux for x86-64; without it the backend cannot run."""

import platform
import sys
import sysconfig

from setuptools import Extension, setup

#: Those of mgb-native.
FLAGS = "-std=c11 -O2 -fno-tree-slp-vectorize -fvisibility=hidden -Wall -Werror=implicit".split()

bridge = Extension(
    "mgb_halide._call",
    sources=["mgb_halide/call.c"],
    define_macros=[("Py_LIMITED_API", "0x030b0000")],
    extra_compile_args=FLAGS,
    py_limited_api=True,
    optional=True,  # installing does without a compiler
)

# The stable interface is for Pythons with a GIL.
here = sys.platform == "linux" and platform.machine() == "x86_64"
builds = here and not sysconfig.get_config_var("Py_GIL_DISABLED")
setup(
    ext_modules=[bridge] if builds else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if builds else {},
)
