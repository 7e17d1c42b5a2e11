"""Recurrent layers, unrolled over time.

GRU is that of Cho et al. (2014), LSTM that of Hochreiter and Schmidhuber (1997).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mgb.errors import FileFormatError
from mgb.functional import tensor as shapes
from mgb.ops.creation import full
from mgb.ops.images.contract import matmul
from mgb.ops.layout import reshape
from mgb.ops.primitives import lt, maximum, minimum, where
from mgb.tensor import Tensor

from .elementwise import activation
from .layout import cut
from .table import operator

Activation = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]

#: ``step(x, state)``: the state after one more element, the output first.
Step = Callable[[Tensor, State], State]


@dataclass(frozen=True, slots=True)
class Layer:
    """The common part of the three kinds of layers.

    Attributes
    ----------
    x : Tensor
        Of shape (time, batch, inputs).
    lengths : Tensor or None
        How many elements each row of the batch has.
    directions : tuple of bool
        For each direction whether it runs backwards.
    batch_first : bool
        Do batch and direction stand first in the operands and results?
    """

    x: Tensor
    lengths: Tensor | None
    directions: tuple[bool, ...]
    batch_first: bool

    def start(self, given: Tensor | None, hidden: int) -> list[Tensor]:
        """Return the first state of each direction."""
        if given is None:
            zero = full((self.x.shape[1], hidden), 0, self.x.dtype, self.x.device)
            return [zero] * len(self.directions)
        return [given[:, d] if self.batch_first else given[d] for d in range(len(self.directions))]

    def run(self, steps: Sequence[Step], starts: Sequence[State]) -> tuple[Tensor, ...]:
        """Return all outputs, and the last value of each part of the state."""
        outputs, ends = [], []
        for step, state, backwards in zip(steps, starts, self.directions):
            rows, state = self._run_one(step, state, backwards)
            outputs.append(shapes.stack(rows, 0))
            ends.append(state)
        y = shapes.stack(outputs, 1)
        last = [shapes.stack([e[i] for e in ends], 0) for i in range(len(ends[0]))]
        if self.batch_first:
            return y.transpose(2, 0, 1, 3), *(s.transpose(1, 0, 2) for s in last)
        return y, *last

    def _run_one(self, step: Step, state: State, backwards: bool) -> tuple[list[Tensor], State]:
        times = range(self.x.shape[0])
        rows: list[Tensor] = []
        for time in reversed(times) if backwards else times:
            new = step(self.x[time], state)
            output = new[0]
            if self.lengths is not None:
                here = reshape(lt(time, self.lengths), shape=(self.x.shape[1], 1))
                new = tuple(where(here, n, s) for n, s in zip(new, state))
                output = where(here, output, 0)
            rows.append(output)
            state = new
        return (rows[::-1] if backwards else rows), state


def _layer(x: Tensor, lengths: Tensor | None, direction: str, layout: int) -> Layer:
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction)
    if directions is None:
        raise FileFormatError(f"the direction {direction!r} is not one of ONNX's")
    return Layer(x.transpose(1, 0, 2) if layout else x, lengths, directions, bool(layout))


def _activations(
    names: Sequence[str] | None,
    default: Sequence[str],
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    directions: int,
) -> list[list[Activation]]:
    """Return for each direction its activations."""
    given = list(names) if names is not None else list(default) * directions
    each = len(default)
    if len(given) != each * directions:
        raise FileFormatError(f"{len(given)} activations for {directions} directions of {each}")
    chosen = [activation(name, _nth(alphas, i), _nth(betas, i)) for i, name in enumerate(given)]
    return [chosen[d * each : (d + 1) * each] for d in range(directions)]


def _nth(values: Sequence[float] | None, i: int) -> float | None:
    return values[i] if values is not None and i < len(values) else None


def _clipper(clip: float | None) -> Activation:
    return (lambda x: x) if clip is None else (lambda x: maximum(minimum(x, clip), -clip))


def _parts(x: Tensor | None, direction: int, count: int, otherwise: Tensor) -> list[Tensor]:
    """Return the `count` equal parts of row `direction` of a bias or a weight."""
    if x is None:
        return [otherwise] * count
    row = x[direction]
    return cut(row, 0, [row.shape[0] // count] * count)


def _zero(x: Tensor) -> Tensor:
    return full((), 0, x.dtype, x.device)


@operator("RNN")
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    layer = _layer(x, lengths, direction, layout)
    functions = _activations(activations, ["Tanh"], activation_alpha, activation_beta, len(layer.directions))
    limit = _clipper(clip)

    def step_of(d: int) -> Step:
        (f,), (wb, rb) = functions[d], _parts(b, d, 2, _zero(x))
        weight, again = w[d], r[d]

        def step(now: Tensor, state: State) -> State:
            (h,) = state
            return (f(limit(_linear(now, weight) + _linear(h, again) + (wb + rb))),)

        return step

    starts = [(h,) for h in layer.start(initial_h, r.shape[-1])]
    return layer.run([step_of(d) for d in range(len(starts))], starts)


def _linear(x: Tensor, weight: Tensor) -> Tensor:
    return matmul(x, weight, transpose_b=True)


@operator("GRU")
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:
    layer = _layer(x, lengths, direction, layout)
    default = ["Sigmoid", "Tanh"]
    functions = _activations(activations, default, activation_alpha, activation_beta, len(layer.directions))
    limit = _clipper(clip)

    def step_of(d: int) -> Step:
        f, g = functions[d]
        (wz, wr, wh), (rz, rr, rh) = (_parts(m, d, 3, _zero(x)) for m in (w, r))
        wbz, wbr, wbh, rbz, rbr, rbh = _parts(b, d, 6, _zero(x))

        def step(now: Tensor, state: State) -> State:
            (h,) = state
            update = f(limit(_linear(now, wz) + _linear(h, rz) + (wbz + rbz)))
            reset = f(limit(_linear(now, wr) + _linear(h, rr) + (wbr + rbr)))
            if linear_before_reset:
                again = reset * (_linear(h, rh) + rbh)
            else:
                again = _linear(reset * h, rh) + rbh
            new = g(limit(_linear(now, wh) + again + wbh))
            return ((1 - update) * new + update * h,)

        return step

    starts = [(h,) for h in layer.start(initial_h, r.shape[-1])]
    return layer.run([step_of(d) for d in range(len(starts))], starts)


@operator("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    """Run an LSTM; with peepholes `p`, the gates see the cell too."""
    layer = _layer(x, lengths, direction, layout)
    default = ["Sigmoid", "Tanh", "Tanh"]
    functions = _activations(activations, default, activation_alpha, activation_beta, len(layer.directions))
    limit, hidden = _clipper(clip), r.shape[-1]

    def step_of(d: int) -> Step:
        f, g, h_of = functions[d]
        weight, again = w[d], r[d]
        wb, rb = _parts(b, d, 2, _zero(x))
        bias = wb + rb
        pi, po, pf = _parts(p, d, 3, _zero(x))

        def step(now: Tensor, state: State) -> State:
            h, c = state
            gates = _linear(now, weight) + _linear(h, again) + bias
            i, o, forget, new = cut(gates, 1, [hidden] * 4)
            i = f(limit(i + pi * c))
            kept = 1 - i if input_forget else f(limit(forget + pf * c))
            c = kept * c + i * g(limit(new))
            return f(limit(o + po * c)) * h_of(c), c

        return step

    starts = list(zip(layer.start(initial_h, hidden), layer.start(initial_c, hidden)))
    return layer.run([step_of(d) for d in range(len(starts))], starts)
