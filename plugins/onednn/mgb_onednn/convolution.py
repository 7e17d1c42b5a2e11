"""The convolution and its two gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .chain import Chain
from .layouts import Shape, row_major
from .native import DIRECT, TRAINING, Arg, Native, dims

#: For each op its arrays in order: the tensor that each one is, or is the gradient of, and its role.
ROLES = {
    "conv2d": (("x", Arg.SRC), ("w", Arg.WEIGHTS), ("y", Arg.DST)),
    "conv2d_grad_input": (("y", Arg.DIFF_DST), ("w", Arg.WEIGHTS), ("x", Arg.DIFF_SRC)),
    "conv2d_grad_weight": (("y", Arg.DIFF_DST), ("x", Arg.SRC), ("w", Arg.DIFF_WEIGHTS)),
}

#: With fewer input channels, blocks of them are mostly padding, and so is the work for their gradient.
FEW_CHANNELS = 8


@dataclass(frozen=True)
class _Convolution:
    """The tensors x, w and y of a convolution and its window, as the library wants to be told."""

    native: Native
    shapes: Mapping[str, Shape]
    layouts: Mapping[str, int]  # memory descriptors
    window: tuple[Any, ...]

    def forward(self) -> int:
        """Return a primitive descriptor for y; the gradients want it as a hint."""
        x, w, y = (self.layouts[k] for k in "xwy")
        native, create = self.native, "dnnl_convolution_forward_primitive_desc_create"
        tensors = x, w, None, y
        return native.make(create, native.engine, TRAINING, DIRECT, *tensors, *self.window, native.attributes)

    def gradient(self, op: str, hint: int) -> int:
        """Return a primitive descriptor for the gradient of x or of w."""
        x, w, y = (self.layouts[k] for k in "xwy")
        of_input = op == "conv2d_grad_input"
        create = f"dnnl_convolution_backward_{'data' if of_input else 'weights'}_primitive_desc_create"
        tensors = (x, w, y) if of_input else (x, w, None, y)  # None: no bias
        native = self.native
        return native.make(create, native.engine, DIRECT, *tensors, *self.window, hint, native.attributes)


def convolution(
    native: Native, op: str, shapes: Sequence[Shape], params: Mapping[str, Any], dtype: str, threads: int
) -> Chain:
    """Return a chain over the operands of `op` and its output, all row-major, of `shapes`."""
    by_letter = dict(zip((letter for letter, _role in ROLES[op]), shapes, strict=True))
    x, w, groups = by_letter["x"], by_letter["w"], params["groups"]
    if groups > 1:
        by_letter["w"] = (groups, w[0] // groups, *w[1:])
    plain = {k: native.layout(s, row_major(s), dtype) for k, s in by_letter.items()}
    inner = computed_in(op, x, dtype)
    blocked = inner != dtype or not is_plain_better(op, x, w)
    layouts = {k: native.any_layout(s, inner) for k, s in by_letter.items()} if blocked else plain
    window = params["stride"], [d - 1 for d in params["dilation"]], params["padding"], params["padding"]
    geometry = _Convolution(native, by_letter, layouts, tuple(map(dims, window)))
    with native.threads(threads):
        description = geometry.forward()
        if op != "conv2d":
            hint, description = description, geometry.gradient(op, description)
            native.call("dnnl_primitive_desc_destroy", hint)
    if blocked:
        native.destroy_layouts(*layouts.values())
    operands_of_chain = [(role, plain[letter]) for letter, role in ROLES[op]]
    return Chain(op, native, description, operands_of_chain, threads)


def computed_in(op: str, x: Shape, dtype: str) -> str:
    """Return the dtype in which a convolution is faster; arrays are converted together with their layouts.

    Gradients of weights, and images of few channels, have slow kernels of bfloat16; those of float16 are
    slower than float32's where there are no tiles for it.
    """
    slow = dtype == "float16" or op == "conv2d_grad_weight" or (op == "conv2d" and x[1] < FEW_CHANNELS)
    return "float32" if dtype != "float32" and slow else dtype


def is_plain_better(op: str, x: Shape, w: Shape) -> bool:
    """Return whether NumPy's own layouts, by a matrix product, are faster than blocked ones.

    A kernel of one pixel is a matrix product as it stands.
    """
    few = op == "conv2d_grad_input" and x[1] < FEW_CHANNELS and w[1] == x[1]
    return w[2:] == (1, 1) or few
