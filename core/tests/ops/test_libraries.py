"""The seam for libraries of ops: who is asked, for what, and who serves when nobody answers."""

from __future__ import annotations

from types import SimpleNamespace

import mgb
import numpy as np
import pytest
from mgb.errors import VariableError
from mgb.ir import Spec
from mgb.tensor import libraries
from mgb.tensor.libraries import Layout, LibraryError, OpLibrary, Rule


class Fake(OpLibrary):
    """Answers with a constant, and remembers what it was asked."""

    ops = frozenset({"double"})
    api_version = 1

    def __init__(self, name="fake", value=7.0, problem=None, takes=True):
        self.name, self.value, self.problem, self.takes = name, value, problem, takes
        self.asked = []

    def probe(self):
        return self.problem

    def implement(self, op, operands, output, params):
        self.asked.append((op, list(operands), output, dict(params)))
        return (lambda x: np.full(output.shape, self.value, output.dtype)) if self.takes else None


@pytest.fixture
def install(monkeypatch):
    """Have these libraries, and no other, installed."""
    monkeypatch.delenv("MGB_OP_LIBRARIES", raising=False)

    def install(*made):
        points = [_point(library.name, lambda library=library: library) for library in made]
        monkeypatch.setattr(libraries, "_entry_points", lambda: tuple(points))
        libraries.forget()

    yield install
    monkeypatch.undo()
    libraries.forget()


class _Point(SimpleNamespace):
    __hash__ = object.__hash__


def _point(name, load):
    return _Point(name=name, value=f"made_up:{name}", dist=None, load=load)


def rule():
    """A rule that doubles, for an op that no other library knows."""
    return Rule("double", lambda x, factor=2: x * factor, lambda x, factor=2: Spec(x.shape, x.dtype))


def test_library_is_queried_once_per_layout_and_parameters(install):
    fake, double = Fake(), rule()
    install(fake)
    x = np.ones((2, 3), np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(double(x), np.full((2, 3), 7))
    double(x.T)
    double(x, factor=3)
    assert [asked[3] for asked in fake.asked] == [{}, {}, {"factor": 3}]
    assert fake.asked[0][1] == [Layout((2, 3), (12, 4), np.dtype(np.float32))]
    assert [operands[0].is_row_major for _op, operands, _output, _params in fake.asked] == [True, False, True]


def test_bound_rule_queries_library_once_per_strides(install):
    fake, double = Fake(), rule()
    install(fake)
    x, bound = np.ones((3, 3), np.float32), double.bound(factor=3)
    for _ in range(2):
        for laid in (x, x.T, x[::-1]):
            np.testing.assert_array_equal(bound(laid), np.full((3, 3), 7))
    assert [asked[1][0].strides for asked in fake.asked] == [(12, 4), (4, 12), (-12, 4)]
    assert [asked[3] for asked in fake.asked] == [{"factor": 3}] * 3
    fake.takes = False
    np.testing.assert_array_equal(double.bound(factor=3)(x[:2]), np.full((2, 3), 3))


def test_numpy_runs_ops_that_no_library_implements(install):
    install(Fake(takes=False))
    np.testing.assert_array_equal(rule()(np.ones(3), factor=5), np.full(3, 5))


def test_numpy_runs_values_that_a_library_declines(install):
    fake = Fake()
    fake.implement = lambda *asked: lambda x: None if np.isnan(x).any() else x
    install(fake)
    double = rule()
    np.testing.assert_array_equal(double(np.ones(2)), [1, 1])
    np.testing.assert_array_equal(double(np.array([1, np.nan])), [2, np.nan])


def test_empty_arrays_bypass_libraries(install):
    fake = Fake()
    install(fake)
    assert rule()(np.ones((0, 3))).shape == (0, 3)
    assert fake.asked == []


def test_environment_variable_orders_and_disables_libraries(install, monkeypatch):
    install(Fake("first", 1), Fake("second", 2))
    assert rule()(np.ones(1)) == 1
    monkeypatch.setenv("MGB_OP_LIBRARIES", "Second, first")
    libraries.forget()
    assert rule()(np.ones(1)) == 2
    monkeypatch.setenv("MGB_OP_LIBRARIES", "none")
    libraries.forget()
    assert rule()(np.ones(1)) == 2 * np.ones(1)
    assert all("MGB_OP_LIBRARIES=none" in line.problem for line in libraries.status())


@pytest.mark.parametrize("text", ["secnod", "first,secnod", "none,first", "first second"])
def test_unknown_library_name_error_lists_installed_libraries(text, install, monkeypatch):
    install(Fake("first", 1), Fake("second", 2))
    monkeypatch.setenv("MGB_OP_LIBRARIES", text)
    libraries.forget()
    double = rule()
    for ask in (lambda: double(np.ones(1)), libraries.status):
        with pytest.raises(VariableError, match=f"MGB_OP_LIBRARIES='{text}'.* first, second, or none,"):
            ask()
    monkeypatch.setenv("MGB_OP_LIBRARIES", "second")
    assert double(np.ones(1)) == 2


def test_library_name_error_reports_that_none_is_installed(install, monkeypatch):
    install()
    monkeypatch.setenv("MGB_OP_LIBRARIES", "onednn")
    libraries.forget()
    with pytest.raises(VariableError, match=r"no library is installed\) none, or unset MGB_OP_LIBRARIES"):
        rule()(np.ones(1))


def test_unavailable_library_reports_its_problem_and_is_not_queried(install):
    broken = Fake("broken", problem="needs a part: pip install part")
    other = Fake("later")
    other.api_version = libraries.API_VERSION + 1
    install(broken, other)
    np.testing.assert_array_equal(rule()(np.ones(3)), np.full(3, 2))
    assert broken.asked == other.asked == []
    problems = {line.name: line.problem for line in libraries.status()}
    assert problems["broken"] == "needs a part: pip install part"
    assert "this mgb has version" in problems["later"]


def test_library_failing_to_import_is_reported_and_skipped(install, monkeypatch):
    install()

    def fail():
        raise ImportError("no such symbol")

    monkeypatch.setattr(libraries, "_entry_points", lambda: (_point("torn", fail), _point("odd", lambda: 3)))
    libraries.forget()
    problems = {line.name: line.problem for line in libraries.status()}
    assert "ImportError: no such symbol" in problems["torn"]
    assert "not an OpLibrary" in problems["odd"]
    np.testing.assert_array_equal(rule()(np.ones(3)), np.full(3, 2))


def test_shape_errors_are_raised_before_querying_a_library(install):
    fake = Fake()
    fake.ops = frozenset({"matmul"})
    install(fake)
    with pytest.raises(mgb.errors.ShapeError, match="inner lengths"):
        mgb.functional.matmul(mgb.tensor(np.ones((2, 3))), mgb.tensor(np.ones((4, 5))))
    assert fake.asked == []


def test_library_cache_is_bounded(install):
    install(Fake())
    double = rule()
    for n in range(1, libraries.KEPT + 10):
        double(np.ones(n))
    assert len(double.found) <= libraries.KEPT


def test_eager_evaluation_and_programs_both_use_a_library(install):
    fake = Fake(value=3.0)
    fake.ops = frozenset({"matmul"})
    fake.implement = lambda op, operands, output, params: lambda a, b: np.full(output.shape, 3, output.dtype)
    install(fake)
    a = mgb.tensor(np.ones((4, 4), np.float32))

    def f(x):
        return mgb.functional.matmul(x, x) + 1

    np.testing.assert_array_equal(f(a).numpy(), np.full((4, 4), 4))
    traced = mgb.jit.trace(f)
    for _ in range(3):
        np.testing.assert_array_equal(traced(a).numpy(), np.full((4, 4), 4))


def test_library_error_is_an_mgb_error(install):
    fake = Fake()

    def fail(x):
        raise LibraryError("double: out of memory")

    fake.implement = lambda *asked: fail
    install(fake)
    with pytest.raises(mgb.errors.MgbError, match="double: out of memory"):
        rule()(np.ones(2))


def test_library_without_api_version_is_reported(install, monkeypatch):
    monkeypatch.delattr(Fake, "api_version")
    install(Fake("versionless"))
    (found,) = libraries.status()
    assert "give it api_version = 1" in found.problem
    np.testing.assert_array_equal(rule()(np.ones(3, np.float32)), np.full(3, 2))
