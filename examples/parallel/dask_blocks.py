"""A traced function over the blocks of a Dask array, by two processes of this machine.

``pip install dask cloudpickle``. The function goes to the processes by value, since it stands in the program
that runs; what one process has compiled, the others find in the cache of the machine.
"""

import dask
import dask.array as da
import mgb
import numpy as np
from mgb.jit import trace


@trace
def gelu(x):
    """By tanh."""
    return x * 0.5 * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def block(x):
    """Compute one block; Dask calls this with each."""
    return gelu(mgb.tensor(x)).numpy()


def main():
    """The sum over a million elements."""
    x = da.from_array(np.linspace(-3, 3, 1_000_000, dtype=np.float32), chunks=125_000)
    with dask.config.set(scheduler="processes", num_workers=2):
        y = x.map_blocks(block, dtype=x.dtype, meta=np.empty(0, x.dtype)).astype(np.float64)
        return float(y.sum().compute())


if __name__ == "__main__":
    print(main())
