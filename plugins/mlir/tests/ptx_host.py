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
from mgb_cuda.testing.arrays import HostArrays
from mgb_cuda.testing.bench import OnDevice
from mgb_mlir import ptx
from mgb_mlir.gpu import GridBackend

#: Bytes of a fiber's stack, and of its registers (``ucontext_t``, with room to spare).
STACK, CONTEXT = 64 << 10, 2048

#: What a thread has come to, by the numbers in `RUNTIME`.
STATES = {1: "its end", 2: "a shuffle", 3: "a barrier"}

RUNTIME = """
@host.thread = global i32 0
@host.block = global i32 0
@host.threads = global i32 0
@host.blocks = global i32 0
@host.state = global i32 0
@host.self = global ptr null
@host.main = global ptr null
@host.arguments = global ptr null
@host.exchanged = global [1024 x i32] zeroinitializer
declare i32 @swapcontext(ptr, ptr)
define i32 @host.read.ptx.sreg.tid.x() noinline {
  %v = load volatile i32, ptr @host.thread
  ret i32 %v
}
define i32 @host.read.ptx.sreg.ctaid.x() noinline {
  %v = load volatile i32, ptr @host.block
  ret i32 %v
}
define i32 @host.read.ptx.sreg.ntid.x() noinline {
  %v = load volatile i32, ptr @host.threads
  ret i32 %v
}
define i32 @host.read.ptx.sreg.nctaid.x() noinline {
  %v = load volatile i32, ptr @host.blocks
  ret i32 %v
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
"""


class Divergence(AssertionError):
    """Some threads of a block are at another place than others, where all must meet."""


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.getcontext.argtypes = [ctypes.c_void_p]
    library.makecontext.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    library.swapcontext.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


def _start(types: Sequence[str]) -> str:
    """The function that a fiber begins with; a launch passes the addresses of its arguments."""
    lines = ["define void @host.start() noinline {", "  %all = load volatile ptr, ptr @host.arguments"]
    for k, type_ in enumerate(types):
        lines.append(f"  %at{k} = getelementptr ptr, ptr %all, i64 {k}")
        lines.append(f"  %where{k} = load ptr, ptr %at{k}")
        lines.append(f"  %given{k} = load {type_}, ptr %where{k}")
    given = ", ".join(f"{type_} %given{k}" for k, type_ in enumerate(types))
    lines += [f"  call void @kernel({given})", "  call void @host.wait(i32 1)"]
    return "\n".join([*lines, "  unreachable", "}"])


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
        lines = [s for s in text.split("\n") if not (s.startswith("declare") and "@llvm.nvvm." in s)]
        text = "\n".join(lines).replace("@llvm.nvvm.", "@host.").replace("ptx_kernel ", "")
        text = re.sub(r"(@__wg_\w+ =) internal", r"\1", text)
        self.shared = re.findall(r"@(__wg_\w+) = addrspace\(3\) global \[(\d+) x (\w+)\]", text)
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        address = ctypes.cast(_libc().swapcontext, ctypes.c_void_p).value
        binding.add_symbol("swapcontext", address)
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
        self.start = self.engine.get_function_address("host.start")

    def _global(self, name: str, type_: Any = ctypes.c_int32) -> Any:
        return type_.from_address(self.engine.get_global_value_address(name))

    def run(self, table: int, blocks: int, threads: int, backwards: bool = False) -> None:
        """Run the blocks one after another; `backwards`: of threads that may run, the last one first."""
        self._global("host.arguments", ctypes.c_void_p).value = table
        self._global("host.threads").value, self._global("host.blocks").value = threads, blocks
        memory = mmap.mmap(-1, (threads + 1) * (CONTEXT + STACK))
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for block in range(blocks):
            self._global("host.block").value = block
            for name, count, type_ in self.shared:  # what lies there before is no sensible number
                size = int(count) * {"i8": 1, "i16": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}[type_]
                ctypes.memset(self.engine.get_global_value_address(name), 0xA5, size)
            self._block(base, threads, backwards)

    def _block(self, base: int, threads: int, backwards: bool) -> None:
        libc = _libc()
        fibers = [base + CONTEXT * (t + 1) for t in range(threads)]
        for t, fiber in enumerate(fibers):
            libc.getcontext(fiber)
            fields = (ctypes.c_uint64 * 5).from_address(fiber)  # flags, link; the stack: where, flags, size
            fields[1], fields[2], fields[4] = 0, base + CONTEXT * (threads + 1) + STACK * t, STACK
            libc.makecontext(fiber, self.start, 0)
        self._global("host.main", ctypes.c_void_p).value = base
        thread, state = self._global("host.thread"), self._global("host.state")
        own = self._global("host.self", ctypes.c_void_p)
        order = list(enumerate(fibers))[:: -1 if backwards else 1]
        states: set[int] = set()
        while states != {1}:
            states = set()
            for t, fiber in order:
                thread.value, own.value = t, fiber
                libc.swapcontext(base, fiber)
                states.add(state.value)
            if len(states) > 1:
                raise Divergence("threads of one block came to " + " and ".join(STATES[s] for s in states))


class HostDevice(HostArrays, Device):
    """Runs what LLVM is given for a GPU; arrays are NumPy's.

    Parameters
    ----------
    blocks, threads : int, optional
        Of a grid at most: kernels serve any, and few take less time.
    backwards : bool, optional
        See `HostGrid.run`.
    """

    properties = Properties("host", (9, 0), multiprocessors=1)

    def __init__(self, blocks: int = 3, threads: int = 64, backwards: bool = False) -> None:
        self.blocks, self.threads, self.backwards = blocks, threads, backwards
        self.texts: list[str] = []  # what was compiled
        self._alone = threading.Lock()  # the grid of a kernel is one

    def key(self) -> str:
        return "host"

    def toolchain(self) -> str:
        return "host"

    def compile(self, source: str) -> bytes:
        self.texts.append(ptx.llvm(source, self.properties.architecture))
        return self.texts[-1].encode()

    def load(self, image: bytes, names: Sequence[str]) -> tuple[Any, ...]:
        assert names == ("kernel",)
        return (HostGrid(image.decode()),)

    def launcher(
        self, function: Any, grid: tuple[int, int], threads: int, shared: int = 0
    ) -> Callable[[int, int], None]:
        assert grid[1] == 1 and threads % 32 == 0 and shared == 0
        blocks, threads = min(grid[0], self.blocks), min(threads, self.threads)

        def launch(_stream: int, table: int) -> None:
            with self._alone:
                function.run(table, blocks, threads, self.backwards)

        return launch

    def scratch(self, nbytes: int) -> tuple[int, object]:
        raise AssertionError("these kernels want none")


class OnHost(OnDevice, GridBackend):
    """The kernels of the level ``gpu``, as LLVM is given them for a GPU, run by this CPU."""

    name = "ptx_on_host"

    def __init__(self, device: HostDevice | None = None) -> None:
        super().__init__(device or HostDevice())


BACKEND = OnHost()
