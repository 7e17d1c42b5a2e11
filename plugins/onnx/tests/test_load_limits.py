"""A file that asks for more work than it was allowed is refused before the work is done, by node."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupting import at_line
from mgb.errors import ArgumentError, LoadLimitError, MgbError
from mgb.jit import LoadLimits, load, load_compiled, trace
from mgb.storage import limits
from mgb.tensor import ACTIVE, Session, run_in
from mgb.tools.cli import main
from onnx import helper as h
from onnx_models import BOOL, FLOAT, INT64, info, loop, model, normal

X = np.ones(3, np.float32)
SMALL = LoadLimits(nodes=2000, turns=50, depth=5, elements=20_000, bytes=1_000_000, operations=1_000_000)


def of_x(nodes: list[Any], **weights: Any) -> bytes:
    """A model of one input of 3 elements, and the output `y` of any shape."""
    arrays = {name: np.asarray(value) for name, value in weights.items()}
    return model(nodes, [info("x", FLOAT, [3])], [info("y", FLOAT, None)], arrays)


def endless(condition: str) -> bytes:
    """A loop over data: its body adds x, and says to go on."""
    inputs = [info("i", INT64, []), info("c", BOOL, []), info("a", FLOAT, None)]
    body = [h.make_node("Identity", ["c"], ["c2"]), h.make_node("Add", ["a", "x"], ["a2"])]
    graph = h.make_graph(body, "body", inputs, [info("c2", BOOL, []), info("a2", FLOAT, None)])
    turns = "" if condition == "none" else "n"
    node = h.make_node("Loop", [turns, "yes", "x"], ["y"], name="endless", body=graph)
    return of_x([node], n=np.int64(1 << 62), yes=np.array(True))


def doubling(times: int) -> bytes:
    """Concat of a value with itself, again and again."""
    names = ["x", *(f"v{i}" for i in range(times - 1)), "y"]
    nodes = [h.make_node("Concat", [a, a], [b], name=f"to_{b}", axis=0) for a, b in pairwise(names)]
    return of_x(nodes)


def einsum() -> bytes:
    """Eight letters of 60 each."""
    node = h.make_node("Einsum", ["s"] * 4, ["e"], name="outer", equation="ab,cd,ef,gh->abcdefgh")
    return of_x([node, h.make_node("Add", ["e", "one"], ["y"])], s=np.ones((60, 60), np.float32), one=X[:1])


def summed_einsum() -> bytes:
    """As large, with a small result."""
    node = h.make_node("Einsum", ["s", "s", "s", "s"], ["y"], name="outer", equation="ab,cd,ef,gh->aceg")
    return of_x([node], s=np.ones((200, 60), np.float32))


def window(kind: str) -> bytes:
    shape = h.make_node("Reshape", ["x", "s"], ["r"])
    pads = [1 << 19, 1 << 19] * 2
    node = h.make_node(kind, ["r"], ["y"], name="window", kernel_shape=[1 << 20, 1 << 20], pads=pads)
    return of_x([shape, node], s=np.array([1, 1, 1, 3]))


def made(kind: str, *sizes: Any, dtype: Any = np.int64, **attributes: Any) -> bytes:
    """One node that makes a value out of `sizes`."""
    names = [f"s{i}" for i in range(len(sizes))]
    node = h.make_node(kind, names, ["big"], name="maker", **attributes)
    weights = {name: np.asarray(size, dtype) for name, size in zip(names, sizes)}
    return of_x([node, h.make_node("Shape", ["big"], ["y"])], **weights)


def sized(kind: str, sizes: Any, dtype: Any = np.int64, **attributes: Any) -> bytes:
    """One node that makes a value of `x` and `sizes`."""
    node = h.make_node(kind, ["x", "s"], ["y"], name="maker", **attributes)
    return of_x([node], s=np.asarray(sizes, dtype))


def nested() -> bytes:
    """Sequences that hold the one before twice."""
    nodes = [h.make_node("SequenceConstruct", ["x", "x"], ["s0"])]
    nodes += [
        h.make_node("SequenceConstruct", [f"s{i}"] * 2, [f"s{i + 1}"], name=f"nest_{i}") for i in range(60)
    ]
    return of_x([*nodes, h.make_node("SequenceAt", ["s60", "zero"], ["y"])], zero=np.int64(0))


def deep() -> bytes:
    """200 functions that call each other."""
    opset = [h.make_opsetid("", 17), h.make_opsetid("own", 1)]
    names = ["Neg", *(f"f{n}" for n in range(200))]
    functions = [
        h.make_function(
            "own", new, ["a"], ["b"], [h.make_node(old, ["a"], ["b"], domain="own" * (i > 0))], opset
        )
        for i, (old, new) in enumerate(pairwise(names))
    ]
    node = h.make_node("f199", ["x"], ["y"], name="deepest", domain="own")
    return model(
        [node], [info("x", FLOAT, [3])], [info("y", FLOAT, [3])], functions=functions, domains=["own"]
    )


def dims(*lengths: int) -> bytes:
    found = onnx.load_from_string(of_x([h.make_node("Add", ["x", "w"], ["y"])], w=np.ones(0, np.float32)))
    del found.graph.initializer[0].dims[:]
    found.graph.initializer[0].dims.extend(lengths)
    return found.SerializeToString()


#: A file, the limit that it passes, and a word of the place that the error names.
GREEDY: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "loop of 2**62 turns": (lambda: endless("bound"), "turns", "endless"),
    "loop without a bound": (lambda: endless("none"), "turns", "endless"),
    "doubling": (lambda: doubling(60), "elements", "to_v"),
    "einsum 60**8": (einsum, "elements", "outer"),
    "einsum summed": (summed_einsum, "elements", "outer"),
    "max pool 2**40": (lambda: window("MaxPool"), "nodes", "window"),
    "average pool 2**40": (lambda: window("AveragePool"), "nodes", "window"),
    "lp pool 2**40": (lambda: window("LpPool"), "nodes", "window"),
    "nested sequences": (nested, "nodes", "nest_"),
    "deep functions": (deep, "depth", "(own:f"),
    "an axis without elements": (lambda: dims(0, 1 << 62), "elements", "initializer 'w'"),
    "ConstantOfShape": (lambda: made("ConstantOfShape", [1 << 31, 2]), "elements", "maker"),
    "Range": (lambda: made("Range", 0, 1 << 40, 1), "elements", "maker"),
    "HannWindow": (lambda: made("HannWindow", 1 << 40), "elements", "maker"),
    "Expand": (lambda: sized("Expand", [1 << 40, 3]), "elements", "maker"),
    "Tile": (lambda: sized("Tile", [1 << 40]), "elements", "maker"),
    "Pad": (lambda: sized("Pad", [1 << 40, 0]), "elements", "maker"),
    "Pad edge": (lambda: sized("Pad", [1 << 40, 0], mode="edge"), "elements", "maker"),
    "OneHot": (
        lambda: of_x(
            [h.make_node("OneHot", ["x", "depth", "values"], ["y"], name="maker")],
            depth=np.int64(1 << 40),
            values=np.zeros(2, np.float32),
        ),
        "elements",
        "maker",
    ),
    "Upsample": (
        lambda: of_x(
            [h.make_node("Resize", ["x", "", "scales"], ["y"], name="maker", mode="linear")],
            scales=np.array([1e12], np.float32),
        ),
        "elements",
        "maker",
    ),
    "RandomNormal": (
        lambda: of_x([h.make_node("RandomNormal", [], ["y"], name="maker", shape=[1 << 40])]),
        "elements",
        "maker",
    ),
}


@pytest.mark.parametrize("limits", [None, SMALL], ids=["default", "small"])
@pytest.mark.parametrize("name", [n for n in GREEDY if "loop" not in n and n != "doubling"])
def test_excessive_work_is_rejected(name: str, limits: LoadLimits | None) -> None:
    refused(name, **({} if limits is None else {"limits": limits}))


def refused(name: str, **options: Any) -> None:
    make, limit, place = GREEDY[name]
    with pytest.raises(LoadLimitError) as caught:
        load(io.BytesIO(make()), "EAGER", **options)(X)
    error, allowed = caught.value, options.get("limits", LoadLimits())
    assert error.limit == limit and error.wanted > error.allowed == getattr(allowed, limit)
    text = str(error)
    assert place in text and f"limits=LoadLimits({limit}=" in text and f"--limit {limit}=" in text


@pytest.mark.parametrize("name", [n for n in GREEDY if "loop" in n or n == "doubling"])
def test_excessive_total_of_small_steps_is_rejected(name: str) -> None:
    """Each step is small, and the sum is not."""
    refused(name, limits=SMALL)


def test_limits_apply_when_loading_calling_and_tracing() -> None:
    limits = LoadLimits(elements=100)
    with pytest.raises(LoadLimitError):
        load(made("ConstantOfShape", [101]), "EAGER", limits=limits)
    node = h.make_node("Concat", ["x", "x"], ["y"], axis=0)
    data = model([node], [info("x", FLOAT, ["n"])], [info("y", FLOAT, None)])
    function = load(data, "EAGER", limits=limits)
    for traced in (function, trace(lambda x: function(x), backend="EAGER"), trace(function.__call__)):
        for _ in range(3):
            assert traced(np.ones(50, np.float32)).shape == (100,)
            with pytest.raises(LoadLimitError, match="asks for 102 elements"):
                traced(np.ones(51, np.float32))


def test_each_call_gets_the_full_limit() -> None:
    function = load(io.BytesIO(loop()), "EAGER", limits=SMALL)
    for _ in range(5):
        assert function(X, np.array(50))[0].numpy().tolist() == [51] * 3
        with pytest.raises(LoadLimitError, match="51 turns"):
            function(X, np.array(51))


@settings(max_examples=8)
@given(st.integers(1, 30), st.integers(1, 30))
def test_work_at_the_limit_runs_and_one_more_element_raises(rows: int, columns: int) -> None:
    """An outer product, whose elements are counted by hand."""
    node = h.make_node("Mul", ["a", "b"], ["y"])
    ends = [info("a", FLOAT, ["n", 1]), info("b", FLOAT, ["m"])], [info("y", FLOAT, None)]
    a, b = normal(rows, 1), normal(columns)
    most = max(rows * columns, 1)
    np.testing.assert_array_equal(
        load(model([node], *ends), "EAGER", limits=LoadLimits(elements=most))(a, b).numpy(), a * b
    )
    if most > 1:
        with pytest.raises(LoadLimitError, match=f"{rows * columns} elements"):
            load(model([node], *ends), "EAGER", limits=LoadLimits(elements=most - 1))(a, b)


def test_matmul_counts_its_operations() -> None:
    """Two matrices of 100 rows and columns: a million products, and as many sums."""
    node = h.make_node("MatMul", ["a", "a"], ["y"])
    data = model([node], [info("a", FLOAT, [100, 100])], [info("y", FLOAT, None)])
    a = normal(100, 100)
    load(data, "EAGER", limits=LoadLimits(operations=2 * 10**6))(a)
    with pytest.raises(LoadLimitError, match="operations"):
        load(data, "EAGER", limits=LoadLimits(operations=2 * 10**6 - 1))(a)


def test_loading_a_long_chain_takes_linear_work() -> None:
    """The copies for each node grow with the chain only where reading is quadratic."""
    counts = []
    for length in (500, 1000, 2000):
        names = ["x", *(f"v{i}" for i in range(length - 1)), "y"]
        data = of_x([h.make_node("Neg", [a], [b]) for a, b in pairwise(names)])
        counts.append(copied_names(data))
    assert counts[2] - counts[1] < 3 * (counts[1] - counts[0]) + 100


def copied_names(data: bytes) -> int:
    """How many names the reader is handed with its nodes, copies counted."""
    from mgb_onnx import read

    seen: dict[int, int] = {}
    kept: list[Any] = []
    call = read._Reader.call

    def counted(self: Any, node: Any, opsets: Any, place: str, known: Any) -> Any:
        if id(known) not in seen:
            kept.append(known)
            seen[id(known)] = len(known)
        return call(self, node, opsets, place, known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read._Reader, "call", counted)
        load(io.BytesIO(data), "EAGER")
    return sum(seen.values())


def test_limits_apply_to_exported_graphs(tmp_path: Path) -> None:
    trace(lambda x: x + x * 2, backend="EAGER").export(tmp_path / "f.mgb", "f32[10,10]")
    assert load_compiled(tmp_path / "f.mgb", limits=LoadLimits(elements=100)).inputs[0].shape == (10, 10)
    with pytest.raises(LoadLimitError, match=r"node 1.*: load_compiled\(file, limits=LoadLimits\(elements="):
        load_compiled(tmp_path / "f.mgb", limits=LoadLimits(nodes=2, elements=99))


def test_run_command_accepts_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.onnx").write_bytes(doubling(10))
    np.save(tmp_path / "x.npy", X)
    arguments = ["run", str(tmp_path / "m.onnx"), "--input", f"x={tmp_path}/x.npy", "--backend", "EAGER"]
    assert main([*arguments, "--limit", "elements=3072"]) == 0
    assert main([*arguments, "--limit", "elements=3071", "--limit", "turns=1"]) == 2
    assert "--limit elements=6144" in capsys.readouterr().err
    for wrong in ("elements", "elements=x", "elephants=3", "turns=0", "=1", "turns=2**", "turns=2**-1"):
        assert main([*arguments, "--limit", wrong]) == 2
        assert "elements, bytes, operations" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "7", None])
def test_limits_reject_values_other_than_positive_integers(wrong: Any) -> None:
    for field in fields(LoadLimits):
        with pytest.raises(ArgumentError, match=field.name):
            LoadLimits(**{field.name: wrong})
    assert issubclass(ArgumentError, MgbError)
    with pytest.raises(FrozenInstanceError):
        LoadLimits().nodes = 5  # type: ignore[misc]


@pytest.mark.parametrize("wrong", [{"nodes": 1}, 5, "nodes=1", LoadLimits])
def test_limits_argument_of_a_wrong_type_is_rejected(wrong: Any, tmp_path: Path) -> None:
    trace(lambda x: x + x, backend="EAGER").export(tmp_path / "f.mgb", "f32[8]")
    for read, file in ((load, of_x([])), (load_compiled, tmp_path / "f.mgb")):
        with pytest.raises(ArgumentError, match=rf"{read.__name__}\(limits=.*LoadLimits\(nodes=\.\.\.\)"):
            read(file, limits=wrong)


def test_limits_none_uses_the_defaults(tmp_path: Path) -> None:
    trace(lambda x: x + x, backend="EAGER").export(tmp_path / "f.mgb", "f32[3]")
    assert load_compiled(tmp_path / "f.mgb", limits=None)(X).tolist() == [2, 2, 2]
    assert load(doubling(1), "EAGER", limits=None)(X).shape == (6,)
    with pytest.raises(LoadLimitError):
        load(einsum(), "EAGER", limits=None)(X)


def test_limit_option_suggested_by_an_error_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The option that a message gives goes past the limit that it tells of."""
    path, array = tmp_path / "m.onnx", tmp_path / "x.npy"
    np.save(array, X)
    arguments = ["run", str(path), "--input", f"x={array}", "--backend", "EAGER"]
    for data in (doubling(2), made("ConstantOfShape", [1 << 40] * 2)):
        path.write_bytes(data)
        assert main([*arguments, "--limit", "elements=10"]) == 2
        (advice,) = re.findall(r"--limit (elements=\S+)", capsys.readouterr().err)
        main([*arguments, "--limit", advice])
        text = capsys.readouterr().err
        assert "give NAME=NUMBER" not in text and "of one value" not in text


def test_errors_report_numbers_of_any_size() -> None:
    data = dims(*[1 << 62] * 64)
    with pytest.raises(MgbError):
        load(io.BytesIO(data))
    with pytest.raises(MgbError, match="400 axes"):
        load(io.BytesIO(dims(*[1] * 400)))
    with pytest.raises(LoadLimitError, match=r"2\*\*"):
        load(io.BytesIO(made("ConstantOfShape", [1 << 62] * 60)))


@pytest.mark.parametrize("weight", [False, True], ids=["data", "weights"])
def test_large_values_are_measured_before_computing(weight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of 2**29 elements would be made on the way to the one that is refused."""
    found = onnx.load_from_string(doubling(60))
    if weight:
        found.graph.node[0].input[:] = ["w", "w"]
        found.graph.initializer.append(onnx.numpy_helper.from_array(X, "w"))
        found.graph.node.append(h.make_node("Add", ["y", "x"], ["z"]))
        found.graph.output[0].name = "z"
    largest = [0]
    concatenate = np.concatenate

    def watched(arrays: Any, *args: Any, **kwargs: Any) -> Any:
        out = concatenate(arrays, *args, **kwargs)
        largest[0] = max(largest[0], out.size)
        return out

    monkeypatch.setattr(np, "concatenate", watched)
    with pytest.raises(LoadLimitError, match="elements"):
        load(found.SerializeToString(), "EAGER")(X)
    assert largest[0] < 1 << 23


def test_large_constant_subgraph_is_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgb.storage.limits.MOST_FOLDED", 4)
    nodes = [
        h.make_node("Range", ["zero", "nine", "one"], ["r"]),
        h.make_node("Mul", ["r", "r"], ["q"]),
        h.make_node("Reshape", ["q", "square"], ["s"]),
        h.make_node("Add", ["s", "x"], ["y"]),
    ]
    numbers = {"zero": np.float32(0), "nine": np.float32(9), "one": np.float32(1)}
    function = load(of_x(nodes, **numbers, square=np.array([3, 3])), "EAGER")
    for _ in range(2):
        np.testing.assert_array_equal(function(X).numpy(), (np.arange(9.0) ** 2).reshape(3, 3) + 1)


def test_interrupt_leaves_no_active_measurement() -> None:
    """At each line of the module that measures, while a model is loaded, folded and called."""
    nodes = [h.make_node("Add", ["w", "w"], ["v"]), h.make_node("Mul", ["x", "v"], ["y"])]
    data = of_x(nodes, w=X)

    def is_measuring(frame: FrameType) -> bool:
        return frame.f_code.co_filename == limits.__file__

    def run() -> None:
        assert load(data, "EAGER")(X).tolist() == [2, 2, 2]

    run()
    place = 0
    while True:
        place += 1
        try:
            if not at_line(place, KeyboardInterrupt, run, is_measuring):
                break
        except KeyboardInterrupt:
            pass
        assert ACTIVE.get() is None, f"line {place}: a measured call that has ended is still the active one"
    assert place > 20


def test_measured_call_forwards_all_hooks_to_the_outer_session() -> None:
    """The op itself is measured first: `step` has the tests above."""
    hooks = {n for n, hook in vars(Session).items() if callable(hook) and n[0] != "_"} - {"step"}
    told: list[str] = []
    facts = {"symbolic_shape": True, "replays": True}
    listening = type("Listening", (Session,), facts | {n: lambda _, n=n: told.append(n) for n in hooks})()

    def body() -> None:
        session: Any = ACTIVE.get()
        assert session is not listening and session.symbolic_shape and session.replays
        for hook in sorted(hooks):
            getattr(session, hook)()

    run_in(listening, limits.metered, limits.Meter(), body)
    assert len(told) > 10 and told == sorted(hooks)
