"""What our own files say beyond ONNX, in metadata: names and JSON, that other readers pass over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .. import dtypes
from ..errors import OnnxFileError, OnnxVersionError

#: The format of what `dump` adds to a file; a greater number is refused.
DUMP_VERSION = 1

#: Our own domain, of functions whose bodies are standard operators.
DOMAIN = "ai.mgb"

#: The metadata of a function that holds the name and the parameters of the op it was written for.
OWN_OP = "mgb.op"

#: The metadata of a model that says how `dump` arranged its results.
DUMPED = "mgb.dump"


def structure_of(metadata: Mapping[str, str], outputs: int) -> str:
    """What the dumped function returned; empty where `dump` did not write the file."""
    if DUMPED not in metadata:
        return ""
    place = f"metadata {DUMPED!r}"
    found = _json(metadata[DUMPED], place)
    version = found.get("version") if isinstance(found, dict) else None
    if not isinstance(version, int):
        raise OnnxFileError(f"{place}: it has no version")
    if version > DUMP_VERSION:
        raise OnnxVersionError(
            f"the file was written by a newer mgb (format {version}; this one reads {DUMP_VERSION}): "
            "pip install --upgrade mgb"
        )
    structure = found.get("structure", "")
    if structure not in ("", "tensor", "tuple", "list", "dict") or (structure == "tensor" and outputs != 1):
        raise OnnxFileError(f"{place}: {structure!r} is no structure of {outputs} outputs")
    return str(structure)


def own_op(proto: Any, place: str) -> tuple[str, Mapping[str, Any]] | None:
    """The op, and its parameters, that a FunctionProto of our domain was written for."""
    if proto.domain != DOMAIN:
        return None
    text = {p.key: p.value for p in proto.metadata_props}.get(OWN_OP)
    if text is None:
        return None
    found = _json(text, f"{place}, metadata {OWN_OP!r}")
    name = found.get("op") if isinstance(found, dict) else None
    params = found.get("params", {}) if isinstance(found, dict) else None
    if not isinstance(name, str) or not isinstance(params, dict):
        raise OnnxFileError(f"{place}, metadata {OWN_OP!r}: it names no op")
    return name, {k: _parameter(v) for k, v in params.items()}


def _json(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OnnxFileError(f"{place}: {error}") from error


def _parameter(value: Any) -> Any:
    """A parameter of an op: lists are tuples, ``{"dtype": name}`` is a dtype."""
    if isinstance(value, list):
        return tuple(map(_parameter, value))
    if isinstance(value, dict) and value.get("dtype") in dtypes.BY_NAME:
        return dtypes.BY_NAME[value["dtype"]]
    return value
