"""Explain in the user's terms why a call could not use what was compiled before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..ir import Spec
from .entry import Literal
from .record import Record
from .source import Grad, Identity
from .tree import Structure

#: The most recorded values that a message lists.
_SHOWN = 4

#: How Tensors differ, in the order of their keys; the last entry is for other values.
_ASPECTS = ("is a", "has shape", "has dtype", "is on", "is")

#: What to do about a call that differs from its record.
_ALIASED = (
    "pass the same Tensors in the same places at every call, or a copy (F.copy) of one that stands for two "
    "arguments or that the body changes; trace without run_body=True records such calls each for itself"
)
_REMEDY = {
    "dtype mismatch": "cast the Tensor by astype before the call, or trace the function for each dtype; "
    "trace without run_body=True does that by itself",
    "comp_node mismatch": "move the Tensor by to(device) before the call, or trace the function for each "
    "device; trace without run_body=True does that by itself",
    "expect external node, got internal": _ALIASED,
    "expect internal node, got external": _ALIASED,
    "input id mismatch": _ALIASED,
    "tensors not equals": "pass the value as a Tensor argument instead of a Python number or a constant; "
    "trace without run_body=True makes a number that changes an input by itself",
    "arrays not equal": "an array or a list that the body makes is a constant of the record: wrap it, "
    "mgb.tensor(array), so that it is an input, or make it of Tensors, `out = F.zeros(n)` and `out[i] = x` "
    "in place of `out = np.empty(n)`",
    "value unreadable": "read the same values at every call, or put the code in `with exclude_from_trace():`",
}
_WATCHES = "trace without run_body=True watches what the body reads, and keeps a record for each"
_USUAL = (
    f"a flag, a number or a list led another way: {_WATCHES}; for code that goes another way at each call, "
    "mgb.jit.auto() records nothing, and `with exclude_from_trace():` leaves a part of a body out"
)


def suggest_remedy_for_path(line: str, recorded: str, read: str | None, repeats: bool) -> str:
    """Return what to do about other ops than recorded.

    Parameters
    ----------
    line, recorded : str
        The line of the op, and the line of the recorded op.
    read : str or None
        The line where the body last read a value in this call.
    repeats : bool
        One of the lines did the same before in this call, as in a loop.
    """
    if read is not None:
        return (
            f"this follows from the value that is read at {read}: choose by F.where, or write the branch as "
            "mgb.jit.cond and the loop as mgb.jit.while_loop; or use partial_trace for the parts around it; "
            "trace without run_body=True runs such a body op by op where it leaves the record"
        )
    if line == recorded:
        return f"another layer, a layer in another mode or another choice does this line: {_WATCHES}"
    if repeats:
        return (
            f"a loop there has another length: {_WATCHES}; mgb.jit.scan, fori_loop and while_loop are loops "
            "of any length in one record"
        )
    return _USUAL


class Step(Protocol):
    """A recorded op, or a deferred one."""

    @property
    def op(self) -> Any: ...
    @property
    def params(self) -> Any: ...
    @property
    def source(self) -> str: ...


def explain_parameter(entry: Step, params: Mapping[str, Any]) -> str:
    """Describe another parameter of a step."""
    changed = next(key for key, value in params.items() if entry.params.get(key) != value)
    was = entry.params.get(changed)
    return f"{entry.op.name} at {entry.source} has {changed} = {params[changed]}, recorded were {was}"


def explain_constant(entry: Step, was: Literal, now: Any) -> str:
    """Describe another constant among the operands of a step, the array `now`."""
    if was.raw is None or now.ndim:
        return f"{entry.op.name} at {entry.source} has {Literal(now)}, recorded was {was}"
    return f"{entry.op.name} at {entry.source} has the number {now.item():.7g}, recorded was {was.raw}"


def explain_shape(line: str, was: Spec, now: Spec) -> str:
    """Describe another shape of a Tensor outside, used at `line`."""
    return f"the tensor used at {line} has shape {now.shape}, recorded were {was.shape}"


def explain_training_state(name: str) -> str:
    """Describe another state of training, such as a ``grad`` that was None."""
    return f"{name} finds a grad, or none, or Tensors attached or optimized, otherwise than recorded"


def explain_shapes(
    name: str, known: Sequence[tuple[Any, ...]], shapes: tuple[Any, ...], names: Sequence[str]
) -> str:
    """Describe how `shapes`, of the arguments `names`, differ from the recorded shapes."""
    similar = [other for other in known if len(other) == len(shapes) and other != shapes]
    if not similar:
        return f"{name} is called with another number of Tensors than recorded"
    closest = _find_closest(similar, shapes)
    index = next(i for i, shape in enumerate(shapes) if closest[i] != shape)
    recorded = dict.fromkeys(str(other[index]) for other in reversed(similar))
    return _format_reason(names[index], name, "has shape", str(shapes[index]), recorded)


def _find_closest(known: Sequence[tuple[Any, ...]], key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the key with the fewest differences; of equal ones the newest."""
    return min(reversed(known), key=lambda other: sum(map(_differ, other, key)))


def _differ(known: Any, now: Any) -> bool:
    """Check whether two parts of keys, or of shapes, differ. A key for any number is its type alone."""
    is_of_any = type(known) is tuple and len(known) == 1 and isinstance(known[0], type)
    return known[0] is not now[0] if is_of_any else hash(known) != hash(now) or bool(known != now)


def _format_reason(argument: str, name: str, aspect: str, now: str, recorded: Iterable[str]) -> str:
    listed = ", ".join([text for text in recorded if text != now][:_SHOWN])
    return f"{argument} of {name} {aspect} {now}, recorded were {listed}"


def explain_keys(
    name: str, known: Sequence[tuple[Any, ...]], key: tuple[Any, ...], names: Sequence[str]
) -> str:
    """Describe how `key` differs from the recorded keys: see `key_of`."""
    similar = [other for other in known if other[0] == key[0]]
    if not similar:
        forms = dict.fromkeys(_format_form(other[0]) for other in reversed(known))
        return _format_reason("the call", name, "has the form", _format_form(key[0]), forms)
    closest = _find_closest(similar, key)
    if closest[1] != key[1]:
        return f"one Tensor stands for other arguments of {name} than recorded"
    index = next(i for i in range(2, len(key)) if _differ(closest[i], key[i]))
    if _is_object(key[index]) and key[index][0] is closest[index][0]:
        return (
            f"{names[index - 2]} of {name} is another {key[index][0].__name__} than recorded: Modules, and "
            "functions and objects of libraries, are known by which one they are"
        )
    aspect = _find_aspect(closest[index], key[index])
    recorded = dict.fromkeys(_format_key(other[index], aspect) for other in reversed(similar))
    return _format_reason(names[index - 2], name, _ASPECTS[aspect], _format_key(key[index], aspect), recorded)


def _format_form(arguments: Structure) -> str:
    """Return the nesting of arguments as text: ``(_, [_, _], lr=_)``."""
    positional, named = arguments.children
    words = [f"{key}={_format_nesting(child)}" for key, child in zip(named.keys, named.children, strict=True)]
    text = ", ".join([*map(_format_nesting, positional.children), *words])
    return f"({text})" if len(text) < 80 else f"({text[:76]}...)"


def _format_nesting(structure: Structure) -> str:
    if structure.kind is None:
        return "_"
    parts = [_format_nesting(child) for child in structure.children]
    if structure.kind is list:
        return f"[{', '.join(parts)}]"
    named = [f"{key}: {part}" for key, part in zip(structure.keys, parts, strict=False)]
    return f"{structure.kind.__name__}({', '.join(named or parts)})"


def _find_aspect(one: tuple[Any, ...], other: tuple[Any, ...]) -> int:
    """Return the index in `_ASPECTS` of what differs in the keys of two leaves."""
    if _of_tensor(one) and _of_tensor(other):
        return next(i for i in range(4) if one[i] != other[i])
    return -1


def _of_tensor(key: tuple[Any, ...]) -> bool:
    return len(key) == 4


def _is_object(key: tuple[Any, ...]) -> bool:
    return len(key) == 2 and isinstance(key[1], Identity)


def _format_key(key: tuple[Any, ...], aspect: int) -> str:
    if _of_tensor(key):
        value = key[aspect] if aspect >= 0 else "a Tensor"
        return value.__name__ if isinstance(value, type) else str(value)
    if len(key) == 1:
        return f"any {key[0].__name__}"
    if _is_object(key):
        return f"a {key[0].__name__}"
    value = key[1] if isinstance(key[1], str) and key[0] is not str else f"{key[1]!r:.60}"
    return value if len(key) == 2 else f"an array of other values, of shape {key[0]}"


def explain_miss(name: str, record: Record, leaves: Sequence[Any]) -> str:
    """Describe why the record does not serve arguments of the same types any more."""
    changed = record.guards.why(leaves)
    if changed is not None:
        return changed
    for external in record.externals:
        tensor = external.tensor(leaves) if external.is_free_tensor else None
        if tensor is not None and not isinstance(external.source, Grad) and tensor.spec != external.node.spec:
            return (
                f"the tensor used at {external.line} in {name} is {tensor.spec} now, "
                f"recorded was {external.node.spec}"
            )
    return f"a Tensor outside of {name} is another one than recorded"


def suggest_remedy(mismatch: str) -> str:
    """Return what to do about a call that differs from its record as `mismatch` says."""
    return _REMEDY.get(mismatch.partition(":")[0], _USUAL)
