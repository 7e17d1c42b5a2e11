"""What a launcher must know of the device that it launches on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: A kernel that is loaded on a device: what `Device.launch` takes.
Function = Any


class LaunchError(RuntimeError):
    """The device or its driver refused, or a kernel failed."""


@dataclass(frozen=True, slots=True)
class Properties:
    """What a schedule depends on.

    Attributes
    ----------
    name : str
    capability : tuple of int
        Compute capability, ``(9, 0)``.
    multiprocessors : int
    shared_bytes : int
        Shared memory that a block may have without asking.
    parameter_bytes : int
        What the parameters of a kernel may take.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_bytes: int = 48 << 10
    parameter_bytes: int = 32_764

    @property
    def architecture(self) -> str:
        """``"sm_90"``."""
        return "sm_{}{}".format(*self.capability)


class Device(ABC):
    """A place where kernels run; arrays of one kind live there.

    Attributes
    ----------
    properties : Properties
    """

    properties: Properties

    @abstractmethod
    def key(self) -> str:
        """Equal for devices that take the same images."""

    @abstractmethod
    def toolchain(self) -> str:
        """The version of what compiles."""

    @abstractmethod
    def compile(self, source: str) -> bytes:
        """An image of a translation unit: machine code that `load` takes."""

    @abstractmethod
    def load(self, image: bytes, names: Sequence[str]) -> tuple[Function, ...]:
        """The kernels called `names` of an image."""

    @abstractmethod
    def launcher(self, function: Function, grid: tuple[int, int], threads: int) -> Callable[[int, int], None]:
        """``launch(stream, address of a packet's table)``: one launch with all else fixed."""

    @abstractmethod
    def address(self, array: Any) -> int:
        """Where the elements of `array` begin."""

    @abstractmethod
    def stream(self) -> int:
        """The stream that the caller works on."""

    @abstractmethod
    def scratch(self, nbytes: int) -> tuple[int, object]:
        """The address of fresh memory for work on the current stream, and what keeps it."""

    @abstractmethod
    def upload(self, array: Any) -> Any:
        """A row-major copy of a NumPy array on the device."""

    @abstractmethod
    def contiguous(self, array: Any) -> Any:
        """A row-major copy of an array of the device."""
