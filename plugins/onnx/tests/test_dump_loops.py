"""Loops of unknown length and branches in files, as ONNX Runtime and our reader run them."""

import mgb
import mgb.functional as F
import numpy as np
import onnx
import pytest
from mgb import tensor
from mgb.jit import cond, fori_loop, scan, trace, while_loop
from onnx_runtime import run_model

RANDOM = np.random.default_rng(3)


def drawn(*shape):
    return RANDOM.normal(size=shape).astype("float32")


def root(a):
    """Newton's steps, as many as it takes."""
    return while_loop(lambda x: (F.abs(x * x - a) > 1e-4 * a).any(), lambda x: (x + a / x) / 2, a)


def collatz(n):
    def step(state):
        n, steps = state
        return cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, n), steps + 1

    return while_loop(lambda state: state[0] != 1, step, (n, 0))[1]


def collatz_by_hand(n):
    steps, n = 0, int(n)
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    return np.int32(steps)


def branch(x, k):
    """Results that are operands, constants and values from outside; ops that files have no word for."""
    y = x * 2

    def yes(x):
        return {"same": x, "outside": y, "gelu": F.gelu(x), "number": tensor(1.0)}

    def no(x):
        return {"same": y, "outside": y, "gelu": F.gelu(-x), "number": x.sum()}

    return list(cond(k > 2, yes, no, x).values())


def branch_by_hand(x, k):
    from scipy.special import erf

    def gelu(x):
        return x * (1 + erf(x / np.sqrt(2))) / 2

    y = x * 2
    return [x, y, gelu(x), 1.0] if k > 2 else [y, y, gelu(-x), x.sum()]


def nested(x, k):
    """A loop of loops, one of them in a branch, over scans."""

    def some(v):
        rows = scan(lambda c, r: (c + r, c * r), v[0], v)[1]
        return fori_loop(0, k, lambda i, v: v + i, v) + rows

    return while_loop(lambda v: v.sum() < 50, lambda v: cond(v.max() > 2, some, lambda v: v + 0.5, v), x)


def nested_by_hand(x, k):
    while x.sum() < 50:
        if x.max() > 2:
            total, rows = x[0], []
            for r in x:
                rows.append(total * r)
                total = total + r
            x = x + sum(range(int(k))) + np.stack(rows)
        else:
            x = x + np.float32(0.5)
    return x


POSITIVE = np.abs(drawn(3, 4)) + 1
CASES = {
    "root": (root, np.sqrt, [(POSITIVE,), (POSITIVE * 1000,)]),
    "collatz": (collatz, collatz_by_hand, [(np.int32(n),) for n in (7, 1, 27)]),
    "branch": (branch, branch_by_hand, [(drawn(2, 3), np.int32(k)) for k in (5, -1)]),
    "nested": (nested, nested_by_hand, [(drawn(2, 3), np.int32(k)) for k in (3, 0)]),
}


@pytest.mark.parametrize("name", CASES)
def test_onnxruntime_and_load_run_loops_and_branches(name, tmp_path):
    function, truth, cases = CASES[name]
    traced = trace(function, symbolic=True, capture_as_const=True)
    traced(*map(tensor, cases[0]))
    path = str(tmp_path / "model.onnx")
    traced.dump(path, strip_info_file=tmp_path / "ops.json", keep_opr_name=True, keep_var_name=2)
    onnx.checker.check_model(path, full_check=True)
    loaded = mgb.jit.load(path)
    for given in cases:
        wanted = truth(*given)
        wanted = wanted if isinstance(wanted, list) else [wanted]
        ours = loaded(*map(tensor, given))
        ours = ours if isinstance(ours, list) else [ours]
        for found, mine, true in zip(run_model(path, *given), ours, wanted, strict=True):
            np.testing.assert_allclose(found, true, rtol=2e-4, atol=1e-6)
            np.testing.assert_allclose(mine.numpy(), true, rtol=2e-4, atol=1e-6)
    used = (tmp_path / "ops.json").read_text()
    assert ("while_loop" in used or "cond" in used) and "object" not in used


def test_loops_and_branches_with_dynamic_axes(tmp_path):
    """The graphs inside are the same for all lengths: what differs stands outside."""

    def function(x):
        def longer(v):
            return v + F.arange(v.shape[0])[:, None] / v.shape[0]

        mean = cond(x.sum() > 0, lambda v: v.mean(axis=0), lambda v: v[0] * v.shape[0], x)
        return while_loop(lambda v: v.sum() < 100, longer, F.abs(x)), mean

    traced = trace(function, symbolic=True, capture_as_const=True)
    traced(tensor(drawn(5, 3)))
    path = str(tmp_path / "model.onnx")
    traced.dump(path, arg_names=["x"], dynamic_axes={"x": {0: "rows"}})
    for rows in (2, 9):
        for x in (drawn(rows, 3) + 1, drawn(rows, 3) - 1):
            grown = np.abs(x)
            while grown.sum() < 100:
                grown = grown + np.arange(rows, dtype="float32")[:, None] / rows
            wanted = [grown, x.mean(axis=0) if x.sum() > 0 else x[0] * rows]
            for found, true in zip(run_model(path, x), wanted, strict=True):
                np.testing.assert_allclose(found, true, rtol=1e-4)


def test_loops_and_branches_appended_to_another_graph(tmp_path):
    path = str(tmp_path / "model.onnx")
    for number, function in enumerate((root, lambda a: cond(a.sum() > 0, root, lambda a: -a, a), root)):
        traced = trace(function, symbolic=True, capture_as_const=True)
        traced(tensor(POSITIVE))
        traced.dump(path, arg_names=[f"x{number}"], output_names=[f"y{number}"], append=True)
    onnx.checker.check_model(path, full_check=True)
    for found, true in zip(run_model(path, POSITIVE, -POSITIVE, POSITIVE + 1), (
        np.sqrt(POSITIVE), POSITIVE, np.sqrt(POSITIVE + 1)), strict=True):  # fmt: skip
        np.testing.assert_allclose(found, true, rtol=2e-4)
