"""The limit: programs that only move memory, as fast as this machine can.

Each adds up some arrays and writes the sum to others. They are LLVM IR, compiled by llvmlite, so no compiler
is needed: whole vectors, over all cores, with ordinary stores or with non-temporal ones, which do not read
the line that they overwrite.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence

from .arrays import Array, aligned
from .case import Traffic

#: float32 numbers in one vector: a cache line.
LANES = 16

#: Vectors in one turn of the loop.
UNROLL = 4

#: What one thread takes at a time is a multiple of this many bytes.
GRAIN = LANES * UNROLL * 4

#: Below this many bytes one core is quicker alone.
PARALLEL_BYTES = 1 << 20

_VECTOR = f"<{LANES} x float>"


def source(reads: int, writes: int, non_temporal: bool, in_place: bool = False) -> str:
    """Return LLVM IR of ``move(float** arrays, i64 start, i64 stop)``, in floats; arrays read come first.

    Parameters
    ----------
    reads, writes : int
        Numbers of arrays. With no writes the sums go to one more array of 16 floats.
    non_temporal : bool
        How to store.
    in_place : bool
        What is written are the first arrays that are read.
    """
    inputs = [f"%in{i}" for i in range(reads)]
    outputs = inputs[:writes] if in_place else [f"%out{i}" for i in range(max(writes, 1))]
    loaded = inputs + ([] if in_place else outputs)
    lines = ["define void @move(ptr %arrays, i64 %start, i64 %stop) {", "entry:"]
    for place, name in enumerate(loaded):
        lines += [
            f"  {name}.at = getelementptr ptr, ptr %arrays, i64 {place}",
            f"  {name} = load ptr, ptr {name}.at",
        ]
    lines += ["  %some = icmp ult i64 %start, %stop", "  br i1 %some, label %loop, label %exit", "loop:"]
    lines.append("  %i = phi i64 [ %start, %entry ], [ %next, %loop ]")
    kept = [f"%sum{u}" for u in range(UNROLL)]
    if not writes:
        lines += [f"  {k} = phi {_VECTOR} [ zeroinitializer, %entry ], [ {k}.next, %loop ]" for k in kept]
    for u in range(UNROLL):
        lines += _vector(u, inputs, outputs if writes else [], non_temporal)
    lines += [f"  %next = add i64 %i, {LANES * UNROLL}", "  %more = icmp ult i64 %next, %stop"]
    lines += ["  br i1 %more, label %loop, label %exit", "exit:"]
    if not writes:
        lines += _total(kept, outputs[0])
    return "\n".join([*lines, "  ret void", "}", "!0 = !{i32 1}"])


def _vector(u: int, inputs: Sequence[str], outputs: Sequence[str], non_temporal: bool) -> list[str]:
    """Load one vector of each input, add them up, and store the sum, or add it to ``%sum{u}``."""
    lines = [f"  %i{u} = add i64 %i, {u * LANES}"]
    total = "" if outputs else f"%sum{u}"
    for place, name in enumerate(inputs):
        at, value = f"%at{u}.{place}", f"%v{u}.{place}"
        lines += [
            f"  {at} = getelementptr float, ptr {name}, i64 %i{u}",
            f"  {value} = load {_VECTOR}, ptr {at}, align 64",
        ]
        if total:
            last = place == len(inputs) - 1 and not outputs
            result = f"%sum{u}.next" if last else f"%t{u}.{place}"
            lines.append(f"  {result} = fadd {_VECTOR} {total}, {value}")
            value = result
        total = value
    hint = ", !nontemporal !0" if non_temporal else ""
    for place, name in enumerate(outputs):
        at = f"%to{u}.{place}"
        lines += [
            f"  {at} = getelementptr float, ptr {name}, i64 %i{u}",
            f"  store {_VECTOR} {total}, ptr {at}, align 64{hint}",
        ]
    return lines


def _total(kept: Sequence[str], output: str) -> list[str]:
    """Store the sum of the sums; `output` is taken as it comes, so that no sum can be left out."""
    lines = [f"  {k}.last = phi {_VECTOR} [ zeroinitializer, %entry ], [ {k}.next, %loop ]" for k in kept]
    total = f"{kept[0]}.last"
    for place, name in enumerate(kept[1:]):
        lines.append(f"  %all{place} = fadd {_VECTOR} {total}, {name}.last")
        total = f"%all{place}"
    return [*lines, f"  store {_VECTOR} {total}, ptr {output}, align 64"]


class Mover:
    """A compiled `source`, called with arrays; it divides the range over `threads`.

    Parameters
    ----------
    reads, writes, non_temporal, in_place
        See `source`.
    threads : int
        Of which the caller is one.
    """

    def __init__(
        self, reads: int, writes: int, non_temporal: bool, in_place: bool = False, threads: int = 1
    ) -> None:
        self._function, self._engine = _compile(source(reads, writes, non_temporal, in_place))
        self._writes = writes
        self._helpers = [_Helper() for _ in range(threads - 1)]

    def bind(self, arrays: Sequence[Array]) -> Callable[[], None]:
        """Return a call that moves these aligned float32 arrays, all of one multiple of `GRAIN` bytes.

        With no writes, each thread puts its sums into 16 floats of one more array at the end.
        """
        count = len(self._helpers) + 1
        length = arrays[0].size
        assert length * 4 % GRAIN == 0 and all(a.ctypes.data % 64 == 0 for a in arrays)
        bounds = [length * 4 // GRAIN * i // count * (GRAIN // 4) for i in range(count + 1)]
        calls = [self._part(arrays, i, bounds[i], bounds[i + 1]) for i in range(count)]
        first, *others = calls
        helpers = self._helpers

        def call() -> None:
            for helper, part in zip(helpers, others, strict=True):
                helper.start(part)
            first()
            for helper in helpers:
                helper.join()

        return call if helpers else first

    def _part(self, arrays: Sequence[Array], thread: int, start: int, stop: int) -> Callable[[], None]:
        ends = [a[thread * LANES :] if not self._writes and a is arrays[-1] else a for a in arrays]
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in ends))
        keep = (arrays, self._engine)
        return functools.partial(_run, self._function, pointers, start, stop, keep)


def _run(function: Callable[..., None], pointers: object, start: int, stop: int, keep: object) -> None:
    function(pointers, start, stop)  # ctypes releases the GIL


class _Helper:
    """A thread that waits for something to call."""

    def __init__(self) -> None:
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._part: Callable[[], None] | None = None
        threading.Thread(target=self._work, daemon=True).start()

    def start(self, part: Callable[[], None]) -> None:
        self._part = part
        self._go.release()

    def join(self) -> None:
        self._done.acquire()

    def _work(self) -> None:
        while True:
            self._go.acquire()
            assert self._part is not None
            self._part()
            self._done.release()


@functools.cache
def _compile(text: str) -> tuple[Callable[..., None], object]:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    module = binding.parse_assembly(text)
    module.verify()
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    return prototype(engine.get_function_address("move")), (engine, machine)


@functools.cache
def _mover(reads: int, writes: int, non_temporal: bool, in_place: bool, threads: int) -> Mover:
    return Mover(reads, writes, non_temporal, in_place, threads)


def limits(traffic: Traffic, threads: int) -> dict[str, tuple[Callable[[], None], int]]:
    """Return the programs that move what `traffic` says, by name, each with the bytes that it moves.

    It moves as many streams of equal length, whose bytes add up to those of `traffic`, in arrays of its own.
    """
    reads, writes = traffic.streams
    arrays_moved = reads + writes
    length = max(traffic.nbytes // arrays_moved // GRAIN, 1) * GRAIN
    count = threads if length * arrays_moved >= PARALLEL_BYTES else 1
    arrays = [aligned(length // 4) for _ in range(reads + (0 if traffic.in_place else writes))]
    if not writes:
        arrays.append(aligned(LANES * count))
    found = {}
    for name, non_temporal in [("limit", False), ("limit_stream", True)][: 2 if writes else 1]:
        mover = _mover(reads, writes, non_temporal, traffic.in_place, count)
        found[name] = (mover.bind(arrays), length * arrays_moved)
    return found
