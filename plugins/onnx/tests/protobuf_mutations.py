"""Models that almost are what they say: mutations of protocol buffers, which know their structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from mutations import Mutation, bytewise, number


def protobuf(parse: Callable[[bytes], Any], bases: Sequence[bytes], texts: Sequence[str]) -> Mutation:
    """Fields of messages changed, dropped, doubled, swapped, set, and taken from other files of `bases`."""

    def mutate(data: bytes, random: Random) -> bytes:
        if random.random() < 0.1:
            return bytewise(data, random)
        message, other = parse(data), parse(random.choice(bases))
        for _ in range(random.choice((1, 1, 2, 3, 6))):
            _mutate_message(message, other, texts, random)
        return bytes(message.SerializeToString())

    return mutate


def messages(message: Any) -> list[Any]:
    """`message` and all inside it."""
    found = [message]
    for part in found:
        for field, value in part.ListFields():
            if field.type == field.TYPE_MESSAGE:
                found.extend(value if hasattr(value, "add") else [value])
    return found


def strings(root: Any) -> list[str]:
    """The names in a message, which fit other places of it better than any text."""
    found = []
    for message in messages(root):
        for field, value in message.ListFields():
            if field.type == field.TYPE_STRING:
                found.extend(value if hasattr(value, "extend") else [value])
    return found


def _mutate_message(root: Any, other: Any, texts: Sequence[str], random: Random) -> None:
    message = random.choice(messages(root))
    if random.random() < 0.7:
        texts = strings(root) or texts
    fields = message.DESCRIPTOR.fields
    set_fields = [field for field, _ in message.ListFields()]
    field = random.choice(set_fields if set_fields and random.random() < 0.8 else list(fields))
    try:
        _mutate_field(message, field, other, texts, random)
    except (ValueError, TypeError):  # a number that the field has no place for
        message.ClearField(field.name)


def _mutate_field(message: Any, field: Any, other: Any, texts: Sequence[str], random: Random) -> None:
    value = getattr(message, field.name)
    repeated = hasattr(value, "extend")
    if repeated:
        _mutate_items(value, field, other, texts, random)
    elif field.type == field.TYPE_MESSAGE:
        donors = [m for m in messages(other) if m.DESCRIPTOR is field.message_type]
        if donors:
            value.CopyFrom(random.choice(donors))
    else:
        setattr(message, field.name, _scalar(value, texts, random))


def _mutate_items(items: Any, field: Any, other: Any, texts: Sequence[str], random: Random) -> None:
    place = random.randrange(len(items)) if len(items) else 0
    what = random.choice(("drop", "double", "swap", "change", "change", "change", "add"))
    if not len(items) or what == "add":
        donors = [m for m in messages(other) if m.DESCRIPTOR is field.message_type]
        if field.type != field.TYPE_MESSAGE:
            items.append(_scalar({9: "", 12: b"", 1: 0.0, 2: 0.0}.get(field.type, 0), texts, random))
        elif donors:
            items.add().CopyFrom(random.choice(donors))
    elif what == "drop":
        del items[place]
    elif what == "double":
        items.extend([items[place]] * random.choice((1, 1, 40)))
    elif what == "swap":
        order = list(items)
        random.shuffle(order)
        copies = [type(m).FromString(m.SerializeToString()) for m in order] if field.type == 11 else order
        del items[:]
        items.extend(copies)
    elif field.type != field.TYPE_MESSAGE:
        items[place] = _scalar(items[place], texts, random)


def _scalar(old: Any, texts: Sequence[str], random: Random) -> Any:
    if isinstance(old, bytes):
        return bytewise(old, random) if random.random() < 0.7 else random.choice(texts).encode()
    if isinstance(old, str):
        return random.choice(texts)
    return number(old, random)
