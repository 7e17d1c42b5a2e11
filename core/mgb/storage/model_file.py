"""Files of models: what a format is, what it is given to write, and what it makes of a file.

A model is a graph with names. The core knows what is to be written and what a loaded model is to do;
how it stands in a file is a `Format`, which a plugin brings (see `formats`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np

from ..errors import CompiledFileError, FileFormatError
from ..ir import Graph, Op
from ..tensor import Tensor
from .graph_file import MAGIC
from .limits import LoadLimits
from .testcases import Cases

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}

File = str | os.PathLike[str] | BinaryIO


@dataclass(frozen=True, slots=True)
class ValueSpec:
    """An input or output of a model.

    Attributes
    ----------
    name : str
    dtype : np.dtype or None
        None for what is not a tensor (a sequence, an optional value), or has no type in the file.
    shape : tuple or None
        An int for a length that is fixed, a name for one that may vary, None for one that nothing is said
        of; None in place of the tuple when even the number of axes is not known.
    """

    name: str
    dtype: np.dtype[Any] | None
    shape: tuple[int | str | None, ...] | None

    def __str__(self) -> str:
        if self.dtype is None:
            return self.name
        dims = "..." if self.shape is None else ",".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name}: {self.dtype.name}[{dims}]"


@dataclass(frozen=True, slots=True)
class Ends:
    """The names of inputs and outputs, and what kind of container the outputs were in."""

    inputs: list[str]
    outputs: list[str]
    structure: str


# reading


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The bytes of a file, and where they come from.

    Attributes
    ----------
    data : bytes
    path : Path, optional
        None: they were given without one.
    """

    data: bytes
    path: Path | None = None

    def __str__(self) -> str:
        return "the model" if self.path is None else str(self.path)

    @classmethod
    def of(cls, file: Any) -> ModelSource:
        """Read `file`: a path, a binary file object, or bytes.

        Raises
        ------
        CompiledFileError
            It is what ``trace.export`` wrote.
        FileFormatError
            It is not a file.
        OSError
            It cannot be opened.
        """
        path = Path(file) if isinstance(file, str | os.PathLike) else None
        if path is not None and "\0" in str(path):
            raise FileFormatError(f"{file!r} is not a path: it has a zero byte")
        data = _bytes_of(file) if path is None else path.read_bytes()
        if data.startswith(MAGIC):
            raise CompiledFileError(
                "this was written by trace.export and may hold machine code, which load never runs, whatever "
                "the file is called; if you trust whoever made it: mgb.jit.load_compiled(path), or "
                "mgb run --allow-code"
            )
        return cls(data, path)


def _bytes_of(file: Any) -> bytes:
    if isinstance(file, bytes | bytearray | memoryview):
        return bytes(file)
    if not hasattr(file, "read"):
        raise FileFormatError(f"{file!r} is not a file: give a path, or a binary file open for reading")
    data = file.read()
    if not isinstance(data, bytes):
        raise FileFormatError("the file object gives text; open it with mode 'rb'")
    return data


class Model(ABC):
    """A model from a file.

    Attributes
    ----------
    inputs, outputs : tuple of ValueSpec
    metadata : mapping of str to str
        What else the file says of itself.
    structure : str
        What the dumped function returned: ``"tensor"``, ``"tuple"``, ``"list"`` or ``"dict"``; empty where
        that is not said.
    device : str
        Where its weights are.
    trainable : mapping of str to Tensor
        The weights that each call reads again, by their names in the file: Parameters, and what is a
        statistic of training data. Empty unless the model was read with ``trainable=True``.
    """

    trainable: Mapping[str, Tensor] = MappingProxyType({})
    inputs: tuple[ValueSpec, ...]
    outputs: tuple[ValueSpec, ...]
    metadata: Mapping[str, str]
    structure: str
    device: str

    @abstractmethod
    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the values of the outputs, computed by ops, which the trace around this call records.

        Nothing in it may depend on anything but the file and `inputs`: it is not watched. An op that cannot
        be computed gives a `LoadedFunctionError`, what asks for too much work a `LoadLimitError`.
        """


# writing


class Names:
    """Gives names that are not taken yet: the second ``ADD`` is ``ADD[1]``.

    Parameters
    ----------
    taken : iterable of str
        What no other value may be called.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def new(self, wanted: str) -> str:
        """Return `wanted`, with the next number that makes it unique if it is in use."""
        name = wanted
        while name in self._taken:
            self._counts[wanted] = self._counts.get(wanted, 0) + 1
            name = f"{wanted}[{self._counts[wanted]}]"
        self._taken.add(name)
        return name


def shown(op: Op) -> str:
    """Return the default name of the result of `op`: ``ADD``, ``REDUCE_SUM``, ``CONV2D``."""
    return op.name.upper()


@dataclass(frozen=True, slots=True)
class Style:
    """The amount of detail that a file has about its source.

    Attributes
    ----------
    value_names : bool
        Values inside the graph are called after their ops; else they are numbered.
    node_names : bool
        Nodes have names, and the line of the program that they come from.
    priorities : bool
        Nodes say their place in the recorded order.
    parameters : mapping of str to str
        Names of constants, by `ir.exact_text` of them.
    """

    value_names: bool = False
    node_names: bool = False
    priorities: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """The contents of a file to write.

    Attributes
    ----------
    graph : Graph
    inputs, outputs : sequence of str
        Their names.
    structure : str
        ``"tensor"``, ``"list"``, ``"tuple"`` or ``"dict"``: what the function returned.
    style : Style
    name : str
        Of the function.
    metadata : bool
        Write what only mgb reads: structure, user information, test cases.
    user_info : object
        Anything that JSON can say.
    cases : Cases, optional
    axes : mapping of (int, int) to str
        Names of the lengths that the file leaves open, by the place of an input and the axis.
    samples : sequence of (mapping of str to int, Graph)
        With such: the same graph for other values of these lengths, all corners of a box and one more.
    """

    graph: Graph
    inputs: Sequence[str]
    outputs: Sequence[str]
    structure: str
    style: Style
    name: str
    metadata: bool = True
    user_info: Any = None
    cases: Cases | None = None
    axes: Mapping[tuple[int, int], str] = field(default_factory=dict)
    samples: Sequence[tuple[Mapping[str, int], Graph]] = ()


#: What `dump` returns.
#:
#: Attributes
#: ----------
#: nr_opr : int
#:     Inputs, constants and nodes of the graph.
#: tot_bytes : int
#:     The size of the file.
#: tensor_value_bytes : int
#:     The size of the constants in it.
#: content_hash : int
#:     64 bits that tell files apart.
#: inputs, outputs, params : list of str
#:     Names.
DumpInfo = namedtuple("DumpInfo", "nr_opr tot_bytes tensor_value_bytes content_hash inputs outputs params")


class Format(ABC):
    """A format of model files.

    Attributes
    ----------
    name : str
        In lower case; also the ending of its files, without the dot.
    """

    name: str

    @abstractmethod
    def recognizes(self, data: bytes) -> bool:
        """Return whether these may be the bytes of such a file, even a damaged one."""

    @abstractmethod
    def read(
        self,
        source: ModelSource,
        outputs: Sequence[str] | None = None,
        device: str | None = None,
        limits: LoadLimits | None = None,
        trainable: bool = False,
    ) -> Model:
        """Return the model in a file, ready to be called.

        Parameters
        ----------
        source : ModelSource
            Nothing in it is to be executed; other files are read only from below its folder.
        outputs : sequence of str, optional
            Names of values that a call gives; None: the model's own outputs.
        device : str, optional
            Where the weights are; None: the default device.
        limits : LoadLimits, optional
            Of reading it, and of each call.
        trainable : bool
            Its weights are Tensors that may change: see `Model.trainable`.

        Raises
        ------
        FileFormatError, FileVersionError, UnsupportedError, LoadLimitError
        """

    @abstractmethod
    def outputs(self, source: ModelSource) -> tuple[ValueSpec, ...]:
        """Return the outputs of the model in a file; nothing is built."""

    @abstractmethod
    def write(self, file: File, request: DumpRequest, append: bool = False) -> DumpInfo:
        """Write a model; a file of this name is replaced in one go, or stays as it was.

        Parameters
        ----------
        file : path, or binary file open for writing
        request : DumpRequest
        append : bool
            Add the graph to the model in `file`, beside what it has.

        Raises
        ------
        UnsupportedError
            The format cannot say what an op does.
        ArgumentError
            It cannot be written as it is asked for.
        """
