"""The native code that calls kernels (`native.ll`) and is called by them (`copies.ll`), and what it reads."""

from __future__ import annotations

import ctypes
import platform
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from mgb.runtime import forking

from .objects import Loaded, ObjectError

#: Nanoseconds that an idle thread stays awake: longer than the Python code between two kernels, as a rule,
#: and too short to be much in the way of the threads of a BLAS that run next. Up to `LINGER` it stays awake
#: but leaves the core to whoever wants it: to wake takes as long as a kernel over a megabyte.
SPIN, LINGER = 50_000, 300_000

#: Bytes of scratch memory that a thread keeps for its next call.
KEEP = 1 << 20

#: The most threads, the caller among them: `native.ll` has a table of that size.
MOST = 1024

#: For each machine the number of the system call ``futex``, and LLVM's function that rests in a loop.
MACHINES = {
    "x86_64": (202, "@llvm.x86.sse2.pause()"),
    "aarch64": (98, "@llvm.aarch64.hint(i32 1)"),
}

#: How many lines of a transposed input are asked for before they are read.
AHEAD = 24

#: Of the bytes of an image: the length of the object file of `native.ll`; that of `copies.ll` follows.
_LENGTH = struct.Struct("<I")

WORD = ctypes.c_int64
POINTER = ctypes.c_void_p


class Site(ctypes.Structure):
    """``%site`` of `native.ll`: what a launcher's ``run`` knows."""

    _fields_ = [
        ("slow", POINTER), ("threads", POINTER), ("array_type", POINTER), ("inputs", WORD), ("outputs", WORD),
        ("constants", POINTER), ("constant_count", WORD), ("recent", POINTER),
    ]  # fmt: skip


class Program(ctypes.Structure):
    """``%program`` of `native.ll`: a launch for one set of shapes, strides and threads."""

    _fields_ = [
        ("owner", POINTER), ("threads", WORD), ("signature", POINTER), ("hazards", POINTER),
        ("hazard_count", WORD), ("operands", POINTER), ("operand_count", WORD), ("parts", POINTER),
        ("phases", POINTER), ("phase_count", WORD), ("claims", POINTER), ("own", WORD), ("common", WORD),
    ]  # fmt: skip


class Action(ctypes.Structure):
    """``%action`` of `native.ll`: what a loop does in each turn."""

    _fields_ = [
        ("program", POINTER), ("function", POINTER), ("plan", POINTER), ("count", WORD),
        ("addresses", POINTER), ("steps", POINTER),
    ]  # fmt: skip


class _Method(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("function", POINTER), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    ]  # fmt: skip


#: ``METH_FASTCALL | METH_KEYWORDS``: the arguments come as a C array.
_FASTCALL_KEYWORDS = 0x80 | 0x02


class Native:
    """The functions of `native.ll` and `copies.ll`.

    Parameters
    ----------
    image : bytes
        Their object files, as `compiled` gives them.

    Attributes
    ----------
    copies : dict
        The addresses of the functions of `copies.ll`.
    changing : RLock
        Held by who changes what all threads share: the workers, the programs of a launcher. A signal or a
        finalizer may call a kernel meanwhile, in the same thread.

    Raises
    ------
    ObjectError
        It cannot be loaded here.
    """

    def __init__(self, image: bytes) -> None:
        self.image = image
        library, copies = map(Loaded, parts(image))
        self.copies = {name: copies[name] for name in copies if name.startswith("mgb_")}
        copies.stay()
        self.work, self.run_free = library["work"], library["run_free"]
        self.launch = ctypes.PYFUNCTYPE(ctypes.c_int, POINTER, POINTER)(library["launch"])
        self.repeat = ctypes.CFUNCTYPE(WORD, POINTER, WORD, WORD, WORD, WORD, WORD, POINTER)(
            library["repeat"]
        )
        self.copy_rows = library["copy_rows"]
        forget = ctypes.PYFUNCTYPE(None)(library["forget"])
        forget()
        doc = b"run(*inputs, out)\n--\n\nFill the arrays in the tuple `out`."
        self.method = _Method(b"run", library["run"], _FASTCALL_KEYWORDS, doc)
        self.workers = WORD.from_address(library["workers"])
        self.changing = forking.lock()
        library.stay()  # workers sleep in it when Python ends
        forking.at_fork(in_child=forget)

    def function(self, site: np.ndarray[Any, Any]) -> Callable[..., None]:
        """The function ``run(*inputs, out)`` of the `Site` that is the data of the array `site`."""
        make = ctypes.pythonapi.PyCFunction_NewEx
        make.restype, make.argtypes = ctypes.py_object, [POINTER, ctypes.py_object, POINTER]
        run: Callable[..., None] = make(ctypes.addressof(self.method), site, None)
        return run

    def grow(self, workers: int) -> None:
        """Have at least so many threads, beside the callers, that take parts.

        They are threads of the system that Python never hears of: they touch no object, and end with the
        process.
        """
        if workers <= self.workers.value:
            return
        with self.changing:
            create = ctypes.CDLL(None).pthread_create
            detach = ctypes.CDLL(None).pthread_detach
            most = min(workers, MOST - 1)
            while self.workers.value < most:
                # At once and first of all, so that no call that comes between takes the same number.
                self.workers.value = index = self.workers.value + 1
                thread = ctypes.c_ulong()
                if create(ctypes.byref(thread), None, POINTER(self.work), POINTER(index)):
                    if self.workers.value == index:
                        self.workers.value = index - 1
                    break  # the system has no more; callers do what is left
                detach(thread)


_native: Native | None = None
_making = forking.lock()


def native(image: bytes = b"") -> Native:
    """Return the native code of this process.

    Parameters
    ----------
    image : bytes
        What the first call is to make it of, unless it is compiled: its object file, as ``native().image``
        was in another process.
    """
    global _native
    if _native is None:
        with _making:
            if _native is None:
                made = _load(image)
                if _native is None:  # a signal may have called a kernel meanwhile
                    _native = made
    return _native


def _load(image: bytes) -> Native:
    if image:
        with suppress(ObjectError):
            return Native(image)
    return Native(compiled())


def parts(image: bytes) -> tuple[bytes, bytes]:
    """Return the two object files of an image."""
    try:
        (length,) = _LENGTH.unpack_from(image)
    except struct.error as error:
        raise ObjectError(f"the native code is damaged: {error}") from error
    return image[_LENGTH.size :][:length], image[_LENGTH.size + length :]


def compiled() -> bytes:
    """Return the image of the native code for this machine and this Python."""
    calls = emit(_text())
    return _LENGTH.pack(len(calls)) + calls + emit(_copies(), 2)


def _copies() -> str:
    """`copies.ll`, each function with <bits> in its name for each size of an element."""
    text = (Path(__file__).parent / "copies.ll").read_text().replace("<ahead>", str(AHEAD))
    sized = r"^define void @\w+_<bits>\(.*?^}\n"
    functions = re.findall(sized, text, re.MULTILINE | re.DOTALL)
    whole = re.sub(sized, "", text, flags=re.MULTILINE | re.DOTALL)
    return whole + "\n".join(f.replace("<bits>", str(bits)) for f in functions for bits in (8, 16, 32, 64))


def _text() -> str:
    """`native.ll` for this machine and this Python."""
    futex, pause = MACHINES[platform.machine()]
    header = object.__basicsize__  # what each object begins with
    values = {
        "futex": futex, "pause": pause, "spin": SPIN, "linger": LINGER, "keep": KEEP,
        "type": header - 8, "size": header, "items": tuple.__basicsize__,
        "data": header, "ndim": header + 8, "shape": header + 16, "strides": header + 24,
    }  # fmt: skip
    text = (Path(__file__).parent / "native.ll").read_text()
    for name, value in values.items():
        text = text.replace(f"<{name}>", str(value))
    return text


def emit(text: str, level: int = 0, inline: bool = False) -> bytes:
    """Return the object file of a module in LLVM's language, for this processor, such that `Loaded` takes it.

    What is called once in a while is compiled at `level` 0, which takes a third of the time. With `inline`,
    functions that are ``alwaysinline`` stand where they are called.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target, features = llvm.Target.from_default_triple(), llvm.get_host_cpu_features().flatten()
    machine = target.create_target_machine(
        llvm.get_host_cpu_name(), features, level, reloc="static", codemodel="large", jit=True
    )
    module = llvm.parse_assembly(text)
    if inline:
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    image: bytes = machine.emit_object(module)
    return image
