"""One class for each mistake a user or a backend author can make."""

from __future__ import annotations

from pickle import PicklingError

from numpy.linalg import LinAlgError as _LinAlgError


class MgbError(Exception):
    """The root of every error that mgb raises on purpose."""


class ShapeError(MgbError, ValueError, RuntimeError):
    """Shapes that an op cannot combine."""


class AxisError(ShapeError, IndexError):
    """An axis that an array does not have, or that stands twice."""


class PlaceError(MgbError, IndexError, ValueError):
    """An index outside of the axis that it is for."""


class LinAlgError(MgbError, _LinAlgError):
    """A matrix that has no inverse, no such factors, or for which a library found none."""


class EquationError(MgbError, ValueError):
    """An equation of `einsum` that does not belong to its operands."""


class ConversionError(MgbError, TypeError):
    """Dtypes that an op cannot combine or convert."""


class DeviceError(MgbError, ValueError):
    """The root of what can be wrong with a device; by itself, a name that is none."""


class MapLocationError(DeviceError, TypeError):
    """A ``map_location`` of `load` that is not a device, dict or function, or returns another value."""


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


class BackendConflictError(BackendError, RuntimeError):
    """Two installed packages provide a backend of one name."""


class BackendUnavailableError(BackendError, RuntimeError):
    """The backend is installed and cannot run on this machine."""


class BackendVersionError(BackendError, RuntimeError):
    """The backend was written for another version of the backend API."""


class BackendTraitsError(BackendError, ValueError):
    """A backend describes itself in words that mean nothing; the message has the field and the word."""


class BackendAnswerError(BackendError, TypeError):
    """A method of a backend failed, or gave something else than it has to; the message names both."""


class CompileError(BackendError, RuntimeError):
    """A backend failed to compile a graph that its traits accept."""


class LaunchGraphError(BackendError, NotImplementedError):
    """A graph of launches was asked for, and nothing that runs the function makes one."""


class ForkedProcessError(MgbError, RuntimeError):
    """A process was forked from one whose threads it would wait for; the message has what helps."""


class LibraryError(MgbError, RuntimeError):
    """A library that implements an op failed at it."""


class AttachError(MgbError, AssertionError):
    """Something that has no gradient was given to ``GradManager.attach``."""


class TapeError(MgbError, RuntimeError):
    """A gradient tape was asked for something that its state does not allow."""


class NoGradientError(MgbError, NotImplementedError):
    """A gradient passes through an op that declares none."""


class TransformError(MgbError, ValueError):
    """`grad`, `vmap` or another transform cannot be of this function with these arguments."""


class LoopError(MgbError, ValueError):
    """A body of `scan`, `while_loop`, `cond` or `fori_loop` that a graph cannot hold."""


class StateKeyError(MgbError, KeyError):
    """A state dict and a module or an optimizer do not have the same entries."""

    def __str__(self) -> str:
        return str(self.args[0])


class StateMismatchError(StateKeyError, ShapeError):
    """A state dict of PyTorch does not fit a module; the message has every key and shape."""


class ParameterError(MgbError, ValueError):
    """Parameters that an optimizer cannot take."""


class SampleError(MgbError, RuntimeError):
    """A sample of a data set failed, or samples that do not make a batch; its cause is the error itself."""


class FileFormatError(MgbError, ValueError):
    """A file that mgb did not write, or that is damaged."""


class GraphFileError(FileFormatError):
    """An exported function that is truncated or damaged; the message names the place."""


class GraphFileVersionError(GraphFileError):
    """An exported function in a format that this version does not read."""


class CompiledFileError(FileFormatError):
    """An exported function, which may hold machine code, was given to what reads data alone."""


class ExportError(MgbError, ValueError):
    """A function that cannot be exported as it is asked for."""


class ExportedInputError(MgbError, TypeError):
    """Arguments that are not those of an exported function."""


class ExportedRunError(MgbError, RuntimeError):
    """An exported function fails in an op that its own file says is right."""


class ExportedTargetError(BackendError, RuntimeError):
    """The code in an exported function cannot run here, and no backend that is here can compile it again."""


class ModelFileError(FileFormatError):
    """A model that is truncated, damaged, or breaks its format's own rules; the message names the place."""


class ModelVersionError(ModelFileError):
    """A model in a version of its format, or of what `dump` adds to it, that is not read here."""


class ModelUnsupportedError(MgbError, NotImplementedError):
    """A model needs an operator or a type that mgb lacks; the message names the node."""


class ModelNodeError(MgbError, ValueError):
    """A node of a loaded model cannot be computed on the values that reached it."""


class ModelInputError(MgbError, TypeError):
    """Arguments that are not the inputs of a loaded model."""


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


class InvalidLimitsError(MgbError, ValueError):
    """Limits for loaded files that are no `mgb.jit.LoadLimits`, or in it no whole numbers above 0."""


class UnknownFormatError(FileFormatError):
    """A file of which neither the ending nor the bytes say that its format is one that is installed."""


class FormatMissingError(MgbError, ImportError):
    """The package for files of this format is not installed; the message has the command."""


class FormatImportError(MgbError, ImportError):
    """The package that reads and writes files of a format cannot be imported, or is installed twice."""


class DumpError(MgbError):
    """The root of what can be wrong with a call of `dump`."""


class DumpUnsupportedError(DumpError, NotImplementedError):
    """The format of the file cannot say what a traced function does."""


class DumpStateError(DumpError, ValueError):
    """A trace cannot be written: nothing was traced or returned, or it was not captured whole."""


class DumpOutputError(DumpError, TypeError):
    """A traced function returned something that a file cannot name: no Tensors in a flat list or dict."""


class DumpNameError(DumpError, ValueError):
    """Names for inputs or outputs in the wrong number, twice, or empty."""


class DumpNameTypeError(DumpError, TypeError):
    """Names for outputs that have names already."""


class DumpOptionError(DumpError, ValueError):
    """An option of `dump` that means nothing for the format of the file or on mgb's backends."""


class DumpTrainingError(DumpError, RuntimeError):
    """A function that trains was to be written: it changes tensors outside, which a file cannot."""


class FileCaseError(MgbError, ValueError):
    """Data to run a file with that cannot be read, or does not fit its inputs."""


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
    """The value of a tensor was wanted while ``trace(symbolic=True)`` was only recording."""


class ImpureBodyError(TraceError):
    """A body that is to be skipped would have to run at every call: it writes outside, or reads values."""


class UnknownInputError(TraceError):
    """A Tensor that a compiled function reads is neither an argument nor in one, or is gone since."""


class TraceOutputError(TraceError, TypeError):
    """The traced function returned something that a compiled call cannot return."""


class TraceInputError(TraceError, TypeError):
    """An argument that this kind of trace cannot take."""


class ArgumentSpecError(TraceInputError):
    """A text that does not say what an argument is, such as ``"f32[64,784]"``."""


class MemoryConfigError(TraceError, ValueError):
    """A trace was given both ways to save memory at once, or numbers for one that it cannot take."""


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


class RecordOnlyError(TraceError, ValueError):
    """The value of a tensor was wanted that only a call which ran nothing would have computed."""


class TracePicklingError(TraceError, PicklingError):
    """A traced function that is not found again by its name was to be pickled."""


class PartialTapeError(TraceError, NotImplementedError):
    """A `GradManager` does with a partially traced function what its two programs cannot follow."""


class PartialReadError(TraceError, ValueError):
    """The body of a partially traced function looks at values."""


class CallerTapeError(TraceError, NotImplementedError):
    """A `GradManager` of the caller wants the gradient of a call that is compiled whole."""


class HeldConstantError(TraceError):
    """The body gives a Tensor a new value that ``capture_as_const=True`` holds constant."""


class ForeignTensorError(TraceError):
    """A tensor that belongs to another, unfinished trace."""


class ProfilingOffError(TraceError):
    """The profile of a function was wanted that is not traced with ``profiling=True``."""


class NothingProfiledError(TraceError):
    """A profile was wanted before a compiled program of the function has run."""


class VariableError(MgbError, ValueError):
    """An environment variable holds something that it cannot take."""


class DebugLevelError(VariableError):
    """``MGB_DEBUG`` holds something else than a level from 0 to 4."""


class CommandError(MgbError, ValueError):
    """The command line names something that is not there, or leaves out what is needed."""


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


class AutoInputError(MgbError, ValueError):
    """An option that `mgb.jit.auto` cannot take."""


def __dir__() -> list[str]:
    return [
        name for name, value in globals().items() if isinstance(value, type) and value.__module__ == __name__
    ]
