"""Running an ONNX model: an interpreter over its nodes, whose values are known arrays or Tensors.

What depends on known arrays only is worked out on the host, once when the model is loaded where no data is
needed for it, and else while a trace records. So shapes are numbers by the time that a Reshape wants them, an
If whose condition is known takes its branch, and a Loop is unrolled.
"""

from __future__ import annotations

import inspect
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
from mgb.errors import (
    FileFormatError,
    LoadedFunctionError,
    LoadLimitError,
    SymbolicReadError,
    TraceError,
    UnsupportedError,
)
from mgb.ops.declare import OPS
from mgb.random import generator
from mgb.storage import model_file
from mgb.storage.limits import FoldingStopped, LoadLimits, Meter, folded, meter, metered
from mgb.tensor import Parameter, Tensor
from mgb.tensor.apply import apply

from .expand import Expansions, Key
from .operators import TABLE
from .operators.table import Row
from .structure import Body, Call, Function, ModelFile, Reference
from .training import weights_of
from .values import Value, Weights, fresh, host_of, is_known, result_of, unfold

#: What a damaged model can make the rules of NumPy and Python raise on impossible values.
_FAILURES = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)

Scope = MutableMapping[str, Value]


class Model(model_file.Model):
    """A model that can run.

    Parameters
    ----------
    file : ModelFile
    outputs : sequence of str, optional
        Names of values in the graph; None: its own outputs.
    device : str, optional
        Where the weights are kept; None: the default device.
    limits : LoadLimits, optional
        Of loading, and of each call.
    trainable : bool
        The weights are Parameters, and what depends on them is computed at each call.

    Raises
    ------
    LoadLimitError
        It asks for more than `limits` allow.
    UnsupportedError
        An operator is lacking; the message has every one of them, with its node.
    FileFormatError
        The nodes contradict each other, or what they say of their weights.
    """

    def __init__(
        self,
        file: ModelFile,
        outputs: Sequence[str] | None = None,
        device: str | None = None,
        limits: LoadLimits | None = None,
        trainable: bool = False,
    ) -> None:
        self.inputs, self.metadata = file.inputs, file.metadata
        self.outputs = tuple(_specs(file, outputs))
        self.structure = file.structure if outputs is None else ""
        self.limits = limits
        self._functions = file.functions
        self._expansions = Expansions()
        self.weights = Weights(device)
        self.device = self.weights.device
        generator(self.device)  # made here: a trace takes what its body makes for a value of one call
        self.body = _needed(file.body, file.body.outputs if outputs is None else outputs)
        found = dict(weights_of(self.body, self._functions)) if trainable else {}
        self.trainable = {
            name: (Parameter if learnt else Tensor)(array, array.dtype, self.device)
            for name, (array, learnt) in found.items()
        }
        self._known: Scope = {n: a for n, a in self.body.constants.items() if n not in found}
        self._calls = metered(Meter(limits), self._checked)
        self.weights.keep(self._known.values())
        for body in _bodies(self.body, self._functions):
            self.weights.keep(a for a in _arrays(body) if all(a is not w for w, _ in found.values()))

    def __call__(self, *inputs: Value) -> tuple[Value, ...]:
        """Return the values of the outputs; see `mgb.jit.load` for a call that checks its inputs."""
        try:
            return self._outputs(inputs)
        except (LoadLimitError, SymbolicReadError) as error:
            # The frames hold the values so far, which a trace computes as long as anything holds them.
            raise error.with_traceback(None) from None

    def _outputs(self, inputs: Sequence[Value]) -> tuple[Value, ...]:
        scope = {**self._known, **self.trainable, **dict(zip(self.body.inputs, inputs, strict=True))}
        metered(Meter(self.limits), self._run, self._calls, scope, self.body, {})
        return tuple(result_of(scope[name], self.weights) for name in self.body.outputs)

    # what is known before any data

    def _checked(self) -> tuple[Call, ...]:
        """Return the nodes that wait for data; the results of the others join what is known."""
        _Check(self._functions).all_of(self.body)
        left = []
        for call in self.body.calls:
            row = self._row(call)
            if row is None or not row.folds or any(n and n not in self._known for n in call.inputs):
                left.append(call)
                continue
            try:
                folded(self._run, [call], self._known, self.body, {})
            except FoldingStopped:
                left.append(call)
            except LoadedFunctionError as error:
                raise FileFormatError(str(error)) from error
        return tuple(left)

    def _row(self, call: Call) -> Row | None:
        own = (call.domain, call.operator, call.overload) in self._functions
        return None if own else TABLE.get((call.domain, call.operator))

    # running

    def _run(self, calls: Iterable[Call], scope: Scope, body: Body, attributes: Mapping[str, Any]) -> None:
        """Give every name that `calls` make its value in `scope`."""
        found = meter()
        for call in calls:
            found.place = call.place
            found.spend("nodes", 1)
            inputs = [scope[name] if name else None for name in call.inputs]
            given = self._attributes(call, scope, body, attributes)
            results = self._results(call, inputs, given, body)
            if len(results) < len(call.outputs):
                raise FileFormatError(f"{call.place}: it has {len(results)} results, not {len(call.outputs)}")
            scope.update((n, r) for n, r in zip(call.outputs, results) if n)

    def _results(
        self, call: Call, inputs: list[Value], attributes: Mapping[str, Any], body: Body
    ) -> tuple[Value, ...]:
        key = (call.domain, call.operator, call.overload)
        if key in self._functions:
            return self._call_function(call, self._functions[key], inputs, attributes)
        row = TABLE.get((call.domain, call.operator))
        if row is not None:
            return self._call_row(call, row, inputs, attributes)
        function = self._expansions.find(call, inputs, attributes, body.opsets)
        return self._call_function(call, function, inputs, attributes)

    def _attributes(self, call: Call, scope: Scope, body: Body, outer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes with references followed, and graphs as functions over `scope`."""
        given = {}
        for name, value in call.attributes.items():
            if isinstance(value, Reference):
                if value.name not in outer:
                    continue
                value = outer[value.name]
            given[name] = self._closure(value, scope, outer) if isinstance(value, Body) else value
        return given

    def _closure(
        self, body: Body, scope: Scope, attributes: Mapping[str, Any]
    ) -> Callable[..., tuple[Value, ...]]:
        def run(*inputs: Value) -> tuple[Value, ...]:
            if len(inputs) != len(body.inputs):
                raise FileFormatError(f"{body.place}: it takes {len(body.inputs)} inputs, got {len(inputs)}")
            inner = ChainMap({**body.constants, **dict(zip(body.inputs, inputs))}, scope)
            self._run(body.calls, inner, body, attributes)
            return tuple(inner[name] for name in body.outputs)

        return run

    def _call_function(
        self, call: Call, function: Function, inputs: list[Value], attributes: Mapping[str, Any]
    ) -> tuple[Value, ...]:
        """Call our own op where the function stands for one, else the function's body."""
        if function.own is not None and function.own[0] in OPS:
            return (self._call_own(call, function.own, inputs),)
        body = function.body
        if len(inputs) > len(body.inputs):
            raise FileFormatError(f"{call.place}: {len(inputs)} inputs for a function of {len(body.inputs)}")
        inputs = inputs + [None] * (len(body.inputs) - len(inputs))
        scope: Scope = dict(zip(body.inputs, inputs))
        self._run(body.calls, scope, body, {**function.defaults, **attributes})
        return tuple(scope[name] if name else None for name in body.outputs)

    def _call_own(self, call: Call, own: tuple[str, Mapping[str, Any]], inputs: list[Value]) -> Tensor:
        op, params = OPS[own[0]], own[1]
        with _at(call):
            return apply(op, *map(self.weights.tensor, inputs), **params)

    def _call_row(
        self, call: Call, row: Row, inputs: list[Value], attributes: Mapping[str, Any]
    ) -> tuple[Value, ...]:
        if len(inputs) > len(row.kinds) and row.rest is None:
            raise FileFormatError(
                f"{call.place}: {len(inputs)} inputs, {call.operator} takes {len(row.kinds)}"
            )
        kinds = (*row.kinds, *(row.rest for _ in inputs[len(row.kinds) :]))
        if row.folds and is_known(inputs):
            try:
                return folded(self._applied_at_once, call, row, kinds, inputs, attributes)
            except FoldingStopped:
                if meter().folding:
                    raise
        results = self._applied(call, row, kinds, inputs, attributes)
        reads = any(k == "Host" and isinstance(v, Tensor) for k, v in zip(kinds, inputs))
        return tuple(fresh(r, self.device) for r in results) if reads else results

    def _applied_at_once(self, *args: Any) -> tuple[Value, ...]:
        """Apply to known values alone, like `_applied`: so are the results."""
        return tuple(map(unfold, self._applied(*args)))

    def _applied(
        self,
        call: Call,
        row: Row,
        kinds: Sequence[str | None],
        inputs: list[Value],
        attributes: Mapping[str, Any],
    ) -> tuple[Value, ...]:
        with _at(call):
            args = [self._given(kind, value) for kind, value in zip(kinds, inputs)]
            count = {"wanted": len(call.outputs)} if row.needs_count else {}
            result = row.function(*args, **attributes, **count)
            return result if isinstance(result, tuple) else (result,)

    def _given(self, kind: str | None, value: Value) -> Value:
        if value is None or kind == "Value":
            return value
        if isinstance(value, list):
            raise FileFormatError("got a sequence, expected a tensor")
        return host_of(value) if kind == "Host" else self.weights.tensor(value)


class _at:
    """Errors inside tell the node at which they happened."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> None:
        place = self._call.place
        if isinstance(error, UnsupportedError) and place not in str(error):
            raise UnsupportedError(f"{place}: {error}") from error
        if isinstance(error, LoadLimitError | LoadedFunctionError | FileFormatError | TraceError):
            return  # it has its place, or is not an error of the node
        if isinstance(error, _FAILURES):
            raise LoadedFunctionError(f"{place}: {error or type(error).__name__}") from error


def _specs(file: ModelFile, names: Sequence[str] | None) -> Iterator[model_file.ValueSpec]:
    """Yield the outputs, or values in the graph that are called `names`."""
    known = {spec.name: spec for spec in file.outputs}
    for name in known if names is None else names:
        yield known.get(name, model_file.ValueSpec(name, None, None))


def _needed(body: Body, outputs: Sequence[str]) -> Body:
    """Return `body` with other outputs, without the nodes that these do not need.

    Raises
    ------
    FileFormatError
        Nothing makes one of them.
    """
    wanted = set(outputs)
    calls = []
    for call in reversed(body.calls):
        if wanted.intersection(call.outputs):
            calls.append(call)
            wanted.update(call.inputs)
            wanted.update(name for inner in _inner_bodies(call) for name in _free_names(inner))
    made = {*body.inputs, *body.constants, *(n for c in calls for n in c.outputs if n)}
    missing = [name for name in outputs if name not in made]
    if missing:
        raise FileFormatError(f"nothing in the graph is called {missing[0]!r}")
    constants = {n: a for n, a in body.constants.items() if n in wanted}
    return Body(body.inputs, tuple(outputs), tuple(reversed(calls)), constants, body.opsets, body.place)


def _inner_bodies(call: Call) -> list[Body]:
    return [
        inner
        for value in call.attributes.values()
        for inner in (value if isinstance(value, tuple) else (value,))
        if isinstance(inner, Body)
    ]


def _free_names(body: Body) -> set[str]:
    """Return the names that `body` may read from the graph around it."""
    inner = {n for call in body.calls for b in _inner_bodies(call) for n in _free_names(b)}
    return inner.union(body.outputs, *(call.inputs for call in body.calls))


def _bodies(body: Body, functions: Mapping[Key, Function]) -> Iterable[Body]:
    """Return every body in a file."""
    stack = [body, *(f.body for f in functions.values())]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(inner for call in top.calls for inner in _inner_bodies(call))


def _arrays(body: Body) -> Iterable[Value]:
    """Return the arrays that stand in the file: initializers and attributes."""
    yield from body.constants.values()
    for call in body.calls:
        yield from call.attributes.values()


class _Check:
    """Looks at every node of a model before anything runs: is there a rule for it, does it end?"""

    def __init__(self, functions: Mapping[Key, Function]) -> None:
        self._functions = functions
        self._sizes: dict[Key, int] = {}
        self._open: list[Key] = []
        self._lacking: dict[str, None] = {}

    def all_of(self, body: Body) -> None:
        """Check `body` and every function that it calls."""
        size = self._size(body)
        if self._lacking:
            raise UnsupportedError("; ".join(self._lacking))
        meter().place = body.place
        meter().check("nodes", size)

    def _size(self, body: Body) -> int:
        total = 0
        for call in body.calls:
            total += self._call(call) + sum(map(self._size, _inner_bodies(call)))
        return total

    def _call(self, call: Call) -> int:
        key = (call.domain, call.operator, call.overload)
        if key in self._functions:
            return self._function(key, call)
        row = TABLE.get((call.domain, call.operator))
        if row is not None:
            unknown = set(call.attributes) - row.attributes
            if unknown:
                raise FileFormatError(f"{call.place}: {call.operator} has no attribute {min(unknown)!r}")
        elif not Expansions.has(call):
            domain = call.domain or "ai.onnx"
            self._lacking[f"{call.place}: operator {call.operator} of domain {domain} is not supported"] = (
                None
            )
        return 1

    def _function(self, key: Key, call: Call) -> int:
        if key in self._open:
            raise FileFormatError(f"{call.place}: the function calls itself")
        meter().place = call.place
        meter().check("depth", len(self._open) + 1)
        if key not in self._sizes:
            function = self._functions[key]
            if function.own is not None and function.own[0] in OPS:
                _check_own(call, function.own)
                return 1
            self._open.append(key)
            self._sizes[key] = self._size(function.body)
            self._open.pop()
        return 1 + self._sizes[key]


def _check_own(call: Call, own: tuple[str, Mapping[str, Any]]) -> None:
    name, params = own
    op = OPS[name]
    function = op.body or op.eager
    assert function is not None
    try:
        fits = not isinstance(function, np.ufunc) or function.nin == len(call.inputs)
        if not isinstance(function, np.ufunc):
            inspect.signature(function).bind(*call.inputs, **params)
    except TypeError:
        fits = False
    if not fits or len(call.outputs) != 1:
        given = f"{len(call.inputs)} inputs and the parameters {sorted(params)}"
        raise FileFormatError(f"{call.place}: {name} does not take {given}, or does not give 1 result")
