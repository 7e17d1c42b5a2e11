"""What bad input to a traced function gets: its own error, the user's line, and a trace that still works."""

from __future__ import annotations

import threading
import traceback

import mgb.functional as F
import mgb.module as M
import numpy as np
import pytest
from mgb import Parameter, errors, plugins, tensor
from mgb.autodiff import GradManager
from mgb.backends import Backend, Traits
from mgb.jit import partial_trace, trace, xla_trace
from mgb.ops import declare
from mgb.optimizer import SGD

pytestmark = pytest.mark.usefixtures("eager_backend")

HERE = "test_bad_trace.py:"
MODES = [
    {},
    {"run_body": True},
    {"symbolic": True},
    {"run_body": True, "symbolic": True},
    {"without_host": True},
    {"imperative": True},
    {"run_body": True, "opt_level": 0},
]
MATCHED = [m for m in MODES if "run_body" in m or "imperative" in m]
BACKENDS = [name for name in ("eager", "cpu_llvm") if name in plugins.installed()]
CONSTANT = [
    {"run_body": True, "capture_as_const": True},
    {"run_body": True, "symbolic": True, "capture_as_const": True},
]


# a later call that differs from the recorded one

DIFFERENT = {
    "op": (lambda a, b, c: a + b + c, lambda a, b, c: a + b - c, "operator mismatch"),
    "constant": (lambda a, b, c: a + 1, lambda a, b, c: a + 2, "tensors not equals"),
    "less": (lambda a, b, c: a + b + c, lambda a, b, c: a + b, "mismature end"),
    "more": (lambda a, b, c: a + b, lambda a, b, c: a + b + c, "too many instructions"),
    "cast": (lambda a, b, c: a + 1, lambda a, b, c: a.astype("int32") + 1, "operator mismatch"),
    "number": (lambda a, b, c: (a + b) * c, lambda a, b, c: a + b + 0 * c, "operator mismatch"),
    "outside": (
        lambda a, b, c: (a + b) * c,
        lambda a, b, c: ((a + b), c * c)[1],
        "expect internal node, got external",
    ),
    "inside": (
        lambda a, b, c: ((a + b), c * c)[1],
        lambda a, b, c: (a + b) * c,
        "expect external node, got internal",
    ),
    "order": (
        lambda a, b, c: ((a + b), (a - b))[0] * c,
        lambda a, b, c: ((a + b), (a - b))[1] * c,
        "input id mismatch",
    ),
}


@pytest.mark.parametrize("mode", [m for m in MATCHED if "symbolic" not in m], ids=str)
def test_array_filled_in_the_body_is_reported_with_a_remedy(mode):
    def filled(x, wrap=lambda array: array):
        rows = np.empty(2, np.float32)
        rows[:] = x.numpy()
        return x + wrap(rows)

    first, second = tensor([1.0, 2.0]), tensor([3.0, 4.0])
    traced = trace(filled, **mode)
    traced(first)
    with pytest.raises(
        errors.TraceMismatchError, match=r"remedy: .* wrap it, mgb.tensor\(array\), so"
    ) as caught:
        traced(second)
    assert "F.zeros(n)" in str(caught.value)
    mended = trace(lambda x: filled(x, tensor), **mode)
    assert [mended(x).tolist() for x in (first, second)] == [[2, 4], [6, 8]]


@pytest.mark.parametrize("mode", MATCHED, ids=str)
@pytest.mark.parametrize(("recorded", "other", "reason"), DIFFERENT.values(), ids=DIFFERENT)
def test_different_computation_raises_a_mismatch(mode, recorded, other, reason):
    weight, body = Parameter([30.0]), recorded

    @trace(**mode)
    def step(a, b, c):
        nonlocal weight
        weight -= a
        return body(a, b, c)

    given = [tensor([value]) for value in (2.0, 3.0, 4.0)]
    expected = recorded(*given).item()
    assert step(*given).item() == expected
    for call in range(2):
        body = other
        with pytest.raises(errors.TraceMismatchError, match=f"^trace error because {reason}") as caught:
            step(*given)
        assert caught.value.reason == reason
        assert str(caught.value).count(HERE) == 2 and "remedy: " in str(caught.value)
        assert weight.item() == 26 - 4 * call
        body = recorded
        assert step(*given).item() == expected and weight.item() == 24 - 4 * call


@pytest.mark.parametrize("mode", MATCHED, ids=str)
@pytest.mark.parametrize(
    ("other", "reason"),
    [(tensor([1]), "dtype mismatch: float32 vs int32"), (tensor([1.0], device="cpu0"), "comp_node mismatch")],
    ids=["dtype", "device"],
)
def test_other_dtype_or_device_of_an_argument_raises_a_mismatch(mode, other, reason):
    step = trace(lambda x: x + x, **mode)
    step(tensor([1.0]))
    with pytest.raises(errors.TraceMismatchError, match=reason) as caught:
        step(other)
    assert HERE in str(caught.value)
    assert step(tensor([3.0])).item() == 6


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_broadcast_error_reports_op_shapes_and_line(mode):
    weight = Parameter([10.0])

    @trace(**mode)
    def step(x, y):
        weight[...] = weight - 1.0
        return x * y

    bad = tensor(np.zeros((2, 3))), tensor(np.zeros((4, 5)))
    for call in range(3):  # the first one records, the others replay
        with pytest.raises(errors.ShapeError, match=r"mul: .*\(2, 3\) and \(4, 5\) do not") as caught:
            step(*bad)
        assert HERE in str(caught.value)
        assert weight.item() == 9 - 2 * call
        assert step(tensor([2.0]), tensor([3.0])).item() == 6
        assert weight.item() == 8 - 2 * call


# an op that refuses the values it is given


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_bad_index_does_not_apply_later_updates(mode, backend):
    first, second = Parameter([10.0, 10.0]), Parameter([10.0])

    @trace(backend=backend, **mode)
    def step(x, index):
        first[...] = first - (x * 2.0 - x)  # a group of its own, which may write in place
        y = x[index]
        second[...] = second - y.sum()
        return y

    x, good, bad = tensor([1.0, 1.0]), tensor([1]), tensor([7])
    alone = mode not in MATCHED  # then a program that fails changes nothing
    for call in range(3):
        before = first[1].item(), second.item()
        with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 2") as caught:
            step(x, bad)
        assert HERE in "".join(traceback.format_exception(caught.value)).replace('", line ', ":")
        assert second.item() == before[1]
        assert first[1].item() == before[0] - (0 if alone and call else 1)
        before = first[1].item(), second.item()
        assert step(x, good).item() == 1
        assert (first[1].item(), second.item()) == (before[0] - 1, before[1] - 1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", [m for m in MATCHED if "symbolic" not in m], ids=str)
@pytest.mark.parametrize("read", [False, True])
def test_tensor_updated_before_and_after_a_bad_index(mode, backend, read):
    weight = Parameter([10.0, 10.0])

    @trace(backend=backend, **mode)
    def step(x, index):
        nonlocal weight
        weight -= x * 2.0 - x
        if read:
            float(x.sum())  # splits the program
        weight *= x[index].sum()
        return weight * 1.0

    x, good, bad = tensor([1.0, 1.0]), tensor([0, 1]), tensor([7])
    for _ in range(3):
        before = weight.numpy()[1]
        with pytest.raises(IndexError):
            step(x, bad)
        assert weight.numpy()[1] == before - 1
        assert step(x, good).numpy()[1] == weight.numpy()[1] == (before - 2) * 2


@pytest.mark.parametrize("opt_level", [0, 3])
def test_traceback_of_a_compiled_program_shows_the_source_line(opt_level):
    pick = trace(lambda x, index: x[index], opt_level=opt_level)
    x = tensor([1.0, 2.0])
    pick(x, tensor([1]))
    with pytest.raises(IndexError) as caught:
        pick(x, tensor([5]))
    shown = "".join(traceback.format_exception(caught.value))
    assert f"# {__file__}:" in shown


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_training_step_survives_a_bad_batch(mode):
    words, labels = np.array([0, 2, 2, 1], np.int32), np.array([0, 1, 1, 0], np.int32)
    table = np.random.default_rng(3).standard_normal((3, 2)).astype(np.float32)

    def train(wrap):
        weight = Parameter(table)
        manager, optimizer = GradManager().attach([weight]), SGD([weight], lr=0.5, momentum=0.9)

        def step(x, y):
            with manager:
                loss = F.nn.cross_entropy(weight[x], y)
                manager.backward(loss)
            optimizer.step().clear_grad()
            return loss

        run = wrap(step)
        for call in range(5):
            if call in (0, 2, 3):
                with pytest.raises(IndexError, match="out of bounds"):
                    run(tensor(np.array([0, 9, 1, 0], np.int32)), tensor(labels))
                assert np.isfinite(weight.numpy()).all() and weight.grad is None
                optimizer.clear_grad()
            run(tensor(words), tensor(labels))
        return weight.numpy()

    np.testing.assert_allclose(train(lambda f: trace(f, **mode)), train(lambda f: f), rtol=1e-5, atol=1e-6)


# a tensor of another trace, values that are not there, results that cannot be


def test_tensor_of_an_unfinished_trace_is_rejected():
    inner = trace(lambda x: x + leaked[0])
    leaked, caught = [], []

    def other_thread():
        try:
            inner(tensor([1.0]))
        except errors.TraceError as error:
            caught.append(error)

    @trace(symbolic=True)
    def outer(x):
        leaked.append(x * 2.0)
        thread = threading.Thread(target=other_thread)
        thread.start()
        thread.join(60)
        return x

    outer(tensor([1.0]))
    assert type(caught[0]) is errors.UnknownInputError and HERE in str(caught[0])
    assert inner(tensor([1.0])).item() == 3


@pytest.mark.parametrize("run_body", [None, True, False])
@pytest.mark.parametrize("read", [lambda y: y.numpy(), lambda y: y.item(), bool, float, repr])
def test_value_read_in_symbolic_mode_raises(run_body, read):
    weight = Parameter([10.0])
    reading = True

    @trace(symbolic=True, run_body=run_body)
    def step(x):
        weight[...] = weight - x
        if reading:
            read(x + 1.0)
        return x * 2.0

    for call in range(2):
        with pytest.raises(errors.SymbolicReadError, match=r"trace\(symbolic=False\)") as caught:
            step(tensor([1.0]))
        assert HERE in str(caught.value)
        assert weight.item() == 9 - call
    reading = False
    for call in range(2):
        assert step(tensor([3.0])).item() == 6
        assert weight.item() == 8 - 3 * (call + 1)


@pytest.mark.parametrize("mode", CONSTANT, ids=str)
@pytest.mark.parametrize("result", [3, "text", np.zeros(2), object()], ids=["int", "str", "array", "object"])
def test_non_tensor_result_is_rejected(mode, result):
    returned = {"more": [None, result]}

    @trace(**mode)
    def step(x):
        y = x * 2.0
        return (y, returned)

    for _ in range(2):
        text = f"must be tensor, get {type(result).__name__} at "
        with pytest.raises(errors.TraceOutputError, match=text) as caught:
            step(tensor([1.0]))
        assert HERE in str(caught.value)
    returned = None
    for value in (1.0, 2.0):
        assert step(tensor([value]))[0].item() == 2 * value


@pytest.mark.parametrize("mode", CONSTANT, ids=str)
def test_updates_are_readable_after_a_rejected_result(mode):
    weight = Parameter([10.0])
    returned = 3

    @trace(**mode)
    def step(x):
        weight[...] = weight - x
        return x * 2.0, returned

    with pytest.raises(errors.TraceOutputError):
        step(tensor([1.0]))
    assert weight.item() == 9


def test_trace_rejects_unknown_options_and_bad_arguments():
    with pytest.raises(errors.TraceInputError, match="trace has no option 'fuse'"):
        trace(lambda x: x, fuse=True)
    for method in (classmethod, staticmethod):
        with pytest.raises(
            errors.TraceInputError, match=f"write @{method.__name__} in the line above @trace"
        ):
            trace(method(lambda x: x))
    with pytest.raises(errors.TraceInputError, match="trace needs a function, got a Tensor"):
        trace(tensor(1.0))
    constant = trace(lambda x: x + 1.0, capture_as_const=True)
    with pytest.raises(errors.TraceInputError, match=r"args\[0\] is a float; pass it by keyword"):
        constant(1.0)
    assert constant(tensor([1.0])).item() == 2


# exceptions


@pytest.mark.parametrize(("mode", "error"), [*((m, KeyError) for m in MODES), ({}, KeyboardInterrupt)])
def test_exception_leaves_the_updates_before_it_and_no_partial_record(mode, error):
    weight = Parameter([20.0])
    fail = True

    @trace(**mode)
    def step(x):
        weight[...] = weight - x
        y = x * 2.0
        if fail:
            raise error("mine")
        return y + weight

    for call in range(2):
        with pytest.raises(error, match="mine"):
            step(tensor([1.0]))
        assert weight.item() == 19 - call and step.stats()["records"] == 0
    fail = False
    for call in range(3):
        assert step(tensor([1.0])).item() == 2 + 17 - call == 2 + weight.item()
    error = KeyError
    for call in range(0 if "without_host" in mode else 6):
        fail = call % 2 == 0
        if fail:
            with pytest.raises(KeyError, match="mine"):
                step(tensor([float(call)]))
        else:
            assert step(tensor([float(call)])).item() == 2 * call + weight.item()
        assert weight.item() == 15 - sum(range(call + 1))


class Failing(Backend):
    """Accepts what the core prints everywhere; compiles only when it is told to."""

    name = "failing"
    broken = True
    traits = Traits(vocabulary=frozenset(declare.OPS), api_version=1)

    def compile(self, graph):
        if self.broken:
            raise RuntimeError("no such instruction")
        from mgb.backends.plugins import load_backend

        return load_backend("eager").compile(graph)


@pytest.fixture
def failing():
    backend = Failing()

    class Plugin:
        @plugins.hookimpl
        def mgb_backend(self, name):
            return backend if name == "failing" else None

    plugin = Plugin()
    plugins.manager.register(plugin, name="failing")
    yield backend
    plugins.manager.unregister(plugin)
    plugins._imported.cache_clear()
    plugins._chosen.cache_clear()


@pytest.mark.parametrize(
    "mode", [m for m in MODES if m.keys() <= {"symbolic", "without_host", "run_body"}], ids=str
)
def test_compile_failure_raises_and_later_calls_work(mode, failing):
    weight = Parameter([10.0])

    @trace(backend="failing", **mode)
    def step(x):
        weight[...] = weight - x * 2.0
        return weight * 3.0 + 1.0

    if "symbolic" not in mode:  # the first call runs op by op
        assert step(tensor([1.0])).item() == 25
    for _ in range(2):
        expected = weight.item() - (2 if mode in MATCHED or "symbolic" in mode else 0)
        with pytest.raises(errors.CompileError) as caught:
            step(tensor([1.0]))
        text = str(caught.value)
        assert "'failing' failed to compile" in text and "RuntimeError: no such instruction" in text
        assert "graph(" in text and HERE in text.rpartition("compiled for:")[2]
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert weight.item() == expected  # what the body asked for is done, op by op
    failing.broken = False
    for _ in range(3):
        expected = weight.item() - 2
        assert step(tensor([1.0])).item() == expected * 3 + 1 and weight.item() == expected
    assert step.backend == "failing"


WITHOUT_BODY = [
    partial_trace,
    lambda f: xla_trace(f, backend="eager"),
    lambda f: trace(f, without_host=True),
]


def test_numpy_random_numbers_in_the_body_are_never_frozen() -> None:
    x = tensor(np.ones(3, np.float32))
    for way in (
        lambda q, drawn: q + drawn.astype("float32"),
        lambda q, drawn: drawn * q,
        lambda q, drawn: F.add(q, drawn),
        lambda q, drawn: q + tensor(drawn),
    ):
        draw, again = np.random.default_rng(0), np.random.default_rng(0)

        def body(q, way=way, draw=draw):
            return way(q, draw.standard_normal(3))

        default = trace(body)
        for _ in range(4):
            expected = way(x, again.standard_normal(3)).numpy()
            np.testing.assert_array_equal(default(x).numpy(), expected)
        for traced in WITHOUT_BODY:
            with pytest.raises(errors.ImpureBodyError, match=r"test_bad_trace\.py"):
                traced(body)(x)
    matched = trace(lambda q: q + draw.standard_normal(3), run_body=True)
    matched(x)
    with pytest.raises(errors.TraceMismatchError):
        matched(x)


def test_arrays_and_lists_in_a_skipped_body_are_operands() -> None:
    table = np.arange(6.0).reshape(2, 3)
    x = tensor(np.ones(3, np.float32))
    for body in (lambda q: q + table, lambda q: q + table[1], lambda q: q * np.float32(2) + [1.0, 2.0, 3.0]):
        for traced in WITHOUT_BODY:
            function = traced(body)
            for _ in range(2):
                np.testing.assert_array_equal(function(x).numpy(), body(x.numpy()))


# the remedy is that for the cause


class Causes:
    """Functions whose second call goes another way, with a part of the remedy that this wants."""

    def __init__(self) -> None:
        self.flag, self.length, self.net = True, 2, M.Sequential(M.ReLU(), M.ReLU())

    def a_flag(self, x):
        if self.flag:
            return F.exp(x)
        return F.sin(x) * 2

    def a_branch_on_data(self, x):
        if x.sum() > 0:
            return F.exp(x)
        return F.sin(x)

    def another_layer(self, x):
        return self.net(x) * 2

    def a_longer_loop(self, x):
        for _ in range(self.length):
            x = F.sin(x)
        return F.exp(x)

    def a_shorter_loop(self, x):
        for _ in range(4 - self.length):
            x = F.sin(x)
        return F.exp(x)

    def change(self) -> None:
        self.flag, self.length, self.net[1] = False, 3, M.Tanh()


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("a_flag", r"a flag, a number or a list led another way: .*mgb\.jit\.auto\(\)"),
        (
            "a_branch_on_data",
            r"this follows from the value that is read at .*: choose by F\.where.*partial_trace",
        ),
        ("another_layer", r"another layer, .* does this line: trace without run_body=True"),
        ("a_longer_loop", r"a loop there has another length: .*mgb\.jit\.scan"),
        ("a_shorter_loop", r"a loop there has another length: .*mgb\.jit\.scan"),
    ],
)
def test_mismatch_reports_cause_lines_and_remedy(name: str, wanted: str) -> None:
    causes, x = Causes(), tensor([1.0, 2.0])
    step = trace(getattr(causes, name), run_body=True)
    step(x), step(x)
    causes.change()
    with pytest.raises(
        errors.TraceMismatchError, match=rf"(?s)recorded: .*{HERE}.*now: .*{HERE}.*remedy: {wanted}"
    ):
        step(-x)
    free = trace(getattr(Causes(), name))  # the remedy is right: without the option there is no error
    free(x), free(-x)
