"""Sums, softmax, norms and losses: cases that read whole rows, columns or channels before they are done."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from mgb_bench.arrays import Arrays, aligned_like
from mgb_bench.case import MI, TOLERANCES, Case, Size, Stateful, Tolerance, Traffic
from mgb_bench.peers import Loop, Peer
from mgb_bench.ways import truths

Shape = tuple[int, ...]

SQUARE = (4096, 4096)

#: Rows from 64 numbers to 64 Ki, always 16 Mi in all.
ROWS = tuple((16 * MI // length, length) for length in (64, 1024, 65536))

#: Images, channels, pixels.
IMAGES = (64, 64, 4096)

FLOAT = np.dtype(np.float32)


def _filling(module: str, name: str, outputs: Callable[..., list[Shape]]) -> Stateful:
    """Return NumPy's or Numba's function `name`, which fills arrays of the shapes that `outputs` says."""

    def build(peer: Peer, arrays: Arrays) -> Callable[[], Any]:
        function = getattr(importlib.import_module(f"mgb_bench.ways.{module}"), name)
        ready = [aligned_like(shape, FLOAT) for shape in outputs(*arrays)]
        if module == "loops":
            return peer.prepare(Loop(function, lambda *_: ready), arrays)

        def call() -> Any:
            function(*ready, *arrays)
            return ready

        return call

    return Stateful(build)


def _calling(module: str, name: str, stateful: bool = False) -> Stateful:
    """Return a function of `mgb_bench.ways`; its module, and so the peer, is imported when needed."""

    def build(peer: Peer, arrays: Arrays) -> Callable[[], Any]:
        function = getattr(importlib.import_module(f"mgb_bench.ways.{module}"), name)
        return peer.prepare(Stateful(function) if stateful else function, arrays)

    return Stateful(build)


def _ways(
    name: str, outputs: Callable[..., list[Shape]], gradient: bool = False, halide: bool = False
) -> Any:
    ways = {
        "mgb": _calling("mgb_calls", name),
        "numpy": _filling("buffers", name, outputs),
        "numba": _filling("loops", name, outputs),
        "jax": _calling("jax_calls", name),
        "torch": _calling("torch_calls", name, stateful=gradient),
    }
    return ways | ({"halide": _calling("pipelines", name)} if halide else {})


def _normal(shape: Shape, generator: np.random.Generator) -> Any:
    return generator.standard_normal(shape, np.float32)


def _positive(size: Shape, generator: np.random.Generator) -> Arrays:
    return (generator.random(size, np.float32) + np.float32(0.5),)


def _rows(weights: int) -> Callable[[Shape, Any], Arrays]:
    """Make a matrix and `weights` vectors as long as its rows."""
    return lambda size, generator: tuple(_normal(s, generator) for s in (size, *[size[1:]] * weights))


def _images(size: Shape, generator: np.random.Generator) -> Arrays:
    return tuple(_normal(shape, generator) for shape in (size, size[1:2], size[1:2], size))


def _labelled(size: Shape, generator: np.random.Generator) -> Arrays:
    return _normal(size, generator), generator.integers(0, size[1], size[0]).astype(np.int32)


def _traffic(reads: int, writes: int) -> Callable[[Shape], Traffic]:
    """Return the traffic of arrays as large as the input; smaller ones do not count."""

    def traffic(size: Shape) -> Traffic:
        nbytes = int(np.prod(size)) * 4
        return Traffic(nbytes * reads, nbytes * writes, (reads, writes))

    return traffic


def _same(x: Any, *_: Any) -> list[Shape]:
    return [x.shape]


#: Sums over millions of numbers, and what is computed from them.
LONG = {**TOLERANCES, "float32": Tolerance(2e-4, 2e-3)}


def _case(name: str, function: str, make: Any, outputs: Any, traffic: Any, sizes: Any, **more: Any) -> Case:
    said = _ways(function, outputs, more.pop("gradient", False), more.pop("halide", False))
    truth = getattr(truths, function)
    more.setdefault("quick", sizes[:1])
    return Case(name, "reductions", sizes, make, truth, said, traffic, tolerances=LONG, **more)


_READ, _MAP = _traffic(1, 0), _traffic(1, 1)

CASES = [
    _case("full sum", "full_sum", _positive, lambda x: [()], _READ, (SQUARE,)),
    _case("row sums", "row_sums", _positive, lambda x: [x.shape[:1]], _READ, (SQUARE, *ROWS)),
    _case("column sums", "column_sums", _positive, lambda x: [x.shape[1:]], _READ, (SQUARE,)),
    _case("softmax", "softmax", _rows(0), _same, _MAP, (SQUARE, *ROWS), halide=True),
    _case("log-softmax", "log_softmax", _rows(0), _same, _MAP, (SQUARE,)),
    _case("layer norm", "layer_norm", _rows(2), _same, _MAP, (SQUARE, *ROWS)),
    _case("RMS norm", "rms_norm", _rows(1), _same, _MAP, (SQUARE,)),
    _case(
        "batch norm, both ways", "batch_norm", _images,
        lambda x, *_: [x.shape, x.shape, x.shape[1:2], x.shape[1:2]], _traffic(3, 2), (IMAGES,),
        gradient=True,
    ),
    _case(
        "cross entropy, both ways", "cross_entropy", _labelled,
        lambda x, _: [(), x.shape], _MAP, (SQUARE,), gradient=True,
    ),
]  # fmt: skip


def small(case: Case) -> Size:
    """Return a size for tests."""
    return (4, 8, 48) if case.name.startswith("batch") else (32, 96)


def test_reductions(race: Any, case: Case, size: Size) -> None:
    race(case, size)
