"""One class for each kind of mistake that a user or a backend author can make."""

from __future__ import annotations

import warnings
from pickle import PicklingError
from typing import TYPE_CHECKING

from numpy.linalg import LinAlgError as _LinAlgError


class MgbError(Exception):
    """The root of every error that mgb raises on purpose."""


class ArgumentError(MgbError, ValueError, TypeError):
    """An argument or option that a function cannot take: its type or its value."""


class UnsupportedError(MgbError, NotImplementedError):
    """Something that a file format, a backend or a kind of trace cannot do; the message names it."""


class ShapeError(MgbError, ValueError, RuntimeError):
    """Shapes that an op cannot combine."""


class AxisError(ShapeError, IndexError):
    """An axis that an array does not have, or that stands twice."""


class IndexOutOfRangeError(MgbError, IndexError, ValueError):
    """An index outside of the axis that it is for."""


class LinAlgError(MgbError, _LinAlgError):
    """A matrix that has no inverse, no such factors, or for which a library found none."""


class ConversionError(MgbError, TypeError):
    """Dtypes that an op cannot combine or convert."""


class DeviceError(MgbError, ValueError):
    """The root of what can be wrong with a device; by itself, a name that is none."""


class DeviceMismatchError(DeviceError):
    """Tensors on different devices in one op; the message names both."""


class DeviceUnavailableError(DeviceError):
    """A device that cannot be used here: no CuPy, no driver, no GPU of that number."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has no memory for an array; everything that was there before is as it was."""


class GraphError(MgbError):
    """A graph that breaks the rules of the IR."""


class BackendError(MgbError):
    """The root of what can go wrong with a codegen backend."""


class UnknownBackendError(BackendError, LookupError):
    """No known backend has this name."""


class BackendNotInstalledError(BackendError, ImportError):
    """The backend is known, its package is not installed."""


class BackendImportError(BackendError, ImportError):
    """The backend's package is installed and fails to import."""


class BackendUnavailableError(BackendError, RuntimeError):
    """An installed backend cannot be used: not on this machine, another API version, two of one name."""


class BackendContractError(BackendError, TypeError, ValueError):
    """A backend breaks the interface; the message names the trait or the method."""


class CompileError(BackendError, RuntimeError):
    """A backend failed to compile a graph that its traits accept."""


class ForkedProcessError(MgbError, RuntimeError):
    """A process was forked from one whose threads it would wait for; the message has what helps."""


class LibraryError(MgbError, RuntimeError):
    """A library that implements an op failed at it."""


class TapeError(MgbError, RuntimeError, AssertionError):
    """A gradient tape was asked for something that its state does not allow."""


class NoGradientError(MgbError, NotImplementedError):
    """A gradient passes through an op that declares none."""


class TransformError(MgbError, ValueError):
    """`grad`, `vmap` or another transform cannot be of this function with these arguments."""


class LoopError(MgbError, ValueError):
    """A body of `scan`, `while_loop`, `cond` or `fori_loop` that a graph cannot hold."""


class StateDictError(ShapeError, KeyError):
    """A state dict does not fit a module or an optimizer: other keys, or other shapes."""

    def __str__(self) -> str:
        return str(self.args[0])


class SampleError(MgbError, RuntimeError):
    """A sample of a data set failed, or samples that do not make a batch; its cause is the error itself."""


class FileFormatError(MgbError, ValueError):
    """A file that is damaged, breaks the rules of its format, or has no known format."""


class FileVersionError(FileFormatError):
    """A file in a version of its format that is not read here."""


class CompiledFileError(FileFormatError):
    """An exported function, which may hold machine code, was given to what reads data alone."""


class ExportError(MgbError, ValueError, TypeError):
    """A function that cannot be written to a file as it is, or as it is asked for."""


class LoadedFunctionError(MgbError, ValueError, RuntimeError):
    """A loaded function or model fails at a node, on the values that reached it."""


#: What each limit of `mgb.jit.LoadLimits` counts.
_COUNTED = {
    "nodes": "nodes and ops",
    "turns": "turns of a loop",
    "depth": "graphs and functions inside each other",
    "elements": "elements of one value",
    "bytes": "bytes of values",
    "operations": "operations on numbers",
}


class LoadLimitError(MgbError, RuntimeError):
    """A file asks for more work than it was allowed.

    Parameters
    ----------
    place : str
        The node, or where else in the file.
    limit : str
        The field of `mgb.jit.LoadLimits`.
    wanted, allowed : int
        What was asked for up to here, and the limit.
    reader : str
        The function of `mgb.jit` that takes the limits.
    """

    def __init__(self, place: str, limit: str, wanted: int, allowed: int, reader: str = "load") -> None:
        self.place, self.limit, self.wanted, self.allowed = place, limit, wanted, allowed
        shown, more = (n if n < 1 << 64 else f"2**{n.bit_length()}" for n in (wanted, 2 * wanted))
        super().__init__(
            f"{place}: it asks for {shown} {_COUNTED[limit]}, and {allowed} are allowed; if that is meant: "
            f"{reader}(file, limits=LoadLimits({limit}={more})), or mgb run --limit {limit}={more}"
        )


class FormatImportError(MgbError, ImportError):
    """The package for files of a format is not installed, cannot be imported, or is installed twice."""


class TraceError(MgbError, RuntimeError):
    """The root of what can go wrong while tracing."""


class MeshError(TraceError):
    """A function cannot run on all devices of a mesh at once."""


class TraceMismatchError(TraceError):
    """A call whose body runs did something else than the recorded one, and nothing that it read has changed.

    Parameters
    ----------
    reason : str
        One of the fixed texts: ``"operator mismatch"``, ``"tensors not equals"``, ...
    detail : str
        The step, what was recorded and what came, with source lines and the usual remedy.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        super().__init__(f"trace error because {reason}" + (f"\n{detail}" if detail else ""))


class SymbolicReadError(TraceError, ValueError):
    """The value of a tensor was wanted where a trace only records, or runs nothing that would compute it."""


class ImpureBodyError(TraceError):
    """A body that is to be skipped would have to run at every call: it writes outside, or reads values."""


class UnknownInputError(TraceError):
    """A compiled function reads a Tensor that is not an argument, is gone, or belongs to another trace."""


class TraceOutputError(TraceError, TypeError):
    """The traced function returned something that a compiled call cannot return."""


class TraceInputError(TraceError, TypeError):
    """An argument, or the text of one such as ``"f32[64,784]"``, that this kind of trace cannot take."""


class MemoryBudgetError(MgbError, MemoryError):
    """A program does not fit into the memory that it was allowed, however often its steps run again.

    Parameters
    ----------
    threshold : int
        The bytes that were allowed.
    smallest : int
        The fewest that can be.
    """

    def __init__(self, threshold: int, smallest: int) -> None:
        self.threshold, self.smallest = threshold, smallest
        super().__init__(
            f"eviction_threshold={threshold}: the program cannot run in so few bytes beside its inputs; the "
            f"smallest that can be met is {smallest}: use DTRConfig(eviction_threshold={smallest}), smaller "
            f"batches, or a smaller evictee_minimum_size"
        )


class TracePicklingError(TraceError, PicklingError):
    """A traced function that is not found again by its name was to be pickled."""


class VariableError(MgbError, ValueError):
    """An environment variable holds a value that it cannot have."""


class CacheWarning(UserWarning):
    """The on-disk cache cannot be used; work goes on without it."""


class NoBackendWarning(UserWarning):
    """No backend that compiles is installed: traced functions run op by op."""


class DumpWarning(UserWarning):
    """Something in a file that `dump` adds to has no place in the joined one."""


class UnrolledLoopWarning(UserWarning):
    """A Python loop of many steps was recorded step by step: see `mgb.jit.scan`."""


class AutoWarning(UserWarning):
    """Ops that `mgb.jit.auto` wanted to compile go on op by op; results are the same."""


class AutoInterruptedError(MgbError, RuntimeError):
    """The value of a Tensor was wanted whose computation was deferred, and had to be broken off."""


#: Former names, which go with the next release.
_FORMER = {
    "ArgumentError": (
        "AutoInputError CommandError DumpNameError DumpNameTypeError DumpOptionError "
        "ExportedInputError InvalidLimitsError MapLocationError MemoryConfigError "
        "ModelInputError ParameterError"
    ),
    "BackendContractError": "BackendAnswerError BackendTraitsError",
    "BackendUnavailableError": "BackendConflictError BackendVersionError ExportedTargetError",
    "ExportError": "DumpError DumpOutputError DumpStateError DumpTrainingError",
    "FileFormatError": "FileCaseError GraphFileError ModelFileError UnknownFormatError",
    "FileVersionError": "GraphFileVersionError ModelVersionError",
    "FormatImportError": "FormatMissingError",
    "IndexOutOfRangeError": "PlaceError",
    "LoadedFunctionError": "ExportedRunError ModelNodeError",
    "ShapeError": "EquationError",
    "StateDictError": "StateKeyError StateMismatchError",
    "SymbolicReadError": "PartialReadError RecordOnlyError",
    "TapeError": "AttachError",
    "TraceError": "HeldConstantError NothingProfiledError ProfilingOffError",
    "TraceInputError": "ArgumentSpecError",
    "UnknownInputError": "ForeignTensorError",
    "UnsupportedError": (
        "CallerTapeError DumpUnsupportedError LaunchGraphError ModelUnsupportedError PartialTapeError"
    ),
    "VariableError": "DebugLevelError",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> type[Exception]:
        for now, former in _FORMER.items():
            if name in former.split():
                text = f"mgb.errors.{name} is {now} now; the former name goes with the next release"
                warnings.warn(text, DeprecationWarning, stacklevel=2)
                found: type[Exception] = globals()[now]
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [
        name for name, value in globals().items() if isinstance(value, type) and value.__module__ == __name__
    ]
