"""A whole backend: element-wise kernels in C, through the system compiler."""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from mgb.backend import Backend, Kernel, Traits
from mgb.plugins import hookimpl

TYPES = {f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
TYPES |= {"bool": "_Bool", "float32": "float", "float64": "double"}

# {0} {1} {2} are the operands, all of them variables; {t} is the type of the result, {s} that of the first operand and
# {bits} its width; {f} is the suffix of its functions in libm. A pair is for (integers, floats).
WORDS = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
    "fma": "{0} * {1} + {2}", "lt": "{0} < {1}", "le": "{0} <= {1}", "eq": "{0} == {1}",
    "floor_div": ("FLOOR_DIV({t}, {0}, {1})", "floor_div{f}({0}, {1})"),
    "mod": ("MOD({t}, {0}, {1})", "mod{f}({0}, {1})"), "where": "{0} ? {1} : {2}",
    "maximum": "{0} != {0} || {0} > {1} ? {0} : {1}", "minimum": "{0} != {0} || {0} < {1} ? {0} : {1}",
    "logical_and": "{0} && {1}", "logical_or": "{0} || {1}", "logical_not": "!{0}",
    "bit_and": "{0} & {1}", "bit_or": "{0} | {1}", "bit_xor": "{0} ^ {1}", "cast": "({t}){0}",
    "shl": "{0} << ({1} & {bits} - 1)", "shr": "{0} >> ({1} & {bits} - 1)",
    "mulhi": "(__int128){0} * {1} >> {bits}", "bitcast": "((union {{ {s} from; {t} to; }}){{ {0} }}).to",
    "round": "rint{f}({0})", "pow": "pow{f}({0}, {1})", "atan2": "atan2{f}({0}, {1})",
} | {name: name + "{f}({0})" for name in ("floor", "sqrt", "exp", "log", "sin", "cos", "tanh", "erf")}  # fmt: skip

# Quotients round down, remainders have the sign of the divisor, and no integer division traps.
HEADER = r"""#include <math.h>
#include <stdint.h>
#define MINUS_1(t, b) ((t)-1 < 0 && b == (t)-1)
#define FLOOR_DIV(t, a, b) (b == 0 ? 0 : MINUS_1(t, b) ? -a : a / b - (a % b != 0 && (a ^ b) < 0))
#define MOD(t, a, b) (b == 0 || MINUS_1(t, b) ? 0 : a % b + (a % b != 0 && (a ^ b) < 0 ? b : 0))
#define FLOATS(t, f) static t mod##f(t a, t b) { \
    t m = fmod##f(a, b); return m ? m + ((b < 0) != (m < 0) ? b : 0) : copysign##f(m, b); } \
  static t floor_div##f(t a, t b) { \
    t m = fmod##f(a, b), q = (a - m) / b - (m && (b < 0) != (m < 0)), low = floor##f(q); \
    return b == 0 ? a / b : q ? low + (q - low > 0.5) : copysign##f(0, a / b); }
FLOATS(float, f) FLOATS(double, )
"""
FLAGS = ["-O3", "-march=native", "-ffp-contract=off", "-fwrapv", "-w", "-shared", "-fPIC"]


class C(Backend):
    name = "c"
    traits = Traits(vocabulary=frozenset(WORDS), dtypes=frozenset(TYPES), max_inputs=200, priority=10)

    def probe(self):
        return None if shutil.which("cc") else "there is no C compiler called cc: apt install gcc"

    def version(self):
        return subprocess.run(["cc", "--version"], capture_output=True, text=True).stdout.partition("\n")[0]

    def compile(self, graph):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            command = ["cc", *FLAGS, "-x", "c", "-", "-lm", "-o", file.name]
            done = subprocess.run(command, input=print_kernel(graph), capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stderr)
            return self.load(graph, Path(file.name).read_bytes())

    def save(self, kernel):
        return kernel.state

    def load(self, graph, blob):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            Path(file.name).write_bytes(blob)
            kernel = ctypes.CDLL(file.name).kernel

        def run(*arrays, out):
            kernel(*(ctypes.c_void_p(a.ctypes.data) for a in (*arrays, *out)))

        return Kernel(run, print_kernel(graph), blob)


def print_kernel(graph):
    domain = np.broadcast_shapes(*(n.spec.shape for n in (*graph.inputs, *graph.nodes)))
    lines = []

    def local(node, *operands, text=None):
        lines.append(f"{TYPES[node.spec.dtype.name]} v{len(lines)} = {text or print_node(node, operands, domain)};")
        return f"v{len(lines) - 1}"

    places = [place(n.spec.shape, domain) for n in (*graph.inputs, *graph.outputs)]
    names = [*(f"x{k}" for k in range(len(graph.inputs))), *(f"y{k}" for k in range(len(graph.outputs)))]
    loads = [local(n, text=f"{x}[{at}]") for n, x, at in zip(graph.inputs, names, places)]
