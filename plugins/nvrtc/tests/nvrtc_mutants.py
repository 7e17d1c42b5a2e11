"""Wrong prelude, printer, geometry or launcher: each is caught by a named layer.

``python plugins/nvrtc/tests/nvrtc_mutants.py`` makes all of them, or those from a number on, and prints a
table.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes
    ----------
    module : str
        Whose text is changed; ``prelude`` is the text that all kernels begin with.
    old, new : str
    layer, subject : str
        What catches it, of `nvrtc_layers.LAYERS`, and with what.
    """

    module: str
    old: str
    new: str
    layer: str
    subject: str = ""


#: Seconds that a mutant may take.
PATIENCE = 100

P, W, R, S = "prelude", "mgb_nvrtc.writer", "mgb_nvrtc.printer", "mgb_nvrtc.passes"
T, B = "mgb_nvrtc.totals", "mgb_cuda.rows"
G, V, L, C = "mgb_cuda.geometry", "mgb_cuda.variant", "mgb_cuda.launch", "mgb_cuda.pattern"

MUTANTS = (
    # rounding, and what only a GPU runs of the prelude
    Mutant(P, "cvt.rn.f16.f32", "cvt.rz.f16.f32", "device"),
    Mutant(P, "cvt.rn.bf16.f32", "cvt.rz.bf16.f32", "device"),
    Mutant(P, "__double2float_rz(x)", "__double2float_rn(x)", "device"),
    Mutant(P, "odd(__int2float_rz(x)", "odd(__int2float_rn(x)", "device"),
    Mutant(P, "odd(__uint2float_rz(x)", "odd(__uint2float_rn(x)", "device"),
    Mutant(P, "odd(__ll2float_rz(x)", "odd(__ll2float_rn(x)", "device"),
    Mutant(P, "odd(__ull2float_rz(x)", "odd(__ull2float_rn(x)", "device"),
    Mutant(P, "__float_as_uint(cut) | 1", "__float_as_uint(cut)", "device"),
    Mutant(P, "(16U & 31U)", "(15U & 31U)", "device"),
    Mutant(P, "max.NaN.f32", "max.f32", "device"),
    Mutant(P, "min.NaN.f32", "min.f32", "device"),
    Mutant(P, "1.442695041f", "1.4426f", "device"),
    Mutant(P, "0x7f800000", "0x7f7fffff", "device"),
    Mutant(P, "0x7fffffff", "0x3f800000", "device"),
    Mutant(P, "mapa.u64 %0, %1, %2;", "add.u64 %0, %1, %2;", "device"),
    Mutant(P, "barrier.cluster.arrive.release", "barrier.cluster.arrive.relaxed", "device"),
    # the rest of the prelude
    Mutant(P, "a != a || a > b ? a : b", "a > b ? a : b", "host", "rows"),
    Mutant(P, "a != a || a < b ? a : b", "a < b ? a : b", "host", "rows"),
    Mutant(P, "__shfl_xor_sync(0xffffffffu", "__shfl_xor_sync(0x1u", "host", "rows"),
    Mutant(P, "__shfl_xor_sync(0xffffffffu", "__shfl_xor_sync(0xffffu", "host", "rows"),
    Mutant(P, "found.sum[v] *= factor", "found.sum[v] += factor", "host", "long sums"),
    Mutant(P, "sum * exp_of(most - t);", "sum * exp_of(t - most);", "host", "long sums"),
    Mutant(
        P, "most == -(T)INFINITY ? exp_of(most - t)", "most == -(T)INFINITY ? (T)1", "host", "shared sums"
    ),
    Mutant(P, "found.pivot += away;", "", "host", "long norms"),
    Mutant(P, "- 2 * sum_of(found)", "- sum_of(found)", "host", "long norms"),
    Mutant(P, "sum / count - c", "sum / count", "host", "shared norms"),
    Mutant(P, "+ (uint32_t)place) >> shift", ") >> shift", "host", "channels"),
    Mutant(P, "sizeof(T) * N > 16 ? 16 :", "sizeof(T) * N > 4 ? 4 :", "budget", "fma"),
    # text of kernels
    Mutant(R, 'extern "C" __global__', "__global__", "image", "fma"),
    Mutant(
        R,
        "__launch_bounds__({self.variant.bounds})",
        "__launch_bounds__({self.variant.threads // 2})",
        "image",
        "fma",
    ),
    Mutant(R, "const bool live = mine < p.rows;", "const bool live = mine <= p.rows;", "host", "short rows"),
    Mutant(
        R, "begin + p.chunk < p.length ? begin + p.chunk : p.length", "begin + p.chunk", "host", "shared sums"
    ),
    Mutant(R, "p.chunks; c +=", "p.chunks - 1; c +=", "host", "shared sums"),
    Mutant(R, "[(I)blockIdx.y * p.rows", "[(I)blockIdx.x * p.rows", "host", "shared sums"),
    Mutant(R, "c + 1 < p.chunks ? p.chunk :", "c < p.chunks ? p.chunk :", "host", "shared norms"),
    Mutant(R, ">= params.first[middle]", "> params.first[middle]", "joined"),
    Mutant(R, 'self.line("cluster_sync();")', "pass", "host", "clusters"),
    Mutant(T, 'self.line("cluster_sync();")', 'self.line("__syncthreads();")', "host", "clusters"),
    Mutant(T, "{m} + blockIdx.x % {blocks}", "{m} + threadIdx.x", "host", "clusters"),
    Mutant(T, "if (threadIdx.x < {blocks}) {{", "if (threadIdx.x == 0) {{", "host", "clusters"),
    Mutant(
        R, "__cluster_dims__({cluster}, 1, 1)", "__cluster_dims__({cluster // 2}, 1, 1)", "host", "clusters"
    ),
    Mutant(G, "* v.cluster", "* 1", "host", "clusters"),
    Mutant(S, "(limit - begin)", "(p.chunk + 1)", "host", "shared norms"),
    Mutant(T, 'self.line("__syncthreads();")', 'self.line("")', "host", "rows"),
    Mutant(T, "self.rounds % 2", "0", "host", "rows"),
    Mutant(T, "if ({lane} % 32 == 0) {{", "if ({lane} == 0) {{", "host", "rows"),
    Mutant(S, "tile + {step} <= end;", "tile < end;", "host", "long sums"),
    Mutant(S, "if (at + {width} <= end) {whole}", "{whole}", "host", "pieces"),
    Mutant(S, "if (at + v < end) p.", "p.", "host", "pieces"),
    Mutant(S, "AT_ONCE = 16", "AT_ONCE = 1000", "budget", "weight and bias 32Ki"),
    Mutant(W, '"if (at < end) {"', '"{"', "host", "odd rows"),
    Mutant(S, "const I left = {n} - i{self.inner}", "const I left = {n}", "host", "channels"),
    # the passes of every printer
    Mutant(B, "ahead if k == 1 else ()", "()", "host", "shared sums"),
    Mutant(B, "if not turn.own:", "if True:", "host", "shared sums"),
    Mutant(B, "self.frame.stages - 1", "self.frame.stages", "host", "shared sums"),
    Mutant(B, "{place} - q{j} *", "{place} + q{j} *", "host", "channels"),
    # geometry
    Mutant(C, "if askew.isdisjoint(units) else 1", "", "host", "askew"),
    Mutant(C, "while lanes > 1 and not _even(steps, lanes, straddles)", "while False", "host", "odd rows"),
    Mutant(C, "shift = (length - 1).bit_length()", "shift = length.bit_length() + 1", "host", "channels"),
    Mutant(C, "size += -(-choice.chunks", "size += 0 * -(-choice.chunks", "host", "shared sums"),
    Mutant(G, "steps.length % variant.lanes != 0", "False", "host", "pieces"),
    Mutant(
        G,
        "return -(-steps.rows // v.rows_of_block)",
        "return max(1, steps.rows // v.rows_of_block)",
        "host",
        "columns",
    ),
    Mutant(C, "// unit) * unit", "// unit) * unit + 1", "host", "shared norms"),
    Mutant(G, "UNDER_WAY = 64", "UNDER_WAY = 4", "budget", "log-sum-exp 50257"),
    Mutant(
        G,
        "OWN, OWN_FULL, STAYING = 16, 32, 64",
        "OWN, OWN_FULL, STAYING = 16, 96, 96",
        "budget",
        "long layer norm",
    ),
    Mutant(V, 'f"{self.threads}, 2"', 'f"{self.threads}, 4"', "budget", "softmax 16Ki"),
    Mutant("mgb_cuda.frame", '"exp log sin', '"log sin', "budget", "softmax 1Ki f16"),
    # launcher
    Mutant(L, "choice.chunks if k < passes else 1", "1", "host", "shared sums"),
    Mutant(
        "mgb_cuda.packing",
        "self.fields.pack(*(values[name]",
        "self.fields.pack(*(values[name] // 2",
        "host",
        "pieces",
    ),
    Mutant("mgb_nvrtc.launch", "initial=0))", "initial=1))", "joined"),
    Mutant(
        "mgb_cuda.chain",
        "addresses is not self._addresses and addresses != self._addresses",
        "self._addresses[:1] == [None]",
        "chained",
    ),
    Mutant("mgb_cuda.driver", "known.get(stream)", "next(iter(known.values()), None)", "stub"),
    Mutant("mgb_cuda.context", "self.ensure()", "", "stub"),
)


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the module of a mutant with its change."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.mutant.module:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        assert found is not None and found.origin is not None
        self.origin = found.origin
        return importlib.util.spec_from_file_location(name, found.origin, loader=self)

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        text = changed(self.mutant, Path(self.origin).read_text())
        exec(compile(text, self.origin, "exec"), module.__dict__)


def changed(mutant: Mutant, text: str) -> str:
    """The text with its change; there is a place for it."""
    assert mutant.old in text, f"{mutant.module} has no {mutant.old!r} any more"
    return text.replace(mutant.old, mutant.new)


def text_of(module: str) -> str:
    """Return the text that the mutants of a module change."""
    if module == P:
        from mgb_nvrtc.source import prelude

        return prelude()
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None
    return Path(found.origin).read_text()


def install(number: int) -> None:
    """Let this process import what mutant `number` has changed."""
    mutant = MUTANTS[number]
    if mutant.module != P:
        sys.meta_path.insert(0, _Changed(mutant))
        return
    from mgb_nvrtc import source

    text = changed(mutant, source.prelude())
    source.prelude = lambda: text  # type: ignore[assignment]
    from mgb_nvrtc import launch

    launch.prelude = source.prelude  # type: ignore[assignment]


def caught(number: int) -> str:
    """Run the layer on a mutant in a process of its own and return its report; empty where it passes."""
    here = str(Path(__file__).parent)
    begin = (
        f"import sys; sys.path.insert(0, {here!r}); import nvrtc_mutants; nvrtc_mutants.install({number})\n"
    )
    mutant = MUTANTS[number]
    if mutant.layer == "stub":
        script = (
            f"import sys; sys.path.insert(0, {here!r})\nfrom nvrtc_layers import on_stub; on_stub({begin!r})"
        )
    else:
        script = f"{begin}import nvrtc_layers; nvrtc_layers.LAYERS[{mutant.layer!r}]({mutant.subject!r})"
    with tempfile.TemporaryDirectory() as folder:  # nothing that was compiled before is taken
        environment = os.environ | {"MGB_CACHE": "0", "TMPDIR": folder}
        command = [sys.executable, "-c", script]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return "it does not end"
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.strip().splitlines() if line.strip()] or [
        f"signal {-done.returncode}"
    ]
    said = next((line for line in reversed(lines) if "Error" in line), lines[-1])
    assert "has no" not in said or "any more" not in said, said
    return said.strip()[:90]


def main() -> int:
    """Print the table."""
    print("| changed | into | caught by | which says |\n| --- | --- | --- | --- |")
    missed = 0
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    for number, m in enumerate(MUTANTS[first:], first):
        said = caught(number)
        missed += not said
        cells = (
            f"{m.module.rpartition('.')[2]}: `{m.old}`",
            f"`{m.new}`",
            f"{m.layer} {m.subject}",
            said or "**missed**",
        )
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |", flush=True)
    print(json.dumps({"mutants": len(MUTANTS), "missed": missed}), file=sys.stderr)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
