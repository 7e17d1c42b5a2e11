"""Code that is not converted: the block runs eagerly at every call."""

from mgb import jit, tensor


@jit.trace
def f(x):
    x += 1
    with jit.exclude_from_trace():  # the if below is not traced
        if i % 2 == 0:
            x += 1
    return x


for i in range(3):
    x = tensor([1])
    print(f(x))
