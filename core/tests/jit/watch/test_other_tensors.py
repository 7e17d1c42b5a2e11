"""Where a body only writes, or takes no value, other Tensors may stand; what it sees of them it sees."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mgb import Tensor, tensor
from mgb.jit import trace
from states import bodies


class Held:
    """What bodies read and write."""

    def __init__(self) -> None:
        self.h, self.c = made(3, 1), made(3, 2)
        self.row: list[Any] = [made(3, 3), made(3, 4)]
        self.table: dict[str, Any] = {"a": made(3, 5), "b": made(2, 6)}
        self.other: Any = self.row
        self.flag = False


def made(length: int, value: float) -> Tensor:
    return tensor(np.full(length, value, np.float32))


BODIES = bodies(
    """
### same_twice
s.h = s.c = s.h + x
return x
### written_then_read
s.c = s.h + x
return s.c * 2
### read_by_a_flag
s.c = s.h + x if not s.flag else s.c * 2
return x
### appended
s.row.append(x * 2)
return x + s.h
### appended_and_read_elsewhere
s.row.append(x * 2)
return x + s.other[0]
### appended_and_read_by_getattr
name = "row"
s.row.append(x * 2)
return x + getattr(s, name)[0]
### appended_and_last
s.row.append(x + s.row[-1])
return x
### shapes
return x * s.c.shape[0] + len(s.table["a"])
### is_same
return x * 2 if s.c is s.h else x
### is_argument
return x * 2 if s.c is x else x
### is_nothing
return x * 2 if s.c is None else x
### is_among
return x * len({id(t) for t in (s.h, s.c, *s.row)})
### types
return x * (2 if s.c.dtype == np.float32 else 3)
### names
return x * (2 if s.c.name == "marked" else 3)
### gradients
return x * (2 if s.c.grad is None else 3)
### values
return x * float(s.c[0].item()) + s.row[0]
### returned
return [s.c, s.row[0], x]
### moved
s.h, s.c = s.c, s.h
return s.h + x
### by_vars
s.c = x * 2
return sum(vars(s)["row"]) + vars(s)["c"]
### deleted
had = hasattr(s, "extra")
s.extra = x * 2
return x * (2 if had else 1)
""",
    globals(),
)


def disturb(s: Held, chance: random.Random) -> None:
    """What others do between two calls: the same for what is traced and for what is not."""
    tensors = [t for t in (s.h, s.c, *s.row, *s.table.values()) if isinstance(t, Tensor) and t.shape == (3,)]
    new = made(3, chance.random())
    some = chance.choice([new, chance.choice(tensors), new])
    deed = chance.randrange(14)
    if deed == 0:
        s.h = some
    elif deed == 1:
        s.c = some
    elif deed == 2:
        s.row[0] = some
    elif deed == 3:
        s.c = chance.choice([None, tensor(np.ones(3, np.int32)), made(3, 1)])
    elif deed == 4:
        s.other = chance.choice([s.row, [some]])
    elif deed == 5:
        s.flag = not s.flag
    elif deed == 6 and isinstance(s.c, Tensor):
        s.c.name = "marked"
    elif deed == 7:
        s.table["a"] = chance.choice([made(2, 1), made(3, 1)])
    elif deed == 8:
        s.__dict__.pop("extra", None)
    elif deed == 9:
        del s.row[2:]


def shown(value: Any, known: dict[int, int]) -> Any:
    """What something holds, and which Tensors in it are one."""
    if isinstance(value, Tensor):
        return known.setdefault(id(value), len(known)), str(value.dtype), value.tolist()
    if isinstance(value, list | tuple):
        return [shown(part, known) for part in value]
    if isinstance(value, dict):
        return {key: shown(part, known) for key, part in value.items()}
    return value


def state(s: Held, result: Any) -> Any:
    return shown([dict(vars(s)), result], {})


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_body_does_what_it_does_untraced(body: Callable[..., Any], seed: int) -> None:
    one = Held()
    two = copy.deepcopy(one)
    traced = trace(lambda x: body(one, x))
    for call in range(25):
        results = []
        for s, function in ((one, traced), (two, lambda x: body(two, x))):
            chance = random.Random(seed * 100 + call)
            if call > 3 and chance.random() < 0.7:
                disturb(s, chance)
            x = chance.choice([made(3, call), s.c if isinstance(s.c, Tensor) else made(3, 1)])
            try:
                results.append(state(s, function(x)))
            except (TypeError, AttributeError) as error:
                results.append(type(error))
        assert results[0] == results[1], call
