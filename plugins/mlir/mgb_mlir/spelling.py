"""LLVM's text as the releases before 23 read it: they spell floating-point numbers in another way.

The wheel that has MLIR prints ``1.000000e-01``, ``f0x3DCCCCCD``, ``+inf``, ``-nan(0x1)``, ``+snan(0x1)``.
Older releases take a number in hexadecimal: a half by its own bits, any other by those of the double it is.
"""

from __future__ import annotations

import re
import struct

_TOKENS = re.compile(
    r"""(?<![\w.%@"-]) (?: (?P<type> (?:half|float|double)\b )
    | (?P<number> f0x[0-9A-F]+ | [+-]?\d+\.\d*(?:e[+-]?\d+)? | [+-](?:inf|qnan|s?nan\(0x[0-9a-fA-F]+\)) )
      (?![\w.]) )""",
    re.VERBOSE,
)

#: Of each type: how `struct` writes it and its bits, and the bits of its fraction.
_FORMATS = {"half": ("<e", "<H", 10), "float": ("<f", "<I", 23), "double": ("<d", "<Q", 52)}

#: Intrinsics with another name, which newer releases take as well.
_RENAMED = {"@llvm.nvvm.ex2.approx.ftz.f32(": "@llvm.nvvm.ex2.approx.ftz.f("}

#: What begins a line that has no operation: comments, names, metadata.
_APART = (";", "source_filename", "target ", "!")


def older(text: str) -> str:
    """A module's text with its numbers, and its intrinsics, in the older spelling."""
    for new, old in _RENAMED.items():
        text = text.replace(new, old)
    return "\n".join(line if line.startswith(_APART) else _line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    last = ""

    def hexadecimal(found: re.Match[str]) -> str:
        nonlocal last
        if found["type"]:
            last = found["type"]
            return found[0]
        return _hexadecimal(_bits(found["number"], last), last) if last else found[0]

    return _TOKENS.sub(hexadecimal, line)


def _bits(number: str, type_: str) -> int:
    """The pattern of a number of `type_`."""
    code, word, fraction = _FORMATS[type_]
    if number.startswith("f0x"):
        return int(number[3:], 16)
    if "nan" not in number:
        (found,) = struct.unpack(word, struct.pack(code, float(number)))
        return int(found)
    payload = int(number.partition("(")[2].rstrip(")") or "0", 16)
    quiet = 0 if "snan" in number else 1 << (fraction - 1)
    return _sign_and_exponent(number[0] == "-", type_) | quiet | payload


def _sign_and_exponent(negative: bool, type_: str) -> int:
    """The bits that all infinities and NaN of a sign share."""
    code, word, _ = _FORMATS[type_]
    (found,) = struct.unpack(word, struct.pack(code, float("-inf" if negative else "inf")))
    return int(found)


def _hexadecimal(bits: int, type_: str) -> str:
    """The older spelling of a pattern."""
    if type_ == "half":
        return f"0xH{bits:04X}"
    if type_ == "double":
        return f"0x{bits:016X}"
    fraction = bits & 0x7FFFFF
    if bits >> 23 & 0xFF == 0xFF:  # an infinity, or NaN, whose payload must not pass through a conversion
        return f"0x{bits >> 31 << 63 | 0x7FF << 52 | fraction << 29:016X}"
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    (wide,) = struct.unpack("<Q", struct.pack("<d", value))
    return f"0x{wide:016X}"
