"""Elements that kernels fold into places that other values say: the reverse of `look_up`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ShapeError
from ..ir import Kind, Op, Spec
from ..ir.sizes import broadcast, same_shape
from ..runtime import device as devices
from ..tensor import Tensor
from .declare import declare, op_of
from .look_up import Along, key_of
from .reduce import reduce_max, reduce_min, reduce_prod, reduce_sum

Shape = tuple[Any, ...]


def _infer(x: Spec, *indices: Spec, along: Along, shape: Shape) -> Spec:
    own = broadcast([x.shape, *(i.shape for i in indices)])
    kept = {at: length for at, length in zip(along, shape, strict=True) if at is not None}
    ndim = len(own) if own is not None else 0
    if own is None or any(-at > ndim or not same_shape((own[at],), (d,)) for at, d in kept.items()):
        shapes = [x.shape, *(i.shape for i in indices)]
        raise ShapeError(f"elements and indices of shapes {shapes} do not fit {shape} along {along}")
    return Spec(shape, x.dtype)


def _fold(name: str, reduction: Callable[..., Tensor], ufunc: np.ufunc, what: str) -> Callable[..., Tensor]:
    row = op_of(reduction).reduction
    assert row is not None

    def eager(x: Any, *indices: Any, along: Along, shape: Shape) -> Any:
        if not isinstance(x, np.ndarray):  # CuPy adds alone at repeated indices
            host = [devices.to_host(a) for a in (x, *indices)]
            return devices.place(eager(*host, along=along, shape=shape), devices.where(x))
        out = np.full(shape, row.identity(x.dtype), row.accumulator(x.dtype))
        own = np.broadcast_shapes(x.shape, *(i.shape for i in indices))
        ufunc.at(out, key_of(shape, [np.broadcast_to(i, own) for i in indices], along), x)
        return out.astype(x.dtype, copy=False)

    return declare(
        Op(
            name,
            Kind.SCATTER,
            _infer,
            eager,
            differentiable=False,
            exact=row.combine.exact,
            reduction=row,
            meaning=f"The {what} of the elements of `x` that belong to each place of a result of `shape`. "
            "``along`` and the indices say to which, as for ``look_up``; an axis that no index reaches has "
            f"the length of `x` or of the indices. Of none it is that of ``{op_of(reduction).name}``. In "
            "which order does not depend on the number of threads. Kernels get ``index_add``, "
            "``scatter_add`` and ``scatter_fold`` as this; it is not recorded.",
        )
    )


scatter_sum = _fold("scatter_sum", reduce_sum, np.add, "sum")
scatter_prod = _fold("scatter_prod", reduce_prod, np.multiply, "product")
scatter_max = _fold("scatter_max", reduce_max, np.maximum, "greatest")
scatter_min = _fold("scatter_min", reduce_min, np.minimum, "least")
