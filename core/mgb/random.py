"""Random numbers from bits that are the same on every backend, device and number of threads.

The bits come from Philox4x32-10, a function of a counter and a key. The key is the seed; the counter's upper
half is the number of the draw, its lower half the place in it, and each counter gives four 32-bit words. So a
draw is an element-wise expression, which fuses with what reads it and needs no special case in a trace.
"""

from __future__ import annotations

import math
import secrets
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .errors import ShapeError
from .ir import dtypes
from .ir.sizes import amount, broadcast
from .ops.activations import sigmoid
from .ops.bodies.integers import mulhi
from .ops.bodies.transcendental import exp, log
from .ops.creation import as_shape
from .ops.index import index_get
from .ops.layout import reshape, slice_
from .ops.primitives import cast, iota, logical_and, lt, shr, sqrt, where
from .ops.random.bits import TINY, philox, philox_normal, philox_pair, philox_uniform, unit
from .ops.sort import argsort
from .runtime import device as devices
from .tensor import Tensor, run_in
from .tensor.apply import literal
from .tensor.arguments import explain as _explain
from .tensor.holding import SETTINGS, STATES

__all__ = [
    "RNG", "bernoulli", "beta", "exponential", "gamma", "generator", "get_rng_state", "normal",
    "permutation", "randint", "seed", "set_rng_state", "shuffle", "uniform",
]  # fmt: skip

#: What a traced function may call of it: see `holding`.
__tracing__ = {
    **dict.fromkeys(("seed", "set_rng_state"), "impure"),
    **dict.fromkeys(("uniform", "normal", "exponential", "gamma", "beta", "bernoulli"), "computes"),
}

Size = int | Sequence[int] | None

#: A gamma number takes the first of so many proposals that is accepted; 95 of 100 are.
_PROPOSALS = 8

#: Every generator there is.
_alive: weakref.WeakSet[RNG] = weakref.WeakSet()


class RNG:
    """A stream of random numbers.

    Parameters
    ----------
    seed : int, optional
        From 0 to 2**64 - 1; None takes one from the operating system.
    device : str, optional
        Where the numbers are made.

    Notes
    -----
    A draw holds at most 2**34 numbers. Threads that draw at the same time want a generator each.

    Examples
    --------
    >>> a, b = mgb.random.RNG(seed=3), mgb.random.RNG(seed=3)
    >>> a.uniform(size=(4,)).tolist() == b.uniform(size=(4,)).tolist()
    True
    """

    def __init__(self, seed: int | None = None, device: str | None = None) -> None:
        self._device = devices.canonical(device or "xpux")
        self._seed, self._draws = (Tensor(np.uint64(0), device=self._device) for _ in range(2))
        self.set_state((secrets.randbits(64) if seed is None else seed, 0))
        _alive.add(self)

    def seed(self, seed: int) -> None:
        """Begin the stream of `seed`."""
        self.set_state((seed, 0))

    def get_state(self) -> tuple[int, int]:
        """Return the seed and the number of draws so far: all there is to know."""
        return self._seed.item(), self._draws.item()

    def set_state(self, state: tuple[int, int]) -> None:
        """Go to where `get_state` was called.

        Raises
        ------
        ValueError
            A number is negative or has more than 64 bits.
        """
        if not all(isinstance(n, int | np.integer) and 0 <= int(n) < 1 << 64 for n in state):
            raise ValueError(f"random: seed must be an integer from 0 to 2**64 - 1, got {state[0]!r}")
        for tensor, number in zip((self._seed, self._draws), state):  # compiled calls hold these very two
            tensor._reset(Tensor(np.uint64(number), device=self._device))

    # bits

    def _draw(self, op: Callable[..., Tensor], shape: tuple[int, ...], each: int, *numbers: Any) -> Tensor:
        """Return `shape` numbers of a new draw, by an op that makes `each` of them from one counter."""
        count = math.prod(shape)
        rows = iota(shape=(-(-count // each), 1), dtype=dtypes.uint32, device=self._device)
        which = iota(shape=(1, each), dtype=dtypes.uint32, device=self._device)
        draw, key = _halves(self._draws), _halves(self._seed)
        self._draws._reset(self._draws + 1)
        flat = reshape(op(which, rows, 0, *draw, *key, *numbers), shape=(rows.size * each,))
        return reshape(slice_(flat, window=((0, count, 1),)), shape=shape)

    # distributions

    def uniform(self, low: float = 0, high: float = 1, size: Size = None) -> Tensor:
        """Draw from the uniform distribution on ``[low, high)``.

        Parameters
        ----------
        low : float
            The least number.
        high : float
            Above all numbers.
        size : int or sequence of int, optional
            The shape; None is one number.

        Returns
        -------
        Tensor of float32
            In steps of ``(high - low) * 2**-24``.
        """
        below = float(np.nextafter(np.float32(high), np.float32(low)))  # the sum may round up to `high`
        return self._draw(philox_uniform, _shape(size), 4, float(high - low), float(low), below)

    def normal(self, mean: Any = 0, std: Any = 1, size: Size = None) -> Tensor:
        """Draw from the normal distribution with `mean` and deviation `std`, by the method of Box and Muller.

        Parameters
        ----------
        mean : float or Tensor
            Broadcasts to `size`.
        std : float or Tensor
            Likewise.
        size : int or sequence of int, optional
            The shape; None is one number.

        Returns
        -------
        Tensor of float32
            None further than 6.8 `std` from `mean`.

        Notes
        -----
        They are made with a logarithm and a cosine, whose last bits each backend has in its own way.
        """
        if isinstance(mean, int | float) and isinstance(std, int | float):
            return self._draw(philox_normal, _shape(size), 4, float(std), float(mean))
        out: Tensor = self._draw(philox_normal, _shape(size), 4, 1.0, 0.0) * std + mean
        return out

    def exponential(self, rate: Any = 1, size: Size = None) -> Tensor:
        """Draw from the exponential distribution with a rate above 0; the mean is ``1 / rate``.

        Parameters
        ----------
        rate : float or Tensor
            The result is of ``(*size, *rate.shape)``. Numbers of 0 or less are refused.
        size : int or sequence of int, optional
            None is one number for each rate.

        Returns
        -------
        Tensor of float32

        Notes
        -----
        They are made with a logarithm, whose last bits each backend has in its own way.
        """
        rate = self._given("rate", rate)
        bits = self._draw(philox, (*_shape(size), *rate.shape), 4)
        out: Tensor = log(unit(bits) + TINY) / -rate
        return out

    def gamma(self, shape: Any = 1, scale: Any = 1, size: Size = None) -> Tensor:
        """Draw from the gamma distribution with shape and scale above 0, as Marsaglia and Tsang (2000).

        Parameters
        ----------
        shape : float or Tensor
        scale : float or Tensor
            Both broadcast; the result is of ``(*size, *broadcast)``. Numbers of 0 or less are refused.
        size : int or sequence of int, optional
            None is one number for each shape and scale.

        Returns
        -------
        Tensor of float32

        Notes
        -----
        A number takes the first of eight proposals that is accepted; of 10**10 numbers, one or so has none,
        and it is ``shape - 1 / 3``. So a draw has the same ops for any values.
        """
        shape, scale = self._given("shape", shape), self._given("scale", scale)
        found, power = self._gamma(shape, (*_shape(size), *_common(shape, scale)))
        out: Tensor = found * exp(power) * scale
        return out

    def _gamma(self, shape: Tensor, wanted: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return gamma numbers, and the logarithms of factors to multiply them by, which may be tiny."""
        small = lt(shape, 1)  # the method wants 1 or more
        d = where(small, shape + 1, shape) - 1 / 3
        found: Any = d
        for _ in range(_PROPOSALS):
            found = self._proposed(d, wanted, found)
        power = log(self.uniform(size=wanted) + TINY) / where(small, shape, 1)
        return found, where(small, power, 0)

    def _proposed(self, d: Any, wanted: tuple[int, ...], otherwise: Tensor) -> Tensor:
        """Return one proposal for a gamma number of shape ``d + 1 / 3`` where it is accepted."""
        x: Any = self.normal(size=wanted)
        root = 1 + x / sqrt(9 * d)
        v = root * root * root
        positive = lt(0, v)
        bound = 0.5 * x * x + d * (1 - v + log(where(positive, v, 1)))
        accepted = logical_and(positive, lt(log(self.uniform(size=wanted) + TINY), bound))
        return where(accepted, d * v, otherwise)

    def _given(self, name: str, parameter: Any) -> Tensor:
        """Return `parameter` in float32. Tensors are not checked, which would read values in a trace."""
        if isinstance(parameter, Tensor):
            return cast(parameter, dtype=dtypes.float32)
        if not np.all(np.asarray(parameter) > 0):
            raise ValueError(f"random: {name} must be above 0, got {parameter}")
        return literal(parameter, dtypes.float32, self._device)

    def beta(self, alpha: Any, beta: Any, size: Size = None) -> Tensor:
        """Draw float32 from the beta distribution with two parameters above 0, from two draws of `gamma`."""
        alpha, beta = self._given("alpha", alpha), self._given("beta", beta)
        wanted = (*_shape(size), *_common(alpha, beta))
        (first, p), (second, q) = (self._gamma(parameter, wanted) for parameter in (alpha, beta))
        return sigmoid(log(first) + p - log(second) - q)  # both may be too small for a quotient

    def bernoulli(self, p: Any, size: Size = None) -> Tensor:
        """Draw bools, True with probability `p`, a float or a Tensor broadcast to `size`; steps of 2**-24."""
        shape = _shape(p.shape if size is None and isinstance(p, Tensor) else size)
        out: Tensor = self.uniform(size=shape) < p
        return out

    def randint(self, low: int, high: int | None = None, size: Size = None) -> Tensor:
        """Draw integers of ``[low, high)``, or ``[0, low)`` without `high`, equally likely to 1 in 2**32.

        Returns
        -------
        Tensor of int32

        Raises
        ------
        ValueError
            The range from `low` to `high` is empty, or one of them has more than 32 bits.
        """
        low, high = (0, low) if high is None else (low, high)
        if not -(1 << 31) <= low < high <= 1 << 31:
            raise ValueError(
                f"randint: low must be below high, both in the range of int32, got {low} and {high}"
            )
        chosen = mulhi(self._draw(philox_pair, _shape(size), 2), high - low)
        return cast(cast(chosen, dtype=dtypes.int64) + low, dtype=dtypes.int32)

    def permutation(self, n: int | Tensor, *, dtype: Any = "int32") -> Tensor:
        """Return the integers below `n` in random order, as `dtype`.

        Or a Tensor, its first axis in such order.
        """
        if isinstance(n, Tensor):
            return index_get(n, self.permutation(len(n)), axes=(0,), place=0)
        order, wanted = (
            argsort(self._draw(philox_pair, (amount(n, "permutation: n"),), 2)),
            dtypes.as_dtype(dtype),
        )
        return order if wanted == order.dtype else cast(order, dtype=wanted)

    def shuffle(self, inp: Tensor) -> None:
        """Put the first axis of `inp` in random order, in place."""
        inp._reset(self.permutation(inp))


def _halves(number: Tensor) -> tuple[Tensor, Tensor]:
    return cast(number, dtype=dtypes.uint32), cast(shr(number, 32), dtype=dtypes.uint32)


def _common(first: Tensor, second: Tensor) -> tuple[int, ...]:
    shape = broadcast((first.shape, second.shape))
    if shape is None:
        message = f"random: parameters of the shapes {first.shape} and {second.shape} do not broadcast"
        raise ShapeError(message)
    return shape


def _shape(size: Size) -> tuple[int, ...]:
    if size is None:
        return ()
    shape = as_shape(size, "random: size")
    return tuple(amount(d, "random: size, each") for d in shape)


def states() -> Iterator[Tensor]:
    """Return the Tensors that hold the states of all generators: what a compiled call carries on."""
    return (tensor for one in tuple(_alive) for tensor in (one._seed, one._draws))


STATES.append(states)


# the generator that everybody shares, one for each device

_generators: dict[str, RNG] = {}
SETTINGS.append((sys.modules[__name__], "_generators"))


def generator(device: str | None = None) -> RNG:
    """Return the generator behind the functions of this module and `functional.dropout`, on `device`.

    Examples
    --------
    >>> generator().normal(size=(2, 3)).shape
    (2, 3)
    """
    name = devices.canonical(device or "xpux")
    if name not in _generators:
        # It lives outside of the trace that happens to ask for it first.
        _generators.setdefault(name, run_in(None, RNG, _first_seed(), name))
    return _generators[name]


def _first_seed() -> int | None:
    """Return the seed of the devices that are here, which those that join later get too."""
    return next((g.get_state()[0] for g in _generators.values()), None)


def forget(kind: str) -> None:
    """Drop the shared generators of devices of `kind`, ``"cpu"`` or ``"gpu"``.

    Those that are requested next start again, with the seed of the devices that are left.
    """
    for name in [name for name in _generators if devices.device_type(name) == kind]:
        del _generators[name]


def seed(seed: int) -> None:
    """Begin the stream of `seed`, on every device.

    Examples
    --------
    >>> mgb.random.seed(7)
    >>> first = mgb.random.uniform(size=(3,)).tolist()
    >>> mgb.random.seed(7)
    >>> first == mgb.random.uniform(size=(3,)).tolist()
    True
    """
    generator()
    for one in _generators.values():
        one.seed(seed)


def get_rng_state() -> tuple[int, int]:
    """Return the state of the shared generator; see `RNG.get_state`.

    Examples
    --------
    >>> state = mgb.random.get_rng_state()
    >>> first = mgb.random.uniform(size=(3,)).tolist()
    >>> mgb.random.set_rng_state(state)
    >>> first == mgb.random.uniform(size=(3,)).tolist()
    True
    """
    return generator().get_state()


def set_rng_state(state: tuple[int, int]) -> None:
    """Go to where `get_rng_state` was called, on every device.

    Examples
    --------
    >>> state = mgb.random.get_rng_state()
    >>> draws = [mgb.random.normal().item()]
    >>> set_rng_state(state)
    >>> mgb.random.normal().item() == draws[0]
    True
    """
    generator()
    for one in _generators.values():
        one.set_state(state)


def uniform(low: float = 0, high: float = 1, size: Size = None) -> Tensor:
    """Draw from the uniform distribution on ``[low, high)``; see `RNG.uniform`.

    Examples
    --------
    >>> mgb.random.uniform(size=(2, 3)).shape
    (2, 3)
    """
    return generator().uniform(low, high, size)


def normal(mean: Any = 0, std: Any = 1, size: Size = None) -> Tensor:
    """Draw from the normal distribution with `mean` and standard deviation `std`; see `RNG.normal`.

    Examples
    --------
    >>> mgb.random.normal(size=(2, 3)).shape
    (2, 3)
    """
    return generator().normal(mean, std, size)


def exponential(rate: Any = 1, size: Size = None) -> Tensor:
    """Draw from the exponential distribution with a rate, the mean is ``1 / rate``; see `RNG.exponential`.

    Examples
    --------
    >>> draws = exponential(4.0, (1000,)).numpy()
    >>> bool(abs(draws.mean() - 1 / 4) < 0.05)
    True
    """
    return generator().exponential(rate, size)


def gamma(shape: Any = 1, scale: Any = 1, size: Size = None) -> Tensor:
    """Draw from the gamma distribution with a shape and a scale; see `RNG.gamma`.

    Examples
    --------
    >>> draws = gamma(2.0, 3.0, (1000,)).numpy()
    >>> bool(abs(draws.mean() - 6) < 1)
    True
    """
    return generator().gamma(shape, scale, size)


def beta(alpha: Any, beta: Any, size: Size = None) -> Tensor:
    """Draw from the beta distribution with two parameters; see `RNG.beta`.

    Examples
    --------
    >>> draws = beta(2.0, 3.0, (1000,)).numpy()
    >>> bool(abs(draws.mean() - 2 / 5) < 0.05)
    True
    """
    return generator().beta(alpha, beta, size)


def bernoulli(p: Any, size: Size = None) -> Tensor:
    """Draw bools that are True with probability `p`; see `RNG.bernoulli`.

    Examples
    --------
    >>> bernoulli(mgb.tensor([0.0, 1.0])).numpy()
    array([False,  True])
    """
    return generator().bernoulli(p, size)


def randint(low: int, high: int | None = None, size: Size = None) -> Tensor:
    """Draw integers of ``[low, high)``; see `RNG.randint`.

    Examples
    --------
    >>> draws = randint(3, 5, (100,)).numpy()
    >>> sorted(set(draws.tolist()))
    [3, 4]
    """
    return generator().randint(low, high, size)


def permutation(n: int | Tensor, *, dtype: Any = "int32") -> Tensor:
    """Return a random order; see `RNG.permutation`.

    Examples
    --------
    >>> sorted(mgb.random.permutation(4).tolist())
    [0, 1, 2, 3]
    """
    return generator().permutation(n, dtype=dtype)


def shuffle(inp: Tensor) -> None:
    """Put the first axis of `inp` in random order, in place.

    Examples
    --------
    >>> x = mgb.tensor([1, 2, 3])
    >>> shuffle(x)
    >>> sorted(x.tolist())
    [1, 2, 3]
    """
    generator().shuffle(inp)


def __dir__() -> list[str]:
    return __all__


_explain(globals(), __all__)
