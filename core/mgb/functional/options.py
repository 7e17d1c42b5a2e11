"""Options that are chosen by name."""

from __future__ import annotations

#: Products and convolutions of 16-bit floats are summed in float32 by either name.
COMPUTE_MODES = ("default", "float32")
CONV_MODES = ("cross_correlation",)


def choice(place: str, given: str, known: tuple[str, ...]) -> str:
    """Return `given` in small letters.

    Parameters
    ----------
    place : str
        The function and its option, for the message.
    given : str
        What the user chose.
    known : tuple of str
        What can be chosen.

    Raises
    ------
    ValueError
        It is none of these.
    """
    chosen = given.lower() if isinstance(given, str) else given
    if chosen not in known:
        raise ValueError(f"{place}: {given!r} is not a mode; choose {' or '.join(known)}")
    return chosen


def check_conv_modes(function: str, conv_mode: str, compute_mode: str) -> None:
    """Refuse modes that a convolution does not have."""
    if conv_mode != "cross_correlation" or compute_mode != "default":
        choice(f"{function}, conv_mode", conv_mode, CONV_MODES)
        choice(f"{function}, compute_mode", compute_mode, COMPUTE_MODES)
