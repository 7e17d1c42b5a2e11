"""MPI as a communicator of mgb, by mpi4py; the library of MPI is loaded when a program joins its job."""

from __future__ import annotations

from .communicator import Mpi

__all__ = ["Mpi", "communicator"]

#: What the entry point names.
communicator = Mpi()
