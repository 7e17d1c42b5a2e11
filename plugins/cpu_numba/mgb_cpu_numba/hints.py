"""Loop hints for LLVM; the name of the loop's variable selects the hint.

An expensive loop is cut in two: whole vectors, several at a time, and at its end one step by masked vectors.
By itself LLVM takes one vector at a time, which leaves the processor idle, and up to 15 elements one by one.
"""

from __future__ import annotations

#: The variables: of the loop over the two parts, and of the one over the elements of a part.
PARTS, MASKED = "part", "lane"

#: Vectors that a turn works on, and elements that are a multiple of a turn's.
VECTORS, WHOLE = 4, 64

#: Computed values from which a loop is dear.
DEAR = 12

#: For each variable LLVM's words and their values; None: the word has none.
HINTS: dict[str, dict[str, bool | int | None]] = {
    PARTS: {"llvm.loop.unroll.full": None},
    MASKED: {"llvm.loop.vectorize.predicate.enable": True, "llvm.loop.interleave.count": VECTORS},
}
