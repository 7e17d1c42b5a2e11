"""`xla_trace`: compile a whole training step to one executable, without Python."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, overload

from ..errors import (
    MeshError,
    SymbolicReadError,
    TraceError,
    TraceInputError,
    UnknownInputError,
    UnsupportedError,
)
from ..ir import Spec, is_own
from ..tensor import Tensor
from ..tensor.apply import caller
from .binding import P, Q, R
from .call import CompiledCall, Recorded
from .capture import note
from .captured import Captured
from .config import WholeOptions
from .generated import MISS
from .owned_tensors import OwnedTensors
from .partial.stretch import recording
from .policy import Policy
from .recording import Recording
from .source import Grad, Source, try_read
from .trace import S, trace
from .traced import Traced
from .tree import flatten
from .variant import Variant
from .watch import Observer


def _make_read_error(what: str) -> TraceError:
    return SymbolicReadError(
        f"the function {what} at {caller()}, but it is compiled whole and Python does not run again: "
        "return the tensor and look at it outside, or compute with ops; of a step that must look at "
        "values, compile the parts by partial_trace"
    )


def _check_known(session: Recording) -> None:
    """Raise an error for Tensors that are neither arguments nor in one, and for new values of constants."""
    record = session.record
    for external in record.externals:
        if external.is_free_tensor and not _is_inside(session, external.source):
            raise UnknownInputError(
                f"have some unknown input tensors in trace result: the one used at {external.line} is "
                "neither an argument nor part of a Module or Optimizer that is one. Pass it, or what "
                "holds it, as an argument, or set `capture_as_const=True` to make it a constant"
            )
    constants = {id(x.owner()) for x in record.constants() if x.owner is not None}
    for binding in record.bindings:
        tensor = try_read(binding.target, session.leaves)
        if id(tensor) in constants and not binding.is_grad:
            raise TraceError(
                f"the function gives a tensor of {tensor.spec} from outside a new value, while "
                "capture_as_const=True holds it constant: pass it, or the Module or Optimizer that it "
                "belongs to, as an argument"
            )


def _check_common(session: Recording) -> None:
    """Raise an error for a value that leaves the function of a mesh and differs between devices."""
    record, own = session.record, set[int]()
    for step, entry in enumerate(record.entries):
        if is_own(entry.op, (ref in own for ref in entry.args if isinstance(ref, int))):
            own.add(step)
    for ref in record.ends[1] if record.ends is not None else ():
        if isinstance(ref, int) and ref in own:
            raise MeshError(
                f"the function returns the result of {record.entries[ref]}, which each of the "
                f"{session.mesh} devices has for itself: return dist.functional.all_gather(x), or "
                "all_reduce_sum(x) of it"
            )
    for binding in record.bindings:
        if isinstance(binding.source, int) and binding.source in own:
            what = "the gradient" if binding.is_grad else "the value"
            raise MeshError(
                f"the function leaves {what} of a Tensor outside as the result of "
                f"{record.entries[binding.source]}, which each of the {session.mesh} devices has for itself: "
                "attach parameters with callbacks=dist.make_allreduce_cb('mean'), take SyncBatchNorm, or "
                "reduce it by dist.functional.all_reduce_sum"
            )


def _is_inside(session: Recording, source: Source | None) -> bool:
    """Check whether the Tensor at `source` is an argument, or in one."""
    holder = source.of if isinstance(source, Grad) else source
    tensor = None if holder is None else try_read(holder)
    return isinstance(tensor, Tensor) and session.inputs.is_inside(tensor)


class WholeTrace(trace[P, R]):
    """The implementation of `xla_trace`."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        without_host: bool = True,
        symbolic_shape: bool = False,
        backend: str | None = "xla",
        mesh: int | None = None,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        if mesh is not None and (type(mesh) is not int or mesh < 1):
            raise TraceInputError(f"{name}(mesh={mesh!r}): give the number of devices, or leave it out")
        if without_host is not True:
            raise TraceInputError(f"{name} always skips the body: leave without_host out, or use @trace")
        if symbolic_shape:
            raise TraceInputError(f"{name} has static shapes: leave symbolic_shape out, or use @trace")
        for option in ("imperative", "record_only"):
            if options.get(option):
                raise TraceInputError(f"{name} has no option {option!r}: use @trace for that")
        super().__init__(function, without_host=True, backend=backend, **options)
        if not self.options.fuses:
            raise TraceInputError(
                f"{name} compiles the whole function, and opt_level={self.options.opt_level} compiles "
                "nothing: leave it out, or use @trace"
            )
        self._skips, self.mesh = True, mesh or 0
        self._constants: dict[int, Callable[[], Any]] = {}  # Tensors that are constants, by id
        self._latest_arguments: tuple[Any, Any] | None = None  # with Specs for Tensors

    # calling

    def _call(self, taped: bool, args: Any, kwargs: Any) -> Any:
        if taped:
            self._check_tapes([*flatten((args, kwargs))[0], *(owner() for owner in self._constants.values())])
        return self._call_skipping(args, kwargs)

    def _check_arguments(self, args: tuple[Any, ...]) -> None:
        pass

    def _report(self, reason: str, recorded: Recorded) -> None:
        if recorded.variant.programs:
            self._statistics.again(f"{reason}: it is compiled again", logging.WARNING)
        else:
            super()._report(reason, recorded)

    def _check_tapes(self, leaves: Sequence[Any]) -> None:
        """Raise an error if a tape of the caller would lose a gradient."""
        if not (tapes := frozenset(recording())):
            return
        tensors = (*(t for t in leaves if isinstance(t, Tensor)), *self._find_owned_tensors(leaves).tensors)
        if any(t._tape and not tapes.isdisjoint(t._tape) for t in tensors):
            raise UnsupportedError(
                f"a GradManager outside of {self.__name__} records what it takes, but a function that is "
                "compiled whole has no gradient: open the GradManager inside of it, or use partial_trace"
            )

    def _make_policy(self) -> Policy:
        return replace(super()._make_policy(), mesh=self.mesh)

    def _find_owned_tensors(self, leaves: Sequence[Any]) -> OwnedTensors:
        return OwnedTensors(leaves, self._get_instance())

    # No op runs while a call is recorded.
    _record, _get_symbolic = Traced._record, Traced._get_symbolic
    _make_miss_observer = Traced._make_miss_observer

    def _note(self, args: Any, kwargs: Any, leaves: list[Any], observer: Observer | None = None) -> Recorded:
        policy = replace(self._make_policy(), make_error=_make_read_error)
        observer, owned_tensors = observer or self._make_observer(leaves), self._find_owned_tensors(leaves)
        session = self._make_session(
            args, kwargs, leaves, policy, observer=observer, owned_tensors=owned_tensors
        )
        note(session, self._bind_body(args), kwargs, check=self._check)
        self._latest_arguments = _replace_by_types(args, kwargs)
        owners = [literal.owner for literal in session.record.constants() if literal.owner is not None]
        self._check_tapes([owner() for owner in owners])
        self._constants.update({id(owner()): owner for owner in owners})
        variant = Variant(session.record, self._compiler)
        return Recorded(MISS, variant, CompiledCall(variant, leaves), fed=session.fed)

    def _check(self, session: Recording) -> None:
        _check_known(session)
        if self.mesh:
            _check_common(session)

    # files: Tensors that are not arguments become constants with their current values

    def _to_export(self, args: Any, kwargs: Any) -> tuple[Captured, list[str] | None]:
        if not args and not kwargs and self._latest_arguments is not None:
            args, kwargs = self._latest_arguments
        return super()._to_export(args, kwargs)

    def _to_dump(self) -> Captured | None:
        return self._to_export((), {})[0] if self._latest_arguments is not None else None


class xla_trace(WholeTrace[P, R]):
    """Decorator that compiles a whole function, such as a training step, to one executable.

    Each call runs the executable. The body runs once for each set of shapes, only to be recorded, and again
    when something outside that it read has changed. Parameters, buffers and states of Modules and Optimizers
    among the arguments are inputs and outputs of the executable, and so are gradients, the numbers of the
    Optimizer and the states of random generators. Shapes are static: for new ones the function is recorded
    and compiled again, with a line in the log. The same happens when a Module or an Optimizer among the
    arguments changes, by ``eval()`` or ``add_param_group``.

    Parameters
    ----------
    function : callable
        Takes Tensors, Modules, Optimizers and other values, in nested lists, tuples, dicts and dataclasses
        too; returns Tensors and other values, likewise nested. Every Tensor that it uses is an argument, or
        in one. Methods work too: the instance counts as an argument.
    without_host : bool
        Always True.
    symbolic_shape : bool
        Always False.
    capture_as_const : bool
        Tensors that are neither arguments nor in one become constants. When their values change, the function
        is compiled again.
    backend : str
        The backend that makes the executable.
    mesh : int, optional
        The number of devices that run the function together, each as a rank of `mgb.distributed`. A rank
        takes its rows of a batch by `mgb.distributed.shard`, and the collectives of a training step are part
        of the executable. Inputs and outputs are the same on all devices. With `jax.distributed`, each
        process calls the function with the same arguments, and the devices are those of all processes.
    **options
        As for `trace`.

    Raises
    ------
    TraceInputError
        An option is not valid.
    UnknownInputError
        On a call: a Tensor is neither an argument nor in one, without ``capture_as_const=True``.
    TraceError
        On a call: the body gives a constant a new value.
    SymbolicReadError
        On a call: the body reads values.
    UnsupportedError
        On a call: a `GradManager` outside records the arguments; see `partial_trace`.
    ImpureBodyError
        On a call: the body has a side effect, such as storing a Tensor outside, or calls code that is not
        known to be pure.
    MeshError
        On a call: a result differs between devices, or there are fewer devices.
    BackendNotInstalledError
        On a call: the backend is not installed.

    Examples
    --------
    >>> from mgb.jit import xla_trace
    >>> double = xla_trace(lambda x: x * 2, backend="eager")
    >>> double(mgb.tensor([1.0, 2.0]))
    Tensor([2., 4.], device=xpux:0)
    """

    if TYPE_CHECKING:

        @overload
        def __new__(cls, function: Callable[P, R], **options: Unpack[WholeOptions]) -> xla_trace[P, R]: ...
        @overload
        def __new__(cls, **options: Unpack[WholeOptions]) -> _XlaTrace: ...
        def __new__(cls, *args: Any, **options: Any) -> Any: ...


if TYPE_CHECKING:

    class _XlaTrace(xla_trace[..., Any]):
        """The type of ``xla_trace(...)`` without a function."""

        def __init__(self, **options: Unpack[WholeOptions]) -> None: ...
        def __call__(self, function: Callable[Q, S]) -> xla_trace[Q, S]: ...


def _replace_by_types(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the arguments with types in place of Tensors."""
    leaves, structure = flatten((args, dict(kwargs)))
    found: tuple[Any, Any] = structure.build(iter([_type_of(leaf) for leaf in leaves]))
    return found


def _type_of(leaf: Any) -> Any:
    return Spec(leaf.shape, leaf.dtype, leaf._device) if isinstance(leaf, Tensor) else leaf
