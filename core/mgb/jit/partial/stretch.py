"""A stretch of what the tapes record: differentiated by itself, then forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autodiff.tape import Tape, open_tapes
from ...errors import UnsupportedError
from ...tensor import Tensor


def recording() -> list[Tape]:
    """Return the tapes that are open and record in this context, outer ones first."""
    return [tape for tape in open_tapes() if tape.recording]


def the_only(tapes: Sequence[Tape]) -> Tape | None:
    """Return the one tape that sees a call; None when none does.

    Raises
    ------
    UnsupportedError
        Several do.
    """
    if len(tapes) < 2:
        return tapes[0] if tapes else None
    if len({tape.level for tape in tapes}) < len(tapes):
        raise UnsupportedError(
            "grouped GradManagers are not supported in partial trace: give the tensors to one GradManager"
        )
    raise UnsupportedError(
        "derivatives of higher order not supported in partial trace: leave the decorator off this function"
    )


class Stretch:
    """The nodes that open tapes record from here on.

    Nodes that a tape had before, those of the tensors outside, are where the stretch begins.
    """

    def __init__(self) -> None:
        self._before = {tape: (len(tape._nodes), len(tape._watched)) for tape in recording()}

    def tape(self) -> Tape | None:
        """Return the one tape that recorded something; None when none did.

        Raises
        ------
        UnsupportedError
            Several did, one was used up, or began to watch another tensor.
        """
        for tape, (_, watched) in self._before.items():
            if not tape.recording:
                raise UnsupportedError(
                    "a GradManager that began to record outside of a partially traced function was released "
                    "in it, as by its backward: move that out of the function, or use @trace on the step"
                )
            if len(tape._watched) > watched:
                raise UnsupportedError(
                    "a GradManager that records outside of a partially traced function was given a tensor "
                    "in it: attach it before the function is called"
                )
        return the_only([tape for tape, (nodes, _) in self._before.items() if len(tape._nodes) > nodes])

    def pull(self, tape: Tape, ys: Sequence[Tensor], dys: Sequence[Tensor]) -> dict[Any, Tensor]:
        """Return the gradient of each node at the beginning of the stretch that `ys` depend on."""
        known = (reference() for reference in tape._nodes[: self._before[tape][0]])
        return tape.pull(ys, dys, {node for node in known if node is not None})

    def forget(self) -> None:
        """Take what was recorded from the tapes again."""
        for tape, (nodes, _) in self._before.items():
            for reference in tape._nodes[nodes:]:
                node = reference()
                if node is not None:
                    node.clear()
            del tape._nodes[nodes:]
