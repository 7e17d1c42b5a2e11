"""Where the values come from that a body takes: inputs of the record, and constants."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..apply import caller
from ..holding import STATES
from ..ir import Spec, input_node
from ..scalars import Scalar, Size, fixed
from ..tensor import CONSTANT, Tensor
from .entry import Literal, Ref, external_ref
from .held_tensors import HeldTensors
from .measured import Measured, array_of, with_views
from .policy import Policy
from .provenance import Provenance
from .record import External, Record
from .resize import Followed
from .source import Argument, Held, Object, Source
from .watch import Observer


class Inputs:
    """Of one recording.

    Parameters
    ----------
    leaves : sequence
        The flattened arguments of the call.
    policy : Policy
    record : Record
        Gets what comes from outside.
    fed : list
        Gets the arrays.
    provenance : Provenance
    observer : Observer or None
    held_tensors : HeldTensors or None
        What is in the arguments counts as an argument.

    Attributes
    ----------
    followed : Followed or None
        What follows from the lengths of the arguments.
    """

    def __init__(
        self,
        leaves: Sequence[Any],
        policy: Policy,
        record: Record,
        fed: list[Any],
        provenance: Provenance,
        observer: Observer | None,
        held_tensors: HeldTensors | None,
    ) -> None:
        self._policy, self._record, self._fed = policy, record, fed
        self._provenance, self._observer, self._held_tensors = provenance, observer, held_tensors
        self._arrays = {id(t): t._data for t in leaves if isinstance(t, Tensor)}
        self._indices = {id(v): n for n, v in enumerate(leaves) if isinstance(v, np.ndarray)}
        self._numbers: dict[tuple[Any, ...], int] = {}  # of two Tensors of one array, one may change
        self._converted: dict[int, tuple[Any, Any, Any]] = {}  # by the id of an array: of what it is made
        self._made: dict[int, Any] = {}
        self._origins: dict[int, Callable[[], float]] = {}
        self.followed = Followed(leaves) if policy.follows else None
        self._views: list[tuple[Any, Measured]] = []  # of arrays among the arguments
        if self.followed is not None:
            arrays = ((n, leaf) for n, leaf in enumerate(leaves) if type(leaf) is np.ndarray)
            self._views = [(leaf, Measured.of(leaf, self.followed.shapes[n])) for n, leaf in arrays]

    # what the body makes of data

    def created(self, tensor: Tensor, data: Any) -> None:
        """`tensor`, or a constant, was made of `data`."""
        if isinstance(data, np.ndarray) and (not self._policy.freezes or self._held_tensors is not None):
            is_followed, data = data is not array_of(data), array_of(data)
            source = self._source_of_array(data)
            if self.followed is not None and isinstance(source, Argument) and not is_followed:
                fixed(self.followed.shapes[source.index])  # who knows whether its lengths were asked for
            if source is not None:
                self._converted[id(tensor._data)] = source, tensor._data, data
        if tensor._index != CONSTANT:
            self._provenance.makes(tensor)
            self._made[id(tensor._data)] = tensor._data

    def live(self, tensor: Tensor, origin: Callable[[], float]) -> None:
        """The value of `tensor` is asked for at each call."""
        self._origins[id(tensor._data)] = origin
        if self._observer is not None:
            self._observer.reads_late(origin)

    def follows(self, tensor: Tensor, number: Scalar) -> bool:
        """The constant `tensor` was made of a number; is that followed here?"""
        if type(number) is Size:
            if not self._holds(tensor, number):
                return False
        elif self._observer is None or number.follower is not self._observer.changing.numbers:
            return False
        self._converted[id(tensor._data)] = number.path, tensor._data, number
        return True

    def _holds(self, tensor: Tensor, size: Any) -> bool:
        """Is a length followed here, and does a constant like `tensor` hold it, whatever it is?"""
        if self.followed is None or size.follower is not self.followed.sizes or tensor._index != CONSTANT:
            return False
        limits = np.iinfo(tensor.dtype) if tensor.dtype in dtypes.INTEGERS else None
        return limits is None or bool(limits.min <= size <= limits.max)

    def measured(self, value: Any) -> Any:
        """`value` with views that show lengths which are followed in place of arrays."""
        return with_views(value, self._views)

    def is_seen(self, tensor: Tensor) -> bool:
        """Told that a value outside is looked at; does the body depend on that beyond any guard?"""
        if (converted := self._converted.get(id(tensor._data))) is not None:
            fixed(converted[2])
            if self._observer is not None:
                self._observer.looks_at(converted[2])
        return tensor._index != CONSTANT and id(tensor._data) not in self._made

    # types

    def spec_of(self, tensor: Tensor) -> Spec:
        """The type of a Tensor outside, with the lengths that are followed."""
        array, root = tensor._data, self._provenance.root(tensor)
        if self.followed is not None and self._is_grad_of_argument(root):
            self.followed.fix()  # it would have the lengths of another argument
        converted = self._converted.get(id(array))
        source = converted[0] if converted is not None else self._argument_of(root, array)
        return self._spec(array, tensor._device, source)

    def _is_grad_of_argument(self, tensor: Tensor) -> bool:
        holder = self._provenance.holders.get(id(tensor))
        return holder is not None and id(holder) in self._provenance.arguments

    def _spec(self, array: Any, device: str, source: Source | None) -> Spec:
        shape = array.shape
        if self.followed is not None and isinstance(source, Argument):
            shape = self.followed.shapes.get(source.index, shape)
        return Spec(shape, array.dtype, device)

    # operands

    def ref(self, tensor: Tensor) -> Ref:
        """Where the value of a Tensor comes from that no step makes."""
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
        source = argument if argument is not None or made else Object(Held(tensor))
        external = self._external(array, tensor._device, source)
        external.origin = self._origins.get(id(array))
        external.made = array if made and external.origin is None else None
        if not made:
            self._provenance.remember(tensor)
        return self._added(external, (id(tensor), id(array)), array)

    def _argument_of(self, tensor: Tensor, array: Any) -> Argument | None:
        """Which argument `tensor` is, if it still has its value `array`."""
        argument = self._provenance.arguments.get(id(tensor))
        return argument if argument is not None and self._arrays[id(tensor)] is array else None

    def _is_input(self, tensor: Tensor, array: Any, argument: Argument | None) -> bool:
        """Is it an argument, or, where what is in these counts as well, in one?"""
        if self._held_tensors is None:
            return argument is not None
        return id(array) in self._origins or self.is_inside(tensor)

    def is_inside(self, tensor: Tensor) -> bool:
        """Is it an argument, in one, the ``grad`` of such a Tensor, or the state of a generator?"""
        return any(
            id(part) in self._provenance.arguments
            or (self._held_tensors is not None and part in self._held_tensors)
            or any(part is state for states in STATES for state in states())
            for part in (tensor, self._provenance.holders.get(id(tensor), tensor))
        )

    def _source_of_array(self, data: Any) -> Source | None:
        """Where an array stands that an op takes: among the arguments, or outside; None: the body made it."""
        if self._observer is not None and self._policy.skips:
            return self._observer.takes_array(data)
        index = self._indices.get(id(data))
        return None if index is None else Argument(index)

    def _converted_ref(self, tensor: Tensor) -> Ref:
        """Where the value of a Tensor or constant comes from that was made of what is outside."""
        source, array, data = self._converted[id(tensor._data)]
        if type(data) is Size:
            return Literal(array, device=tensor._device, size=data)
        is_number = isinstance(data, Scalar)
        key = (source, array.dtype, tensor._device) if is_number else (id(data), id(array))
        number = self._numbers.get(key)
        if number is not None:
            return external_ref(number)
        external = self._external(array, tensor._device, source)
        external.converts = type(data.value) if is_number else data.dtype
        return self._added(external, key, array)

    def _external(self, array: Any, device: str, source: Source | None) -> External:
        return External(input_node(self._spec(array, device, source), caller()), source)

    def _added(self, external: External, key: tuple[Any, ...], array: Any) -> Ref:
        self._record.externals.append(external)
        self._fed.append(array)
        number = self._numbers[key] = len(self._fed) - 1
        return external_ref(number)

    def forget(self) -> None:
        """Hold nothing from outside any more."""
        self._held_tensors = None
        self._arrays.clear()
        self._indices.clear()
        self._views.clear()
        self._converted.clear()
