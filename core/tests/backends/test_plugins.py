"""How a backend is found by name, and what is said when it is not. Distributions are made up on the fly."""

# ruff: noqa: F811 - a test names the fixture that it is given

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from dataclasses import replace
from functools import cache

import mgb.backends
import numpy as np
import pytest
from made_up_plugins import PLUGIN, distribution, forget, fresh, new_manager  # noqa: F401 - fixtures
from mgb import errors, plugins, tensor
from mgb.backends import API_VERSION, Backend, Kernel, Traits
from mgb.ir import Spec
from mgb.ir.dtypes import float32
from mgb.jit import trace
from mgb.ops import reduce
from mgb.ops.declare import OPS
from mgb.runtime import entry_points
from mgb.tensor.apply import apply
from mgb.tensor.tracing import graph_of


def test_eager_backend_is_always_installed():
    assert plugins.installed()["eager"] == "mgb"
    assert plugins.load_backend("EAGER").name == "eager"
    assert plugins.manager.hook.mgb_backend(name="eager").name == "eager"


def test_backend_names_ignore_case_and_spaces(distribution):
    distribution("mine", entry="Mine")
    assert plugins.load_backend(" MINE ") is plugins.load_backend("mine")


def test_only_the_named_plugin_is_imported(distribution):
    first, second = distribution("first"), distribution("second")
    plugins.load_backend("second")
    assert second in sys.modules and first not in sys.modules
    assert {"first", "second"} <= set(plugins.installed())
    assert plugins.installed()["first"] == "mgb-first"


def test_misspelled_backend_name_error_suggests_the_nearest(distribution):
    distribution("mine")
    with pytest.raises(errors.UnknownBackendError, match=r"'mnie'; did you mean 'mine'\?.*eager,.*mine.*pip"):
        plugins.load_backend("mnie")


def test_unknown_name_error_mentions_the_environment_variable(monkeypatch):
    monkeypatch.setenv("MGB_JIT_BACKEND", "eager_, eager")
    with pytest.raises(errors.UnknownBackendError, match=r"^MGB_JIT_BACKEND='eager_, eager': .*'eager_'"):
        plugins.choose_backend("cpu")
    with pytest.raises(errors.UnknownBackendError, match=r"^no backend is called 'egaer'"):
        plugins.choose_backend("cpu", "egaer")


def test_uninstalled_backend_error_names_the_install_command(monkeypatch):
    monkeypatch.setitem(plugins.EXTRAS, "faraway", "far")
    with pytest.raises(errors.BackendNotInstalledError, match=r'pip install "mgb\[far\]"'):
        plugins.load_backend("FARAWAY")


def test_plugin_failing_to_import_does_not_affect_others(distribution):
    distribution("broken", source="raise OSError('no libbroken.so')")
    distribution("mine")
    for _ in range(2):
        with pytest.raises(errors.BackendImportError, match=r"mgb-broken.*OSError: no libbroken") as caught:
            plugins.load_backend("broken")
        assert isinstance(caught.value.__cause__, OSError)
    assert plugins.load_backend("mine").name == "mine"


def test_misspelled_hook_raises(distribution):
    distribution("mine", hook="mgb_bakcend")
    with pytest.raises(errors.BackendImportError, match="no hook called mgb_bakcend"):
        plugins.load_backend("mine")
    assert plugins.load_backend("eager").name == "eager"


def test_plugin_returning_none_for_its_own_name_raises(distribution):
    distribution("mine", entry="other")
    with pytest.raises(errors.BackendImportError, match="gave None"):
        plugins.load_backend("other")


def test_plugin_cannot_replace_the_backend_of_another(distribution):
    class Greedy:
        @plugins.hookimpl
        def mgb_backend(self, name):
            return _backend("greedy", priority=9)

    distribution("mine")
    plugins.load_backend("mine")
    plugins.manager.register(Greedy(), name="greedy")
    plugins._imported.cache_clear()
    assert plugins.load_backend("mine").name == "mine"


@pytest.mark.parametrize(("version", "package"), [(API_VERSION + 1, "mgb"), (API_VERSION - 1, "mgb-mine")])
def test_unsupported_api_version_raises(distribution, version, package):
    distribution("mine", version=version)
    with pytest.raises(errors.BackendUnavailableError, match=rf"pip install --upgrade {package}$"):
        plugins.load_backend("mine")


def test_failing_probe_raises_unavailable_error(distribution):
    distribution("mine", problem="no compiler: apt install gcc")
    with pytest.raises(errors.BackendUnavailableError, match="apt install gcc"):
        plugins.load_backend("mine")


def test_conflicting_distributions_are_both_named(distribution):
    distribution("mine", dist="mgb-mine")
    distribution("mine", dist="their-mine")
    with pytest.raises(
        errors.BackendUnavailableError, match=r"mgb-mine and by their-mine.*uninstall their-mine"
    ):
        plugins.load_backend("mine")


# choosing


def test_environment_variable_is_read_at_each_choice(distribution, monkeypatch):
    distribution("mine")
    monkeypatch.setenv("MGB_JIT_BACKEND", "EAGER")
    assert plugins.choose_backend("cpu").name == "eager"
    monkeypatch.setenv("MGB_JIT_BACKEND", "mine")
    assert plugins.choose_backend("cpu").name == "mine"
    assert plugins.choose_backend("cpu", "eager").name == "eager"


def test_each_device_uses_the_first_listed_backend_supporting_it(distribution):
    distribution("forgpu", devices=["gpu"])
    distribution("forcpu", devices=["cpu"])
    assert plugins.choose_backend("cpu", "FORGPU, FORCPU").name == "forcpu"
    assert plugins.choose_backend("gpu", ["forgpu", "forcpu"]).name == "forgpu"
    with pytest.raises(errors.BackendUnavailableError, match=r"forgpu \(gpu\).*MGB_JIT_BACKEND=forgpu,eager"):
        plugins.choose_backend("cpu", "forgpu")


def test_named_backend_never_falls_back(distribution):
    distribution("mine", problem="no toolchain")
    with pytest.raises(errors.BackendUnavailableError, match="no toolchain"):
        plugins.choose_backend("cpu", "mine,eager")
    with pytest.raises(errors.UnknownBackendError):
        plugins.choose_backend("cpu", "nowhere,eager")


def test_default_is_the_best_working_backend_and_is_logged_once(distribution, caplog):
    distribution("better", priority=9000, problem="no toolchain")
    distribution("good", priority=8000)
    distribution("worse", priority=7000, problem="it was asked")
    distribution("broken", source="import nowhere_to_be_found")
    with caplog.at_level(logging.INFO, "mgb.backend"):
        assert plugins.choose_backend("cpu").name == "good"
        assert plugins.choose_backend("cpu").name == "good"
    assert caplog.text.count("good serves device cpu") == 1
    assert "better is skipped" in caplog.text and "no toolchain" in caplog.text
    assert "worse" not in caplog.text  # to ask a toolchain takes time
    assert "broken is skipped" in caplog.text and "nowhere_to_be_found" in caplog.text


def test_of_equal_priorities_own_backends_go_first_then_names(distribution, monkeypatch):
    for name in ("zebra", "aardvark", "own_c", "own_b"):
        distribution(name, priority=9000)
    assert plugins.choose_backend("cpu").name == "aardvark"
    for name in ("own_c", "own_b"):
        monkeypatch.setitem(plugins.EXTRAS, name, "own")
    plugins._chosen.cache_clear()
    assert plugins.choose_backend("cpu").name == "own_b"


@pytest.fixture
def new_process(tmp_path, monkeypatch):
    """Begin again as a new process does, with the same cache; returns what is imported by then."""
    monkeypatch.setenv("MGB_CACHE_DIR", str(tmp_path / "cache"))

    def begin():
        forget()
        monkeypatch.setattr(plugins, "manager", new_manager())
        for module in [m for m in sys.modules if m.startswith("made_up_")]:
            del sys.modules[module]
        importlib.invalidate_caches()
        name = plugins.choose_backend("cpu").name
        return name, {m.removeprefix("made_up_mgb_") for m in sys.modules if m.startswith("made_up_")}

    return begin


def test_other_backends_are_imported_when_code_has_changed_only(distribution, new_process, tmp_path):
    distribution("good", priority=8000)
    distribution("better", priority=9000, problem="no toolchain")
    distribution("worse", priority=7000)
    everything = {"good", "better", "worse"}
    assert new_process() == ("good", everything)
    assert new_process() == new_process() == ("good", {"good", "better"})
    changed = tmp_path / "made_up_mgb_worse.py"
    changed.write_text(changed.read_text().replace("priority=7000", "priority=10_000"))
    assert new_process() == ("worse", everything)
    assert new_process() == ("worse", {"worse"})
    distribution("best", priority=11_000)
    assert new_process() == ("best", everything | {"best"})


def test_broken_backend_is_tried_again_in_the_next_process(distribution, new_process, tmp_path):
    distribution("good", priority=8000)
    distribution("better", priority=9000, source="import made_up_toolchain\n" + PLUGIN)
    assert new_process() == ("good", {"good"})
    (tmp_path / "made_up_toolchain.py").write_text("")
    assert new_process() == ("better", {"good", "better", "made_up_toolchain"})


def test_backend_that_was_registered_by_hand_is_asked(distribution, new_process, monkeypatch):
    distribution("good", priority=8000)
    new_process()

    class Mine:
        @plugins.hookimpl
        def mgb_backend(self, name):
            return _backend("byhand", priority=20_000) if name == "byhand" else None

    plugins.manager.register(Mine(), name="byhand")
    forget()
    assert plugins.choose_backend("cpu").name == "byhand"


def test_first_trace_warns_once_where_no_backend_compiles(monkeypatch):
    monkeypatch.setattr(entry_points, "announced", cache(lambda group: {}))
    plugins._chosen.cache_clear()
    plugins._warn_of_none.cache_clear()
    with pytest.warns(errors.NoBackendWarning, match="pip install") as caught:
        for k in (1, 2):
            f = trace(lambda x, k=k: x * k)
            f(tensor([1.0])), f(tensor([1.0]))
    assert len(caught) == 1
    plugins._warn_of_none.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(lambda x: x * 3, backend="eager")(tensor([1.0]))


def test_status_lists_all_backends_with_their_problems(distribution, monkeypatch):
    monkeypatch.setitem(plugins.EXTRAS, "faraway", "far")
    distribution("mine", problem="no toolchain")
    lines = {line.name: line for line in plugins.status()}
    assert lines["eager"].problem == "" and lines["eager"].devices == ("cpu", "gpu")
    assert lines["mine"].problem == "no toolchain" and lines["mine"].distribution == "mgb-mine"
    assert "mgb[far]" in lines["faraway"].problem and lines["faraway"].distribution == ""


# the other hooks


def test_plugin_can_add_ops(monkeypatch):
    from mgb.ir import Kind, Op

    monkeypatch.setattr("mgb.ops.declare.OPS", dict(OPS))
    double = Op("double_it", Kind.ELEMENTWISE, lambda x: x, eager=lambda x: x + x)

    class Adds:
        @plugins.hookimpl
        def mgb_ops(self):
            return [double]

        @plugins.hookimpl
        def mgb_backend(self, name):
            return _backend("adds")

    plugins.manager.register(Adds(), name="adds")
    plugins.load_backend("adds")
    from mgb.ops import declare

    assert declare.OPS["double_it"] is double
    assert apply(double, np.float32(2)).numpy() == 4


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ("double_it", errors.BackendContractError, r"mgb_ops\(\) of a plugin gave 'double_it'"),
        (replace(OPS["mul"]), errors.BackendUnavailableError, "op 'mul' is declared twice"),
    ],
)
def test_plugin_adding_an_invalid_or_existing_op_raises(given, kind, text):
    class Adds:
        @plugins.hookimpl
        def mgb_ops(self):
            return [given]

    plugins.manager.register(Adds(), name="adds")
    with pytest.raises(kind, match=text):
        plugins.load_backend("eager")


def _backend(called, words=(), **fields) -> Backend:
    class Small(Backend):
        name, traits = called, Traits(words, api_version=1, **fields)

        def compile(self, graph):
            return Kernel(lambda *arrays, out: None)

    return Small()


def test_eager_kernel_may_write_over_its_inputs():
    graph = graph_of(lambda x: (x + 1, reduce.reduce_sum(x, axis=(0,)), x), Spec((3,), float32))
    x = np.arange(3, dtype=np.float32)
    total, same = np.empty((1,), np.float32), np.empty_like(x)
    plugins.load_backend("eager").compile(graph).run(x, out=(x, total, same))
    assert x.tolist() == [1, 2, 3] and total.tolist() == [3] and same.tolist() == [0, 1, 2]


def test_backend_name_must_match_the_requested_name():
    class Plugin:
        @plugins.hookimpl
        def mgb_backend(self, name):
            return _backend("eager")  # whose kernels would be kept under that name

    plugins.manager.register(Plugin(), name="mine")
    with pytest.raises(errors.BackendImportError, match="attribute `name` must be the same"):
        plugins.load_backend("mine")


def test_unhashable_backend_raises():
    class Plugin:
        @plugins.hookimpl
        def mgb_backend(self, name):
            backend = _backend(name)
            type(backend).__hash__ = None  # as that of a dataclass
            return backend

    plugins.manager.register(Plugin(), name="mine")
    with pytest.raises(errors.BackendImportError, match=r"'mine'.* has no hash.*eq=False"):
        plugins.load_backend("mine")


def test_vocabulary_may_contain_ops_added_by_plugins(monkeypatch):
    from mgb.ir import Kind, Op

    monkeypatch.setattr("mgb.ops.declare.OPS", ops := dict(OPS))
    monkeypatch.setattr(plugins, "OPS", ops)
    twice = Op("twice_it", Kind.ELEMENTWISE, lambda x: x, eager=lambda x: x + x)

    class Adds:
        @plugins.hookimpl
        def mgb_ops(self):
            return [twice]

        @plugins.hookimpl
        def mgb_backend(self, name):
            return _backend(name, ["twice_it", "add", "cast"])

    class Other:
        @plugins.hookimpl
        def mgb_backend(self, name):
            return _backend(name, ["twice"])

    plugins.manager.register(Adds(), name="adds")
    plugins.manager.register(Other(), name="other")
    assert plugins.load_backend("adds").traits.vocabulary == {"twice_it", "add", "cast"}
    with pytest.raises(errors.BackendContractError, match=r"vocabulary has 'twice'; did you mean 'twice_it'"):
        plugins.load_backend("other")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"dtypes": {"fp32"}}, r"Traits\.dtypes has 'fp32'; did you mean 'float32'\?"),
        ({"dtypes": [np.float32]}, r"Traits\.dtypes has .*; did you mean 'float32'\?"),
        ({"dtypes": "float32"}, r"Traits\.dtypes is 'float32', not a collection of str"),
        ({"dtypes": ()}, r"Traits\.dtypes is empty"),
        ({"dtypes": {"bfloat16"}}, r"Traits\.dtypes has 'bfloat16' but not 'float32'"),
        ({"vocabulary": 3}, r"Traits\.vocabulary is 3, not a collection"),
        ({"vocabulary": [["add"]]}, r"Traits\.vocabulary has \['add'\]"),
        ({"kinds": ["elementwise"]}, r"Traits\.kinds has 'elementwise'; did you mean Kind\.ELEMENTWISE\?"),
        ({"devices": {"cuda"}}, r"Traits\.devices has 'cuda', not one of cpu, gpu"),
        ({"scope": "graph"}, r"Traits\.scope is 'graph'; did you mean Scope\.GRAPH\?"),
        ({"specialize": "size"}, r"Traits\.specialize is 'size', not one of Specialize\.NDIM, "),
        ({"strided": True}, r"Traits\.strided is True, not one of Strided\.ANY, Strided"),
        ({"ieee": "no"}, r"Traits\.ieee is 'no', not one of False, True"),
        ({"min_ops": 0}, r"Traits\.min_ops is 0, not an int of at least 1"),
        ({"max_inputs": 64.0}, r"Traits\.max_inputs is 64\.0, not an int"),
        ({"priority": None}, r"Traits\.priority is None, not an int"),
        ({"api_version": "1"}, r"Traits\.api_version is '1', not an int"),
        ({"products": {"int32"}}, r"Traits\.products has 'int32'"),
        ({"products": {"float32"}}, r"Traits\.products needs Kind\.CONTRACT in kinds"),
    ],
)
def test_invalid_traits_raise(fields, text):
    with pytest.raises(errors.BackendContractError, match=text):
        Traits(**({"vocabulary": {"add"}, "api_version": 1} | fields))


def test_traits_accept_any_collection():
    plain = Traits(frozenset({"add", "mul"}), dtypes=frozenset({"float32"}), api_version=1)
    table = {"add": "+", "mul": "*"}
    assert Traits(table, dtypes=["float32"], api_version=1) == plain
    assert hash(Traits(table.keys(), dtypes=("float32",), api_version=1)) == hash(plain)


def test_traits_require_api_version():
    with pytest.raises(TypeError, match="api_version"):
        Traits(frozenset())
    assert "future" in Traits({"future"}, dtypes={"float8"}, api_version=API_VERSION + 1).vocabulary


SPEAKER = """
import numpy as np
from mgb.backends import Backend, Kernel, Traits
from mgb.backends.plugins import hookimpl

class Mine(Backend):
    name, traits = {name!r}, Traits(["add", "mul"], min_ops=1, api_version={version})
    def compile(self, graph):
        def rule(node, *xs):
            return node.params["value"] if node.op.name == "const" else getattr(np, WORDS[node.op.name])(*xs)
        def run(*arrays, out):
            for target, value in zip(out, graph.fold(rule, arrays)):
                target[...] = value
        return Kernel(run)

WORDS = dict(add="add", mul="multiply")

@hookimpl
def mgb_backend(name):
    return Mine()
"""


def test_backend_of_the_previous_api_version_works_and_is_logged(distribution, monkeypatch, caplog):
    """What was written for a version works in an mgb that has the next one, as docs/ir.md promises."""
    for module in (mgb.backend, plugins):
        monkeypatch.setattr(module, "API_VERSION", API_VERSION + 1)
    distribution("mine", source=SPEAKER, version=API_VERSION)
    monkeypatch.setenv("MGB_JIT_BACKEND", "mine")
    traced = trace(lambda x: x * 3.0 + 1.0, symbolic=True)
    assert traced(tensor([2.0])).item() == 7 and traced.backend == "mine"
    assert f"for version {API_VERSION} of the backend API, of which {API_VERSION + 1}" in caplog.text
    with pytest.raises(errors.BackendContractError, match="'mull'"):  # it is looked at like the newest
        distribution("other", words=["mull"], version=API_VERSION)
        plugins.load_backend("other")


def test_backend_of_a_removed_api_version_raises(distribution, monkeypatch):
    for module in (mgb.backend, plugins):
        monkeypatch.setattr(module, "API_VERSION", API_VERSION + 2)
        monkeypatch.setattr(module, "OLDEST_API_VERSION", API_VERSION + 1)
    distribution("mine", version=API_VERSION)
    wanted = rf"has version {API_VERSION + 1} to {API_VERSION + 2}: pip install --upgrade mgb-mine"
    with pytest.raises(errors.BackendUnavailableError, match=wanted):
        plugins.load_backend("mine")
