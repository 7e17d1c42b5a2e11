"""Metadata of our own files beyond ONNX: names and JSON, which other readers ignore."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mgb import dtypes
from mgb.errors import ArgumentError, FileFormatError, FileVersionError

#: The format of what `dump` adds to a file; a greater number is refused.
DUMP_VERSION = 1

#: Our own domain, of functions whose bodies are standard operators.
DOMAIN = "ai.mgb"

#: The metadata of a function that holds the name and the parameters of the op it was written for.
OWN_OP = "mgb.op"

#: The metadata of a model that says how `dump` arranged its results.
DUMPED = "mgb.dump"


@dataclass(frozen=True, slots=True)
class Dumped:
    """The metadata that `dump` writes of a model beside its graph.

    Attributes
    ----------
    inputs, outputs : sequence of str
        Names.
    structure : str
        ``"tensor"``, ``"list"``, ``"tuple"`` or ``"dict"``: what the function returned; empty where that is
        not said.
    user_info : object
        Anything that JSON can say.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    structure: str
    user_info: Any = None

    def text(self) -> str:
        """Return the text of the metadata.

        Raises
        ------
        ArgumentError
            The user's information cannot be written as JSON.
        """
        described = {
            "version": DUMP_VERSION,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "structure": self.structure,
            "user_info": self.user_info,
        }
        try:
            return json.dumps(described, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(
                f"user_info cannot be written as JSON: {error}; give dicts with string "
                "keys, lists, strings, finite numbers, True, False and None"
            ) from error


def dumped(metadata: Mapping[str, str], outputs: int) -> Dumped | None:
    """Read the metadata of `dump` for a model with so many `outputs`; None where it did not write the file.

    Raises
    ------
    FileFormatError
        The metadata are damaged.
    FileVersionError
        They are of a newer format.
    """
    if DUMPED not in metadata:
        return None
    place = f"metadata {DUMPED!r}"
    found = _json(metadata[DUMPED], place)
    version = found.get("version") if isinstance(found, dict) else None
    if not isinstance(version, int):
        raise FileFormatError(f"{place}: it has no version")
    if version > DUMP_VERSION:
        raise FileVersionError(
            f"the file was written by a newer mgb (format {version}; this one reads {DUMP_VERSION}): "
            "pip install --upgrade mgb"
        )
    structure = found.get("structure", "")
    if structure not in ("", "tensor", "tuple", "list", "dict") or (structure == "tensor" and outputs != 1):
        raise FileFormatError(f"{place}: {structure!r} is not a structure of {outputs} outputs")
    return Dumped(_names(found, "inputs"), _names(found, "outputs"), structure, found.get("user_info"))


def _names(found: Mapping[str, Any], key: str) -> list[str]:
    names = found.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FileFormatError(f"metadata {DUMPED!r}: its {key} are not names")
    return names


def own_op(proto: Any, place: str) -> tuple[str, Mapping[str, Any]] | None:
    """Return the op, and its parameters, that a FunctionProto of our domain was written for."""
    if proto.domain != DOMAIN:
        return None
    text = {p.key: p.value for p in proto.metadata_props}.get(OWN_OP)
    if text is None:
        return None
    found = _json(text, f"{place}, metadata {OWN_OP!r}")
    name = found.get("op") if isinstance(found, dict) else None
    params = found.get("params", {}) if isinstance(found, dict) else None
    if not isinstance(name, str) or not isinstance(params, dict):
        raise FileFormatError(f"{place}, metadata {OWN_OP!r}: it names no op")
    return name, {k: _parameter(v) for k, v in params.items()}


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{place}: {error}") from error


def _parameter(value: Any) -> Any:
    """Return a parameter of an op: lists are tuples, ``{"dtype": name}`` is a dtype."""
    if isinstance(value, list):
        return tuple(map(_parameter, value))
    if isinstance(value, dict) and value.get("dtype") in dtypes.BY_NAME:
        return dtypes.BY_NAME[value["dtype"]]
    return value
