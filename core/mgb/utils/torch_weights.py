"""The state dicts of PyTorch, and what each layer's tensors are called and shaped like there."""

from __future__ import annotations

import math
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from ..errors import FileFormatError, StateDictError
from ..module import GRU, LSTM, RNN, GroupNorm, InstanceNorm, Module, MultiHeadAttention, PReLU
from ..module.conv import _Convolution
from ..module.normalization import _BatchNorm
from ..storage import serialization
from ..tensor import Tensor
from ..tensor.holding import inside


class Entry(NamedTuple):
    """An array of PyTorch's, and where it is here.

    Attributes
    ----------
    name : str
        Its key, without those of the modules around.
    shape : tuple of int
        Its shape in PyTorch.
    parts : tuple of Tensor
        Which are this array one under the other, each in a shape of as many elements; none for what mgb does
        without.
    """

    name: str
    shape: tuple[int, ...]
    parts: tuple[Tensor, ...]


class Keys(NamedTuple):
    """The keys that `load_torch_state_dict` did not load, named as PyTorch's own function names them."""

    missing_keys: list[str]
    unexpected_keys: list[str]


@singledispatch
def entries(module: Module) -> Iterator[tuple[str, Iterable[Entry]]]:
    """Return the attributes of `module` that PyTorch calls or shapes otherwise, each with its entries there.

    Everything else in a module has the same name and shape. A layer of one's own registers a function of its
    class: ``@entries.register``.
    """
    return iter(())


def _reshaped(module: Module, name: str, shape: Iterable[int]) -> Iterator[tuple[str, Iterable[Entry]]]:
    tensor = getattr(module, name)
    if tensor is not None:
        yield name, [Entry(name, tuple(shape), (tensor,))]


@entries.register
def _(module: _Convolution) -> Iterator[tuple[str, Iterable[Entry]]]:
    shape = module.weight.shape
    grouped = len(shape) - module.axes - 2  # the group is an axis of its own
    yield from _reshaped(module, "weight", (math.prod(shape[: grouped + 1]), *shape[grouped + 1 :]))
    yield from _reshaped(module, "bias", (module.out_channels,))


@entries.register
def _(module: _BatchNorm) -> Iterator[tuple[str, Iterable[Entry]]]:
    for name in ("weight", "bias", "running_mean", "running_var"):
        yield from _reshaped(module, name, (module.num_features,))
    yield "num_batches_tracked", [Entry("num_batches_tracked", (), ())]


@entries.register(GroupNorm)
@entries.register(InstanceNorm)
def _(module: GroupNorm | InstanceNorm) -> Iterator[tuple[str, Iterable[Entry]]]:
    for name in ("weight", "bias"):
        yield from _reshaped(module, name, (module.num_channels,))


@entries.register
def _(module: PReLU) -> Iterator[tuple[str, Iterable[Entry]]]:
    yield from _reshaped(module, "weight", (module.num_parameters,))


@entries.register(RNN)
@entries.register(LSTM)
@entries.register(GRU)
def _(module: RNN | LSTM | GRU) -> Iterator[tuple[str, Iterable[Entry]]]:
    found = []
    for place, cell in enumerate(module.cells):
        layer, backwards = divmod(place, module.directions)
        end = f"_l{layer}" + "_reverse" * backwards
        found += [Entry(name + end, t.shape, (t,)) for name, t in cell.named_parameters(recursive=False)]
    yield "cells", found


@entries.register
def _(module: MultiHeadAttention) -> Iterator[tuple[str, Iterable[Entry]]]:
    projections = (module.query, module.key, module.value)
    found = []
    for name in ("weight", "bias"):
        parts = tuple(getattr(each, name) for each in projections)
        if parts[0] is not None:
            rows, *others = parts[0].shape
            found.append(Entry(f"in_proj_{name}", (3 * rows, *others), parts))
            out = getattr(module.out, name)
            found.append(Entry(f"out_proj.{name}", out.shape, (out,)))
    yield "query", found
    yield from ((name, []) for name in ("key", "value", "out"))


def _walk(module: Module, prefix: str, around: tuple[Module, ...] = ()) -> Iterator[Entry]:
    """Yield every entry of `module` under its whole key.

    What stands in two places comes twice, as in PyTorch.
    """
    special = dict(entries(module))
    for found in special.values():
        yield from (entry._replace(name=prefix + entry.name) for entry in found)
    for attribute, value in list(vars(module).items()):
        for name, part in () if attribute in special else inside(attribute, value, in_order=False):
            if isinstance(part, Tensor):
                yield Entry(prefix + name, part.shape, (part,))
            elif isinstance(part, Module) and part not in (module, *around):
                yield from _walk(part, f"{prefix}{name}.", (module, *around))


def torch_state_dict(module: Module) -> OrderedDict[str, np.ndarray[Any, Any]]:
    """Return the parameters and buffers of `module` as PyTorch names and shapes them.

    Returns
    -------
    OrderedDict of str to ndarray
        For ``{key: torch.from_numpy(array) for ...}`` and PyTorch's ``load_state_dict``, or
        ``safetensors.numpy.save_file``.

    Examples
    --------
    >>> {name: a.shape for name, a in torch_state_dict(M.Linear(2, 1)).items()}
    {'weight': (1, 2), 'bias': (1,)}
    """
    return OrderedDict(
        (name, np.concatenate([part.numpy().reshape(-1) for part in parts]).reshape(shape))
        for name, shape, parts in _walk(module, "")
        if parts
    )


def load_torch_state_dict(
    module: Module, state: Mapping[str, Any] | str | os.PathLike[str], strict: bool = True
) -> Keys:
    """Set every parameter and buffer from the state dict of a PyTorch module of the same structure.

    Submodules are found by their names; what a layer calls or shapes otherwise, such as ``in_proj_weight`` of
    an attention or ``weight_ih_l0`` of an LSTM, is known. Values are converted to the dtypes that are here. A
    state dict has no hyper-parameters: a batch norm with ``momentum=0.1`` there has ``momentum=0.9`` here.

    Parameters
    ----------
    module : Module
    state : mapping of str to torch.Tensor or array, or path of a safetensors file
        PyTorch itself is not needed.
    strict : bool
        Keys on one side only are an error; else they are returned. Shapes always have to fit.

    Returns
    -------
    Keys
        The ``missing_keys`` and the ``unexpected_keys``.

    Raises
    ------
    StateDictError
        Says at once which keys are missing, which unexpected, and which shapes differ; nothing has changed.
        It is a `KeyError` and a `ValueError`.
    FileFormatError
        The file is not a safetensors file.

    Examples
    --------
    >>> layer = M.Linear(2, 1)
    >>> load_torch_state_dict(layer, {"weight": np.ones((1, 2)), "bias": np.zeros(1)})
    Keys(missing_keys=[], unexpected_keys=[])
    >>> layer(mgb.tensor([[3.0, 4.0]]))
    Tensor([[7.]], device=xpux:0)
    """
    given = _arrays(_read(state) if isinstance(state, str | os.PathLike) else state)
    wanted = list(_walk(module, ""))
    names = {entry.name for entry in wanted}
    missing = [entry.name for entry in wanted if entry.parts and entry.name not in given]
    unexpected = [name for name in given if name not in names]
    found = [entry for entry in wanted if entry.parts and entry.name in given]
    misfits = [
        f"{name}: {given[name].shape} instead of {shape}"
        for name, shape, _ in found
        if given[name].shape != shape
    ]
    if misfits or (strict and (missing or unexpected)):
        raise StateDictError(_difference(module, missing, unexpected, misfits, given))
    values = [pair for entry in found for pair in _values(entry, given[entry.name])]
    for tensor, value in values:
        tensor._reset(value)
    return Keys(missing, unexpected)


def _values(entry: Entry, array: np.ndarray[Any, Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each part and its new value."""
    for part, piece in zip(entry.parts, np.split(array.reshape(-1), len(entry.parts)), strict=True):
        yield part, Tensor(piece.reshape(part.shape), dtype=part.dtype, device=part.device)


def _read(path: str | os.PathLike[str]) -> Any:
    if os.fspath(path).endswith((".pt", ".pth", ".bin", ".ckpt")):
        raise FileFormatError(
            f"{os.fspath(path)} is a pickle of PyTorch, which runs code when it is loaded: give "
            "torch.load(path, weights_only=True), or a safetensors file"
        )
    return serialization.load(path)


def _arrays(state: Any) -> dict[str, np.ndarray[Any, Any]]:
    if not isinstance(state, Mapping):
        remedy = "; give its state_dict()" if hasattr(state, "state_dict") else ""
        raise TypeError(f"a state dict is a mapping of names to arrays, got {type(state).__name__}{remedy}")
    return {name: _array(name, value) for name, value in state.items()}


def _array(name: str, value: Any) -> np.ndarray[Any, Any]:
    """Return `value` as NumPy's; PyTorch's may be on a GPU, require gradients or have floats NumPy lacks."""
    if isinstance(value, Tensor | np.ndarray):
        return np.asarray(value)
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
        name = str(value.dtype).removeprefix("torch.")
        if "float" in name and not hasattr(np, name):
            value = value.float()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is not an array: {error}") from error
    if array.dtype.kind not in "biufV":
        raise TypeError(f"{name} is not an array of numbers, but {type(value).__name__}")
    return array


def _difference(
    module: Module, missing: list[str], unexpected: list[str], misfits: list[str], given: Mapping[str, Any]
) -> str:
    parts = {"missing": missing, "unexpected": unexpected, "of another shape": misfits}
    told = [f"{what}: {', '.join(names)}" for what, names in parts.items() if names]
    starts = {name.partition(".")[0] + "." for name in given}
    remedy = "strict=False skips what is on one side only"
    if len(starts) == 1 and len(unexpected) == len(given) and missing:
        (start,) = starts
        remedy = f"each key starts with {start!r}: take it away with key.removeprefix({start!r})"
    elif misfits:
        remedy = "build the module with the sizes of the state dict"
    told = [f"{type(module).__name__} and the state dict differ, and nothing was loaded", *told, remedy]
    return "; ".join(told)
