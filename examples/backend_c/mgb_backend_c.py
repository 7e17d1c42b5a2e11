"""A whole backend: element-wise kernels in C, through the system compiler."""

import ctypes
import shutil
import subprocess
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from mgb.backends import Backend, Kernel, Traits
from mgb.backends.plugins import hookimpl
from mgb.codegen import C_TYPES, broadcast_strides, c_literal, collapse, domain, offset, row_major, statements

# {0} {1} {2} are the operands, {t} is the type of the result, {s} that of the first operand, {bits} its
# width; functions are those of tgmath.h; a pair is for (integers, floats). No integer division traps.
WORDS = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "eq": "{0} == {1}", "where": "{0} ? {1} : {2}", "cast": "({t}){0}",
    "quotient": "DIV({t}, {0}, {1})", "fmod_float": "fmod({0}, {1})", "fmod_double": "fmod({0}, {1})",
    "fma": "{0} * {1} + {2}", "round": "rint({0})", "atan2": "atan2({0}, {1})",
    "maximum": "{0} != {0} || {0} > {1} ? {0} : {1}", "minimum": "{0} != {0} || {0} < {1} ? {0} : {1}",
    "logical_and": "{0} & {1}", "logical_or": "{0} | {1}", "logical_not": "!{0}", "bit_and": "{0} & {1}",
    "bit_or": "{0} | {1}", "bit_xor": "{0} ^ {1}", "bitcast": "((union {{ {s} from; {t} to; }}){{ {0} }}).to",
    "shl": "{0} << ({1} & {bits} - 1)", "shr": "{0} >> ({1} & {bits} - 1)",
    "mulhi": "(__int128){0} * {1} >> {bits}", "pow": "pow({0}, {1})",
} | {w: w + "({0})" for w in ("sqrt", "floor", "exp", "log", "sin", "cos", "tanh", "erf")}  # fmt: skip
HEADER = r"""#include <stdbool.h>
#include <stdint.h>
#include <tgmath.h>
#define DIV(t, a, b) (b == 0 ? 0 : (t)-1 < 0 && b == (t)-1 ? -a : a / b)
"""
COMMAND = "cc -O3 -march=native -ffp-contract=off -fwrapv -w -shared -fPIC -x c - -lm -o kernel.so"


class C(Backend):
    name, traits = (
        "c",
        Traits(frozenset(WORDS), dtypes=frozenset(C_TYPES), max_inputs=200, priority=10, api_version=1),
    )

    def probe(self):
        return None if shutil.which("cc") else "there is no C compiler called cc: apt install gcc"

    def version(self):  # of the compiler, and of the processor that "native" means
        return str(zlib.crc32(subprocess.check_output("cc -march=native -dM -E -x c /dev/null".split())))

    def compile(self, graph):
        with TemporaryDirectory() as folder:
            subprocess.run(COMMAND.split(), input=source(graph), text=True, cwd=folder, check=True)
            return self.load(graph, Path(folder, "kernel.so").read_bytes())

    def save(self, kernel):
        return kernel.state

    def load(self, graph, blob):
        with TemporaryDirectory() as folder:
            Path(folder, "kernel.so").write_bytes(blob)
            kernel = ctypes.CDLL(f"{folder}/kernel.so").kernel

        def run(*arrays, out):
            kernel(*(ctypes.c_void_p(a.ctypes.data) for a in (*arrays, *out)))

        return Kernel(run, source(graph), blob, atomic=True)


def source(graph):
    arrays = (*graph.inputs, *graph.outputs)
    counters = [n for n in graph.nodes if n.op.name == "iota"]
    shapes = [n.spec.shape for n in (*arrays, *counters)]
    loops = collapse(domain(graph), [broadcast_strides(s, row_major(s), domain(graph)) for s in shapes])
    places = [offset("i", loops.shape, strides) for strides in loops.strides]
    names = {n: f"v{k}" for k, n in enumerate(graph.inputs)}
    body = [f"{C_TYPES[n.spec.dtype.name]} v{k} = a{k}[{places[k]}];" for k, n in enumerate(graph.inputs)]
    names |= {n: f"({place})" for n, place in zip(counters, places[len(arrays) :])}
    body += statements(graph.nodes, names, TABLE, lambda n, v, e: f"{C_TYPES[n.spec.dtype.name]} {v} = {e};")
    for k, node in enumerate(graph.outputs, len(graph.inputs)):
        # An output smaller than the domain, which may be an input's memory, is written at the last visit.
        steps = [0 if s else step for s, step in zip(loops.strides[k], row_major(loops.shape))]
        last = f"{offset('i', loops.shape, steps)} == {sum((n - 1) * s for n, s in zip(loops.shape, steps))}"
        body.append(f"if ({last}) a{k}[{places[k]}] = {names[node]};")
    parameters = ", ".join(f"{C_TYPES[n.spec.dtype.name]} *a{k}" for k, n in enumerate(arrays))
    count = " * ".join(["1L", *map(str, loops.shape)])
    text = "\n".join(body)
    return f"{HEADER}void kernel({parameters}) {{ for (long i = 0; i < {count}; ++i) {{\n{text}\n}}}}\n"


def spell(node, *operands):
    x, word = node.inputs[0].spec.dtype, WORDS[node.op.name]
    text = word if isinstance(word, str) else word[x.kind == "f"]
    return text.format(*operands, t=C_TYPES[node.spec.dtype.name], s=C_TYPES[x.name], bits=8 * x.itemsize)


TABLE = {"const": c_literal} | dict.fromkeys(WORDS, spell)


@hookimpl
def mgb_backend(name):
    return C() if name == "c" else None
