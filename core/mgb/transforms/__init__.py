"""Functions of functions: gradients, Jacobians and batches, with the signatures of JAX."""

from . import batched_loops as batched_loops
from . import batched_ops as batched_ops
from .batching import vmap
from .gradients import grad, hessian, jacfwd, jacobian, jacrev, jvp, value_and_grad, vjp

__all__ = ["grad", "hessian", "jacfwd", "jacobian", "jacrev", "jvp", "value_and_grad", "vjp", "vmap"]


def __dir__() -> list[str]:
    return __all__
