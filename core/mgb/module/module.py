"""Module: a function with parameters, and the walk over its attributes that everything else is made of."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from reprlib import recursive_repr
from typing import Any

import numpy as np

from ..errors import ShapeError, StateKeyError
from ..holding import Holder, attributes_of, inside
from ..tensor import ACTIVE, Parameter, Tensor

#: What a traced function may call of it, see `holding`: registering and loading write outside.
__tracing__ = {
    **dict.fromkeys(
        ("load_state_dict", "register_forward_pre_hook", "register_forward_hook", "remove"), "impure"
    ),
    "__call__": "tells",
}

Predicate = Callable[[Any], bool]
PreHook = Callable[["Module", tuple[Any, ...]], Any]
Hook = Callable[["Module", tuple[Any, ...], Any], Any]


class HookHandler:
    """What registering a hook returns.

    Parameters
    ----------
    hooks : dict
        Where the hook is kept.
    hook : callable
    """

    def __init__(self, hooks: dict[HookHandler, Any], hook: Any) -> None:
        self._hooks = hooks
        hooks[self] = hook

    def remove(self) -> None:
        """Take the hook away; more than once does no harm."""
        self._hooks.pop(self, None)


#: What stays one object and gets other contents, and has elements by keys or places.
_CONTAINERS = (list, dict, deque, tuple)

#: Attributes that say what a call does, beside functions and other objects that are called.
_DECISIVE = (
    bool, int, float, complex, str, bytes, type(None), Enum, np.generic, np.dtype, frozenset, set,
    *_CONTAINERS, Holder, Tensor, np.ndarray,
)  # fmt: skip


class Module(Holder):
    """A function with parameters.

    Tensors and Modules that are attributes, or stand in lists, tuples and dicts that are attributes, belong
    to the module: every `Parameter` is one of its parameters, every other Tensor one of its buffers. They are
    visited in the order of their sorted names, an object that is reachable twice only the first time.

    Parameters
    ----------
    name : str, optional
    """

    #: Whether parameters and buffers are 1-D in a state dict, whatever their shape here.
    flat_state = False

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.training = True
        self._forward_hooks: dict[HookHandler, Hook] = {}
        self._forward_pre_hooks: dict[HookHandler, PreHook] = {}

    @abstractmethod
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The function itself."""

    #: What a call hands its arguments to.
    __calls__ = "forward"

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        session = ACTIVE.get()
        if session is not None:
            session.entered(self)
        for pre_hook in tuple(self._forward_pre_hooks.values()):
            changed = pre_hook(self, inputs)
            if changed is not None:
                inputs = changed if isinstance(changed, tuple) else (changed,)
        outputs = self.forward(*inputs, **kwargs)
        for hook in tuple(self._forward_hooks.values()):
            changed = hook(self, inputs, outputs)
            if changed is not None:
                outputs = changed
        return outputs

    def register_forward_pre_hook(self, hook: PreHook) -> HookHandler:
        """Call ``hook(module, inputs)`` before `forward`; its result, unless None, replaces the inputs."""
        return HookHandler(self._forward_pre_hooks, hook)

    def register_forward_hook(self, hook: Hook) -> HookHandler:
        """Call ``hook(module, inputs, outputs)`` after `forward`; its result, unless None, is the output."""
        return HookHandler(self._forward_hooks, hook)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Module) and "_forward_hooks" not in self.__dict__:
            raise AttributeError("cannot assign module before Module.__init__() call")
        session = ACTIVE.get()
        if session is not None and name in self.__dict__:
            session.entered(self)
        super().__setattr__(name, value)

    # for the compiler

    def __parts__(self) -> Iterator[tuple[str, Any]]:
        for name in sorted(vars(self)):
            yield from inside(name, vars(self)[name])

    def __decides__(self) -> Iterator[Any]:
        """Its mode, numbers, Tensors, submodules and hooks, and what stands in its containers."""
        if "forward" not in vars(self):  # as it would be called instead of that of the class
            yield vars, "forward"
        seen: set[int] = set()
        for name in attributes_of(self):
            value = vars(self)[name]
            if isinstance(value, _DECISIVE) or callable(value):
                yield from _paths((vars, name), value, seen)

    # the walk

    def parameters(self, recursive: bool = True) -> Iterator[Parameter]:
        """Every `Parameter`, those of submodules too unless `recursive` is False."""
        return (tensor for _, tensor in self.named_parameters(recursive=recursive))

    def named_parameters(
        self, prefix: str | None = None, recursive: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Every `Parameter` with its dotted name, which starts with `prefix`."""
        return _named(self._walk(is_parameter, prefix, recursive))

    def buffers(self, recursive: bool = True) -> Iterator[Tensor]:
        """Every Tensor that is not a `Parameter`."""
        return (tensor for _, tensor in self.named_buffers(recursive=recursive))

    def named_buffers(
        self, prefix: str | None = None, recursive: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Every Tensor that is not a `Parameter`, with its dotted name."""
        return _named(self._walk(is_buffer, prefix, recursive))

    def tensors(self, recursive: bool = True) -> Iterator[Tensor]:
        """Every parameter and buffer."""
        return (tensor for _, tensor in self.named_tensors(recursive=recursive))

    def named_tensors(
        self, prefix: str | None = None, recursive: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Every parameter and buffer with its dotted name."""
        return _named(self._walk(is_tensor, prefix, recursive))

    def children(self) -> Iterator[Module]:
        """The modules directly inside this one."""
        return (module for _, module in self.named_children())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly inside this one, with their names."""
        return _named(self._walk(is_module, None, recursive=False))

    def modules(self, with_parent: bool = False) -> Iterator[Any]:
        """The module itself, then every module inside it; `with_parent`, each in a pair with its owner."""
        return (found[1:] if with_parent else found[1] for found in self.named_modules(with_parent=True))

    def named_modules(
        self, prefix: str | None = None, with_parent: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        """The module itself under the name `prefix`, then every module inside it with its dotted name.

        Parameters
        ----------
        prefix : str, optional
            Starts every name.
        with_parent : bool
            Give the module as a third, whose attribute each is; None for the first.
        """
        inside = self._walk(is_module, prefix, recursive=True)
        for found in ((prefix or "", self, None), *inside):
            yield found if with_parent else found[:2]

    def _walk(
        self, wanted: Predicate, prefix: str | None, recursive: bool, seen: set[int] | None = None
    ) -> Iterator[tuple[str, Any, Module]]:
        """Name, object and owning module of every `wanted` object, each once."""
        seen = {id(self)} if seen is None else seen
        for attribute in sorted(vars(self)):
            name = f"{prefix}.{attribute}" if prefix else attribute
            for key, value in inside(name, vars(self)[attribute], _check_key):
                if id(value) in seen:
                    continue
                seen.add(id(value))
                if wanted(value):
                    yield key, value, self
                if recursive and isinstance(value, Module):
                    yield from value._walk(wanted, key, recursive, seen)

    # changes to the whole tree

    def apply(self, function: Callable[[Module], object]) -> Module:
        """Call `function` on this module and every module inside it."""
        for module in self.modules():
            function(module)
        return self

    def train(self, mode: bool = True) -> Module:
        """Behave as in training, here and in every submodule; or, when `mode` is False, as in use."""
        return self.apply(lambda module: setattr(module, "training", mode))

    def eval(self) -> Module:
        """Behave as in use: no dropout, running statistics as they are."""
        return self.train(False)

    # state

    def state_dict(self, prefix: str = "", keep_var: bool = False) -> OrderedDict[str, Any]:
        """Every parameter and buffer by its dotted name.

        Parameters
        ----------
        prefix : str, optional
            Starts every name.
        keep_var : bool
            Give the Tensors themselves instead of NumPy arrays of their values.

        Returns
        -------
        OrderedDict of str to ndarray, or to Tensor
        """
        found = self._walk(is_tensor, prefix or None, recursive=True)
        return OrderedDict((name, t if keep_var else _saved(t, owner)) for name, t, owner in found)

    def load_state_dict(
        self, state_dict: Mapping[str, Any] | Callable[[str, Tensor], Any], strict: bool = True
    ) -> None:
        """Set every parameter and buffer; nothing changes when an error is raised.

        Parameters
        ----------
        state_dict : mapping or callable
            What `state_dict` returned, or ``(name, tensor) -> array or None``; None leaves the tensor alone.
        strict : bool
            Names on one side only are an error; otherwise they are warned of and skipped.

        Raises
        ------
        StateKeyError
            A name is missing or unused, a `KeyError`.
        ShapeError
            An array has another shape than the tensor, a `ValueError`.
        """
        found = list(self._walk(is_tensor, None, recursive=True))
        if callable(state_dict):
            given = {name: state_dict(name, tensor) for name, tensor, _ in found}
            given = {name: value for name, value in given.items() if value is not None}
        else:
            given = dict(state_dict)
        names = {name for name, _, _ in found}
        _complain("Unused params violate `strict=True`, unused={}", given.keys() - names, strict)
        if not callable(state_dict):
            _complain("Missing params violate `strict=True`, missing={}", names - given.keys(), strict)
        values = [(t, _loaded(name, given[name], t, owner)) for name, t, owner in found if name in given]
        for tensor, value in values:
            tensor._reset(value)

    # text

    def _describe(self) -> str:
        """What stands between the brackets of the repr, beside the submodules."""
        return ""

    @recursive_repr("...")
    def __repr__(self) -> str:
        found = (each for name, value in vars(self).items() for each in inside(name, value, _check_key))
        children = [f"({name}): {value!r}" for name, value in found if isinstance(value, Module)]
        if not children:
            return f"{type(self).__name__}({self._describe()})"
        described = [self._describe()] if self._describe() else []
        body = "\n".join([*described, *children]).replace("\n", "\n  ")
        return f"{type(self).__name__}(\n  {body}\n)"


def is_parameter(value: Any) -> bool:
    return isinstance(value, Parameter)


def is_buffer(value: Any) -> bool:
    return isinstance(value, Tensor) and not isinstance(value, Parameter)


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def is_module(value: Any) -> bool:
    return isinstance(value, Module)


def _paths(path: tuple[Any, ...], value: Any, seen: set[int]) -> Iterator[tuple[Any, ...]]:
    """The `path` to `value`, and those to the containers in it."""
    yield path
    if isinstance(value, _CONTAINERS) and id(value) not in seen:
        seen.add(id(value))  # a list may stand in itself
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(part, (*_CONTAINERS, set)):
                yield from _paths((*path, key), part, seen)


def _check_key(key: Any, part: Any) -> None:
    if not isinstance(key, str) and isinstance(part, Tensor | Module):
        raise AssertionError(f"keys for Tensor and Module must be str, error key: {key}")


def _named(found: Iterator[tuple[str, Any, Module]]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value, _ in found)


def _saved(tensor: Tensor, owner: Module) -> Any:
    array = tensor.numpy()
    return (array.reshape(-1) if owner.flat_state else array).copy()


def _loaded(name: str, value: Any, tensor: Tensor, owner: Module) -> Tensor:
    array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
    same = array.size == tensor.size if owner.flat_state else array.shape == tensor.shape
    if not same:
        raise ShapeError(f"param `{name}` shape mismatch, should be {tensor.shape}, get {array.shape}")
    return Tensor(array.reshape(tensor.shape), dtype=tensor.dtype, device=tensor.device)


def _complain(text: str, names: set[str], strict: bool) -> None:
    if names and strict:
        raise StateKeyError(text.format(sorted(names)))
    if names:
        warnings.warn(text.format(sorted(names)), stacklevel=3)
