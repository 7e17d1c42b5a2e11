"""The structures that the launcher reads, as `launcher.h` has them, field by field; it says what each is."""

from __future__ import annotations

import ctypes

WORD = ctypes.c_int64
POINTER = ctypes.c_void_p


class Site(ctypes.Structure):
    """``struct site`` of `launcher.h`: what a launcher's ``run`` knows."""

    _fields_ = [
        ("slow", POINTER), ("threads", POINTER), ("array_type", POINTER), ("inputs", WORD), ("outputs", WORD),
        ("constants", POINTER), ("constant_count", WORD), ("recent", POINTER),
    ]  # fmt: skip


class Program(ctypes.Structure):
    """``struct program`` of `launcher.h`: a launch for one set of shapes, strides and threads."""

    _fields_ = [
        ("owner", POINTER), ("threads", WORD), ("signature", POINTER), ("hazards", POINTER),
        ("hazard_count", WORD), ("operands", POINTER), ("operand_count", WORD), ("parts", POINTER),
        ("phases", POINTER), ("phase_count", WORD), ("claims", POINTER), ("own", WORD), ("common", WORD),
    ]  # fmt: skip


class Part(ctypes.Structure):
    """``struct part`` of `launcher.h`: one call of a kernel."""

    _fields_ = [
        ("kernel", POINTER), ("first", WORD), ("plan", POINTER), ("span", WORD * 6), ("offset", WORD),
        ("is_common", WORD),
    ]  # fmt: skip


class Action(ctypes.Structure):
    """``struct action`` of `launcher.h`: what a loop does in each turn, or a sequence once."""

    _fields_ = [
        ("program", POINTER), ("function", POINTER), ("plan", POINTER), ("count", WORD),
        ("addresses", POINTER), ("steps", POINTER),
    ]  # fmt: skip


class Sequence(ctypes.Structure):
    """``struct sequence`` of `launcher.h`: actions on arrays of one set of shapes and strides."""

    _fields_ = [
        ("owner", POINTER), ("threads", WORD), ("is_free", WORD), ("signature", POINTER),
        ("actions", POINTER), ("action_count", WORD), ("most", WORD),
    ]  # fmt: skip


class Route(ctypes.Structure):
    """``struct route`` of `launcher.h`: what ``follow`` of a sequence knows."""

    _fields_ = [
        ("slow", POINTER), ("threads", POINTER), ("array_type", POINTER), ("count", WORD), ("checked", WORD),
        ("recent", POINTER),
    ]  # fmt: skip
