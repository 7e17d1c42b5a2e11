"""The seam to codegen backends: what one is, what it accepts, how it is found, what it may answer."""

from .backend import (
    ALL_DTYPES,
    API_VERSION,
    MOST_THREADS,
    OLDEST_API_VERSION,
    Adopted,
    Backend,
    Kernel,
    Kind,
    MeshError,
    Scope,
    Seen,
    Specialize,
    Strided,
    Traits,
    Turn,
    VariableError,
    adopt,
    adopter,
    num_threads,
)

__all__ = [
    "ALL_DTYPES", "API_VERSION", "MOST_THREADS", "OLDEST_API_VERSION", "Adopted", "Backend", "Kernel", "Kind",
    "MeshError", "Scope", "Seen", "Specialize", "Strided", "Traits", "Turn", "VariableError", "adopt",
    "adopter", "num_threads",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
