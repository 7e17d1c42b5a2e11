"""The end of a call that is noted with what stands for numbers, where it cannot go on."""

from __future__ import annotations


class NotFollowed(BaseException):
    """What the body does next cannot be undone, or asks of a number what nobody is told of.

    It is no `Exception`, so that no body takes it for an error of its own.
    """
