"""The inputs and the constants of a record: where the values come from that ops of the body take."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir import Spec, dtypes, input_node
from ..ir.scalars import Scalar, Size, fixed
from ..tensor import CONSTANT, Tensor
from ..tensor.apply import caller
from ..tensor.holding import STATES
from .entry import Literal, Ref, external_ref
from .owned_tensors import OwnedTensors
from .policy import Policy
from .provenance import Provenance
from .record import External, Record
from .resize import SymbolicLengths
from .source import Argument, Object, ObjectRef, Source
from .symbolic_array import SymbolicArray, replace_by_views, unwrap_array
from .watch import Observer


class Inputs:
    """The inputs of one recording.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments of the call.
    policy : Policy
    record : Record
        Receives the external inputs.
    fed : list
        Receives their arrays.
    provenance : Provenance
    observer : Observer or None
    owned_tensors : OwnedTensors or None
        The Tensors in the arguments, which count as arguments.

    Attributes
    ----------
    lengths : SymbolicLengths or None
        The symbolic lengths of the arguments.
    """

    def __init__(
        self,
        leaves: Sequence[Any],
        policy: Policy,
        record: Record,
        fed: list[Any],
        provenance: Provenance,
        observer: Observer | None,
        owned_tensors: OwnedTensors | None,
    ) -> None:
        self._policy, self._record, self._fed = policy, record, fed
        self._provenance, self._observer, self._owned_tensors = provenance, observer, owned_tensors
        self._arrays = {id(t): t._data for t in leaves if isinstance(t, Tensor)}
        self._indices = {id(v): n for n, v in enumerate(leaves) if isinstance(v, np.ndarray)}
        self._numbers: dict[tuple[Any, ...], int] = {}  # by Tensor and array: two Tensors may share an array
        self._converted: dict[int, tuple[Any, Any, Any]] = {}  # by the id of an array: its source
        self._made: dict[int, Any] = {}
        self._origins: dict[int, Callable[[], float]] = {}
        self.lengths = SymbolicLengths(leaves) if policy.follows else None
        self._views: list[tuple[Any, SymbolicArray]] = []  # of array arguments
        if self.lengths is not None:
            arrays = ((n, leaf) for n, leaf in enumerate(leaves) if type(leaf) is np.ndarray)
            self._views = [(leaf, SymbolicArray.of(leaf, self.lengths.shapes[n])) for n, leaf in arrays]

    # Tensors made of data

    def created(self, tensor: Tensor, data: Any) -> None:
        """Handle a Tensor, or a constant, that is made of `data`."""
        if isinstance(data, np.ndarray) and (not self._policy.freezes or self._owned_tensors is not None):
            is_followed, data = data is not unwrap_array(data), unwrap_array(data)
            source = self._source_of_array(data)
            if self.lengths is not None and isinstance(source, Argument) and not is_followed:
                fixed(self.lengths.shapes[source.index])  # Python may have read its lengths
            if source is not None:
                self._converted[id(tensor._data)] = source, tensor._data, data
        if tensor._index != CONSTANT:
            self._provenance.add(tensor)
            self._made[id(tensor._data)] = tensor._data

    def live(self, tensor: Tensor, origin: Callable[[], float]) -> None:
        """Let the value of `tensor` be read from `origin` at each call."""
        self._origins[id(tensor._data)] = origin
        if self._observer is not None:
            self._observer.note_number_owner(origin)

    def follows(self, tensor: Tensor, number: Scalar) -> bool:
        """Make the constant `tensor` symbolic if it was made of a symbolic number; return whether it was."""
        if type(number) is Size:
            if not self._fits(tensor, number):
                return False
        elif self._observer is None or number.follower is not self._observer.changing.numbers:
            return False
        self._converted[id(tensor._data)] = number.path, tensor._data, number
        return True

    def _fits(self, tensor: Tensor, size: Any) -> bool:
        """Check whether a length is symbolic here, and whether the dtype of `tensor` holds it."""
        if self.lengths is None or size.follower is not self.lengths.sizes or tensor._index != CONSTANT:
            return False
        limits = np.iinfo(tensor.dtype) if tensor.dtype in dtypes.INTEGERS else None
        return limits is None or bool(limits.min <= size <= limits.max)

    def measured(self, value: Any) -> Any:
        """Return `value` with views of symbolic lengths in place of arrays."""
        return replace_by_views(value, self._views)

    def guard_read(self, tensor: Tensor) -> bool:
        """Guard a value outside that the body reads; return whether no guard can cover that."""
        if (converted := self._converted.get(id(tensor._data))) is not None:
            fixed(converted[2])
            if self._observer is not None:
                self._observer.looks_at(converted[2])
        return tensor._index != CONSTANT and id(tensor._data) not in self._made

    # types

    def spec_of(self, tensor: Tensor) -> Spec:
        """Return the type of a Tensor outside, with symbolic lengths."""
        array, root = tensor._data, self._provenance.root(tensor)
        if self.lengths is not None and self._is_grad_of_argument(root):
            self.lengths.fix()  # it has the lengths of another argument
        converted = self._converted.get(id(array))
        source = converted[0] if converted is not None else self._argument_of(root, array)
        return self._spec(array, tensor._device, source)

    def _is_grad_of_argument(self, tensor: Tensor) -> bool:
        holder = self._provenance.grad_owners.get(id(tensor))
        return holder is not None and id(holder) in self._provenance.arguments

    def _spec(self, array: Any, device: str, source: Source | None) -> Spec:
        shape = array.shape
        if self.lengths is not None and isinstance(source, Argument):
            shape = self.lengths.shapes.get(source.index, shape)
        return Spec(shape, array.dtype, device)

    # operands

    def ref(self, tensor: Tensor) -> Ref:
        """Return the `Ref` of the value of a Tensor that no step makes."""
        if id(tensor._data) in self._converted:
            return self._converted_ref(tensor)
        if tensor._index == CONSTANT:
            return Literal(tensor._data, device=tensor._device)
        array, tensor = tensor._data, self._provenance.root(tensor)
        number = self._numbers.get((id(tensor), id(array)))
        if number is not None:
            return external_ref(number)
        argument, made = self._argument_of(tensor, array), id(array) in self._made
        if self._policy.freezes and not self._is_input(tensor, array, argument):
            return Literal(array, owner=None if made else weakref.ref(tensor), device=tensor._device)
        source = argument if argument is not None or made else Object(ObjectRef(tensor))
        external = self._make_external(array, tensor._device, source)
        external.origin = self._origins.get(id(array))
        external.made = array if made and external.origin is None else None
        if not made:
            self._provenance.remember(tensor)
        return self._add_external(external, (id(tensor), id(array)), array)

    def _argument_of(self, tensor: Tensor, array: Any) -> Argument | None:
        """Return the argument that `tensor` is, if it still has its value `array`."""
        argument = self._provenance.arguments.get(id(tensor))
        return argument if argument is not None and self._arrays[id(tensor)] is array else None

    def _is_input(self, tensor: Tensor, array: Any, argument: Argument | None) -> bool:
        """Check whether it is an argument, or inside one where these are searched."""
        if self._owned_tensors is None:
            return argument is not None
        return id(array) in self._origins or self.is_inside(tensor)

    def is_inside(self, tensor: Tensor) -> bool:
        """Check whether it is an argument, in one, the ``grad`` of such, or the state of a generator."""
        return any(
            id(part) in self._provenance.arguments
            or (self._owned_tensors is not None and part in self._owned_tensors)
            or any(part is state for states in STATES for state in states())
            for part in (tensor, self._provenance.grad_owners.get(id(tensor), tensor))
        )

    def _source_of_array(self, data: Any) -> Source | None:
        """Return the source of an array that an op takes; None if the body made it."""
        if self._observer is not None and self._policy.skips:
            return self._observer.takes_array(data)
        index = self._indices.get(id(data))
        return None if index is None else Argument(index)

    def _converted_ref(self, tensor: Tensor) -> Ref:
        """Return the `Ref` of a Tensor or constant that was made of an array or number outside."""
        source, array, data = self._converted[id(tensor._data)]
        if type(data) is Size:
            return Literal(array, device=tensor._device, size=data)
        is_number = isinstance(data, Scalar)
        key = (source, array.dtype, tensor._device) if is_number else (id(data), id(array))
        number = self._numbers.get(key)
        if number is not None:
            return external_ref(number)
        external = self._make_external(array, tensor._device, source)
        external.converts = type(data.value) if is_number else data.dtype
        return self._add_external(external, key, array)

    def _make_external(self, array: Any, device: str, source: Source | None) -> External:
        return External(input_node(self._spec(array, device, source), caller()), source)

    def _add_external(self, external: External, key: tuple[Any, ...], array: Any) -> Ref:
        self._record.externals.append(external)
        self._fed.append(array)
        number = self._numbers[key] = len(self._fed) - 1
        return external_ref(number)

    def forget(self) -> None:
        """Release everything outside."""
        self._owned_tensors = None
        self._arrays.clear()
        self._indices.clear()
        self._views.clear()
        self._converted.clear()
