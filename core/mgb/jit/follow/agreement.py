"""Compare a call that was noted for any numbers and lengths with the one that was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir import Body, Op
from ...ir.scalars import plain
from ...ir.sizes import count
from ...ops import dynamic
from ..call import Recorded
from ..entry import Literal, Ref, has_same_bits
from ..guard import is_plain, same
from ..record import Binding, End, External, FixedValue, LiveValue, Record


def agree(general: Recorded, plain: Recorded) -> bool:
    """Return whether both do the same ops on the same operands, with the same effects and results."""
    return _Agreement(general, plain).holds()


class _Agreement:
    def __init__(self, general: Recorded, plain: Recorded) -> None:
        self._general: Record = general.variant.record
        self._plain: Record = plain.variant.record
        self._fed = general.fed
        self._made: dict[int, int] = {}  # Tensors that the body makes, by their numbers in both

    def holds(self) -> bool:
        general, plain = self._general, self._plain
        if len(general.entries) != len(plain.entries) or len(general.bindings) != len(plain.bindings):
            return False
        return (
            all(map(self._is_same_step, general.entries, plain.entries))
            and all(map(self._is_same_effect, general.bindings, plain.bindings))
            and general.writes == plain.writes
            and len(general.returned) == len(plain.returned)
            and all(map(self._is_same_tensor, general.returned, plain.returned))
            and self._gives_the_same()
        )

    def _is_same_step(self, one: Any, two: Any) -> bool:
        op, params, args = self._as_plain(one)
        if _holds_body(tuple(two.params.values())):
            return op is two.op and one.spec == two.spec  # constants in a loop are operands of the other
        return (
            op is two.op
            and one.spec == two.spec
            and one.required == two.required
            and len(args) == len(two.args)
            and _is_same(params, _params_of(two))
            and all(map(self._is_same_ref, args, two.args))
        )

    def _as_plain(self, step: Any) -> tuple[Op | None, dict[str, Any], tuple[Ref, ...]]:
        """Return the op, parameters and operands of a step; those with the window that the numbers gave."""
        starts = len(step.params["axes"]) if step.op in dynamic.FIXED else 0
        arrays = [self._array(ref) for ref in step.args[len(step.args) - starts :]]
        if not starts or any(array is None for array in arrays):
            return step.op, _params_of(step), step.args
        params = _with_counts(dynamic.as_fixed(plain(step.params), arrays))
        return dynamic.FIXED[step.op], params, step.args[:-starts]

    def _is_same_ref(self, one: Ref, two: Ref) -> bool:
        if isinstance(two, Literal):
            return _is_same_array(self._array(one), two.array)
        if two < 0 and (made := self._plain.externals[-1 - two].made) is not None:
            return _is_same_array(self._array(one), made)
        if isinstance(one, Literal) or (one >= 0) != (two >= 0):
            return False
        if two >= 0:
            return one == two
        return self._is_same_input(self._general.externals[-1 - one], self._plain.externals[-1 - two])

    def _array(self, ref: Ref) -> Any:
        """Return the constant that an operand was, which may be a number that is followed."""
        if isinstance(ref, Literal):
            return ref.array
        external = self._general.externals[-1 - ref] if ref < 0 else None
        is_one = external is not None and (isinstance(external.converts, type) or external.made is not None)
        return self._fed[-1 - ref] if is_one else None

    def _is_same_input(self, one: External, two: External) -> bool:
        return (
            one.source == two.source
            and one.node.spec == two.node.spec
            and (one.origin is None) == (two.origin is None)
            and one.converts == two.converts
        )

    def _is_same_effect(self, one: Binding, two: Binding) -> bool:
        if (one.target, one.is_grad) != (two.target, two.is_grad):
            return False
        if not self._is_same_tensor(one.made, two.made):
            return False
        if isinstance(one.source, int | Literal) and isinstance(two.source, int | Literal):
            return self._is_same_ref(one.source, two.source)
        return one.source == two.source

    def _is_same_tensor(self, one: Any, two: Any) -> bool:
        if not isinstance(one, int) or not isinstance(two, int):
            return bool(one == two)
        return self._made.setdefault(one, two) == two

    def _gives_the_same(self) -> bool:
        one, two = self._general.ends, self._plain.ends
        if one is None or two is None:
            return one is two
        return one[0] == two[0] and all(map(self._is_same_end, one[1], two[1]))

    def _is_same_end(self, one: End, two: End) -> bool:
        if isinstance(two, FixedValue):
            return isinstance(one, FixedValue | LiveValue) and _is_same(plain(one.value), two.value)
        if isinstance(two, LiveValue):
            return isinstance(one, LiveValue) and one.path == two.path
        if one is None or two is None:
            return one is two
        return not isinstance(one, FixedValue | LiveValue) and self._is_same_ref(one, two)


def _params_of(step: Any) -> dict[str, Any]:
    params = plain(step.params)
    return _with_counts(params) if step.op in _WINDOWED else params


_WINDOWED = frozenset(dynamic.FIXED.values())


def _with_counts(params: dict[str, Any]) -> dict[str, Any]:
    """Return `params` whose window has the numbers of elements, for stops that say the same may differ."""
    window = tuple([(start, count(start, stop, step), step) for start, stop, step in params["window"]])
    return params | {"window": window}


def _holds_body(value: Any) -> bool:
    return type(value) is Body or (type(value) is tuple and any(map(_holds_body, value)))


def _is_same(one: Any, two: Any) -> bool:
    """Return whether two values are the same, as far as anybody can tell."""
    if one is two or (is_plain(two) and same(one, two)):
        return True
    if isinstance(two, np.ndarray):
        return isinstance(one, np.ndarray) and _is_same_array(one, two)
    if type(one) is not type(two):
        return False
    if isinstance(two, dict):
        return one.keys() == two.keys() and all(_is_same(one[key], two[key]) for key in two)
    if isinstance(two, Sequence) and not isinstance(two, str):
        return len(one) == len(two) and all(map(_is_same, one, two))
    return bool(one == two)


def _is_same_array(one: Any, two: Any) -> bool:
    if one is None or two is None:
        return one is two
    return has_same_bits(np.asarray(one), np.asarray(two))
