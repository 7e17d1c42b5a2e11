"""The base of all optimizers: parameter groups, states, and the loop of a step."""

from __future__ import annotations

import sys
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from numbers import Real
from typing import Any, TypeVar

import numpy as np

from ..errors import ArgumentError, ShapeError, StateDictError
from ..ir import dtypes
from ..ops.elementwise import isnan
from ..ops.layout import reshape
from ..ops.primitives import cast
from ..ops.primitives import where as select
from ..tensor import ACTIVE, Parameter, Tensor
from ..tensor.holding import SETTINGS, Holder, inside
from ..tensor.tracing import live

#: What a traced function may call of it: see `holding`.
__tracing__ = {
    "add_param_group": "changes",
    "load_state_dict": "impure",
    **dict.fromkeys(("step", "clear_grad", "__init__"), "tells"),
}

Self = TypeVar("Self", bound="Optimizer")
Params = Parameter | Mapping[str, Any] | Iterable[Parameter] | Iterable[Mapping[str, Any]]
Group = dict[str, Any]
State = dict[str, Tensor]


#: Parameters, by their ids, that stay as they are where their gradient is NaN, and how often some were added.
_skipping: dict[int, weakref.ref[Parameter]] = {}
_additions = 0
SETTINGS.append((sys.modules[__name__], "_additions"))


def skip_nan(params: Iterable[Parameter]) -> None:
    """Have steps leave these parameters and their states as they are where the gradient is NaN.

    It is all NaN or finite, as `amp.GradScaler` leaves it.
    """
    global _additions
    new = [param for param in params if id(param) not in _skipping]
    for param in new:
        _skipping[id(param)] = weakref.ref(param, partial(_gone, id(param)))
    _additions += bool(new)


def _gone(place: int, _reference: object) -> None:
    _skipping.pop(place, None)


class _Watched(dict[str, Any]):
    """A group that notes which of its items are looked at."""

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.seen: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)


class Optimizer(Holder):
    """Changes parameters by their gradients.

    Parameters
    ----------
    params : Parameter, iterable of Parameter, or dicts
        A dict is a group, ``{"params": [...], "lr": 0.1}``: what it does not say comes from `defaults`.
    defaults : dict
        The hyper-parameters of a group that does not name its own.

    Attributes
    ----------
    param_groups : list of dict
        The hyper-parameters may be changed between steps, also when the step is compiled.

    Raises
    ------
    ArgumentError
        No parameters, one of them twice, or a hyper-parameter is out of range; a `ValueError`.
    TypeError
        Something is not a Parameter, or parameters stand in a set, which has no order.

    Examples
    --------
    >>> from mgb.optimizer import SGD
    >>> w = mgb.Parameter([1.0])
    >>> w.grad = mgb.tensor([0.5])
    >>> isinstance(SGD([w], lr=0.1).step(), Optimizer), w.numpy()
    (True, array([0.95], dtype=float32))
    """

    #: Another number after each change of the groups.
    __revision__ = 0

    def __init__(self, params: Params, defaults: Mapping[str, Any]) -> None:
        self._defaults = dict(defaults)
        self._state: dict[Parameter, State] = {}
        self.param_groups: list[Group] = []
        for group in _as_groups(params):
            self.add_param_group(group)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Optimize more parameters, with their own hyper-parameters."""
        if "params" not in param_group:
            raise ArgumentError(f"a parameter group needs 'params', got only {', '.join(param_group)}")
        group = {**self._defaults, **param_group, "params": _as_parameters(param_group["params"])}
        every = [param for g in (*self.param_groups, group) for param in g["params"]]
        if len({id(param) for param in every}) < len(every):
            raise ArgumentError("some parameters appear in more than one parameter group")
        self._check(group)
        if any(p.dtype in dtypes.COMPLEX for p in group["params"]) and not self._takes_complex:
            raise ArgumentError(
                f"{type(self).__name__} divides by squares of gradients, which say nothing where they are "
                "complex: make F.view_as_real(x) the Parameter, and use F.view_as_complex of it"
            )
        self.param_groups.append(group)
        self.__revision__ += bool(group["params"])
        for param in group["params"]:
            self._state[param] = self._new_state(param, group)

    def step(self: Self) -> Self:
        """Update every parameter that has a gradient.

        Returns
        -------
        Optimizer
            This one, so that ``optimizer.step().clear_grad()`` reads well.
        """
        self._tell()
        for group in self.param_groups:
            sources, numbers = self._live(group), dict[tuple[str, np.dtype[Any]], dict[str, Tensor]]()
            for param in group["params"]:
                if param.grad is not None:
                    _check_grad(param, param.grad)
                    where = param._device, wide(param)
                    if where not in numbers:
                        numbers[where] = {n: live(s, where[1], where[0]) for n, s in sources.items()}
                    before = self._before(param)
                    self._update(param, param.grad, self._state[param], group, numbers[where])
                    for tensor, old, stays in before:
                        tensor._reset(select(stays, old, tensor))
        return self

    def _before(self, param: Parameter) -> list[tuple[Tensor, Tensor, Tensor]]:
        """List what a step may change of a parameter in `skip_nan`: Tensor, old value, and where it stays."""
        grad = param.grad
        if id(param) not in _skipping or grad is None or not grad.size:
            return []
        stays, first = isnan(grad), isnan(reshape(grad, shape=(grad.size,))[0])
        changing = (param, *self._state[param].values())
        return [(t, t.detach(), stays if t.shape == grad.shape else first) for t in changing]

    def clear_grad(self) -> None:
        """Set the ``grad`` of every parameter to None."""
        self._tell()
        for group in self.param_groups:
            for param in group["params"]:
                param.grad = None

    def _tell(self) -> None:
        """Tell a trace that what it does depends on the groups."""
        session = ACTIVE.get()
        if session is not None:
            session.entered(self)

    # for the compiler

    def __parts__(self) -> Iterator[tuple[str, Any]]:
        yield from inside("params", [param for group in self.param_groups for param in group["params"]])
        yield from inside("state", list(self._state.values()))
        for name, value in vars(self).items():
            if name not in ("param_groups", "_state"):
                yield from inside(name, value)

    def __decides__(self) -> Iterator[Any]:
        """Yield for which parameters it works, and the hyper-parameters that no step reads again."""
        yield "param_groups"
        for place, group in enumerate(self.param_groups):
            asked = self._asked_for(group)
            yield from (("param_groups", place, name) for name in group if name not in asked)
            yield from (("param_groups", place, decides) for decides in self._decisions)

    def _asked_for(self, group: Group) -> set[str]:
        """Return the hyper-parameters of `group` that a compiled step looks up at each call."""
        watched = _Watched(group)
        for source in self._live(watched).values():
            source()
        return watched.seen

    # what an optimizer defines

    #: Whether the step is one where parameters and gradients are complex.
    _takes_complex = False

    #: Functions of a group that decide which ops `_update` does by numbers that each step reads again.
    _decisions: tuple[Callable[[Group], bool], ...] = ()

    @abstractmethod
    def _new_state(self, param: Parameter, group: Group) -> State:
        """Return the state before the first step."""

    @abstractmethod
    def _live(self, group: Group) -> dict[str, Callable[[], float]]:
        """Return the numbers that a compiled step reads at every call, by their names in `_update`."""

    @abstractmethod
    def _update(
        self, param: Parameter, grad: Tensor, state: State, group: Group, numbers: dict[str, Tensor]
    ) -> None:
        """Give `param` and its `state` their new values."""

    def _check(self, group: Group) -> None:
        """Raise `ArgumentError` when a hyper-parameter is out of range."""
        for name in ("lr", "weight_decay", "momentum", "momentum_decay", "lr_decay", "eps"):
            given = group.get(name, 0.0)
            if not isinstance(given, Real) or given != given:
                raise ArgumentError(f"invalid {name}: {given!r} is not a number")
            if given < 0.0:
                raise ArgumentError(f"invalid {name}: {given} is negative, it must be at least 0")
        for name, count in (("betas", 2), ("rho", 1), ("alpha", 1)):
            given = group.get(name, (0.0,) * count)
            values = tuple(given) if isinstance(given, Iterable) else (given,)
            if len(values) != count or not all(isinstance(value, Real) for value in values):
                wanted = "a pair of numbers" if count == 2 else "a number"
                raise ArgumentError(f"invalid {name}: {given!r} is not {wanted}")
            if not all(0.0 <= value < 1.0 for value in values):
                raise ArgumentError(f"invalid {name}: {group[name]} must be at least 0 and less than 1")

    # state

    def state_dict(self, keep_var: bool = False) -> dict[str, Any]:
        """Return the groups and the states; parameters are named by their place, counted over all groups.

        Parameters
        ----------
        keep_var : bool
            Give the states' Tensors themselves instead of NumPy arrays of their values.
        """
        places = {param: place for place, param in enumerate(self._state)}
        groups = [{**group, "params": [places[p] for p in group["params"]]} for group in self.param_groups]
        state = {
            places[param]: {name: t if keep_var else t.numpy().copy() for name, t in tensors.items()}
            for param, tensors in self._state.items()
        }
        return {"param_groups": groups, "state": state}

    def __repr__(self) -> str:
        groups = [_described(group) for group in self.param_groups]
        inside = groups[0] if len(groups) == 1 else "\n  " + "\n  ".join(groups) + "\n"
        return f"{type(self).__name__}({inside})"

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned; nothing changes when an error is raised.

        Raises
        ------
        ArgumentError
            The groups differ in number, size or hyper-parameters, or a state has another shape.
        StateDictError
            The state of a parameter is missing or is that of another kind of optimizer.
        """
        if "param_groups" not in state_dict:
            raise StateDictError("the loaded state has no 'param_groups': it is not what state_dict returned")
        saved = list(state_dict["param_groups"])
        _check_groups(self.param_groups, saved)
        loaded = []
        for group, old in zip(self.param_groups, saved, strict=True):
            for param, place in zip(group["params"], old["params"], strict=True):
                loaded += _matched(self._state[param], state_dict["state"].get(place, {}), place)
        for tensor, value in loaded:
            tensor._reset(value)
        for group, old in zip(self.param_groups, saved, strict=True):
            group.update({name: value for name, value in old.items() if name != "params"})


def zeros_state(param: Parameter) -> Tensor:
    """Return zeros like `param`; float32 when the parameter has 16 bits, so that small changes add up."""
    return Tensor(np.zeros(param.shape, wide(param)), dtype=wide(param), device=param.device)


def zero_count(param: Parameter) -> Tensor:
    """Return a count of steps: a Tensor, so that a compiled step counts too."""
    return Tensor(0.0, dtype=wide(param), device=param.device)


def wide(param: Parameter) -> np.dtype[Any]:
    """Return the dtype in which `param` is updated."""
    return dtypes.float32 if param.dtype in dtypes.HALVES else param.dtype


def assign(tensor: Tensor, value: Tensor) -> None:
    """Rebind `tensor` to `value`, rounded once to its dtype."""
    tensor._reset(value if value.dtype == tensor.dtype else cast(value, dtype=tensor.dtype))


def decays(group: Group) -> bool:
    """Return whether the weight decay is part of the step; in a trace always, as 0 may change later."""
    session = ACTIVE.get()
    return group["weight_decay"] != 0.0 or (session is not None and session.replays)


def named(group: Group, *names: str) -> dict[str, Callable[[], float]]:
    """Return functions that look up each of `names` in `group` when they are called."""
    return {name: partial(group.__getitem__, name) for name in names}


def _described(group: Group) -> str:
    params = group["params"]
    numbers = "".join(f", {name}={value}" for name, value in group.items() if name != "params")
    return f"{len(params)} parameters of {sum(p.size for p in params):,} numbers{numbers}"


def _check_grad(param: Parameter, grad: Tensor) -> None:
    if grad.shape != param.shape:
        raise ShapeError(
            f"optimizer: a gradient of shape {grad.shape} does not fit a parameter of shape {param.shape}"
        )


def _as_groups(params: Any) -> list[Mapping[str, Any]]:
    listed: list[Any] = [params] if isinstance(params, Tensor | Mapping) else _ordered(params)
    if not listed:
        raise ArgumentError("optimizer got an empty parameter list")
    if all(isinstance(p, Mapping) for p in listed):
        return listed
    if any(isinstance(p, Mapping) for p in listed):
        raise TypeError("the params of an optimizer are all Parameters or all dicts, got both")
    return [{"params": listed}]


def _as_parameters(params: Any) -> list[Parameter]:
    listed: list[Any] = [params] if isinstance(params, Tensor) else _ordered(params)
    for param in listed:
        if not isinstance(param, Parameter):
            kind = type(param).__name__
            raise TypeError(f"optimizer can only optimize Parameters, but one of the params is {kind}")
    return listed


def _ordered(params: Any) -> list[Any]:
    if isinstance(params, set | frozenset):
        raise TypeError("parameters in a set have another order in each run; use a list instead")
    if not isinstance(params, Iterable):
        raise TypeError(f"params should be a Parameter or an iterable of them, got {type(params).__name__}")
    return list(params)


def _check_groups(own: list[Group], saved: list[Any]) -> None:
    if len(own) != len(saved):
        raise ArgumentError(f"the loaded state has {len(saved)} parameter groups, the optimizer {len(own)}")
    for place, (group, old) in enumerate(zip(own, saved, strict=True)):
        if len(group["params"]) != len(old["params"]):
            counts = f"{len(old['params'])} parameters and the optimizer's {len(group['params'])}"
            raise ArgumentError(f"group {place} of the loaded state has {counts}")
        if group.keys() != old.keys():
            names = ", ".join(sorted(group.keys() ^ old.keys()))
            raise ArgumentError(f"group {place} of the loaded state differs in {names}: another optimizer?")


def _matched(tensors: State, values: Mapping[str, Any], place: int) -> list[tuple[Tensor, Tensor]]:
    if tensors.keys() != values.keys():
        names = f"{sorted(values)} instead of {sorted(tensors)}"
        raise StateDictError(f"the loaded state of parameter {place} holds {names}")
    pairs = []
    for name, tensor in tensors.items():
        value = Tensor(np.asarray(values[name]), dtype=tensor.dtype, device=tensor.device)
        if value.shape != tensor.shape:
            raise ArgumentError(f"{name} of parameter {place} should be {tensor.shape}, get {value.shape}")
        pairs.append((tensor, value))
    return pairs
