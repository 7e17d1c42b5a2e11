"""A fast backend in C: loops that the compiler makes vectors of, called by mgb's native launcher."""

import math
import shutil
import subprocess
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from mgb.backends import Kind, Traits
from mgb.backends.plugins import hookimpl
from mgb.codegen import (
    C_TYPES,
    accumulator,
    broadcast_strides,
    c_literal,
    c_number,
    collapse,
    combine,
    domain,
    expression,
    identity,
    is_operand,
    offset,
    reductions,
    row_major,
    schedule,
    statements,
)
from mgb_native import Printed, ShapedBackend
from mgb_native.code import place
from mgb_native.target import processor, python

# {0} {1} {2} are the operands, {t} is the type of the result, {s} that of the first operand, {bits} its
# width; a pair is for (integers, floats). No integer division traps. Other ops, such as exp, are decomposed
# into these, of which vectors are made as well.
WORDS = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "eq": "{0} == {1}", "where": "{0} ? {1} : {2}", "cast": "({t}){0}",
    "quotient": "DIV({t}, {0}, {1})", "fmod_float": "fmod({0}, {1})", "fmod_double": "fmod({0}, {1})",
    "fma": ("{0} * {1} + {2}", "FMA({0}, {1}, {2})"), "round": "rint({0})", "floor": "floor({0})",
    "sqrt": "sqrt({0})", "maximum": "MAX({0}, {1})", "minimum": "MIN({0}, {1})",
    "logical_and": "{0} & {1}", "logical_or": "{0} | {1}", "logical_not": "!{0}", "bit_and": "{0} & {1}",
    "bit_or": "{0} | {1}", "bit_xor": "{0} ^ {1}", "bitcast": "((union {{ {s} from; {t} to; }}){{ {0} }}).to",
    "shl": "{0} << ({1} & {bits} - 1)", "shr": "{0} >> ({1} & {bits} - 1)",
    "mulhi": "(__int128){0} * {1} >> {bits}",
}  # fmt: skip
# How two elements of a reduction are folded, and what OpenMP calls that.
FOLDS = {"add": "{0} + {1}", "mul": "{0} * {1}", "maximum": "MAX({0}, {1})", "minimum": "MIN({0}, {1})"}
CLAUSES = {"add": "+", "mul": "*", "maximum": "most", "minimum": "least"}
REDUCTIONS = reductions(FOLDS)
HEADER = r"""#include <stdbool.h>
#include <stdint.h>
#include <tgmath.h>
#define DIV(t, a, b) (b == 0 ? 0 : (t)-1 < 0 && b == (t)-1 ? -a : a / b)
#define FMA(a, b, c) _Generic(a, float: __builtin_fmaf, default: __builtin_fma)(a, b, c)
#define MAX(a, b) (a != a || a > b ? a : b)
#define MIN(a, b) (a != a || a < b ? a : b)
#pragma omp declare reduction(most:<types>: omp_out = MAX(omp_in, omp_out)) initializer(omp_priv = omp_orig)
#pragma omp declare reduction(least:<types>: omp_out = MIN(omp_in, omp_out)) initializer(omp_priv = omp_orig)
""".replace("<types>", ", ".join(C_TYPES.values()))
COMMAND = (
    "cc -c -O3 -march=native -mprefer-vector-width=512 -fopenmp-simd -ffp-contract=off -fno-math-errno "
    "-fno-trapping-math -fwrapv -fno-pic -mcmodel=large -fno-stack-protector "
    "-fno-asynchronous-unwind-tables -fno-tree-loop-distribute-patterns -w -x c - -o kernel.o"
)

#: The most elements of a row that folds nothing, the most columns of a block, and elements that are summed in
#: their own dtype before the sum goes to a wider one.
ROW, BLOCK, CHUNK = 4096, 512, 4096


class FastC(ShapedBackend):
    name, distribution = "fast_c", "mgb-backend-fast-c"
    traits = Traits(
        frozenset({*WORDS, *REDUCTIONS, "extent"}),
        kinds=frozenset({Kind.ELEMENTWISE, Kind.REDUCE}),
        dtypes=frozenset(C_TYPES),
        joins=True,
        short_rows=12,
        max_inputs=200,
        priority=10,
        api_version=1,
    )

    def probe(self):
        missing = None if shutil.which("cc") else "there is no C compiler called cc: apt install gcc"
        return self.machine_problem() or missing

    def version(self):  # of this module, of the compiler, and of the processor that "native" means
        said = subprocess.check_output(["cc", "-dM", "-E", "-x", "c", "/dev/null"])
        return f"{self.package} {zlib.crc32(said)} {python()} {processor()}"

    def print(self, graph):
        return Printer(graph).printed()

    def build(self, text):
        with TemporaryDirectory() as folder:
            subprocess.run(COMMAND.split(), input=text, text=True, cwd=folder, check=True)
            return place("kernel", Path(folder, "kernel.o").read_bytes())


class Printer:
    """The text of one kernel.

    A row is one setting of the axes that are kept. Where the last axis is folded, or none is, vectors run
    along the row. Where it is kept a row is a block of columns: each lane of a vector folds one of them.
    """

    def __init__(self, graph):
        self.schedule, self.lines = schedule(graph), []
        self.arrays = (*graph.inputs, *graph.outputs)
        leaves = [n for n in graph.nodes if is_operand(n)]  # iotas, whose values are their places
        operands, shape = (*self.arrays, *leaves), domain(graph)
        strides = [broadcast_strides(n.spec.shape, row_major(n.spec.shape), shape) for n in operands]
        loops = collapse(shape, strides, self.schedule.reduced)
        *outer, last = [*zip(loops.shape, loops.folded)] or [(1, False)]
        kept, folded = ([a for a, (_, f) in enumerate(outer) if f == which] for which in (False, True))
        self.n, along = last
        self.columns = any(loops.folded) and not along
        longest = BLOCK if self.columns else self.n if along else ROW
        self.piece = max(1, min(self.n, longest))
        self.pieces = 1 if along else -(-self.n // self.piece)
        self.rows = math.prod(loops.shape[a] for a in kept) * self.pieces
        self.folded = [loops.shape[a] for a in folded]
        self.sources, self.targets = {}, []  # how an operand is read, where an output is written
        for k, (node, steps) in enumerate(zip(operands, loops.strides)):
            row = offset("row", [loops.shape[a] for a in kept], [steps[a] for a in kept])
            line = [f"f{j} * {steps[a]}L" for j, a in enumerate(folded) if steps[a]]
            at = " + ".join([row, *line, *(["start + i"] if steps and steps[-1] else [])])
            if node in leaves:
                self.sources[node] = f"({ctype(node)})({at})"
            elif k < len(graph.inputs):
                self.sources[node] = f"a{k}[{at}]"
            else:
                self.targets.append((node, f"a{k}[{at}]"))

    def printed(self):
        s, lines = self.schedule, self.lines
        lines += [f"{ctype(node)} *a{k} = arrays[{k}];" for k, node in enumerate(self.arrays)]
        lines += ["long scratch = span[6], end = span[3];", "for (long r = span[2]; r < end; ++r) {"]
        lines.append(f"long row = r / {self.pieces or 1}, start = r % {self.pieces or 1} * {self.piece}L;")
        lines.append(f"long rest = {self.n}L - start, count = rest < {self.piece}L ? rest : {self.piece}L;")
        once = [*s.row_reads, *s.before, *(v for p in s.passes for v in (*p.folds, *p.after))]
        once = [v for v in once if v.op.name != "const"]
        lines += [f"{ctype(v)} w{k}{f'[{self.piece}]' * self.columns};" for k, v in enumerate(once)]
        self.names = {v: f"w{k}{'[i]' * self.columns}" for k, v in enumerate(once)}
        self.print_once([f"{self.names[v]} = {self.sources[v]};" for v in s.row_reads], s.before)
        kept = {}
        scratch = 0
        for p in s.passes:
            for v in p.keeps:
                kept[v] = f"(({ctype(v)} *)(scratch + {scratch}))[{self.place_in_row()}]"
                scratch += -(-v.spec.dtype.itemsize * math.prod(self.folded) * self.piece // 64) * 64
            self.print_pass(p, kept)
        self.print_once([f"{at} = {self.names[v]};" for v, at in self.targets if v in s.row_stores])
        text = "\n".join(lines)
        kernel = f"long kernel(void **arrays, long *plan, long *span) {{\n{text}\n}}\nreturn 0;\n}}\n"
        return Printed(HEADER + kernel, self.rows, scratch)

    def place_in_row(self):
        place = "0"
        for k, length in enumerate(self.folded):
            place = f"({place} * {length}L + f{k})"
        return f"{place} * {self.piece}L + i"

    def print_once(self, lines, nodes=()):
        """Print the code that runs once in a row: for each column, if it has some."""
        for v in nodes:
            text = expression(v, [self.names.get(x, "") for x in v.inputs], TABLE)
            if v.op.name == "const":
                self.names[v] = text
            else:
                lines.append(f"{self.names[v]} = {text};")
        if lines:
            head = "for (long i = 0; i < count; ++i) " if self.columns else ""
            self.lines += [f"{head}{{", *lines, "}"]

    def print_pass(self, p, kept):
        """One loop over the row: it reads, computes, keeps, stores and folds."""
        names, lines = dict(self.names), []
        for k, v in enumerate((*p.reads, *p.restores)):
            names[v] = f"x{k}"
            lines.append(f"{ctype(v)} x{k} = {self.sources[v] if v in p.reads else kept[v]};")
        lines += statements(p.computes, names, TABLE, lambda v, name, text: f"{ctype(v)} {name} = {text};")
        lines += [f"{kept[v]} = {names[v]};" for v in p.keeps]
        lines += [f"{at} = {names[v]};" for v, at in self.targets if v in p.stores]
        folds = [(f"s{k}", f"t{k}", v, names[v.inputs[0]]) for k, v in enumerate(p.folds, len(self.lines))]
        around = [f"for (long f{k} = 0; f{k} < {length}; ++f{k})" for k, length in enumerate(self.folded)]
        (self.fold_columns if self.columns else self.fold_rows)(folds, around, lines)
        column = "[i]" * self.columns
        self.print_once([f"{self.names[v]} = {total}{column};" for _, total, v, _ in folds], p.after)

    def fold_rows(self, folds, around, lines):
        """Along the row: chunks in vectors, and their totals in a wider dtype."""
        for _, total, v, _ in folds:
            self.lines.append(f"{wide(v)} {total} = {c_number(identity(v), accumulator(v))};")
        self.lines += [*around, f"for (long c = 0; c < count; c += {CHUNK}) {{"]
        self.lines.append(f"long last = count - c < {CHUNK} ? count : c + {CHUNK};")
        clauses = ""
        for part, _, v, element in folds:
            self.lines.append(f"{ctype(v)} {part} = {c_number(identity(v), v.spec.dtype)};")
            lines.append(f"{part} = {FOLDS[combine(v)].format(part, element)};")
            clauses += f" reduction({CLAUSES[combine(v)]} : {part})"
        self.lines += [f"#pragma omp simd{clauses}", "for (long i = c; i < last; ++i) {", *lines, "}"]
        self.lines += [f"{total} = {FOLDS[combine(v)].format(total, part)};" for part, total, v, _ in folds]
        self.lines.append("}")

    def fold_columns(self, folds, around, lines):
        """Across the columns: each has a total of its own."""
        for _, total, v, element in folds:
            nothing = c_number(identity(v), accumulator(v))
            self.lines.append(f"{wide(v)} {total}[{self.piece}];")
            self.lines.append(f"for (long i = 0; i < count; ++i) {total}[i] = {nothing};")
            lines.append(f"{total}[i] = {FOLDS[combine(v)].format(f'{total}[i]', element)};")
        self.lines += [*around, "#pragma omp simd", "for (long i = 0; i < count; ++i) {", *lines, "}"]


def ctype(node):
    return C_TYPES[node.spec.dtype.name]


def wide(fold):
    return C_TYPES[accumulator(fold).name]


def spell(node, *operands):
    x, word = node.inputs[0].spec.dtype, WORDS[node.op.name]
    text = word if isinstance(word, str) else word[x.kind == "f"]
    return text.format(*operands, t=ctype(node), s=C_TYPES[x.name], bits=8 * x.itemsize)


def extent(node, _):
    lengths = (node.inputs[0].spec.shape[axis] for axis in node.params["axis"])
    return c_number(math.prod(lengths), node.spec.dtype)


# A reduction that is printed by itself folds one element: it is its operand.
TABLE = dict.fromkeys(WORDS, spell) | dict.fromkeys(REDUCTIONS, "{0}")
TABLE |= {"const": c_literal, "extent": extent}


@hookimpl
def mgb_backend(name):
    return FastC() if name == "fast_c" else None
