"""Recurrent layers over sequences, and their cells, which take one step."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np

from .. import functional as F
from ..errors import ShapeError
from ..loops import scan
from ..tensor import Parameter, Tensor
from . import init
from .dropout import Dropout
from .module import Module
from .sizes import size

#: From so many steps on they are one loop, compiled once; fewer are written out, and serve other lengths.
_LONG = 16

#: The tensors that a cell hands on: (hidden,), or (hidden, memory).
State = tuple[Tensor, ...]


def _checked(layer: Module, hx: Any, count: int, shape: tuple[int, ...]) -> State | None:
    """Return the state that is given to `layer`: `count` Tensors of `shape`; None is none given.

    Raises
    ------
    ShapeError
        It is something else: a state of another shape would broadcast, or lose its end.
    """
    if hx is None:
        return None
    alone = isinstance(hx, Tensor)
    parts = (hx,) if alone else tuple(hx) if isinstance(hx, tuple | list) else ()
    if alone == (count == 1) and [getattr(part, "shape", None) for part in parts] == [shape] * count:
        return parts
    wanted = f"one Tensor of shape {shape}" if count == 1 else f"a tuple of {count} Tensors of shape {shape}"
    shapes = [getattr(part, "shape", type(part).__name__) for part in parts]
    got = f"a tuple of {shapes}" if not alone and parts else getattr(hx, "shape", type(hx).__name__)
    raise ShapeError(f"{type(layer).__name__}: hx is {wanted}, got {got}")


class _Cell(Module):
    """Base class of cells: a linear map of the input and one of the state, for each of `gates` gates.

    Parameters
    ----------
    input_size, hidden_size : int
    bias : bool
    name : str, optional

    Attributes
    ----------
    weight_ih : Parameter of shape (gates * hidden_size, input_size)
    weight_hh : Parameter of shape (gates * hidden_size, hidden_size)
    bias_ih, bias_hh : Parameter of shape (gates * hidden_size,), or None
        All uniform within ``1 / sqrt(hidden_size)`` of 0.
    """

    gates = 1
    #: How many tensors the state has.
    states = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, name: str | None = None) -> None:
        super().__init__(name)
        self.input_size, self.hidden_size = size("input_size", input_size), size("hidden_size", hidden_size)
        rows = self.gates * self.hidden_size
        self.weight_ih = Parameter(np.zeros((rows, self.input_size)))
        self.weight_hh = Parameter(np.zeros((rows, self.hidden_size)))
        self.bias_ih = Parameter(np.zeros(rows)) if bias else None
        self.bias_hh = Parameter(np.zeros(rows)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        reach = 1.0 / math.sqrt(max(self.hidden_size, 1))
        for parameter in self.parameters():
            init.uniform_(parameter, -reach, reach)

    def seen(self, inputs: Tensor) -> Tensor:
        """Project inputs of any number of axes to the gates: for a whole sequence in one product."""
        if not inputs.ndim or inputs.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: the input must have {self.input_size} features in its last axis, "
                f"got shape {inputs.shape}"
            )
        return F.linear(inputs, self.weight_ih, self.bias_ih)

    def begin(self, shape: tuple[int, ...], like: Tensor) -> State:
        """Return the state before the first step: zeros."""
        zeros = F.zeros((*shape, self.hidden_size), like.dtype, like.device)
        return (zeros,) * self.states

    @abstractmethod
    def step(self, seen: Tensor, state: State) -> State:
        """Return the next state."""

    def _told(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.weight_hh, self.bias_hh)

    def _next(self, inputs: Tensor, hx: Any) -> State:
        seen, batch = self.seen(inputs), inputs.shape[:-1]
        state = _checked(self, hx, self.states, (*batch, self.hidden_size))
        return self.step(seen, state or self.begin(batch, inputs))

    def _describe(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, bias={self.bias_ih is not None}"


class RNNCell(_Cell):
    """``tanh(W_ih x + b_ih + W_hh h + b_hh)``, or ``relu`` of it.

    Parameters
    ----------
    input_size, hidden_size : int
    bias : bool
    nonlinearity : {"tanh", "relu"}
    name : str, optional

    Examples
    --------
    >>> M.RNNCell(3, 5)(F.ones((2, 3))).shape
    (2, 5)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        name: str | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"{nonlinearity!r} is not a nonlinearity of a cell: choose 'tanh' or 'relu'")
        super().__init__(input_size, hidden_size, bias, name)
        self.nonlinearity = nonlinearity

    def step(self, seen: Tensor, state: State) -> State:
        told = seen + self._told(state[0])
        return (F.tanh(told) if self.nonlinearity == "tanh" else F.relu(told),)

    def _describe(self) -> str:
        return f"{super()._describe()}, nonlinearity={self.nonlinearity!r}"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next hidden state, of shape (..., hidden_size)."""
        return self._next(input, hx)[0]


class LSTMCell(_Cell):
    """Long short-term memory (Hochreiter and Schmidhuber 1997); its gates are input, forget, cell, output.

    Examples
    --------
    >>> M.LSTMCell(3, 5)(F.ones((2, 3)))[0].shape
    (2, 5)
    """

    gates, states = 4, 2

    def step(self, seen: Tensor, state: State) -> State:
        hidden, memory = state
        opened, kept, new, shown = F.split(seen + self._told(hidden), 4, axis=-1)
        memory = F.sigmoid(kept) * memory + F.sigmoid(opened) * F.tanh(new)
        return F.sigmoid(shown) * F.tanh(memory), memory

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return the next hidden state and memory, each of shape (..., hidden_size)."""
        hidden, memory = self._next(input, hx)
        return hidden, memory


class GRUCell(_Cell):
    """The gated recurrent unit (Cho et al. 2014); its gates are reset, update, new.

    Examples
    --------
    >>> M.GRUCell(3, 5)(F.ones((2, 3))).shape
    (2, 5)
    """

    gates = 3

    def step(self, seen: Tensor, state: State) -> State:
        (hidden,) = state
        (reset, update, new), (r, z, n) = F.split(seen, 3, axis=-1), F.split(self._told(hidden), 3, axis=-1)
        new = F.tanh(new + F.sigmoid(reset + r) * n)
        return (new + F.sigmoid(update + z) * (hidden - new),)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """Return the next hidden state, of shape (..., hidden_size)."""
        return self._next(input, hx)[0]


class _Recurrent(Module):
    """Layers of cells over a sequence; see `RNN`."""

    cell: type[_Cell]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name)
        self.num_layers, self.batch_first, self.bidirectional = num_layers, batch_first, bidirectional
        self.hidden_size = size("hidden_size", hidden_size)
        self.directions = 2 if bidirectional else 1
        wide = self.directions * self.hidden_size
        if size("num_layers", num_layers) < 1:
            raise ShapeError(f"{type(self).__name__}: num_layers must be at least 1, got {num_layers}")
        widths = [input_size, *[wide] * (num_layers - 1)]
        self.cells = [
            self.cell(width, hidden_size, bias, **options) for width in widths for _ in range(self.directions)
        ]
        self.dropout = Dropout(dropout)

    def _run(self, inputs: Tensor, hx: Any) -> tuple[Tensor, State]:
        """Return the top layer's hidden states of every time, and the last states of all layers."""
        if inputs.ndim != 3:
            raise ShapeError(f"{type(self).__name__} takes (time, batch, features), got {inputs.shape}")
        out = F.swapaxes(inputs, 0, 1) if self.batch_first else inputs
        state = _checked(self, hx, self.cell.states, (len(self.cells), out.shape[1], self.hidden_size))
        last: list[State] = []
        for layer in range(self.num_layers):
            ways = []
            for way in range(self.directions):
                place = layer * self.directions + way
                given = None if state is None else tuple(part[place] for part in state)
                hidden, end = self._along(self.cells[place], out, given, backwards=way == 1)
                ways.append(hidden)
                last.append(end)
            out = ways[0] if self.directions == 1 else F.concat(ways, axis=-1)
            out = self.dropout(out) if layer + 1 < self.num_layers else out
        ends = tuple(F.stack(parts) for parts in zip(*last, strict=True))
        return (F.swapaxes(out, 0, 1) if self.batch_first else out), ends

    def _along(
        self, cell: _Cell, inputs: Tensor, given: State | None, backwards: bool
    ) -> tuple[Tensor, State]:
        """Return one layer in one direction."""
        state = given or cell.begin(inputs.shape[1:2], inputs)
        seen, hidden = cell.seen(inputs), []
        length = inputs.shape[0]
        if length >= _LONG:

            def step(state: State, row: State) -> tuple[State, State]:
                new = cell.step(row[0], tuple(state))
                return new, new[:1]

            last, (rows,) = scan(step, state, (seen,), length, backwards)
            return rows, tuple(last)
        times = range(length)
        for time in reversed(times) if backwards else times:
            state = cell.step(seen[time], state)
            hidden.append(state[0])
        if not hidden:
            raise ShapeError(
                f"{type(self).__name__}: the time axis must have at least one step, got shape {inputs.shape}"
            )
        return F.stack(hidden[::-1] if backwards else hidden), state

    def _describe(self) -> str:
        return (
            f"{self.cells[0].input_size}, {self.hidden_size}, num_layers={self.num_layers}, "
            f"batch_first={self.batch_first}, bidirectional={self.bidirectional}"
        )


class RNN(_Recurrent):
    """Layers of `RNNCell` over a sequence of shape (time, batch, input_size).

    Parameters
    ----------
    input_size, hidden_size : int
    num_layers : int
        Each layer reads the hidden states of the one below.
    bias : bool
    batch_first : bool
        Sequences are of shape (batch, time, ...).
    dropout : float
        The probability to drop a hidden state between layers.
    bidirectional : bool
        A second cell in each layer reads backwards; the hidden states of both stand side by side.
    nonlinearity : {"tanh", "relu"}
    name : str, optional

    Examples
    --------
    >>> M.RNN(3, 5)(F.ones((4, 2, 3)))[0].shape
    (4, 2, 5)
    """

    cell = RNNCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        nonlinearity: str = "tanh",
        name: str | None = None,
    ) -> None:
        shape = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, name)
        super().__init__(*shape, nonlinearity=nonlinearity)
        self.nonlinearity = nonlinearity

    def _describe(self) -> str:
        return f"{super()._describe()}, nonlinearity={self.nonlinearity!r}"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return all hidden states of the top layer, and the last of each layer and direction."""
        out, (hidden,) = self._run(input, hx)
        return out, hidden


class GRU(_Recurrent):
    """As `RNN`, of `GRUCell`.

    Examples
    --------
    >>> M.GRU(3, 5)(F.ones((4, 2, 3)))[0].shape
    (4, 2, 5)
    """

    cell = GRUCell

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return all hidden states of the top layer, and the last of each layer and direction."""
        out, (hidden,) = self._run(input, hx)
        return out, hidden


class LSTM(_Recurrent):
    """As `RNN`, of `LSTMCell`.

    Examples
    --------
    >>> M.LSTM(3, 5)(F.ones((4, 2, 3)))[0].shape
    (4, 2, 5)
    """

    cell = LSTMCell

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return all hidden states of the top layer, and the last hidden states and memories of each."""
        out, (hidden, memory) = self._run(input, hx)
        return out, (hidden, memory)
