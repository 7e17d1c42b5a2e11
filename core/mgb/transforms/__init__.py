"""Functions of functions: gradients, Jacobians and batches, with the signatures of JAX."""

from .batching import vmap
from .gradients import grad, hessian, jacfwd, jacobian, jacrev, jvp, value_and_grad, vjp

__all__ = ["grad", "hessian", "jacfwd", "jacobian", "jacrev", "jvp", "value_and_grad", "vjp", "vmap"]
