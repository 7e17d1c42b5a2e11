"""The backend object: what it accepts, and how a graph becomes a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any

import mgb_cuda.driver as driver
import numpy as np
from mgb.backends import Kernel, Traits
from mgb.ir import Graph, Kind
from mgb_cuda import Device, Images, Properties, generated
from mgb_cuda.chain import Wiring
from mgb_cuda.generated import Generated as AnyGenerated
from mgb_cuda.generated import Kernels as AnyKernels
from mgb_cuda.generated import OnGpus

from . import compiler, matmul, products, tuning
from .launch import Unit
from .products import Products, holds_product
from .words import VOCABULARY


@cache
def traits(device: str, multiplies: bool = False) -> Traits:
    """Return the traits on `device`, with or without matrix products; saved kernels may have those anyway."""
    plain = generated.traits(VOCABULARY | {"matmul"}, device, 90)
    if not multiplies:
        return plain
    return replace(plain, kinds=plain.kinds | {Kind.CONTRACT}, products=frozenset(matmul.DTYPES))


class Claims:
    """The traits of a backend on some device: matrix products are among them when the user says so."""

    def __init__(self, device: str) -> None:
        self._device = device

    def __get__(self, _backend: object, _type: type) -> Traits:
        return traits(self._device, products.setting(products.USE) != "never")


class Kernels(AnyKernels):
    """Of Triton."""

    unit_class = Unit


class Generated(AnyGenerated):
    """Kernels of Triton on some device."""

    kernels = Kernels

    def chosen(self) -> str:
        """Return the settings of products: part of the version, because kernels depend on them."""
        use = products.setting(products.USE)
        return "" if use == "never" else f" {use} {products.setting(products.PRECISION)}"

    def _kernel(self, graph: Graph, saved: bytes, ready: bool) -> Kernel:
        if not holds_product(graph):
            return super()._kernel(graph, saved, ready)
        made = Products(graph, self.devices, Images(self.name, saved))
        return Kernel(made.run, made.text(ready), made)

    def join(self, kernels: Sequence[Kernel]) -> Kernel | None:
        """As every backend of generated text does; beside the joined calls, each product has its own."""
        beside = [k for k, kernel in enumerate(kernels) if _multiplies(kernel)]
        if not beside:
            return super().join(kernels)
        rest = [k for k in range(len(kernels)) if k not in set(beside)]
        joined = super().join([kernels[k] for k in rest]) if len(rest) > 1 else None
        if joined is None:
            return None
        graphs = [_graph(kernel) for kernel in kernels]
        ins = _slices(len(g.inputs) for g in graphs)
        outs = _slices(len(g.outputs) for g in graphs)

        def run(*arrays: Any, out: Sequence[Any]) -> None:
            for k in beside:
                kernels[k].run(*arrays[ins[k]], out=out[outs[k]])
            given = [x for k in rest for x in arrays[ins[k]]]
            joined.run(*given, out=[y for k in rest for y in out[outs[k]]])

        return Kernel(run, "\n\n".join((joined.text, *(kernels[k].text for k in beside))))

    def chain(
        self,
        kernels: Sequence[Kernel],
        wiring: Wiring,
        varying: Sequence[int],
        launch_graph: bool | None = None,
    ) -> Callable[[Sequence[Any]], None] | None:
        """As every backend of generated text does, between products."""
        if not any(map(_multiplies, kernels)):
            return super().chain(kernels, wiring, varying, launch_graph)
        if all(map(_multiplies, kernels)):
            return None
        calls: list[Callable[[Sequence[Any]], None]] = []
        for multiplies, places in groupby(range(len(kernels)), lambda k: _multiplies(kernels[k])):
            row = list(places)
            part, wires = [kernels[k] for k in row], [wiring[k] for k in row]
            linked = None if multiplies else super().chain(part, wires, varying, launch_graph)
            calls += [linked] if linked is not None else map(_call, part, wires)

        def run(arrays: Sequence[Any]) -> None:
            for call in calls:
                call(arrays)

        return run


def _multiplies(kernel: Kernel) -> bool:
    return isinstance(kernel.state, Products)


def _graph(kernel: Kernel) -> Graph:
    state = kernel.state
    graph: Graph = state.parts.graph if isinstance(state, Products) else state.frame.graph
    return graph


def _slices(counts: Iterable[int]) -> list[slice]:
    """Of neighbours that are so many each."""
    return [slice(a, b) for a, b in pairwise(accumulate(counts, initial=0))]


def _call(kernel: Kernel, wires: tuple[Sequence[int], Sequence[int]]) -> Callable[[Sequence[Any]], None]:
    """A kernel as a call on the arrays of a chain."""
    reads, writes = wires

    def run(arrays: Sequence[Any]) -> None:
        kernel.run(*[arrays[i] for i in reads], out=tuple([arrays[i] for i in writes]))

    return run


class Triton(Generated, OnGpus):
    """Kernels of Triton, compiled ahead of their launch to machine code for the GPU that is there."""

    name = "triton"
    traits = Claims("gpu")
    variables = (products.USE, products.PRECISION, tuning.SETTING)

    def gpu(self, ordinal: int) -> Device:
        return Gpu(ordinal)

    def probe(self) -> str | None:
        return compiler.missing() or driver.missing() or self._older() or products.problem()

    def _older(self) -> str | None:
        """Why the driver may refuse machine code; for some GPUs Triton has an assembler that is newer."""
        return driver.older_than(compiler.assembler(driver.properties(driver.current()).capability))

    def version(self) -> str:
        return f"{text_version()} {compiler.version()} {self.target()}{self.chosen()}"


class Toolchain:
    """Triton, as a device asks for it."""

    def version(self) -> str:
        """Without loading it."""
        return compiler.version()

    def compile(self, source: str, properties: Properties) -> bytes:
        """One kernel for the GPU, and what its launch must know."""
        problem = compiler.missing()
        if problem is not None:
            raise compiler.TritonError(problem)
        return compiler.compile_source(source, compiler.nearest(properties.capability)).pack()


class Gpu(driver.CudaDevice):
    """A GPU whose kernels say how much shared memory they are to be given."""

    def __init__(self, ordinal: int, arrays: Any = None) -> None:
        super().__init__(ordinal, Toolchain(), arrays)

    def load(self, image: bytes, names: Sequence[str]) -> tuple[Any, ...]:
        kernel = compiler.Compiled.unpack(image)
        (function,) = super().load(kernel.image, [kernel.name])
        driver.check_shared(kernel.shared, self.properties)
        if kernel.shared > self.properties.shared_bytes:
            driver.allow_shared(function, kernel.shared, self.ordinal)
        return ((function, kernel.shared),)

    def parts(self, function: Any) -> tuple[Any, int]:
        handle, needed = function
        return handle, needed

    def elapsed(self, run: Callable[[int], None]) -> float:
        """Seconds of device time of ``run(stream)``: the least of a few, after one that warms up."""
        return driver.elapsed(self.context, run, self.stream())

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """A new row-major array, of CuPy's pool."""
        import cupy

        with cupy.cuda.Device(self.ordinal):
            return cupy.empty(shape, dtype)

    def multiply(self, a: Any, b: Any, out: Any) -> None:
        """The product of two matrices by the vendor's library, through CuPy."""
        import cupy

        with cupy.cuda.Device(self.ordinal):
            cupy.matmul(a, b, out=out)


@cache
def text_version() -> str:
    """Of the generator: kernels of another one are not taken from the disk."""
    return generated.text_version(Path(__file__).parent)
