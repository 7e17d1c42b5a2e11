"""Derivatives of functions by the tapes of `autodiff`; forward mode is the gradient of the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ..autodiff.tape import Tape, forward_mode
from ..errors import TransformError
from ..ir import Spec
from ..ir.dtypes import COMPLEX, INEXACT
from ..jit.tree import LEAF, Structure, flatten
from ..ops.creation import zeros_like
from ..ops.layout import reshape
from ..tensor import Tensor, next_level
from ..tensor.apply import literal
from .arrays import on_arrays
from .batching import as_tensor, vmap

Argnums = int | Sequence[int]


class _Linearized:
    """``function(*leaves)`` with the tape that saw it: `pull` is linear in its cotangents."""

    def __init__(self, function: Callable[..., Any], primals: Sequence[Tensor], has_aux: bool,
                 level: int | None = None) -> None:  # fmt: skip
        self._tape = Tape(next_level() if level is None else level, of_transform=True)
        self.primals = [x._alias(x._tape) for x in primals]
        for x in self.primals:
            self._tape.watch(x, lambda _g: None)
        self._leaves = [x._tape[self._tape] for x in self.primals if x._tape]
        self._tape.open()
        try:
            out = function(*self.primals)
        finally:
            self._tape.rest()
        self.aux = None
        if has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise TransformError(
                    "has_aux=True needs a function that returns a pair (result, aux), got "
                    f"{type(out).__name__}"
                )
            out, self.aux = out
        outs, self.structure = flatten(out)
        self.outs = [as_tensor(o) for o in outs]

    def pull(self, cotangents: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of the primals; it may be called again."""
        for y, dy in zip(self.outs, cotangents, strict=True):
            if y.spec.shape != dy.spec.shape:
                raise TransformError(
                    f"a cotangent must have the shape of the result, {y.shape}, got {dy.shape}"
                )
        arrived = self._tape.pull(self.outs, cotangents, set(self._leaves), keep=True)
        return [arrived[leaf] if leaf in arrived else zeros_like(x.spec)
                for leaf, x in zip(self._leaves, self.primals, strict=True)]  # fmt: skip

    def results(self) -> Any:
        """Return the results of the function, without this tape's marks."""
        return self.structure.build(y._alias({t: n for t, n in (y._tape or {}).items() if t is not self._tape}
                                             or None) for y in self.outs)  # fmt: skip


def _of_parts(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Argnums
) -> tuple[Callable[..., Any], list[Tensor], Structure]:
    """Return `function` of only the leaves of the arguments `argnums`, those leaves, and their nesting."""
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if any(not -len(args) <= n < len(args) for n in numbers):
        raise TransformError(
            f"argnums = {argnums} is out of range for a call with {len(args)} positional arguments"
        )
    numbers = tuple(n % len(args) for n in numbers)
    chosen = args[numbers[0]] if isinstance(argnums, int) else tuple(args[n] for n in numbers)
    leaves, structure = flatten(chosen)
    primals = [as_tensor(leaf) for leaf in leaves]
    if wrong := [x.dtype for x in primals if x.dtype not in INEXACT]:
        raise TransformError(
            f"gradients need floating-point arguments, got {wrong[0]}: cast it with astype, or leave it out "
            "of argnums"
        )

    def of_leaves(*values: Tensor) -> Any:
        given = list(args)
        built = structure.build(iter(values))
        for n, part in zip(numbers, (built,) if isinstance(argnums, int) else built, strict=True):
            given[n] = part
        return function(*given, **kwargs)

    return of_leaves, primals, structure


def value_and_grad(
    function: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that returns the value of `function` and its gradient.

    Parameters
    ----------
    function : callable
        Its result is one number; with `has_aux` it returns a pair of that and anything.
    argnums : int or sequence of int
        Of which arguments; a sequence gives a tuple of gradients.
    has_aux : bool

    Returns
    -------
    callable
        It returns ``value, gradient``, or ``(value, aux), gradient``.

    Examples
    --------
    >>> value, slope = mgb.value_and_grad(lambda x: F.sum(x * x))(mgb.tensor([1.0, 3.0]))
    >>> value.item(), slope.tolist()
    (10.0, [2.0, 6.0])
    """

    @on_arrays
    @wraps(function)
    def both(*args: Any, **kwargs: Any) -> Any:
        of_leaves, primals, structure = _of_parts(function, args, kwargs, argnums)
        linear = _Linearized(of_leaves, primals, has_aux)
        if linear.structure != LEAF or linear.outs[0].ndim:
            raise TransformError(
                "grad needs a function that returns one number, of shape (): use jacobian for others"
            )
        y = linear.outs[0].spec
        seed = literal(np.ones((), y.dtype), y.dtype, y.device)
        grads = structure.build(iter(linear.pull([seed])))
        value = linear.results()
        return ((value, linear.aux) if has_aux else value), grads

    return both


def grad(function: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that returns the gradient of `function`, as `value_and_grad` says; with aux, a pair.

    Examples
    --------
    >>> mgb.grad(lambda x: F.sum(x * x))(mgb.tensor([1.0, 3.0]))
    Tensor([2., 6.], device=xpux:0)
    """
    both = value_and_grad(function, argnums, has_aux)

    @on_arrays
    @wraps(function)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return gradient


def vjp(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return ``function(*primals)``, and the function from its cotangents to a tuple of gradients; then aux.

    Examples
    --------
    >>> y, pull = mgb.vjp(lambda x: x * x, mgb.tensor([1.0, 3.0]))
    >>> pull(mgb.tensor([1.0, 10.0]))[0].tolist()
    [2.0, 60.0]
    """
    of_leaves, leaves, structure = _of_parts(function, primals, {}, range(len(primals)))
    linear = _Linearized(of_leaves, leaves, has_aux)

    def pullback(cotangents: Any) -> Any:
        return structure.build(iter(linear.pull([as_tensor(c) for c in flatten(cotangents)[0]])))

    return (linear.results(), pullback, linear.aux) if has_aux else (linear.results(), pullback)


@on_arrays
def jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """Return ``function(*primals)`` and its derivative in the direction of `tangents`.

    The pullback is linear in the cotangents, and its own pullback is the derivative.

    Examples
    --------
    >>> y, slope = mgb.jvp(lambda x: x * x, (mgb.tensor([1.0, 3.0]),), (mgb.tensor([1.0, 10.0]),))
    >>> slope.tolist()
    [2.0, 60.0]
    """
    of_leaves, leaves, structure = _of_parts(function, tuple(primals), {}, range(len(primals)))
    directions, given = flatten(tuple(tangents))
    if given != structure:
        raise TransformError("the tangents must be nested like the primals")
    outer = next_level()  # it has to see the way back of the tape of `linear`
    linear = _Linearized(of_leaves, leaves, False)
    dummies = [zeros_like(y.spec) for y in linear.outs]
    token = forward_mode.set(True)
    try:
        twice = _Linearized(lambda *us: tuple(linear.pull(us)), dummies, False, outer)
    finally:
        forward_mode.reset(token)
    return linear.results(), linear.structure.build(iter(twice.pull([as_tensor(d) for d in directions])))


def plain_spec(tensor: Tensor) -> Spec:
    """Return the type of `tensor`, whose lengths count from here on as they are."""
    return Spec(tuple(map(int, tensor._tuple_shape)), tensor.dtype, tensor._device)


def _basis(leaves: Sequence[Tensor]) -> list[Tensor]:
    """Return one-hot values of all leaves, along a new axis with an index for each of their elements."""
    specs = [plain_spec(x) for x in leaves]
    eye = np.eye(sum(s.size for s in specs))
    ends = np.cumsum([s.size for s in specs])[:-1]
    return [literal(part.reshape(-1, *s.shape).astype(s.dtype), s.dtype, s.device)
            for part, s in zip(np.split(eye, ends, axis=1), specs, strict=True)]  # fmt: skip


def jacrev(function: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of `function` by reverse mode, all rows at once.

    Of an analytic function of complex numbers it has the complex derivatives.

    The result is nested as that of `function`, and in each place as the arguments `argnums`.

    Examples
    --------
    >>> mgb.jacrev(lambda x: x * x)(mgb.tensor([1.0, 3.0])).tolist()
    [[2.0, 0.0], [0.0, 6.0]]
    """

    @on_arrays
    @wraps(function)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        of_leaves, primals, structure = _of_parts(function, args, kwargs, argnums)
        linear = _Linearized(of_leaves, primals, False)
        rows = vmap(lambda us: linear.pull(us))(_basis(linear.outs))
        if any(plain_spec(y).dtype in COMPLEX for y in linear.outs):
            rows = [r.conj() for r in rows]  # a gradient is the conjugate of a derivative
        shapes = [plain_spec(y).shape for y in linear.outs]
        blocks, start = [], 0
        for shape in shapes:
            stop = start + int(np.prod(shape))
            parts = [reshape(r[start:stop], shape=(*shape, *plain_spec(r).shape[1:])) for r in rows]
            blocks.append(structure.build(iter(parts)))
            start = stop
        return linear.structure.build(iter(blocks))

    return jacobian_of


def jacfwd(function: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of `function` by forward mode, all columns at once.

    Examples
    --------
    >>> mgb.jacfwd(lambda x: x * x)(mgb.tensor([1.0, 3.0])).tolist()
    [[2.0, 0.0], [0.0, 6.0]]
    """

    @on_arrays
    @wraps(function)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        of_leaves, primals, structure = _of_parts(function, args, kwargs, argnums)
        nested: list[Structure] = []

        def column(directions: list[Tensor]) -> list[Tensor]:
            out, tangent = jvp(of_leaves, primals, directions)
            nested.append(flatten(out)[1])
            return flatten(tangent)[0]

        columns = vmap(column, out_axes=-1)(_basis(primals))
        blocks = []
        for column_of in columns:
            parts, start = [], 0
            for shape in (plain_spec(x).shape for x in primals):
                stop = start + int(np.prod(shape))
                place = plain_spec(column_of).shape[:-1]
                parts.append(reshape(column_of[..., start:stop], shape=(*place, *shape)))
                start = stop
            blocks.append(structure.build(iter(parts)))
        return nested[0].build(iter(blocks))

    return jacobian_of


def jacobian(function: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return the Jacobian by `jacrev`, which is best where the result is smaller than the arguments.

    Examples
    --------
    >>> mgb.jacobian(lambda x: x * x)(mgb.tensor([1.0, 3.0]))
    Tensor([[2., 0.],
            [0., 6.]], device=xpux:0)
    """
    return jacrev(function, argnums)


def hessian(function: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return the Jacobian of the Jacobian: forward over reverse.

    Examples
    --------
    >>> mgb.hessian(lambda x: F.sum(x * x * x))(mgb.tensor([1.0, 3.0])).tolist()
    [[6.0, 0.0], [0.0, 18.0]]
    """
    return jacfwd(jacrev(function, argnums), argnums)
