"""The arguments of a kernel: Halide's buffers for one set of shapes and strides."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mgb.backends import num_threads
from mgb.codegen import aligned, broadcast_strides, collapse, row_major
from mgb.runtime import forking
from mgb_native.launch import PLANS, Launcher, Part

from .bridge import bridge
from .frame import Frame, Operand
from .machine import Code
from .schedule import FEW, Form, HalideSchedule, parse
from .words import STORED

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

#: Elements times ops from which a call lets other Python threads run, and uses several itself.
LARGE = 1 << 17

#: Nanoseconds that a byte of an operand and an element of a value take one thread, roughly.
BYTE, OP = 0.02, 0.02

#: Halide's indices have 32 bits.
MOST = (1 << 31) - 1

_CODES = {"i": 0, "u": 1, "f": 2}


class _Dimension(ctypes.Structure):
    """Halide's ``halide_dimension_t``."""

    _fields_ = [(name, ctypes.c_int32) for name in ("min", "extent", "stride", "flags")]


class _Argument(ctypes.Structure):
    """``struct argument`` of `call.c`: the place of the array, and Halide's ``halide_buffer_t``."""

    _fields_ = [
        ("place", ctypes.c_int64), ("device", ctypes.c_uint64), ("interface", ctypes.c_void_p),
        ("host", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("dimensions", ctypes.c_int32),
        ("dim", ctypes.c_void_p), ("padding", ctypes.c_void_p),
    ]  # fmt: skip


class _Head(ctypes.Structure):
    """``struct plan`` of `call.c`."""

    _fields_ = [
        ("function", ctypes.c_void_p), ("count", ctypes.c_int64), ("large", ctypes.c_int64),
        ("past", ctypes.c_int64),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Plan:
    """One call of `call.c`; the launcher asks it for scratch memory, of which it knows nothing.

    What `address` points to lives as long as this: the arguments, and the code that is called. The `work` is
    in nanoseconds of one thread, roughly.
    """

    address: int
    memory: tuple[Any, ...]
    code: Code | None
    own: int = 0
    shared: int = 0
    work: float = 0.0
    parallel: bool = False

    @property
    def alone(self) -> Plan:
        """For the launcher: there is nothing to share, the code itself asks for threads."""
        return replace(self, work=0.0)


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
        """Make the layout of row-major arrays of the sizes of the graph."""
        arrays = [o for o in frame.operands if not o.is_iota]
        shapes = [o.node.spec.shape for o in arrays]
        return cls(frame, shapes, [row_major(o.node.spec.shape, o.itemsize) for o in arrays])

    @property
    def dense(self) -> bool:
        """Return whether the elements of each input lie side by side along the innermost loop."""
        pairs = zip(self.frame.operands, self.strides, strict=True)
        return all(s["i"] == 1 or o.is_iota or "i" not in o.loops for o, s in pairs if "i" in s)

    def traffic(self) -> int:
        """Return the bytes that are read and written."""
        operands = zip(self.frame.operands, self.strides, strict=True)
        return sum(
            o.itemsize * math.prod(self.lengths[loop] for loop, step in steps.items() if step)
            for o, steps in operands
            if not o.is_iota
        )

    def _listed(self) -> list[Operand]:
        """Return the operands, those with arrays in the order of `shapes`."""
        return list(self.frame.operands)

    def _iota(self, o: Operand) -> Shape:
        own = aligned(o.node.spec.shape, len(self.domain))
        return row_major(tuple(1 if d == 1 else full for d, full in zip(own, self.domain, strict=True)))

    def _steps(self, o: Operand, shape: Shape, strides: Shape) -> Shape:
        size = o.itemsize
        if any(d != 1 and s % size for d, s in zip(shape, strides, strict=True)):
            raise ValueError(
                f"{o.name}: strides of {strides} bytes must be multiples of the {size} bytes of an element"
            )
        return broadcast_strides(shape, tuple(s // size for s in strides), self.domain)

    def _named(self, loops: Any, count: int) -> tuple[dict[str, int], list[dict[str, int]]]:
        """Map the names of the loops to lengths and strides; what was merged away has length 1."""
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
        Compiles another, for rows of a form.
    """

    def __init__(self, frame: Frame, codes: Sequence[Code], make: Callable[[Form], Code]) -> None:
        self.frame, self.make = frame, make
        self.codes = {code.form: code for code in codes if code.sizes is None}
        self.exact = next((code for code in codes if code.sizes is not None), None)
        self.schedule = parse(codes[0].schedule)
        self.inputs = len(frame.graph.inputs)
        self.outputs = len(frame.graph.outputs)
        consts = [o for o in frame.operands if o.name.startswith("c")]
        self.constants = tuple(np.ascontiguousarray(o.node.params["value"]) for o in consts)
        self.hazards = tuple(_hazards(frame, self.exact is None))
        self.plans: dict[Any, Plan] = {}
        self.making = forking.lock()
        self.ops = sum(any(span) for span in frame.span.values())
        arrays = [o for o in frame.operands if not o.is_output and not o.is_iota]
        self.places = {o.name: k for k, o in enumerate((*arrays, *frame.outputs))}

    def plan(self, xs: Sequence[Array], ys: Sequence[Array]) -> Plan:
        """Return the plan for the shapes and strides of these inputs, and for the shapes of these outputs."""
        key = (*((x.shape, x.strides) for x in xs), *(y.shape for y in ys))
        plan = self.plans.get(key)
        if plan is None:
            if len(self.plans) >= PLANS:
                self.plans.clear()
            arrays = [*xs, *self.constants, *ys]
            plan = self.plans[key] = self._plan([a.shape for a in arrays], [a.strides for a in arrays])
        return plan

    def _code(self, layout: Layout) -> Code:
        """Return the code for these sizes; compiled now, and by one thread, if there is none."""
        if self.exact is not None and self.exact.sizes == layout.lengths and layout.dense:
            return self.exact
        form = form_of(self.frame, layout, self.schedule)
        code = self.codes.get(form)  # without the lock, which is held for the seconds that a compiler takes
        if code is not None:
            return code
        with self.making:
            if form not in self.codes:
                made = self.make(form)
                self.codes.setdefault(form, made)  # a signal may have called this meanwhile
            return self.codes[form]

    def whole(self, plan: Plan, first: int) -> Part:
        """Return the call, as the launcher's one part; the kernel's arrays are at `first`."""
        return (bridge().call, first, plan.address, *(0,) * 8)

    def together(self, plan: Plan, first: int) -> Part:
        """Return the same for one thread of several."""
        return (bridge().together, first, plan.address, *(0,) * 8)

    def status(self) -> int:
        """Call the code for one set of sizes with such arrays and return its status; 0: it has run."""
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
            return self._written(None, [])
        code = self._code(layout)
        lengths, found = layout.lengths, []
        operands = {o.name: (o, layout.strides[k]) for k, o in enumerate(self.frame.operands)}
        dims = {
            o: loops for loops, written in self.frame.written(code.form is not Form.LONG) for o in written
        }
        for name in code.order[1:]:
            o, steps = operands[name]
            found.append((self.places.get(name, -1), o, dims.get(o, o.loops), lengths, steps))
        whole: Any = (-1, None, self.frame.loops or ("i",), lengths, {})
        traffic, elements = layout.traffic(), math.prod(layout.domain) * self.ops
        plan = self._written(code, [whole, *found])
        head = _Head.from_address(plan.address)
        head.large, head.past = elements >= LARGE, traffic >= self.schedule.stream << 20
        return replace(plan, work=traffic * BYTE + elements * OP)

    def _written(self, code: Code | None, buffers: Sequence[Any]) -> Plan:
        """Return the plan in memory."""
        size = ctypes.sizeof(_Head) + len(buffers) * ctypes.sizeof(_Argument)
        memory = np.zeros(size, np.uint8)
        head = _Head.from_buffer(memory)
        head.function = bridge().nothing if code is None else code.address
        head.count = len(buffers)
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


class Calls(Launcher):
    """``run`` of one kernel, which asks for threads itself, or of several, which share them if small."""

    def _plans(self, arrays: Sequence[Array]) -> list[Any]:
        plans = super()._plans(arrays)
        work = [plan.work for plan in plans]
        shared = max(work, default=0.0) * num_threads() <= sum(work)
        return plans if shared and len(plans) > 1 else [plan.alone for plan in plans]

    def _phases(self, plans: Iterable[Any], threads: int, worth: int) -> list[list[Part]]:
        firsts = zip(self.units, plans, self._firsts(), strict=True)
        return [[unit.together(plan, first) for unit, plan, first in firsts]]


def form_of(frame: Frame, layout: Layout, plan: HalideSchedule) -> Form:
    """Return the form of the code for these sizes; without folds there is one."""
    lines = math.prod(layout.lengths[f] for f in frame.f_loops)
    if frame.flat or frame.columns:
        return Form.SHORT if frame.flat or lines <= plan.group else Form.LONG
    n = layout.lengths["i"]
    if n > plan.piece or lines > max(1, plan.piece // max(n, 1)):
        return Form.LONG
    return Form.TINY if n <= FEW else Form.SHORT


def _fits(number: int) -> int:
    if abs(number) > MOST:
        raise ValueError(f"Halide's indices end at {MOST}, got {number}; export MGB_JIT_BACKEND=CPU_NUMBA")
    return number


def _hazards(frame: Frame, once: bool) -> list[tuple[int, int]]:
    """Return (input, output) pairs that must not be the same memory.

    An element of an input may be overwritten by an output when each is computed `once` and nothing reads the
    input later: all of a turn is computed before any is written.
    """
    alone = once and _writes_last(frame)
    full = {o.node for o in frame.operands if alone and o.loops == frame.loops}
    return [
        (i, j)
        for i, x in enumerate(frame.graph.inputs)
        for j, y in enumerate(frame.graph.outputs)
        if x.spec == y.spec and not (x in full and y in full)
    ]


def _writes_last(frame: Frame) -> bool:
    """Return whether one loop writes all outputs of the domain, and the rest reads row values alone."""
    others = (o.node for o in frame.outputs if o.loops != frame.loops)
    return not any(frame.flat or any(frame.span[v][a] for a in frame.schedule.reduced) for v in others)
