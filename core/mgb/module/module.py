"""Module: a function with parameters, and the walk over its attributes that everything else is made of."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from reprlib import recursive_repr
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, overload

import numpy as np

from ..errors import ShapeError, StateDictError
from ..ir.dtypes import FLOATS
from ..ops.methods import destination, to
from ..tensor import ACTIVE, Parameter, Tensor
from ..tensor.holding import PLAIN, Holder, inside
from .summary import summary

#: What a traced function may call of it, see `holding`: registering and loading write outside.
__tracing__ = {
    **dict.fromkeys(
        ("load_state_dict", "to", "half", "register_forward_pre_hook", "register_forward_hook", "remove"),
        "impure",
    ),
    "__call__": "tells",
}

Predicate = Callable[[Any], bool]
PreHook = Callable[["Module", tuple[Any, ...]], Any]
Hook = Callable[["Module", tuple[Any, ...], Any], Any]


class HookHandler:
    """The handle that registering a hook returns.

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
    *_CONTAINERS, Tensor, np.ndarray,
)  # fmt: skip


P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class _Plain(Protocol[P, R]):
    """A Module to a type checker: what `forward` takes and gives, a call takes and gives."""

    @property
    def forward(self) -> Callable[P, R]: ...


class _TracedForward(Protocol[R]):
    def __call__(self, *args: Any, **kwargs: Any) -> R: ...
    def stats(self) -> dict[str, Any]: ...


class _Traced(Protocol[R]):
    """One whose `forward` is decorated: not every checker sees what is left to give a bound one."""

    @property
    def forward(self) -> _TracedForward[R]: ...


class Module(Holder):
    """A function with parameters.

    Tensors and Modules that are attributes, or stand in lists, tuples and dicts that are attributes, belong
    to the module: every `Parameter` is one of its parameters, every other Tensor one of its buffers. They are
    visited in the order in which they were defined, each once; what is reachable twice is called by the first
    of its names in alphabetical order, as in a state dict, which is sorted.

    Parameters
    ----------
    name : str, optional

    Examples
    --------
    >>> class Twice(M.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.inner = M.Linear(2, 2)
    ...
    ...     def forward(self, x):
    ...         return self.inner(self.inner(x))
    >>> Twice()(F.ones((3, 2))).shape, len(list(Twice().parameters()))
    ((3, 2), 2)
    """

    #: Whether parameters and buffers are 1-D in a state dict, whatever their shape here.
    flat_state = False

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.training = True
        self._forward_hooks: dict[HookHandler, Hook] = {}
        self._forward_pre_hooks: dict[HookHandler, PreHook] = {}

    if TYPE_CHECKING:
        forward: Any  # functions and traced ones override it
    else:

        @abstractmethod
        def forward(self, *inputs: Any, **kwargs: Any) -> Any:
            """Return the function itself."""

    #: What a call hands its arguments to.
    __calls__ = "forward"

    @overload
    def __call__(self: _Traced[R], *inputs: Any, **kwargs: Any) -> R: ...
    @overload
    def __call__(self: _Plain[P, R], *inputs: P.args, **kwargs: P.kwargs) -> R: ...
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
        for name, value in sorted(vars(self).items()):
            if type(value) not in PLAIN:
                yield from inside(name, value)

    def __decides__(self) -> Iterator[Any]:
        """Yield its mode, numbers, Tensors, submodules and hooks, and what stands in its containers."""
        if "forward" not in vars(self):  # as it would be called instead of that of the class
            yield vars, "forward"
        seen: set[int] = set()
        for name, value in vars(self).items():
            if isinstance(value, _CONTAINERS):
                yield from _paths((vars, name), value, seen)
            elif isinstance(value, _DECISIVE) or callable(value) or isinstance(value, Holder):
                yield vars, name

    # the walk

    def parameters(self, recursive: bool = True) -> Iterator[Parameter]:
        """Yield every `Parameter`, those of submodules too unless `recursive` is False."""
        return (tensor for _, tensor in self.named_parameters(recursive=recursive))

    def named_parameters(
        self, prefix: str | None = None, recursive: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Return every `Parameter` with its dotted name, which starts with `prefix`."""
        return _named(self._walk(is_parameter, prefix, recursive))

    def buffers(self, recursive: bool = True) -> Iterator[Tensor]:
        """Return every Tensor that is not a `Parameter`."""
        return (tensor for _, tensor in self.named_buffers(recursive=recursive))

    def named_buffers(
        self, prefix: str | None = None, recursive: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Return every Tensor that is not a `Parameter`, with its dotted name."""
        return _named(self._walk(is_buffer, prefix, recursive))

    def tensors(self, recursive: bool = True) -> Iterator[Tensor]:
        """Return every parameter and buffer."""
        return (tensor for _, tensor in self.named_tensors(recursive=recursive))

    def named_tensors(
        self, prefix: str | None = None, recursive: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Return every parameter and buffer with its dotted name."""
        return _named(self._walk(is_tensor, prefix, recursive))

    def children(self) -> Iterator[Module]:
        """Return the modules directly inside this one."""
        return (module for _, module in self.named_children())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Return the modules directly inside this one, with their names."""
        return _named(self._walk(is_module, None, recursive=False))

    def modules(self, with_parent: bool = False) -> Iterator[Any]:
        """Return the module itself, then every module inside it.

        `with_parent`, each in a pair with its owner.
        """
        return (found[1:] if with_parent else found[1] for found in self.named_modules(with_parent=True))

    def named_modules(
        self, prefix: str | None = None, with_parent: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the module itself under the name `prefix`, then every module inside it with its dotted name.

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
        self, wanted: Predicate, prefix: str | None, recursive: bool
    ) -> Iterator[tuple[str, Any, Module]]:
        """Yield name, object and owner of each `wanted` object, once each, in order of definition."""
        defined = self._found(wanted, prefix, recursive, {id(self)}, in_order=False)
        places = {id(value): place for place, (_, value, _) in enumerate(defined)}
        return iter(sorted(self._sorted(wanted, prefix, recursive), key=lambda found: places[id(found[1])]))

    def _sorted(
        self, wanted: Predicate, prefix: str | None, recursive: bool
    ) -> Iterator[tuple[str, Any, Module]]:
        """Yield from `_walk`, in the order of the sorted names."""
        return self._found(wanted, prefix, recursive, {id(self)}, in_order=True)

    def _found(
        self, wanted: Predicate, prefix: str | None, recursive: bool, seen: set[int], in_order: bool
    ) -> Iterator[tuple[str, Any, Module]]:
        attributes = vars(self)
        for attribute in sorted(attributes) if in_order else list(attributes):
            name = f"{prefix}.{attribute}" if prefix else attribute
            for key, value in inside(name, attributes[attribute], _check_key, in_order=in_order):
                if id(value) in seen:
                    continue
                seen.add(id(value))
                if wanted(value):
                    yield key, value, self
                if recursive and isinstance(value, Module):
                    yield from value._found(wanted, key, recursive, seen, in_order)

    # changes to the whole tree

    def apply(self, function: Callable[[Module], object]) -> Self:
        """Call `function` on this module and every module inside it."""
        for module in self.modules():
            function(module)
        return self

    def train(self, mode: bool = True) -> Self:
        """Behave as in training, here and in every submodule; or, when `mode` is False, as in use."""
        return self.apply(lambda module: setattr(module, "training", mode))

    def eval(self) -> Self:
        """Behave as in use: no dropout, running statistics as they are."""
        return self.train(False)

    def to(self, device: Any, dtype: Any = None) -> Self:
        """Move every parameter and buffer to a device, cast those of floats to a dtype, or both; in place.

        Optimizers made before keep their states, which are float32 for parameters of 16 bits.

        Parameters
        ----------
        device : str or dtype
            A device, ``"gpu0"``; or a dtype, ``"bfloat16"``.
        dtype : dtype, optional
            Beside a device.
        """
        where, wanted = destination(device, dtype)
        changed = []
        for tensor in self.tensors():
            dtype = wanted if wanted is not None and tensor.dtype in FLOATS else tensor.dtype
            parts = [tensor] if tensor.grad is None else [tensor, tensor.grad]
            changed += [(part, to(part.detach(), where or part._device, dtype)) for part in parts]
        for part, value in changed:
            part._reset(value)
        return self

    def half(self) -> Self:
        """Convert parameters and buffers with ``to("float16")``."""
        return self.to("float16")

    # state

    def state_dict(self, prefix: str = "", keep_var: bool = False) -> OrderedDict[str, Any]:
        """Return every parameter and buffer by its dotted name.

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
        found = self._sorted(is_tensor, prefix or None, recursive=True)
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
        StateDictError
            A name is missing or unused, a `KeyError`.
        ShapeError
            An array has another shape than the tensor, a `ValueError`.
        """
        found = list(self._sorted(is_tensor, None, recursive=True))
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

    summary = summary

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def _describe(self) -> str:
        """Return the text between the brackets of the repr, without the submodules."""
        return ""

    @recursive_repr("...")
    def __repr__(self) -> str:
        found = (each for name, value in vars(self).items() for each in inside(name, value, _check_key))
        children = [f"({name}): {value!r}" for name, value in found if _is_shown(name, value)]
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


def _is_shown(name: str, value: Any) -> bool:
    """Return a layer, or what is called like one, as a loaded model; plain functions are not."""
    if isinstance(value, Module):
        return True
    is_plain = isinstance(value, type | FunctionType | MethodType | BuiltinFunctionType | Tensor)
    return callable(value) and not is_plain and not name.startswith("_")


def is_module(value: Any) -> bool:
    return isinstance(value, Module)


def _paths(path: tuple[Any, ...], value: Any, seen: set[int]) -> Iterator[tuple[Any, ...]]:
    """Yield the `path` to `value`, and those to the containers in it."""
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
        raise StateDictError(text.format(sorted(names)))
    if names:
        warnings.warn(text.format(sorted(names)), stacklevel=3)
