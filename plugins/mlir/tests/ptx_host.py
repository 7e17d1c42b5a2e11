"""Runs what LLVM is given for a GPU on this CPU, with a fiber for each thread of a block.

The text is the one that PTX is made of; only the intrinsics of the target are replaced. A thread runs until
it shuffles or comes to a barrier, then the next one does; when all have come there they go on.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from llvmlite import binding
from mgb_cuda import Device, Properties
from mgb_cuda.driver import CudaDevice
from mgb_cuda.testing.arrays import HostArrays
from mgb_cuda.testing.bench import Bench, OnDevice, unasked
from mgb_mlir import ptx
from mgb_mlir.gpu import GridBackend, MlirPtx, Toolchain

#: Bytes of a fiber's stack, and of its registers (``ucontext_t``, with room to spare).
STACK, CONTEXT = 64 << 10, 2048

#: What a thread has come to, by the numbers in `RUNTIME`.
STATES = {1: "its end", 2: "a shuffle", 3: "a barrier"}

RUNTIME = """
@host.thread = global i32 0
@host.block = global i32 0
@host.chunk = global i32 0
@host.state = global i32 0
@host.self = global ptr null
@host.main = global ptr null
@host.arguments = global ptr null
@host.exchanged = global [1024 x i32] zeroinitializer
declare i32 @getcontext(ptr)
declare void @makecontext(ptr, ptr, i32, ...)
declare i32 @swapcontext(ptr, ptr)
; one block: 0, or what its threads have come to where they meet in different places, a bit for each
define i32 @host.run(ptr %base, i32 %threads, i32 %backwards, i64 %stacks) {
entry:
  store volatile ptr %base, ptr @host.main
  br label %make
make:
  %t = phi i32 [ 0, %entry ], [ %t1, %make ]
  %t1 = add i32 %t, 1
  %at = mul i32 %t1, CONTEXT
  %fiber = getelementptr i8, ptr %base, i32 %at
  %g = call i32 @getcontext(ptr %fiber)
  %wide = zext i32 %t to i64
  %below = mul i64 %wide, STACK
  %where = add i64 %stacks, %below
  %stack = getelementptr i8, ptr %base, i64 %where
  %link = getelementptr i8, ptr %fiber, i64 8
  store ptr null, ptr %link
  %first = getelementptr i8, ptr %fiber, i64 16
  store ptr %stack, ptr %first
  %size = getelementptr i8, ptr %fiber, i64 32
  store i64 STACK, ptr %size
  call void (ptr, ptr, i32, ...) @makecontext(ptr %fiber, ptr @host.start, i32 0)
  %made = icmp eq i32 %t1, %threads
  br i1 %made, label %round, label %make
round:
  br label %turn
turn:
  %k = phi i32 [ 0, %round ], [ %k1, %turn ]
  %states = phi i32 [ 0, %round ], [ %now, %turn ]
  %k1 = add i32 %k, 1
  %last = sub i32 %threads, %k1
  %back = icmp ne i32 %backwards, 0
  %own = select i1 %back, i32 %last, i32 %k
  store volatile i32 %own, ptr @host.thread
  %own1 = add i32 %own, 1
  %place = mul i32 %own1, CONTEXT
  %self = getelementptr i8, ptr %base, i32 %place
  store volatile ptr %self, ptr @host.self
  %s = call i32 @swapcontext(ptr %base, ptr %self)
  %state = load volatile i32, ptr @host.state
  %bit = shl i32 1, %state
  %now = or i32 %states, %bit
  %all = icmp eq i32 %k1, %threads
  br i1 %all, label %met, label %turn
met:
  %less = sub i32 %now, 1
  %common = and i32 %now, %less
  %apart = icmp ne i32 %common, 0
  br i1 %apart, label %wrong, label %together
together:
  %done = icmp eq i32 %now, 2
  br i1 %done, label %right, label %round
right:
  ret i32 0
wrong:
  ret i32 %now
}
; the same where threads never wait
define void @host.straight(i32 %threads, i32 %backwards) {
entry:
  br label %turn
turn:
  %k = phi i32 [ 0, %entry ], [ %k1, %turn ]
  %k1 = add i32 %k, 1
  %last = sub i32 %threads, %k1
  %back = icmp ne i32 %backwards, 0
  %own = select i1 %back, i32 %last, i32 %k
  store volatile i32 %own, ptr @host.thread
  call void @host.once()
  %all = icmp eq i32 %k1, %threads
  br i1 %all, label %end, label %turn
end:
  ret void
}
define i32 @host.read.ptx.sreg.tid.x() noinline {
  %v = load volatile i32, ptr @host.thread
  ret i32 %v
}
define i32 @host.read.ptx.sreg.ctaid.x() noinline {
  %v = load volatile i32, ptr @host.block
  ret i32 %v
}
define i32 @host.read.ptx.sreg.ctaid.y() noinline {
  %v = load volatile i32, ptr @host.chunk
  ret i32 %v
}
declare float @llvm.exp2.f32(float)
define float @host.ex2.approx.ftz.f(float %x) noinline {
  %v = call float @llvm.exp2.f32(float %x)
  ret float %v
}
define float @host.rcp.approx.ftz.f(float %x) noinline {
  %v = fdiv float 1.0, %x
  ret float %v
}
define void @host.wait(i32 %why) noinline {
  store volatile i32 %why, ptr @host.state
  %self = load volatile ptr, ptr @host.self
  %main = load volatile ptr, ptr @host.main
  %r = call i32 @swapcontext(ptr %self, ptr %main)
  ret void
}
define void @host.barrier.cta.sync.aligned.all(i32 %number) noinline {
  call void @host.wait(i32 3)
  ret void
}
define i32 @host.shfl.sync.bfly.i32(i32 %mask, i32 %value, i32 %away, i32 %clamp) noinline {
  %own = load volatile i32, ptr @host.thread
  %mine = getelementptr i32, ptr @host.exchanged, i32 %own
  store volatile i32 %value, ptr %mine
  call void @host.wait(i32 2)
  %other = xor i32 %own, %away
  %theirs = getelementptr i32, ptr @host.exchanged, i32 %other
  %found = load volatile i32, ptr %theirs
  call void @host.wait(i32 2)
  ret i32 %found
}
define float @host.shfl.sync.bfly.f32(i32 %mask, float %value, i32 %away, i32 %clamp) noinline {
  %bits = bitcast float %value to i32
  %found = call i32 @host.shfl.sync.bfly.i32(i32 %mask, i32 %bits, i32 %away, i32 %clamp)
  %number = bitcast i32 %found to float
  ret float %number
}
""".replace("CONTEXT", str(CONTEXT)).replace("STACK", str(STACK))


class Divergence(AssertionError):
    """Some threads of a block are at another place than others, where all must meet."""


def _start(types: Sequence[str]) -> str:
    """The functions that run a thread; a launch passes the addresses of its arguments."""
    lines = ["define void @host.once() noinline {", "  %all = load volatile ptr, ptr @host.arguments"]
    for k, type_ in enumerate(types):
        lines.append(f"  %at{k} = getelementptr ptr, ptr %all, i64 {k}")
        lines.append(f"  %where{k} = load ptr, ptr %at{k}")
        lines.append(f"  %given{k} = load {type_}, ptr %where{k}")
    given = ", ".join(f"{type_} %given{k}" for k, type_ in enumerate(types))
    lines += [f"  call void @kernel({given})", "  ret void", "}", "define void @host.start() noinline {"]
    lines += ["  call void @host.once()", "  call void @host.wait(i32 1)", "  unreachable", "}"]
    return "\n".join(lines)


class HostGrid:
    """A kernel, and the grid that it is run on.

    Parameters
    ----------
    text : str
        What `mgb_mlir.ptx.llvm` gives.
    """

    def __init__(self, text: str) -> None:
        (given,) = re.findall(r"^define ptx_kernel void @kernel\((.*?)\) ?[#!{a-z]", text, re.MULTILINE)
        types = [re.sub(r" %\w+$", "", p) for p in given.split(", ")]
        self.waits = "@llvm.nvvm.barrier" in text or "@llvm.nvvm.shfl" in text
        lines = [s for s in text.split("\n") if not (s.startswith("declare") and "@llvm.nvvm." in s)]
        text = "\n".join(lines).replace("@llvm.nvvm.", "@host.").replace("ptx_kernel ", "")
        text = re.sub(r"(@shared\d =) internal", r"\1", text)
        self.shared = re.findall(r"@(shared\d) = addrspace\(3\) global \[(\d+) x i8\]", text)
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        for name in ("getcontext", "makecontext", "swapcontext"):
            function = getattr(ctypes.CDLL(None), name)
            binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
        module = binding.parse_assembly(text + RUNTIME + _start(types), context=binding.create_context())
        module.triple = binding.get_process_triple()
        machine = binding.Target.from_triple(module.triple).create_target_machine(
            cpu=binding.get_host_cpu_name(),
            features=binding.get_host_cpu_features().flatten(),
            opt=1,
            jit=True,
        )
        module.data_layout = str(machine.target_data)
        self.engine = binding.create_mcjit_compiler(module, machine)
        self.engine.finalize_object()
        self.alone = threading.Lock()  # there is one block at a time
        whole, part = ctypes.c_int32, ctypes.c_int64
        run, straight = map(self.engine.get_function_address, ("host.run", "host.straight"))
        self.fibers = ctypes.CFUNCTYPE(whole, ctypes.c_void_p, whole, whole, part)(run)
        self.straight = ctypes.CFUNCTYPE(None, whole, whole)(straight)

    def _global(self, name: str, type_: Any = ctypes.c_int32) -> Any:
        return type_.from_address(self.engine.get_global_value_address(name))

    def run(self, table: int, grid: tuple[int, int], threads: int, backwards: bool = False) -> None:
        """Run the blocks one after another; `backwards`: of threads that may run, the last one first."""
        self._global("host.arguments", ctypes.c_void_p).value = table
        memory = mmap.mmap(-1, (threads + 1) * (CONTEXT + STACK))
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        blocks = [(x, y) for y in range(grid[1]) for x in range(grid[0])]
        for block, chunk in blocks[:: -1 if backwards else 1]:
            self._global("host.block").value, self._global("host.chunk").value = block, chunk
            for name, count in self.shared:  # what lies there before is no sensible number
                ctypes.memset(self.engine.get_global_value_address(name), 0xA5, int(count))
            self._block(base, threads, backwards)

    def _block(self, base: int, threads: int, backwards: bool) -> None:
        if not self.waits:
            self.straight(threads, backwards)
            return
        states = self.fibers(base, threads, backwards, CONTEXT * (threads + 1))
        if states:
            found = " and ".join(text for state, text in STATES.items() if states >> state & 1)
            raise Divergence(f"threads of one block came to {found}")


@cache
def _grid(text: str) -> HostGrid:
    """A kernel; engines go in no order that LLVM could stand, so that none ever goes."""
    return HostGrid(text)


class HostDevice(HostArrays, Device):
    """Runs what LLVM is given for a GPU; arrays are NumPy's.

    Parameters
    ----------
    multiprocessors : int, optional
        Few, so that small arrays are cut over blocks as large ones are on a GPU.

    Attributes
    ----------
    reverse : bool
        See `HostGrid.run`.
    sources : list of str
        What was compiled.
    """

    def __init__(self, multiprocessors: int = 4) -> None:
        self.properties = Properties("host", (9, 0), multiprocessors)
        self.reverse = False
        self.sources: list[str] = []

    def key(self) -> str:
        return "host"

    def toolchain(self) -> str:
        return "host"

    def compile(self, source: str) -> bytes:
        self.sources.append(source)
        return ptx.llvm(source, self.properties.architecture).encode()

    def load(self, image: bytes, names: Sequence[str]) -> tuple[Any, ...]:
        assert names == ("kernel",)
        return (_grid(image.decode()),)

    def launcher(self, function: Any, grid: tuple[int, int], threads: int) -> Callable[[int, int], None]:
        def launch(_stream: int, table: int) -> None:
            with function.alone:
                function.run(table, grid, threads, self.reverse)

        return launch


class OnHost(OnDevice, GridBackend):
    """The kernels of the level ``gpu``, as LLVM is given them for a GPU, run by this CPU."""

    name = "ptx_on_host"
    traits = unasked(GridBackend.traits)

    def __init__(self, device: HostDevice | None = None) -> None:
        super().__init__(device or HostDevice())


class Given(OnDevice, GridBackend):
    """The kernels for a device that a test has made."""

    name = "ptx_given"


BENCH = Bench(MlirPtx, OnHost, Given, HostDevice, lambda arrays: CudaDevice(0, Toolchain(), arrays))
BACKEND = OnHost()
