"""A model from a file as a Module, whose weights training changes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, BinaryIO

from ..jit.watch import unwatched
from ..module import Module
from ..storage import formats
from ..storage.limits import LoadLimits
from ..storage.load import Loaded
from ..storage.model_file import ModelSource, ValueSpec


class LoadedModule(Module):
    """A model from a file: see `load_module`.

    Attributes
    ----------
    weights : dict of str to Tensor
        By their names in the file: Parameters, and as plain Tensors the statistics that normalization keeps.
    inputs, outputs : tuple of ValueSpec
        Name, dtype and shape of each, as the file gives them.

    Examples
    --------
    >>> import io
    >>> net, file = mgb.jit.trace(mgb.module.Linear(2, 3), capture_as_const=True), io.BytesIO()
    >>> _ = net(mgb.tensor([[1.0, 2.0]]))
    >>> _ = net.dump(file)
    >>> module = mgb.utils.load_module(file.getvalue())
    >>> print(*module.inputs)
    arg_0: float32[1,2]
    """

    def __init__(self, loaded: Loaded, name: str | None = None) -> None:
        super().__init__(name)
        self.weights = dict(loaded._model.trainable)
        self._loaded = loaded

    @property
    def inputs(self) -> tuple[ValueSpec, ...]:
        """The specs of the inputs."""
        return self._loaded.inputs

    @property
    def outputs(self) -> tuple[ValueSpec, ...]:
        """The specs of the outputs."""
        return self._loaded.outputs

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model, op by op; within a trace it is part of that."""
        loaded = self._loaded
        results = unwatched(loaded._model, *loaded._bound(args, kwargs))
        return loaded._arrange(results, loaded.outputs)


def load_module(
    file: str | os.PathLike[str] | BinaryIO,
    *,
    outputs: Sequence[str] | None = None,
    device: str | None = None,
    limits: LoadLimits | None = None,
    name: str | None = None,
) -> LoadedModule:
    """Read the file of a model, as `mgb.jit.load` does, as a Module that can be trained.

    Its Parameters are the arrays of floats in the file that have an axis, but for those that an operator
    wants to know as numbers, such as the scales of a Resize. The operators do what the file says: a
    BatchNormalization that was exported for inference keeps its statistics, and a Dropout drops nothing.

    Parameters
    ----------
    file : path, binary file object or bytes
    outputs : sequence of str, optional
        Names of values in the graph that a call gives, such as the features before the last layer; None:
        the model's own outputs.
    device : str, optional
        Where the weights are; None: the default device.
    limits : LoadLimits, optional
        The most work that loading it, and each call, may ask for.
    name : str, optional
        Of the Module.

    Returns
    -------
    LoadedModule

    Raises
    ------
    FileFormatError, UnsupportedError, LoadLimitError, FormatImportError
        As `mgb.jit.load`.

    Examples
    --------
    >>> import io
    >>> net, file = mgb.jit.trace(mgb.module.Linear(2, 3), capture_as_const=True), io.BytesIO()
    >>> _ = net(mgb.tensor([[1.0, 2.0]]))
    >>> _ = net.dump(file)
    >>> module = mgb.utils.load_module(file.getvalue())
    >>> sorted(parameter.shape for parameter in module.parameters())
    [(3,), (3, 2)]
    """
    source = ModelSource.of(file)
    model = formats.of_source(source).read(source, outputs, device, limits, trainable=True)
    return LoadedModule(Loaded(model, None, {}), name)
