"""Messages from one rank to another, as ops whose gradients go back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import Kind, Op, Spec, dtypes
from ..ops.creation import zeros_like
from ..ops.declare import declare
from ..tensor import Tensor
from .collective import Function, begun, empty_beside, place_of_user, taken
from .communicator import Collective
from .errors import CollectiveMismatchError
from .world import world

#: Bytes in which a sender says what comes.
_TEXT = 256


def _sent(x: Any, *_before: Any, peer: int) -> Any:
    _announce("send", x, peer)
    _message("send", x, peer, f"send to rank {peer}")
    return np.zeros_like(x, shape=(), dtype=np.float32)


def _received(like: Any, *_before: Any, peer: int, told: bool = False) -> Any:
    if not told:
        _announce("recv", like, peer)
    return _message("recv", empty_beside(like, like.shape, like.dtype), peer, f"receive from rank {peer}")


def _message(kind: str, array: Any, peer: int, about: str) -> Any:
    """Send an array, or fill it with what comes."""
    array = taken(array, about)
    given = array.astype(array.dtype, order="C", copy=False)
    source, target = (given, None) if kind == "send" else (None, array)
    world().finish(begun(Collective(kind, peer=peer), source, target, "world", about))
    return array


def what_comes(peer: int, wanted: str = "anything") -> str:
    """Return the dtype and the shape of what another rank sends next; to be received with ``told=True``."""
    found = _message("recv", np.empty(_TEXT, np.uint8), peer, f"recv of {wanted} with rank {peer}")
    return bytes(found).decode().strip()


def _announce(kind: str, x: Any, peer: int) -> None:
    """Send what comes, or see whether it is what is wanted."""
    mine = f"{x.dtype.name}{list(x.shape)}"
    if kind == "send":
        text = np.frombuffer(mine.encode().ljust(_TEXT), np.uint8)
        _message(kind, text, peer, f"{kind} of {mine} with rank {peer}")
        return
    theirs = what_comes(peer, mine)
    if theirs != mine:
        where = place_of_user()
        raise CollectiveMismatchError(f"rank {peer} sends {theirs}, but this rank expects {mine} at {where}")


def _received_back(_g: Tensor, _y: Any, x: Tensor, peer: int) -> tuple[Tensor]:
    return (remote_recv(zeros_like(x), peer=peer),)


def _sent_back(g: Tensor, _y: Any, like: Tensor, peer: int, told: bool = False) -> tuple[Tensor]:
    remote_send(g, peer=peer)
    return (zeros_like(like),)


def _message_op(name: str, infer: Any, eager: Any, grad: Any, meaning: str) -> Callable[..., Tensor]:
    fields: dict[str, Any] = {"keeps_bits": True, "ordered": True, "meaning": meaning}
    return declare(Op(name, Kind.OPAQUE, infer, eager, grad, **fields))


def _a_token(_x: Spec, *_before: Spec, peer: int) -> Spec:
    return Spec((), dtypes.float32)


def _alike(like: Spec, *_before: Spec, peer: int, told: bool = False) -> Spec:
    return Spec(like.shape, like.dtype)


remote_send: Function = _message_op(
    "remote_send",
    _a_token,
    _sent,
    _received_back,
    "Sends `x` to the rank `peer`; a float32 0, which says so.",
)
remote_recv: Function = _message_op(
    "remote_recv",
    _alike,
    _received,
    _sent_back,
    "The array that the rank `peer` sends, of the shape and dtype of `like`.",
)
