"""The functions of NVIDIA's libdevice that kernels call, in LLVM's text: none of its bitcode is needed.

All but one are instructions of the target. The remainder of a division of floats is not one, and LLVM's
expansion of it, ``x - trunc(x / y) * y``, is wrong for large quotients; it is done here in integers, exactly.
"""

from __future__ import annotations

import re

#: The functions that are instructions: LLVM's name, and how many operands.
_INSTRUCTIONS = {
    "floor": ("floor", 1), "rint": ("roundeven", 1), "sqrt": ("sqrt", 1), "fabs": ("fabs", 1),
    "copysign": ("copysign", 2), "fma": ("fma", 3), "fmax": ("maxnum", 2), "fmin": ("minnum", 2),
}  # fmt: skip

_DECLARED = re.compile(r"^declare (float|double) @__nv_(\w+)\(.*$", re.MULTILINE)


def defined(text: str) -> str:
    """A module's text, with a definition for each function of libdevice that it declares.

    Raises
    ------
    KeyError
        There is no definition of one.
    """
    return _DECLARED.sub(lambda found: _definition(found[1], found[2]), text)


def _definition(type_: str, name: str) -> str:
    own = name.removesuffix("f") if type_ == "float" else name
    if own == "fmod":
        return _remainder(type_, name)
    instruction, count = _INSTRUCTIONS[own]
    full = f"llvm.{instruction}.{'f32' if type_ == 'float' else 'f64'}"
    operands = ", ".join(f"{type_} %{letter}" for letter in "abc"[:count])
    return f"""declare {type_} @{full}({", ".join([type_] * count)})
define internal {type_} @__nv_{name}({operands}) alwaysinline {{
  %found = call {type_} @{full}({operands})
  ret {type_} %found
}}"""


#: With x = m * 2**i and y = n * 2**j in integers m and n, and i >= j, the remainder is
#: (m * 2**(i - j)) % n * 2**j. The power of two is multiplied in by as many bits at a time as 64 bits have
#: room for. The product with 2**j at the end is exact: the result has no bit below the last of y.
_REMAINDER = """define internal {type} @__nv_{name}({type} %x, {type} %y) {{
entry:
  %xbits = bitcast {type} %x to {word}
  %ybits = bitcast {type} %y to {word}
  %xabs = and {word} %xbits, {most}
  %yabs = and {word} %ybits, {most}
  %xwild = icmp uge {word} %xabs, {infinity}
  %ynan = icmp ugt {word} %yabs, {infinity}
  %yzero = icmp eq {word} %yabs, 0
  %either = or i1 %xwild, %ynan
  %none = or i1 %either, %yzero
  %less = icmp ult {word} %xabs, %yabs
  %early = or i1 %none, %less
  br i1 %early, label %known, label %begin
known:
  %given = select i1 %none, {type} 0x7FF8000000000000, {type} %x
  ret {type} %given
begin:
  %xexponent = lshr {word} %xabs, {fraction}
  %yexponent = lshr {word} %yabs, {fraction}
  %xsmall = icmp eq {word} %xexponent, 0
  %ysmall = icmp eq {word} %yexponent, 0
  %i = select i1 %xsmall, {word} 1, {word} %xexponent
  %j = select i1 %ysmall, {word} 1, {word} %yexponent
  %xfraction = and {word} %xabs, {below}
  %yfraction = and {word} %yabs, {below}
  %xwhole = or {word} %xfraction, {one}
  %ywhole = or {word} %yfraction, {one}
  %xm = select i1 %xsmall, {word} %xfraction, {word} %xwhole
  %yn = select i1 %ysmall, {word} %yfraction, {word} %ywhole
  {widen_m}
  {widen_n}
  %first = urem i64 %m, %n
  %apart = sub {word} %i, %j
  br label %test
test:
  %rest = phi i64 [ %first, %begin ], [ %next, %step ]
  %left = phi {word} [ %apart, %begin ], [ %fewer, %step ]
  %done = icmp eq {word} %left, 0
  br i1 %done, label %end, label %step
step:
  %many = icmp ugt {word} %left, {room}
  %now = select i1 %many, {word} {room}, {word} %left
  {widen_now}
  %moved = shl i64 %rest, %bits
  %next = urem i64 %moved, %n
  %fewer = sub {word} %left, %now
  br label %test
end:
  %number = uitofp i64 %rest to {type}
  %normal = icmp ugt {word} %j, {fraction}
  %above = sub {word} %j, {fraction}
  %unit = shl {word} %above, {fraction}
  %place = sub {word} %j, 1
  %tiny = shl {word} 1, %place
  %power = select i1 %normal, {word} %unit, {word} %tiny
  %factor = bitcast {word} %power to {type}
  %size = fmul {type} %number, %factor
  %sizebits = bitcast {type} %size to {word}
  %sign = xor {word} %xbits, %xabs
  %signed = or {word} %sizebits, %sign
  %found = bitcast {word} %signed to {type}
  ret {type} %found
}}"""


def _remainder(type_: str, name: str) -> str:
    bits, fraction = (32, 23) if type_ == "float" else (64, 52)
    most = (1 << (bits - 1)) - 1
    below = (1 << fraction) - 1
    widen = "zext i32 {} to i64" if bits == 32 else "add i64 {}, 0"
    return _REMAINDER.format(
        type=type_, name=name, word=f"i{bits}", most=most, infinity=most - below, fraction=fraction,
        below=below, one=below + 1, room=63 - fraction, widen_m=f"%m = {widen.format('%xm')}",
        widen_n=f"%n = {widen.format('%yn')}", widen_now=f"%bits = {widen.format('%now')}",
    )  # fmt: skip
