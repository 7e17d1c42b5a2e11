"""`GraphInference`: a model from a file, from arrays to arrays."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from ..jit import load


class GraphInference:
    """Run a model from a file on NumPy arrays.

    Parameters
    ----------
    file : path or binary file object
        The file of a model; see `mgb.jit.load`.
    outputs : sequence of str, optional
        Names of values in the graph; None: its own outputs.
    profiling : bool
        Measure each step at each call.
    optimize_for_inference : bool
        Accepted for MegEngine's sake: every loaded model is compiled for inference.
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | BinaryIO,
        outputs: Sequence[str] | None = None,
        profiling: bool = False,
        optimize_for_inference: bool = False,
    ) -> None:
        options: dict[str, Any] = {"profiling": True} if profiling else {}
        self._function = load(file, outputs=outputs, **options)

    def run(
        self, *inp_args: Any, inp_dict: Mapping[str, Any] | None = None
    ) -> OrderedDict[str, np.ndarray[Any, Any]]:
        """Return the outputs by name, as arrays.

        Parameters
        ----------
        *inp_args : array-like
            The inputs in order.
        inp_dict : mapping, optional
            Inputs by name.

        Raises
        ------
        ArgumentError
            They are not the inputs of the model.
        """
        results = self._function.run(*inp_args, **(inp_dict or {}))
        return OrderedDict((name, tensor.numpy()) for name, tensor in results.items())
