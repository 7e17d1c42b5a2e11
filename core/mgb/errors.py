"""One class for each mistake a user or a backend author can make."""

from __future__ import annotations


class MgbError(Exception):
    """The root of every error that mgb raises on purpose."""


class ShapeError(MgbError, ValueError):
    """Shapes that an op cannot combine."""


class ConversionError(MgbError, TypeError):
    """Dtypes that an op cannot combine or convert."""


class DeviceError(MgbError, ValueError):
    """Tensors on different devices in one op, or a device that is not there."""


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


class CompileError(BackendError, RuntimeError):
    """A backend failed to compile a graph that its traits accept."""


class LibraryError(MgbError, RuntimeError):
    """A library that implements an op failed at it."""


class AttachError(MgbError, AssertionError):
    """Something that has no gradient was given to ``GradManager.attach``."""


class TapeError(MgbError, RuntimeError):
    """A gradient tape was asked for something that its state does not allow."""


class NoGradientError(MgbError, NotImplementedError):
    """A gradient passes through an op that declares none."""


class StateKeyError(MgbError, KeyError):
    """A state dict and a module or an optimizer do not have the same entries."""

    def __str__(self) -> str:
        return str(self.args[0])


class ParameterError(MgbError, ValueError):
    """Parameters that an optimizer cannot take."""


class FileFormatError(MgbError, ValueError):
    """A file that mgb did not write, or that is damaged."""


class TraceError(MgbError, RuntimeError):
    """The root of what can go wrong while tracing."""


class TraceMismatchError(TraceError):
    """A replayed call did something else than the recorded one.

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


class UnknownInputError(TraceError):
    """A ``without_host`` trace read a tensor that is neither an argument nor one that lives outside."""


class TraceOutputError(TraceError, TypeError):
    """The traced function returned something that a compiled call cannot return."""


class TraceInputError(TraceError, TypeError):
    """An argument that this kind of trace cannot take."""


class ForeignTensorError(TraceError):
    """A tensor that belongs to another, unfinished trace."""


class CacheWarning(UserWarning):
    """The on-disk cache cannot be used; work goes on without it."""
