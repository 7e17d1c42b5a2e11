"""What a traced function counts, and the reasons it gives for recording or compiling again."""

from __future__ import annotations

import logging

import mgb.functional as F
import mgb.module as M
import pytest
from arrays import ones
from folding import Fold, use
from mgb import Tensor, tensor
from mgb.backends import Specialize
from mgb.errors import TraceMismatchError
from mgb.jit import trace

pytestmark = pytest.mark.usefixtures("eager_backend")


@trace
def halved(x: Tensor) -> Tensor:
    return x / 2.0


def test_stats_count_only_this_function(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fold(specialize=Specialize.NDIM))

    def body(x, y):
        return (x * y + 1.0).sum()

    first, second = trace(body), trace(body)
    assert first.stats() == {
        "calls": 0, "body_runs": 0, "records": 0, "variants": 0, "programs": 0, "compile_seconds": 0.0,
        "kernel_compiles": 0, "kernel_memory_hits": 0, "kernel_disk_hits": 0, "reasons": [],
    }  # fmt: skip
    for rows in (2, 2, 2, 3, 3, 2):
        first(ones(rows, 3), ones(3))
    stats = first.stats()
    assert (stats["calls"], stats["body_runs"], stats["records"]) == (6, 2, 2)
    assert (stats["variants"], stats["programs"]) == (2, 2)
    assert 0 < stats["compile_seconds"] < 60
    assert len(stats["reasons"]) == 1  # for the second length it is recorded for any
    kernels = stats["kernel_compiles"] + stats["kernel_memory_hits"] + stats["kernel_disk_hits"]
    programs = [p for v in first.variants() for p in v.programs]  # each record has asked for its own
    assert kernels == sum(step.fused for p in programs for step in p.steps)
    assert second.stats()["calls"] == second.stats()["kernel_compiles"] == 0
    for _ in range(2):
        second(ones(2, 3), ones(3))
    stats = second.stats()
    assert (stats["kernel_compiles"], stats["kernel_disk_hits"]) == (0, 0) and stats["kernel_memory_hits"] > 0


def reasons_of(function, *calls, **options) -> list[str]:
    """The reasons after calls with the given arguments, each a tuple."""
    traced = trace(function, **options)
    for args, kwargs in calls:
        traced(*args, **kwargs)
    return traced.stats()["reasons"]


def train_step(x, lr=1.0, **_more):
    return x * lr


REASONS = {
    "shape": ({}, ((ones(16, 10),), {}), ((ones(160),), {}),
              "argument 0 of train_step has shape (160,), recorded were (16, 10)"),
    "shape by keyword": ({}, ((), {"x": ones(2)}), ((), {"x": ones(3, 1)}),
                         "argument `x` of train_step has shape (3, 1), recorded were (2,)"),
    "dtype": ({}, ((ones(2),), {}), ((ones(2).astype("float64"),), {}),
              "argument 0 of train_step has dtype float64, recorded were float32"),
    "device": ({}, ((ones(2),), {}), ((ones(2).to("cpu0"),), {}),
               "argument 0 of train_step is on cpu0:0, recorded were xpux:0"),
    "number": ({}, ((ones(2),), {"lr": 0.1}), ((ones(2),), {"lr": 0.2}),
               "argument `lr` of train_step is 0.2, recorded were 0.1"),
    "in a container": ({}, ((ones(2),), {"y": {"a": [1, 2]}}), ((ones(2),), {"y": {"a": [1, 3]}}),
                       "argument `y`['a'][1] of train_step is 3, recorded were 2"),
    "a Tensor for a number": ({}, ((ones(2), 2.0), {}), ((ones(2), tensor(2.0)), {}),
                              "argument 1 of train_step is a Tensor, recorded were 2.0"),
    "one argument more": ({}, ((ones(2),), {}), ((ones(2), 2.0), {}),
                          "the call of train_step has the form (_, _), recorded were (_)"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "first", "second", "reason"), REASONS.values(), ids=REASONS)
def test_recompile_logs_its_reason(options, first, second, reason, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="mgb.jit"):
        found = reasons_of(train_step, first, first, second, second, **options)
    assert len(found) == 1 and found[0].startswith(reason), found
    assert [r.getMessage() for r in caplog.records if r.name == "mgb.jit"] == found


def test_aliased_arguments_are_a_retrace_reason() -> None:
    x, y = ones(2), ones(2)

    def both(x, y):
        return x * y

    assert reasons_of(both, ((x, y), {}), ((x, x), {})) == [
        "one Tensor stands for other arguments of both than recorded"
    ]


def test_changed_external_state_is_a_retrace_reason() -> None:
    class Net(M.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = M.Dropout(0.5)

        def forward(self, x):
            return self.drop(x) * 2.0

    net, weight = Net(), tensor([1.0, 2.0])

    @trace(without_host=True)
    def apply(x):
        return net(x) * weight

    apply(ones(2))
    net.eval()
    apply(ones(2))
    weight._reset(tensor([[1.0, 2.0]]))
    apply(ones(2))
    found = apply.stats()["reasons"]
    assert found[0] in (
        "`Net.training` is False, it was True",
        "`Dropout.training` is False, it was True",
    )
    assert (
        "test_stats.py:" in found[1] and "in apply is float32[1,2] now, recorded was float32[2]" in found[1]
    )
    assert len(found) == 2


def test_grad_is_a_retrace_reason() -> None:
    x = tensor([1.0])

    @trace(without_host=True)
    def apply(y):
        return y * 2.0 if x.grad is None else y * x.grad

    apply(ones(1))
    x.grad = tensor([3.0])
    assert apply(ones(1)).item() == 3
    assert "the grad of a Tensor of shape (1,) is a Tensor now" in apply.stats()["reasons"]


def test_data_dependent_op_parameter_is_a_retrace_reason() -> None:
    @trace
    def largest(x, k):
        return F.topk(x, k)[0]

    for k in (1, 1, 2, 2, 1):
        largest(ones(4), tensor(k))
    runs, reason = largest.stats()["reasons"]
    assert runs.startswith("the body of largest runs at each call: ") and "test_stats.py:" in runs
    assert reason.startswith("argtopk at ") and reason.endswith("has k = 2, recorded were 1")
    assert "test_stats.py:" in reason


def test_only_the_latest_reasons_are_stored() -> None:
    @trace
    def by_length(x: Tensor) -> Tensor:
        return x / float(x.shape[0])  # a number that is not followed

    for rows in range(1, 41):
        by_length(ones(rows))
    reasons = by_length.stats()["reasons"]
    assert 8 <= len(reasons) <= 32 and "(40,)" in reasons[-1]


def test_mismatch_is_not_reported_as_a_recompile() -> None:
    flag = False
    traced = trace(lambda x: x * 2.0 if flag else x + 1.0, run_body=True)
    traced(ones(2))
    flag = True
    with pytest.raises(TraceMismatchError):
        traced(ones(2))
    assert traced.stats()["reasons"] == []
