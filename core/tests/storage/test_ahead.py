"""`compile` and `export`: nothing is run, nothing outside changes, and what a file holds runs as it did."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb import errors, jit
from mgb.autodiff import GradManager
from mgb.ir import Spec
from mgb.jit import trace
from mgb.jit.argument_specs import spec_of
from mgb.optimizer import SGD
from mgb.tools.cli import main

rng = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


# types as text


@pytest.mark.parametrize(
    ("text", "shape", "dtype"),
    [
        ("f32[64,784]", (64, 784), "float32"),
        ("float16[]", (), "float16"),
        (" u8 [ 3 , 4 ] ", (3, 4), "uint8"),
        ("bf16[0]", (0,), "bfloat16"),
        ("bool[2]", (2,), "bool"),
    ],
)
def test_string_is_parsed_as_an_argument_spec(text: str, shape: tuple[int, ...], dtype: str) -> None:
    spec = spec_of(text)
    assert (spec.shape, spec.dtype.name) == (shape, dtype)


NO_TYPES = [
    "f33[2]", "f32[2", "f32[-1]", "f32[a]", "[3]", "f32[1.5]", "object[2]", "f32[99999999999999999999]",
    "f64[4294967296,4294967296]", f"f32[{'9' * 5000}]", f"f32[{'1,' * 65}]", "f32[0,99999999999999999999]",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_TYPES, ids=lambda t: t[:30])
def test_unknown_dtype_string_is_reported(text: str) -> None:
    with pytest.raises(errors.TraceInputError, match="write it as"):
        trace(lambda x: x).compile(text)


def test_spec_too_large_for_memory_is_reported() -> None:
    with pytest.raises(errors.TraceInputError, match="cannot be made here"):
        trace(lambda x: x).compile(f"f32[{1 << 58}]")


# compile


@pytest.mark.parametrize(
    "options",
    [{}, {"without_host": True}, {"symbolic": True}, {"capture_as_const": True}, {"run_body": True}],
)
def test_call_after_compile_does_not_compile(options: dict[str, Any]) -> None:
    w = mgb.Parameter(array(3, 4))

    @trace(**options)
    def f(x: Any, *, scale: Any) -> Any:
        return F.exp(F.matmul(x, w)) * scale

    f.compile("f32[2,3]", scale=Spec((4,), np.dtype(np.float32)))
    before = f.stats()
    assert (before["calls"], before["records"], before["programs"]) == (0, 1, 1)
    x, scale = array(2, 3), array(4)
    out = f(mgb.tensor(x), scale=mgb.tensor(scale))
    np.testing.assert_allclose(out.numpy(), np.exp(x @ w.numpy().astype(np.float64)) * scale, rtol=1e-5)
    after = f.stats()
    runs = {"calls": 0, "body_runs": 0}
    assert {**after, **runs} == {**before, **runs}
    assert after["body_runs"] - before["body_runs"] == (1 if options == {"run_body": True} else 0)


def test_compile_takes_several_shapes_and_python_values() -> None:
    @trace(without_host=True)
    def f(pair: Any, power: int, mode: str) -> Any:
        return (pair[0] ** power + pair[1]) if mode == "sum" else pair[0]

    f.compile(["f32[2]", mgb.tensor(array(2))], 3, mode="sum")
    f.compile(["f32[5]", "f32[5]"], 3, mode="sum")
    before = f.stats()
    a, b = array(5), array(5)
    out = f([mgb.tensor(a), mgb.tensor(b)], 3, mode="sum")
    np.testing.assert_allclose(out.numpy(), a.astype(np.float64) ** 3 + b, rtol=1e-5)
    assert {**f.stats(), "calls": 0} == before


@pytest.mark.parametrize("without_host", [False, True])
def test_compile_of_a_training_step_has_no_side_effects(without_host: bool) -> None:
    start, x = array(4, 2), array(8, 4)

    def train(compiled: bool) -> tuple[Any, Any]:
        w = mgb.Parameter(start)
        gm, opt = GradManager().attach([w]), SGD([w], lr=0.1, momentum=0.9)

        def step(x: Any) -> Any:
            with gm:
                loss = (F.matmul(x, w) ** 2).mean()
                gm.backward(loss)
            opt.step().clear_grad()
            return loss

        if compiled:
            step = trace(step, without_host=without_host)
            step.compile("f32[8,4]")
            assert w.grad is None
            np.testing.assert_array_equal(w.numpy(), start)
        losses = [float(step(mgb.tensor(x)).numpy()) for _ in range(4)]
        return losses, w.numpy()

    (eager, w_eager), (compiled, w_compiled) = train(False), train(True)
    np.testing.assert_allclose(compiled, eager, rtol=1e-5)
    np.testing.assert_allclose(w_compiled, w_eager, rtol=1e-5)


def test_compile_rejects_a_body_that_reads_values() -> None:
    @trace
    def f(x: Any) -> Any:
        return x + 1 if float(x.sum()) > 0 else x

    with pytest.raises(errors.SymbolicReadError):
        f.compile("f32[3]")
    np.testing.assert_array_equal(f(mgb.tensor([1.0, 2.0])).numpy(), [2.0, 3.0])


def test_compile_rejects_record_only_and_nested_traces() -> None:
    with pytest.raises(errors.ExportError, match="record_only"):
        trace(lambda x: x, record_only=True).compile("f32[2]")
    inner = trace(lambda x: x + 1)
    with pytest.raises(errors.ExportError, match="outside of any trace"):
        trace(lambda x: [inner.compile("f32[2]"), x][1])(mgb.tensor([1.0, 2.0]))


# export and load


def exported(function: Any, path: Path, *args: Any, **kwargs: Any) -> Any:
    trace(function, backend="eager").export(path, *args, **kwargs)
    return jit.load_compiled(path)


@pytest.mark.parametrize(
    "arrange", [lambda a, b: a, lambda a, b: (a, b), lambda a, b: [b, a], lambda a, b: {"p": a, "q": b}]
)
def test_exported_function_preserves_the_result_structure(arrange: Any, tmp_path: Path) -> None:
    def f(x: Any, y: Any) -> Any:
        return arrange(x + y, F.exp(x))

    g = exported(f, tmp_path / "f.mgb", "f32[3]", "f32[3]")
    x, y = array(3), array(3)
    wanted, got = arrange(x + y, np.exp(x)), g(mgb.tensor(x), y=y)
    assert type(got) is (mgb.Tensor if isinstance(wanted, np.ndarray) else type(wanted))
    if isinstance(wanted, dict):
        assert set(wanted) == set(got)
        pairs = [(wanted[k], got[k]) for k in wanted]
    else:
        pairs = [(wanted, got)] if isinstance(wanted, np.ndarray) else list(zip(wanted, got, strict=True))
    for a, b in pairs:
        np.testing.assert_allclose(b.numpy(), a, rtol=1e-6)
    assert [str(s) for s in g.inputs] == ["x: float32[3]", "y: float32[3]"]
    assert len(g.run(x, y)) == len(g.outputs) == len(pairs)


def test_parameters_are_frozen_at_export(tmp_path: Path) -> None:
    w = mgb.Parameter(array(4, 300))
    old = w.numpy().copy()
    g = exported(lambda x: F.matmul(x, w), tmp_path / "f.mgb", "f32[2,4]")
    w._reset(mgb.tensor(array(4, 300)))
    x = array(2, 4)
    np.testing.assert_allclose(g(x).numpy(), x @ old, rtol=1e-4, atol=1e-5)


def test_constants_are_memory_mapped_from_the_file(tmp_path: Path) -> None:
    w = mgb.Parameter(array(64, 64))
    g = exported(lambda x: F.matmul(x, w), tmp_path / "f.mgb", "f32[2,64]")
    (value,) = [n.params["value"] for n in g.graph.nodes if n.op.name == "const"]
    base = value
    while getattr(base, "base", None) is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap) or type(base).__name__ == "mmap"
    assert not value.flags.writeable
    assert value.ctypes.data % 64 == 0


def test_export_preserves_dtypes_and_op_parameters(tmp_path: Path) -> None:
    half = mgb.tensor(array(3), dtype="bfloat16")

    def f(x: Any, mask: Any, k: Any) -> Any:
        picked = x[1:, ::2, None] * 1e-45 + float("inf") * 0 + x.max()
        return (
            F.concat([x, x.astype("float64").astype("float32")], axis=1).transpose(1, 0),
            F.where(mask, x, -0.0),
            picked,
            (half * 3).astype("float32"),
            k % 7 - 3,
            F.topk(x, 2, descending=True)[1],
            F.one_hot(k, 11),
            F.arange(5) + x.mean(),
        )

    args = (array(3, 4), rng.random((3, 4)) > 0.5, np.arange(4, dtype=np.int32))
    traced = trace(f, backend="eager", opt_level=0)
    wanted = traced(*(mgb.tensor(a) for a in args))
    traced.export(tmp_path / "f.mgb", "f32[3,4]", "bool[3,4]", "i32[4]")
    for a, b in zip(jit.load_compiled(tmp_path / "f.mgb")(*args), wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_export_with_captured_tensors_uses_types_of_the_latest_call(tmp_path: Path) -> None:
    f = trace(lambda x: x * 2, capture_as_const=True, backend="eager")
    f(mgb.tensor(array(5)))
    f.export(tmp_path / "f.mgb")
    assert jit.load_compiled(tmp_path / "f.mgb").inputs[0].shape == (5,)
    with pytest.raises(errors.ExportError, match=r"the types.*are missing.*f32\[64,784\]"):
        trace(lambda x: x * 2).export(tmp_path / "f.mgb")


def test_export_of_a_function_without_arguments(tmp_path: Path) -> None:
    w = mgb.tensor([1.0, 2.0])
    np.testing.assert_array_equal(exported(lambda: w * 2, tmp_path / "f.mgb")().numpy(), [2.0, 4.0])


def test_exported_method_names_inputs_in_containers(tmp_path: Path) -> None:
    class Scale:
        def __init__(self) -> None:
            self.by = mgb.tensor([2.0, 3.0])

        @trace(backend="eager")
        def apply(self, x: Any, pair: Any, *more: Any, last: Any) -> Any:
            return x * self.by + pair[0] - pair[1] + more[0] * last

    f32 = "f32[2]"
    scale = Scale()
    scale.apply.compile(f32, (f32, f32), f32, last=f32)
    scale.apply.export(tmp_path / "f.mgb", f32, (f32, f32), f32, last=f32)
    g = jit.load_compiled(tmp_path / "f.mgb")
    assert [i.name for i in g.inputs] == ["x", "pair[0]", "pair[1]", "arg_2", "last"]
    args = [array(2) for _ in range(5)]
    wanted = args[0] * scale.by.numpy() + args[1] - args[2] + args[3] * args[4]
    np.testing.assert_allclose(g(*args[:4], last=args[4]).numpy(), wanted, rtol=1e-5)


def test_run_command_runs_an_exported_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported(lambda x: x * 2, tmp_path / "f.mgb", "f32[3]")
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    given = ["--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path)]
    assert main(["run", str(tmp_path / "f.mgb"), *given, "--allow-code"]) == 0
    (name,) = [o.name for o in jit.load_compiled(tmp_path / "f.mgb").outputs]
    assert f"{name}: float32[3]" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), [2, 2, 2])


def test_unsupported_export_raises_and_leaves_the_file_unchanged(tmp_path: Path) -> None:
    path, w = tmp_path / "f.mgb", mgb.Parameter(array(3))
    path.write_bytes(b"mine")
    drop = mgb.module.Dropout(0.5)

    def updates(x: Any) -> Any:
        w._reset(w + x)
        return w * 1

    for body, error in (
        (updates, errors.ExportError),
        (lambda x: drop(x), errors.ExportError),
        (lambda x: [x, [x]], errors.ExportError),
        (lambda x: x if float(x[0]) > 0 else -x, errors.SymbolicReadError),
        (lambda x: 3, errors.TraceOutputError),
    ):
        with pytest.raises(error):
            trace(body).export(path, "f32[3]")
    assert path.read_bytes() == b"mine"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "'x' is missing"),
        ((1, 2, 3), {}, "3 arguments"),
        ((np.ones(3, np.float32),), {"x": 1}, "given twice"),
        ((np.ones(3, np.float32),), {"z": 1}, "none of its inputs"),
        ((np.ones(3, np.float64), np.ones(3, np.float32)), {}, r"got float64.*astype\('float32'\)"),
        ((np.ones(4, np.float32), np.ones(3, np.float32)), {}, r"got shape \(4,\)"),
        (("text", np.ones(3, np.float32)), {}, "input x"),
    ],
)
def test_loaded_function_rejects_wrong_arguments(
    args: Any, kwargs: Any, message: str, tmp_path: Path
) -> None:
    g = exported(lambda x, y: x + y, tmp_path / "f.mgb", "f32[3]", "f32[3]")
    with pytest.raises(errors.ArgumentError, match=message):
        g(*args, **kwargs)
    np.testing.assert_array_equal(g([1, 2, 3], y=[1, 1, 1]).numpy(), [2, 3, 4])


def test_loaded_function_inside_a_trace_and_under_a_grad_manager(tmp_path: Path) -> None:
    w = mgb.tensor(array(4))
    g = exported(lambda x: (F.exp(x) * w).sum(), tmp_path / "f.mgb", "f32[4]")
    x = mgb.tensor(array(4))
    gm = GradManager().attach([x])
    with gm:
        gm.backward(g(x))
    np.testing.assert_allclose(x.grad.numpy(), np.exp(x.numpy()) * w.numpy(), rtol=1e-5)
    outer = trace(lambda y: g(y * 2) + 1)
    for _ in range(2):
        wanted = (np.exp(2 * x.numpy()) * w.numpy()).sum() + 1
        np.testing.assert_allclose(outer(x).numpy(), wanted, rtol=1e-5)


def test_threads_share_a_loaded_function(tmp_path: Path) -> None:
    w = mgb.Parameter(array(32, 32))
    g = exported(lambda x: F.softmax(F.matmul(x, w), axis=-1), tmp_path / "f.mgb", "f32[16,32]")
    inputs = [array(16, 32) for _ in range(8)]
    wanted = [g(x).numpy() for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(50):
            if not np.array_equal(g(inputs[k]).numpy(), wanted[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_file_for_a_missing_backend_raises_or_loads_eagerly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what to install, and that eager evaluation does without."""
    path = tmp_path / "f.mgb"
    exported(lambda x: F.exp(x) + 1, path, "f32[4]")
    monkeypatch.delenv("MGB_JIT_BACKEND", raising=False)
    rename(path, b'"backend":"eager"', b'"backend":"xlaaa"')
    with pytest.raises(errors.BackendUnavailableError, match=r"(?s)xlaaa.*backend='eager'"):
        jit.load_compiled(path)
    g = jit.load_compiled(path, backend="eager")
    assert g.compiled_again
    x = array(4)
    np.testing.assert_allclose(g(x).numpy(), np.exp(x) + 1, rtol=1e-6)


def rename(path: Path, old: bytes, new: bytes) -> None:
    """Change the text of a file, and its checksum."""
    from ahead_files import rewrite

    assert old in path.read_bytes()
    path.write_bytes(rewrite(path.read_bytes(), lambda text: text.replace(old, new)))


def bodies_with_loops() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    layer, table = mgb.module.LSTM(4, 6), mgb.tensor(array(4, 4))
    x = array(20, 3, 4)
    return {
        "LSTM": (lambda x: layer(x)[0], (x,)),
        "while_loop": (
            lambda a: jit.while_loop(lambda x: abs(x * x - a) > 1e-5 * a, lambda x: (x + a / x) / 2, a),
            (np.float32(2.0),),
        ),
        "cond": (
            lambda p, x: jit.cond(p > 0, lambda y: np.sin(y) @ table, lambda y: y * y, x),
            (np.float32(1), x),
        ),
        "nested": (
            lambda v: jit.fori_loop(
                0, 20, lambda i, w: jit.fori_loop(0, 3, lambda j, z: z * 0.9 + np.roll(z, 1) * 0.1 * j, w), v
            ),
            (x[0],),
        ),
    }


@pytest.mark.parametrize("name", bodies_with_loops())
def test_loops_are_exported(name: str, tmp_path: Path) -> None:
    body, args = bodies_with_loops()[name]
    given = [mgb.tensor(a) for a in args]
    wanted, path = body(*given).numpy(), tmp_path / "loop.mgb"
    trace(body).export(path, *(f"f32[{','.join(map(str, np.shape(a)))}]" for a in args))
    for backend in (None, "eager"):
        loaded = jit.load_compiled(path, backend=backend)
        assert not loaded.compiled_again or backend
        for _ in range(2):
            np.testing.assert_allclose(loaded(*given).numpy(), wanted, rtol=1e-4, atol=1e-5)
        traced = trace(lambda *a, f=loaded: f(*a) * 2)
        np.testing.assert_allclose(traced(*given).numpy(), wanted * 2, rtol=1e-4, atol=1e-5)


def test_loop_reports_the_backend_of_its_steps() -> None:
    loop = trace(lambda x: jit.fori_loop(0, 20, lambda i, v: np.sin(v) + x, x), backend="CPU_LLVM")
    for _ in range(2):
        loop(mgb.tensor(array(3))).numpy()
    assert loop.backend == "cpu_llvm"


@pytest.mark.parametrize("level", [0, 3])
def test_loop_over_constants_runs_eagerly(level: int) -> None:
    """Large constants stand in the step of a loop where nothing else makes them."""
    places = np.arange(3, dtype=np.float32)
    loop = trace(
        lambda x: jit.fori_loop(0, 4, lambda i, v: v * places + x, x), backend="eager", opt_level=level
    )
    for _ in range(2):
        found = loop(mgb.tensor(np.ones(3))).numpy()
    wanted = np.ones(3)
    for _ in range(4):
        wanted = wanted * places + 1
    np.testing.assert_allclose(found, wanted)
