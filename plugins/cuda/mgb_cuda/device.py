"""The device that a launcher launches on, and its properties."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

#: A kernel that is loaded on a device: what `Device.launch` takes.
Function = Any


#: A kernel, the blocks of its grid and the threads of a block: all of a launch but stream and parameters.
Start = tuple[Function, tuple[int, int], int]


class LaunchError(RuntimeError):
    """The device or its driver refused, or a kernel failed."""


class ResourceError(LaunchError):
    """A kernel needs more shared memory, or more registers, than the device has for a block of it."""


@dataclass(frozen=True, slots=True)
class Properties:
    """Properties of a device that a schedule depends on.

    Attributes
    ----------
    name : str
    capability : tuple of int
        Compute capability, ``(9, 0)``.
    multiprocessors : int
    shared_bytes : int
        Shared memory that a block may have by default.
    most_shared_bytes : int
        Shared memory that it may have when the kernel requests it.
    parameter_bytes : int
        Limit of the parameters of a kernel.
    clock, bandwidth : float
        Cycles a second, and bytes a second that its memory could move; 0: not known.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int = 48 << 10
    most_shared_bytes: int = 48 << 10
    parameter_bytes: int = 32_764
    clock: float = 0
    bandwidth: float = 0

    @property
    def architecture(self) -> str:
        """``"sm_90"``."""
        return "sm_{}{}".format(*self.capability)


class LaunchGraph(Protocol):
    """Launches that a device starts as one; it is used by one thread at a time."""

    def update(self, numbers: Iterable[int]) -> None:
        """Read the parameters of these launches again, for all later runs."""

    def run(self, stream: int) -> bool:
        """Start all of them; False: nothing was started, because the stream takes no graph now."""


class Device(ABC):
    """A place where kernels run; arrays of one kind live there.

    Attributes
    ----------
    properties : Properties
    """

    properties: Properties

    @abstractmethod
    def key(self) -> str:
        """Return a key that is equal for devices that take the same images."""

    @abstractmethod
    def toolchain(self) -> str:
        """Return the version of what compiles."""

    @abstractmethod
    def compile(self, source: str) -> bytes:
        """Return an image of a translation unit: machine code that `load` takes."""

    @abstractmethod
    def load(self, image: bytes, names: Sequence[str]) -> tuple[Function, ...]:
        """Return the kernels called `names` of an image."""

    @abstractmethod
    def launcher(self, function: Function, grid: tuple[int, int], threads: int) -> Callable[[int, int], None]:
        """Make ``launch(stream, address of a packet's table)``: one launch with all else fixed."""

    def sequence(self, starts: Sequence[Start], tables: Sequence[int]) -> Callable[[int], None]:
        """Make ``run(stream)``, which launches one after the other, with parameters at these addresses."""
        ready = [(self.launcher(*start), table) for start, table in zip(starts, tables, strict=True)]

        def run(stream: int) -> None:
            for launch, table in ready:
                launch(stream, table)

        return run

    def check(self, function: Function, threads: int) -> None:  # noqa: B027 - most devices take all
        """See that blocks of so many threads can be launched.

        Raises
        ------
        ResourceError
        """

    def graph(self, starts: Sequence[Start], tables: Sequence[int]) -> LaunchGraph | None:
        """Return the same as one graph; None: it has none.

        Raises
        ------
        LaunchError, RuntimeError
            The driver refuses.
        """
        return None

    @abstractmethod
    def address(self, array: Any) -> int:
        """Return where the elements of `array` begin."""

    @abstractmethod
    def stream(self) -> int:
        """Return the stream that the caller works on."""

    def is_capturing(self) -> bool:
        """Return whether the caller's stream captures a graph, so that nothing can be timed."""
        return False

    @abstractmethod
    def scratch(self, nbytes: int) -> tuple[int, object]:
        """Return the address of fresh memory for work on the current stream, and what keeps it."""

    @abstractmethod
    def upload(self, array: Any) -> Any:
        """Return a row-major copy of a NumPy array on the device, for work on the current stream."""

    def constant(self, array: Any) -> Any:
        """Return the same, for work on any stream: it is there when this returns."""
        return self.upload(array)

    @abstractmethod
    def contiguous(self, array: Any) -> Any:
        """Return a row-major copy of an array of the device."""
