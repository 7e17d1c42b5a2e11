"""``python -m mgb_bench.gpu``: mgb and its peers on a GPU, beside the bandwidth of a copy on that GPU.

Times are those of the GPU between two events around each call, the median of many. Every result is compared
with NumPy's in float64 before it is timed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS, WARM = 50, 5


@dataclass(frozen=True)
class Case:
    """What is computed.

    Attributes
    ----------
    name : str
    shape : tuple of int
    inputs : int
        Arrays of that shape.
    writes : float
        Elements written, as a share of the shape's.
    rule : callable
        ``rule(w, *xs)`` over the words of `WORDS`.
    """

    name: str
    shape: tuple[int, ...]
    inputs: int
    writes: float
    rule: Callable[..., Any]

    def nbytes(self) -> int:
        """The least that has to move."""
        return int(4 * np.prod(self.shape, dtype=np.int64) * (self.inputs + self.writes))


def _chain(w: Any, a: Any, b: Any) -> Any:
    x = (a + b) * b - a
    x = (x * b + a) * 0.5
    return w.tanh(x) * a + w.exp(-(b * b))


def _gelu(w: Any, x: Any) -> Any:
    return 0.5 * x * (1.0 + w.tanh(0.7978845608 * (x + 0.044715 * (x * x * x))))


def _softmax(w: Any, x: Any) -> Any:
    e = w.exp(x - w.max(x))
    return e / w.sum(e)


def _layer_norm(w: Any, x: Any) -> Any:
    n = float(x.shape[-1])
    centred = x - w.sum(x) / n
    return centred / w.sqrt(w.sum(centred * centred) / n + 1e-5)


def _row_sums(w: Any, x: Any) -> Any:
    return w.sum(x * x)


CASES = (
    Case("chain", (1 << 13, 1 << 13), 2, 1.0, _chain),
    Case("gelu", (1 << 13, 1 << 13), 1, 1.0, _gelu),
    Case("softmax", (1 << 14, 1 << 12), 1, 1.0, _softmax),
    Case("layer norm", (1 << 14, 1 << 12), 1, 1.0, _layer_norm),
    Case("row sums", (1 << 14, 1 << 12), 1, 1.0 / (1 << 12), _row_sums),
)


class Words:
    """The functions that a rule is spelt in; rows are along the last axis and keep it."""

    def __init__(self, module: Any, keep: str = "keepdims", **others: Callable[..., Any]) -> None:
        axis = "dim" if keep == "keepdim" else "axis"
        row = {axis: -1, keep: True}
        self.exp, self.tanh, self.sqrt = module.exp, module.tanh, module.sqrt
        self.sum = lambda x: module.sum(x, **row)
        self.max = others.get("max", lambda x: module.max(x, **row))


@dataclass(frozen=True)
class Contestant:
    """One way to run every case.

    Attributes
    ----------
    name : str
    needs : tuple of str
        Modules.
    build : callable
        ``build(case, arrays) -> (call, get)``: the call to be timed, and what makes NumPy's of its result.
    """

    name: str
    needs: tuple[str, ...]
    build: Callable[[Case, Sequence[Any]], tuple[Callable[[], Any], Callable[[Any], Any]]]

    def missing(self) -> str | None:
        """What is not installed."""
        absent = [n for n in self.needs if importlib.util.find_spec(n) is None]
        return f"not installed: {', '.join(absent)}" if absent else None


def _mgb(backend: str) -> Callable[[Case, Sequence[Any]], Any]:
    def build(case: Case, arrays: Sequence[Any]) -> Any:
        import mgb
        import mgb.functional as F
        from mgb.jit import trace

        inputs = [mgb.tensor(a, device="gpu0") for a in arrays]
        words = Words(F)
        compiled = trace(lambda *xs: case.rule(words, *xs), without_host=True, backend=f"{backend},eager")
        return lambda: compiled(*inputs), lambda t: t.numpy()

    return build


def _cupy(fused: bool) -> Callable[[Case, Sequence[Any]], Any]:
    def build(case: Case, arrays: Sequence[Any]) -> Any:
        import cupy

        inputs = [cupy.asarray(a) for a in arrays]
        words = Words(cupy)

        def plain(*xs: Any) -> Any:
            return case.rule(words, *xs)

        function = cupy.fuse(plain) if fused else plain
        return lambda: function(*inputs), cupy.asnumpy

    return build


def _torch(compiled: bool) -> Callable[[Case, Sequence[Any]], Any]:
    def build(case: Case, arrays: Sequence[Any]) -> Any:
        import cupy
        import torch

        inputs = [torch.from_numpy(a).cuda() for a in arrays]
        words = Words(torch, "keepdim", max=lambda x: torch.amax(x, dim=-1, keepdim=True))

        def plain(*xs: Any) -> Any:
            return case.rule(words, *xs)

        function = torch.compile(plain) if compiled else plain
        stream = torch.cuda.ExternalStream(cupy.cuda.get_current_stream().ptr)

        def call() -> Any:
            with torch.cuda.stream(stream):
                return function(*inputs)

        return call, lambda t: t.cpu().numpy()

    return build


CONTESTANTS = (
    Contestant("mgb nvrtc", ("mgb_nvrtc", "cupy"), _mgb("nvrtc")),
    Contestant("mgb triton", ("mgb_triton", "cupy"), _mgb("triton")),
    Contestant("torch", ("torch",), _torch(compiled=False)),
    Contestant("torch.compile", ("torch",), _torch(compiled=True)),
    Contestant("cupy", ("cupy",), _cupy(fused=False)),
    Contestant("cupy.fuse", ("cupy",), _cupy(fused=True)),
)


def no_gpu() -> str | None:
    """Why nothing can be timed here; None when it can."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed: pip install 'mgb[cuda13]' (or cuda12)"
    import cupy

    return None if cupy.cuda.is_available() else "CuPy finds no GPU here: see that nvidia-smi works"


def seconds(call: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """The median time that the GPU takes for one call."""
    import cupy

    for _ in range(WARM):
        call()
    begin, end, times = cupy.cuda.Event(), cupy.cuda.Event(), []
    for _ in range(rounds):
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3)
    return statistics.median(times)


def copy_bandwidth() -> float:
    """Bytes a second of a copy of 256 MiB, read and written."""
    import cupy

    source, target = (cupy.ones(1 << 28, cupy.uint8) for _ in range(2))
    return 2 * source.nbytes / seconds(lambda: cupy.copyto(target, source))


def truth(case: Case, arrays: Sequence[Any]) -> Any:
    """The first rows in float64."""
    return case.rule(Words(np), *(a[:64].astype(np.float64) for a in arrays))


@dataclass(frozen=True)
class Line:
    """One row of the table; `problem` says why there is no time."""

    case: str
    contestant: str
    microseconds: float | None = None
    of_copy: float | None = None
    problem: str = ""


def measure(case: Case, bandwidth: float, contestants: Sequence[Contestant], rounds: int) -> list[Line]:
    """A line for each contestant."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(case.shape, dtype=np.float32) for _ in range(case.inputs)]
    want, lines = truth(case, arrays), []
    for contestant in contestants:
        problem = contestant.missing()
        if problem is None:
            try:
                call, get = contestant.build(case, arrays)
                np.testing.assert_allclose(get(call())[:64], want, rtol=1e-4, atol=1e-5)
                time = seconds(call, rounds)
                share = case.nbytes() / time / bandwidth
                lines.append(Line(case.name, contestant.name, round(time * 1e6, 1), round(share, 3)))
                continue
            except Exception as error:  # a peer that fails is a line, not the end
                problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        lines.append(Line(case.name, contestant.name, problem=problem))
    return lines


def table(lines: Sequence[Line], about: Mapping[str, Any]) -> str:
    """The lines as Markdown."""
    head = [
        f"{about['gpu']}: a copy moves {about['copy']} GB/s",
        "",
        "| case | contestant | us | of the copy |",
    ]
    rows = [
        f"| {x.case} | {x.contestant} | {x.microseconds or x.problem} | {x.of_copy or ''} |" for x in lines
    ]
    return "\n".join([*head, "| --- | --- | --- | --- |", *rows, ""])


def bench(out: Path, quick: bool = False) -> int:
    """Time all cases and write ``gpu.json`` and ``gpu.md`` into `out`.

    Returns
    -------
    int
        0; 1 when a contestant failed; 2 where there is no GPU.
    """
    problem = no_gpu()
    if problem is not None:
        print(f"mgb bench: no GPU: {problem}", file=sys.stderr)
        return 2
    import cupy

    bandwidth = copy_bandwidth()
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    about = {"gpu": name, "copy": round(bandwidth / 1e9, 1)}
    lines = [
        line for case in CASES for line in measure(case, bandwidth, CONTESTANTS, 10 if quick else ROUNDS)
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / "gpu.json").write_text(json.dumps({"about": about, "lines": [asdict(x) for x in lines]}, indent=1))
    (out / "gpu.md").write_text(table(lines, about))
    print(table(lines, about))
    return int(any(x.problem and not x.problem.startswith("not installed") for x in lines))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m mgb_bench.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench"))
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    return bench(arguments.out, arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
