"""Backends whose methods answer what they must not: an error with their name, before anything has run."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from made_up_plugins import distribution, fresh  # noqa: F401 - fixtures
from mgb import errors, plugins, tensor
from mgb.backends import Scope
from mgb.backends.eager_backend import EagerBackend
from mgb.jit import trace

ANSWERS = {
    "a function for a kernel": (
        {"compile": lambda graph: lambda *arrays, out: None},
        r"compile\(\) of backend 'stranger' gave <function .*, expected a mgb\.backends\.Kernel",
    ),
    "nothing for a kernel": ({"compile": lambda graph: None}, r"compile\(\) .* 'stranger' gave None"),
    "no function to run": ({"kernel": {"run": "mul"}}, r"Kernel\.run of .*'stranger' is 'mul', .* a func"),
    "bytes for a source": ({"kernel": {"source": b"mul"}}, r"Kernel\.source of .*'stranger' is b'mul'"),
    "a word for atomic": ({"kernel": {"atomic": "no"}}, r"Kernel\.atomic of .*'stranger' is 'no', .* a bool"),
    "hazards of no input": ({"kernel": {"hazards": {(7, 0)}}}, r"Kernel\.hazards .* has \(7, 0\), expected"),
    "hazards that are none": ({"kernel": {"hazards": {"ab"}}}, r"Kernel\.hazards of .* has 'ab'"),
    "hazards without end": ({"kernel": {"hazards": 3}}, r"Kernel\.hazards of .* is 3"),
    "replaces what was not offered": ({"kernel": {"replaces": ((0, 0),)}}, r"Kernel\.replaces .* not off"),
    "results that were not claimed": (
        {"kernel": {"results": lambda *arrays: ()}},
        r"compile\(\) of backend 'stranger' gave a Kernel with results, and Traits\.hands_over is False",
    ),
    "results that are missing": ({"traits": {"hands_over": True}}, r"gave a Kernel without results"),
    "a version that is a number": ({"version": lambda: 3}, r"version\(\) of .*'stranger' gave 3, .* a str"),
    "a version that fails": (
        {"version": lambda: os.stat("/nowhere")},
        r"version\(\) of backend 'stranger' failed: FileNotFoundError: .*nowhere",
    ),
    "a list for a joined kernel": (
        {"join": list, "traits": {"joins": True}},
        r"join\(\) of backend 'stranger' gave \[.*, expected a mgb\.backends\.Kernel or None",
    ),
    "a chain that is no function": (
        {"chain": lambda *args: 3},
        r"chain\(\) of backend 'stranger' gave 3, expected a function or None",
    ),
    "a chain that fails": (
        {"chain": lambda *args: {}["stream"]},
        r"chain\(\) of backend 'stranger' failed: KeyError: 'stream'",
    ),
}  # fmt: skip


def stranger(traits=None, kernel=None, **methods):
    """A backend that works, but for what is given here."""

    class Stranger(EagerBackend):
        name = "stranger"

        @property
        def traits(self):
            return replace(
                EagerBackend.traits.fget(self), **({"scope": Scope.DOMAIN, "min_ops": 1} | (traits or {}))
            )

        def compile(self, graph):
            return replace(EagerBackend.compile(self, graph), **(kernel or {}))

    made = Stranger()
    for method, function in methods.items():
        setattr(made, method, function)

    class Plugin:
        @plugins.hookimpl
        def mgb_backend(self, name):
            return made

    plugins.manager.register(Plugin(), name="stranger")


@pytest.mark.parametrize("what", ANSWERS)
def test_wrong_return_value_is_reported_with_the_backend_name(what, monkeypatch):
    fields, text = ANSWERS[what]
    stranger(**fields)
    monkeypatch.setenv("MGB_CACHE", "0")
    x, y = tensor([3.0]), tensor([[3.0], [2.0]])  # whose lengths stay
    traced = trace(lambda: (x * 2.0 + 1.0, y * 3.0 - 1.0), symbolic=True, backend="stranger")
    with pytest.raises(errors.BackendContractError, match=text):
        traced()


def test_backend_with_valid_return_values_works(monkeypatch):
    stranger(kernel={"hazards": frozenset({(0, 0)})})
    monkeypatch.setenv("MGB_CACHE", "0")
    assert trace(lambda x: x * 2.0 + 1.0, symbolic=True, backend="stranger")(tensor([3.0])).item() == 7


def test_memory_error_of_a_backend_is_not_wrapped(distribution):  # noqa: F811
    distribution("sound")

    def probe():
        raise MemoryError

    plugins.import_backend("sound").probe = probe
    with pytest.raises(MemoryError):
        plugins.load_backend("sound")


def test_failing_probe_does_not_hide_other_backends(distribution):  # noqa: F811
    distribution("sound")
    distribution("raising")
    plugins.import_backend("raising").probe = lambda: 1 // 0
    lines = {line.name: line.problem for line in plugins.status()}
    assert "probe() of backend 'raising' failed: ZeroDivisionError" in lines["raising"]
    assert not lines["eager"] and lines["sound"] == ""
    with pytest.raises(errors.BackendContractError, match="ZeroDivisionError"):
        plugins.load_backend("raising")
