"""A model as plain data, free of protobuf: what reading a file gives and what runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mgb.storage.model_file import ValueSpec

from .values import Host


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute inside a function that takes its value from the attribute `name` of the call."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One node.

    Attributes
    ----------
    domain, operator, overload : str
        What is applied; the domain of ONNX itself is "".
    inputs, outputs : tuple of str
        Names; "" for what is left out.
    attributes : Mapping
        By name: int, float, str, an array, a `Body`, a `Reference`, a tuple of these.
    place : str
        Where it stands, for messages.
    """

    domain: str
    operator: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    place: str


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A graph, the branch of an If, the body of a Loop, or that of a function.

    Attributes
    ----------
    inputs, outputs : tuple of str
    calls : tuple of Call
        Each after those whose results it reads.
    constants : Mapping
        The initializers by name.
    opsets : Mapping
        The version of each domain that its nodes are written in.
    place : str
        For messages.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    calls: tuple[Call, ...]
    constants: Mapping[str, Host]
    opsets: Mapping[str, int]
    place: str


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """An operator that a file defines by other operators.

    Attributes
    ----------
    body : Body
    defaults : Mapping
        Of its attributes; one without a default that is not given is left out inside.
    own : tuple or None
        ``(name, params)`` of the op of mgb that was written out like this.
    """

    body: Body
    defaults: Mapping[str, Any] = field(default_factory=dict)
    own: tuple[str, Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ModelFile:
    """All that a file says.

    Attributes
    ----------
    body : Body
        The graph; its `inputs` are those that have no initializer.
    inputs, outputs : tuple of ValueSpec
    functions : Mapping
        By ``(domain, name, overload)``.
    metadata : Mapping of str to str
    structure : str
        What the dumped function returned: ``tensor``, ``tuple``, ``list`` or ``dict``; empty for a model that
        `dump` did not write.
    """

    body: Body
    inputs: tuple[ValueSpec, ...]
    outputs: tuple[ValueSpec, ...]
    functions: Mapping[tuple[str, str, str], Function]
    metadata: Mapping[str, str]
    structure: str = ""
