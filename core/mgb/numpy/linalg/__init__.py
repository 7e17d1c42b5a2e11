"""Linear algebra under NumPy's names and with its arguments; `solve_triangular` has torch's.

Matrices stand in the last two axes; the axes before them are stacks, which broadcast. LAPACK computes, by
NumPy and SciPy, or CuPy on GPUs. Results are floats: 16-bit ones are computed in float32, integers become
float32.
"""

from ...tensor.arguments import explain as _explain
from .decompositions import (
    EighResult,
    EigResult,
    QRResult,
    SVDResult,
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from .norms import (
    cond,
    matrix_norm,
    matrix_rank,
    norm,
    vector_norm,
)
from .products import (
    cross,
    diagonal,
    matmul,
    matrix_power,
    matrix_transpose,
    multi_dot,
    outer,
    tensordot,
    trace,
    vecdot,
)
from .solving import (
    LstsqResult,
    SlogdetResult,
    det,
    inv,
    lstsq,
    pinv,
    slogdet,
    solve,
    solve_triangular,
    tensorinv,
    tensorsolve,
)

# fmt: off
__all__ = [
    "EigResult", "EighResult", "LstsqResult", "QRResult", "SVDResult", "SlogdetResult", "cholesky",
    "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer",
    "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals", "tensordot", "tensorinv",
    "tensorsolve", "trace", "vecdot", "vector_norm",
]
# fmt: on


def __dir__() -> list[str]:
    return __all__


_explain(globals(), __all__)
