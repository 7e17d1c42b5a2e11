"""What a kernel is called with: Halide's buffers for one set of shapes and strides."""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import numpy as np
from mgb.codegen import aligned, broadcast_strides, collapse, row_major
from mgb_native.launch import PLANS, Part

from .frame import Frame, Names, Operand
from .machine import Code, bridge
from .schedule import HalideSchedule, parse
from .words import STORED

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

#: Elements times ops from which a call lets other Python threads run, and uses several itself.
LARGE = 1 << 17

#: Halide's indices have 32 bits.
MOST = (1 << 31) - 1

_CODES = {"i": 0, "u": 1, "f": 2}


class _Dimension(ctypes.Structure):
    """Halide's ``halide_dimension_t``."""

    _fields_ = [(name, ctypes.c_int32) for name in ("min", "extent", "stride", "flags")]


class _Argument(ctypes.Structure):
    """``%argument`` of `call.ll`: the place of the array, and Halide's ``halide_buffer_t``."""

    _fields_ = [
        ("place", ctypes.c_int64), ("device", ctypes.c_uint64), ("interface", ctypes.c_void_p),
        ("host", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("dimensions", ctypes.c_int32),
        ("dim", ctypes.c_void_p), ("padding", ctypes.c_void_p),
    ]  # fmt: skip


class _Head(ctypes.Structure):
    """``%plan`` of `call.ll`."""

    _fields_ = [("function", ctypes.c_void_p), ("count", ctypes.c_int64), ("large", ctypes.c_int64)]


@dataclass(frozen=True, slots=True)
class Plan:
    """One call of `call.ll`; the launcher asks it for scratch memory and work, of which it knows nothing.

    What `address` points to lives as long as this: the arguments, and the code that is called.
    """

    address: int
    memory: tuple[Any, ...]
    code: Code | None
    own: int = 0
    shared: int = 0
    work: float = 0.0
    parallel: bool = False


class Layout:
    """The loops over one set of shapes and strides, and every operand's stride along them."""

    def __init__(self, frame: Frame, shapes: Sequence[Shape], strides: Sequence[Shape]) -> None:
        self.frame = frame
        given = frame.schedule.shape
        known = np.broadcast_shapes(*shapes) if shapes else ()
        pairs = zip(aligned(known, len(given)), given, strict=True)
        self.domain = tuple(k if k != 1 else g for k, g in pairs)
        arrays = iter(zip(shapes, strides, strict=True))
        steps = [self._iota(o) if o.is_iota else self._steps(o, *next(arrays)) for o in self._listed()]
        loops = collapse(self.domain, steps, frame.schedule.reduced)
        self.lengths, self.strides = self._named(loops, len(steps))

    @classmethod
    def of(cls, frame: Frame) -> Layout:
        """That of row-major arrays of the sizes of the graph."""
        arrays = [o for o in frame.operands if not o.is_iota]
        shapes = [o.node.spec.shape for o in arrays]
        return cls(frame, shapes, [row_major(o.node.spec.shape, o.itemsize) for o in arrays])

    @property
    def dense(self) -> bool:
        """Whether the elements of each input lie side by side along the innermost loop."""
        pairs = zip(self.frame.operands, self.strides, strict=True)
        return all(s["i"] == 1 or o.is_iota or "i" not in o.loops for o, s in pairs if "i" in s)

    def _listed(self) -> list[Operand]:
        """The operands, those with arrays in the order of `shapes`."""
        return list(self.frame.operands)

    def _iota(self, o: Operand) -> Shape:
        own = aligned(o.node.spec.shape, len(self.domain))
        return row_major(tuple(1 if d == 1 else full for d, full in zip(own, self.domain, strict=True)))

    def _steps(self, o: Operand, shape: Shape, strides: Shape) -> Shape:
        size = o.itemsize
        if any(d != 1 and s % size for d, s in zip(shape, strides, strict=True)):
            raise ValueError(f"{o.name}: strides of {strides} bytes are no multiples of its {size} bytes")
        return broadcast_strides(shape, tuple(s // size for s in strides), self.domain)

    def _named(self, loops: Any, count: int) -> tuple[dict[str, int], list[dict[str, int]]]:
        """Lengths and strides by the names of the loops; what was merged away has length 1."""
        names = dict.fromkeys(self.frame.loops, None)
        inner = len(loops.shape) - 1
        axes = list(range(inner - 1, -1, -1))
        found = {"i": inner} if "i" in names and inner >= 0 else {}
        found |= {f"f{n}": a for n, a in enumerate(a for a in axes if loops.folded[a])}
        found |= {f"k{n}": a for n, a in enumerate(a for a in axes if not loops.folded[a])}
        lengths = {name: loops.shape[found[name]] if name in found else 1 for name in names}
        strides = [
            {name: loops.strides[k][found[name]] if name in found else 0 for name in names}
            for k in range(count)
        ]
        return lengths, strides


class Unit:
    """One compiled kernel, for the launcher: what it is called with, and its plans.

    Parameters
    ----------
    frame : Frame
    codes : sequence of Code
        Those that there are.
    make : callable
        Compiles the other, for short rows or for all.
    """

    def __init__(self, frame: Frame, codes: Sequence[Code], make: Callable[[bool], Code]) -> None:
        self.frame, self.make = frame, make
        self.codes = {code.short: code for code in codes if code.sizes is None}
        self.exact = next((code for code in codes if code.sizes is not None), None)
        self.schedule = parse(codes[0].schedule)
        self.inputs = len(frame.graph.inputs)
        self.outputs = len(frame.graph.outputs)
        consts = [o for o in frame.operands if o.name.startswith("c")]
        self.constants = tuple(np.ascontiguousarray(o.node.params["value"]) for o in consts)
        self.hazards = tuple(_hazards(frame, self.exact is None))
        self.plans: dict[Any, Plan] = {}
        self.making = threading.RLock()
        _units.add(self)
        arrays = [o for o in frame.operands if not o.is_output and not o.is_iota]
        self.places = {o.name: k for k, o in enumerate((*arrays, *frame.outputs))}

    def plan(self, xs: Sequence[Array], ys: Sequence[Array]) -> Plan:
        """The plan for the shapes and strides of these inputs, and for the shapes of these outputs."""
        key = (*((x.shape, x.strides) for x in xs), *(y.shape for y in ys))
        plan = self.plans.get(key)
        if plan is None:
            if len(self.plans) >= PLANS:
                self.plans.clear()
            arrays = [*xs, *self.constants, *ys]
            plan = self.plans[key] = self._plan([a.shape for a in arrays], [a.strides for a in arrays])
        return plan

    def _code(self, layout: Layout) -> Code:
        """The code for these sizes; compiled now, and by one thread, if there is none."""
        if self.exact is not None and self.exact.sizes == layout.lengths and layout.dense:
            return self.exact
        short = is_short(self.frame, layout, self.schedule)
        code = self.codes.get(short)  # without the lock, which is held for the seconds that a compiler takes
        if code is not None:
            return code
        with self.making:
            if short not in self.codes:
                made = self.make(short)
                self.codes.setdefault(short, made)  # a signal may have called this meanwhile
            return self.codes[short]

    def _dims(self, o: Operand) -> Names:
        """The loops that are dimensions of the buffer: for an output, of all that are written with it."""
        loops = self.frame.loops
        together = o.is_output and not self.frame.flat and any(y.loops == loops for y in self.frame.outputs)
        return loops if together else o.loops

    def whole(self, plan: Plan, first: int) -> Part:
        """The call, as the launcher's one part; the kernel's arrays are at `first`."""
        return (bridge().call, first, plan.address, *(0,) * 8)

    def status(self) -> int:
        """What the code for one set of sizes returns when it is called with such arrays; 0: it has run."""
        nodes = [*self.frame.graph.inputs, *self.frame.graph.outputs]
        made = [np.ones(v.spec.shape, v.spec.dtype) for v in nodes]
        inputs, outputs = made[: self.inputs], made[self.inputs :]
        plan = self.plan(inputs, outputs)
        data = [a.ctypes.data for a in (*inputs, *self.constants, *outputs)]
        head = _Head.from_address(plan.address)
        pointers = (ctypes.c_void_p * head.count)()
        for k in range(head.count):
            at = plan.address + ctypes.sizeof(_Head) + k * ctypes.sizeof(_Argument)
            argument = _Argument.from_address(at)
            if argument.place >= 0:
                argument.host = data[argument.place]
            pointers[k] = at + _Argument.device.offset
        return int(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(head.function)(pointers))

    def _plan(self, shapes: Sequence[Shape], strides: Sequence[Shape]) -> Plan:
        layout = Layout(self.frame, shapes, strides)
        if not any(math.prod(shape) for shape in shapes[len(shapes) - self.outputs :]):
            return self._written(None, [], False)
        code = self._code(layout)
        lengths, found = layout.lengths, []
        operands = {o.name: (o, layout.strides[k]) for k, o in enumerate(self.frame.operands)}
        for name in code.order[1:]:
            o, steps = operands[name]
            found.append((self.places.get(name, -1), o, self._dims(o), lengths, steps))
        whole: Any = (-1, None, self.frame.loops or ("i",), lengths, {})
        large = math.prod(layout.domain) * len(self.frame.graph.nodes) >= LARGE
        return self._written(code, [whole, *found], large)

    def _written(self, code: Code | None, buffers: Sequence[Any], large: bool) -> Plan:
        """The plan in memory."""
        size = ctypes.sizeof(_Head) + len(buffers) * ctypes.sizeof(_Argument)
        memory = np.zeros(size, np.uint8)
        head = _Head.from_buffer(memory)
        head.function = bridge().nothing if code is None else code.address
        head.count, head.large = len(buffers), large
        kept: list[Any] = [memory]
        for k, (place, o, loops, lengths, steps) in enumerate(buffers):
            argument = _Argument.from_buffer(memory, ctypes.sizeof(_Head) + k * ctypes.sizeof(_Argument))
            dims = (_Dimension * max(1, len(loops)))()
            for d, loop in enumerate(loops):
                dims[d].extent, dims[d].stride = _fits(lengths.get(loop, 1)), _fits(steps.get(loop, 0))
            argument.place, argument.dimensions, argument.dim = place, len(loops), ctypes.addressof(dims)
            argument.lanes, argument.host = 1, ctypes.addressof(dims)  # of an array, the call fills it in
            kind = o.node.spec.dtype if o is not None and not o.is_iota else np.dtype(np.uint8)
            stored = np.dtype(STORED.get(kind.name, kind.name))
            argument.code, argument.bits = _CODES[stored.kind], 8 * stored.itemsize
            kept.append(dims)
        return Plan(memory.ctypes.data, tuple(kept), code)


#: All that there are. A child process has no thread that would give their locks back, and gets new ones.
_units: WeakSet[Unit] = WeakSet()


def _after_fork() -> None:
    for unit in _units:
        unit.making = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def is_short(frame: Frame, layout: Layout, plan: HalideSchedule) -> bool:
    """Whether rows are one piece each, columns one group."""
    lines = math.prod(layout.lengths[f] for f in frame.f_loops)
    if frame.flat or frame.columns:
        return frame.flat or lines <= plan.group
    n = layout.lengths["i"]
    return n <= plan.piece and lines <= max(1, plan.piece // max(n, 1))


def _fits(number: int) -> int:
    if abs(number) > MOST:
        raise ValueError(f"Halide counts to {MOST}, not to {number}; export MGB_JIT_BACKEND=CPU_NUMBA")
    return number


def _hazards(frame: Frame, once: bool) -> list[tuple[int, int]]:
    """(input, output) pairs that must not be the same memory.

    An element of an input may be overwritten by an output, where there is one loop over the whole domain and
    nothing else, and when each element is computed `once`: all of a turn is computed before any is written.
    """
    alone = once and frame.flat and all(o.loops == frame.loops for o in frame.outputs)
    full = {o.node for o in frame.operands if alone and o.loops == frame.loops}
    return [
        (i, j)
        for i, x in enumerate(frame.graph.inputs)
        for j, y in enumerate(frame.graph.outputs)
        if x.spec == y.spec and x not in full
    ]
