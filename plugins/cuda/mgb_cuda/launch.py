"""Calling kernels: a plan for each set of shapes and strides, which a call only fills with addresses."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import reduce
from operator import attrgetter, or_
from typing import Any

from mgb.runtime import forking

from .device import Device, ResourceError, Start
from .frame import Operand
from .images import Images
from .packing import Packet, Packing
from .pattern import VECTOR, Choice, scratch_places
from .steps import Shape, steps

_log = logging.getLogger("mgb.cuda")

#: Plans kept for each kernel.
PLANS = 1024

#: What a caller of a kernel may do whose arrays it does not serve.
ADVICE = "compile the graph of these arrays"

_layout, _shape = attrgetter("shape", "strides"), attrgetter("shape")


class Plan:
    """One kernel on one set of shapes and strides.

    Parameters
    ----------
    unit : Unit
    choice : Choice
    starts : sequence of Start
        Its launches, in order.
    """

    def __init__(self, unit: Unit, choice: Choice, starts: Sequence[Start]) -> None:
        self.choice, self.starts = choice, tuple(starts)
        self.launches = tuple(unit.device.launcher(*start) for start in starts)
        packing = unit.packing(choice.variant)
        self.content, self.places = packing.pack(choice.numbers), packing.places
        self.pack = packing.pointers.pack_into
        self.scratch = scratch_places(unit.frame, choice)
        self._free: list[Packet] = []
        self._device = unit.device

    def run(self, pointers: Sequence[int], stream: int) -> None:
        """Launch on arrays at these addresses."""
        if self.scratch:
            first, _kept = self._device.scratch(self.scratch[-1])
            pointers = [*pointers, *[first + at for at in self.scratch[:-1]]]
        try:
            packet = self._free.pop()  # threads share none
        except IndexError:
            packet = Packet(self.content, self.places)
        self.pack(packet.buffer, 0, *pointers)
        table = packet.table
        for launch in self.launches:
            launch(stream, table)
        self._free.append(packet)


#: What `Unit.prepare` gives.
Call = tuple[Plan | None, list[int], Any]


@dataclass(frozen=True)
class Batch(ABC):
    """Plans of one variant that one launch runs.

    Attributes
    ----------
    members : tuple of int
        Which of the kernels.
    launch : callable
        See `Device.launcher`.
    """

    members: tuple[int, ...]
    launch: Callable[[int, int], None]

    @abstractmethod
    def filled(self, calls: Sequence[Call]) -> Packet:
        """Return the parameters, with the addresses of these calls."""


class Unit(ABC):
    """One graph's kernels on one device: what they are called with, and their plans.

    A backend says how a variant is chosen and printed.

    Parameters
    ----------
    frame : Frame
        Or what a backend has in its place, for kernels that are not about rows.
    device : Device
    images : Images

    Attributes
    ----------
    otherwise : str
        What a user can do where no schedule fits the device.
    """

    otherwise = "export MGB_JIT_BACKEND=EAGER"

    def __init__(self, frame: Any, device: Device, images: Images) -> None:
        self.frame: Any = frame
        self.device, self.images = device, images
        self.inputs = len(frame.graph.inputs)
        self.outputs = len(frame.graph.outputs)
        self.hazards = frame.hazards
        self.plans: dict[Any, Plan | None] = {}
        self.functions: dict[Hashable, tuple[Any, ...]] = {}
        self._lock = forking.lock()
        self.constants = tuple(device.constant(node.params["value"]) for node in frame.constants)
        self._fixed = tuple(device.address(c) for c in self.constants)

    # what a backend says

    def steps(self, shapes: Sequence[Shape], strides: Sequence[Shape]) -> Any:
        """Return what a variant is chosen by: how operands step through memory."""
        try:
            return steps(self.frame, shapes, strides)
        except ValueError as error:
            given = ", ".join(map(str, shapes))
            raise ValueError(f"arrays of shapes {given} do not broadcast together: {ADVICE}") from error

    @abstractmethod
    def choose(self, steps: Any, askew: Set[int] = frozenset()) -> Choice:
        """Return the variant for a call, by rule; `askew` arrays begin at no multiple of `VECTOR` bytes."""

    @abstractmethod
    def source(self, variant: Any) -> str:
        """Return the kernels of a variant, to be read."""

    @abstractmethod
    def texts(self, variant: Any) -> Sequence[tuple[str, tuple[str, ...]]]:
        """Return the texts to compile, and the kernels in each, in the order in which they are launched."""

    def machine_code(self, text: str) -> tuple[bytes, int]:
        """Return the image of a text, and the shared memory of a block that its launches ask for."""
        return self.images.get(self.device, text, keep=False), 0

    def packing(self, variant: Any) -> Packing:
        """Return how the parameters of a variant are packed."""
        packing: Packing = variant.packing(self.frame)
        return packing

    def pick(self, found: Any, askew: Set[int], inputs: Sequence[Any], out: Sequence[Any]) -> Choice:
        """Return the variant for a call on these arrays, which it may try."""
        return self.choose(found, askew)

    def smaller(self, first: Choice, found: Any) -> Iterable[Choice]:
        """Return choices of which each needs less of a block than the one before it."""
        return ()

    def shared(self, variant: Any) -> Hashable | None:
        """Return a value that is equal for calls that can share a launch; None for one that cannot."""
        return None

    def batches(self, members: Sequence[int], plans: Sequence[Plan | None]) -> Iterator[Batch]:
        """Yield launches for calls that can share them."""
        raise NotImplementedError

    # calls

    def run(self, *arrays: Any, out: Sequence[Any]) -> None:
        """Run the kernel on these arrays."""
        plan, pointers, _keep = self.prepare(arrays, out)
        if plan is not None:
            plan.run(pointers, self.device.stream())

    def prepare(self, arrays: Sequence[Any], out: Sequence[Any]) -> Call:
        """Return the plan of a call, the addresses to fill it with, and the arrays that these belong to."""
        address = self.device.address
        xs, ys = list(map(address, arrays)), list(map(address, out))
        for i, j in self.hazards:
            if xs[i] == ys[j]:
                arrays = (*arrays[:i], self.device.contiguous(arrays[i]), *arrays[i + 1 :])
                xs[i] = address(arrays[i])
        pointers = [*xs, *self._fixed, *ys]
        askew = frozenset[int]()
        if reduce(or_, pointers) % VECTOR:
            askew = frozenset(i for i, pointer in enumerate(pointers) if pointer % VECTOR)
        key = (askew, *map(_layout, arrays), *map(_shape, out))
        try:
            return self.plans[key], pointers, arrays
        except KeyError:
            plan, used = self.plan_for(key, arrays, out)
            return plan, [*map(address, used), *pointers[len(xs) :]], used

    def plan_for(self, key: Any, arrays: Sequence[Any], out: Sequence[Any]) -> tuple[Plan | None, Any]:
        """Return the plan of a call that is new, and its inputs in a form that it takes."""
        if len(arrays) != self.inputs or len(out) != self.outputs:
            wanted = f"{self.inputs} input and {self.outputs} output arrays"
            raise TypeError(f"the kernel takes {wanted}, not {len(arrays)} and {len(out)}")
        operands = (*self.frame.arrays[: self.inputs], *self.frame.arrays[-self.outputs :])
        check(operands, (*arrays, *out))
        odd = [any(s % a.dtype.itemsize for s in a.strides) for a in arrays]
        if any(odd):  # elements between the places of others: such arrays are copied at each call
            copy = self.device.contiguous
            arrays = [copy(a) if is_odd else a for a, is_odd in zip(arrays, odd, strict=True)]
            return self.plan(arrays, out, key[0] | frozenset(range(len(arrays)))), arrays
        with self._lock:
            if len(self.plans) >= PLANS:
                self.plans.clear()
            plan = self.plans[key] = self.plan(arrays, out, key[0])
        return plan, arrays

    def plan(self, arrays: Sequence[Any], out: Sequence[Any], askew: Set[int]) -> Plan | None:
        """Return the plan for arrays like these; None where nothing is to be done."""
        inputs = [*arrays, *self.constants]
        found = self.steps([a.shape for a in (*inputs, *out)], [a.strides for a in inputs])
        choice = self.pick(found, askew, inputs, out)
        if choice.blocks == 0:
            return None
        return Plan(self, *self.fitting(choice, found))

    def fitting(self, first: Choice, found: Any, keep: bool = True) -> tuple[Choice, list[Start]]:
        """Return the first choice that the device has registers and shared memory for, and its launches.

        Raises
        ------
        ResourceError
            There is none.
        """
        refused = None
        for choice in (first, *self.smaller(first, found)):
            try:
                return choice, self.starts(choice, keep)
            except ResourceError as error:
                _log.debug("another schedule is tried: %s; it was %s", error, choice.variant)
                refused = refused or error
        raise ResourceError(f"no schedule of a kernel fits: {refused}; {self.otherwise}") from refused

    def starts(self, choice: Choice, keep: bool = True) -> list[Start]:
        """Return the launches of a plan, in order."""
        functions = self.load(choice.variant, keep)
        grids = self.grids(choice)
        threads = choice.variant.threads
        for function in functions:
            self.device.check(function, threads)
        return [(f, grid, threads) for f, grid in zip(functions, grids, strict=True)]

    def grids(self, choice: Choice) -> list[tuple[int, int]]:
        """Return the blocks of each launch: those of a stage after the last pass take whole rows."""
        passes = len(self.frame.schedule.passes)
        stages = choice.variant.stages(self.frame) or (0,)
        return [(choice.blocks, choice.chunks if k < passes else 1) for k in stages]

    def load(self, variant: Any, keep: bool = True) -> tuple[Any, ...]:
        """Return the functions of a variant, compiled if need be."""
        with self._lock:
            functions = self.functions.get(variant)
            if functions is None:
                functions = ()
                for text, names in self.texts(variant):
                    image = self.images.get(self.device, text, keep)
                    functions = (*functions, *self.device.load(image, names))
                self.functions[variant] = functions
        return functions


def check(operands: Sequence[Operand], arrays: Sequence[Any]) -> None:
    """See that a kernel with these operands serves such arrays.

    Raises
    ------
    TypeError, ValueError
        One has another dtype, another number of axes or a length of 1 at another place.
    """
    for o, array in zip(operands, arrays, strict=True):
        spec = o.node.spec
        if array.dtype != spec.dtype:
            raise TypeError(
                f"{o.name} has dtype {array.dtype}; the kernel was compiled for {spec.dtype}: {ADVICE}"
            )
        if [d == 1 for d in array.shape] != [d == 1 for d in spec.shape]:
            raise ValueError(
                f"{o.name} has shape {array.shape}; the kernel was compiled for {spec.shape} and serves "
                f"shapes with lengths of 1 at the same places: {ADVICE}"
            )
