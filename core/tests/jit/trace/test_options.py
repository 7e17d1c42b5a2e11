"""The options of `trace` that say what is done with a record: only kept, in less memory, measured."""

from __future__ import annotations

from typing import Any

import mgb.module as M
import numpy as np
import pytest
from arrays import ones
from mgb import Parameter, Tensor, tensor
from mgb.autodiff import GradManager
from mgb.errors import (
    ArgumentError,
    MgbError,
    SymbolicReadError,
    TraceInputError,
    TraceMismatchError,
    TraceOutputError,
)
from mgb.jit import DTRConfig, SublinearMemoryConfig, auto, partial_trace, trace, xla_trace
from mgb.optimizer import SGD

pytestmark = pytest.mark.usefixtures("eager_backend")


# record_only


def test_record_only_records_and_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import mgb.jit.recording as recording

    weight = tensor(np.full((3, 2), 2.0, np.float32))
    traced = trace(lambda x: {"y": x @ weight + 1.0}, record_only=True)
    assert traced.symbolic and traced.capture_as_const
    monkeypatch.setattr(recording, "evaluate", lambda *_: pytest.fail("an op was run"))
    for rows in (4, 4, 5):
        result = traced(ones(rows, 3))
        assert result["y"].shape == (rows, 2) and result["y"].dtype == np.float32
        with pytest.raises(SymbolicReadError, match=r"trace\(record_only=True\); trace without that option"):
            result["y"].numpy()
    stats = traced.stats()
    assert (stats["calls"], stats["records"], stats["variants"], stats["programs"]) == (3, 3, 2, 0)
    assert [n.op.name for n in traced.graph.nodes] == ["const", "matmul", "const", "add"]
    assert len(traced.graph.inputs) == 1, "the weight is a constant"


def test_record_only_leaves_external_state_unchanged() -> None:
    weight = Parameter([1.0, 2.0])
    manager, optimizer = GradManager().attach([weight]), SGD([weight], lr=0.5, momentum=0.9)
    norm = M.BatchNorm1d(2)
    mean = norm.running_mean.numpy().copy()

    @trace(record_only=True)
    def step(x):
        with manager:
            loss = (norm(x) * weight).sum()
            manager.backward(loss)
        optimizer.step().clear_grad()
        return loss

    for _ in range(2):
        step(ones(4, 2))
        np.testing.assert_array_equal(weight.numpy(), [1, 2])
        np.testing.assert_array_equal(norm.running_mean.numpy(), mean)
        assert weight.grad is None


def test_record_only_can_return_shapes_as_values() -> None:
    @trace(record_only=True, symbolic_shape=True)
    def function(x):
        made = tensor([3.0])
        return x.reshape(x.shape[0] * 2, -1) * made, x.shape

    result, shape = function(ones(4, 6))
    assert result.shape == (8, 3)
    assert shape.tolist() == [4, 6]


def test_record_only_rejects_reads_and_non_tensor_values() -> None:
    with pytest.raises(SymbolicReadError, match="can not infer value"):
        trace(lambda x: x * (x + 1).item(), record_only=True)(ones(1))
    with pytest.raises(TraceInputError, match="Only support tensor type args"):
        trace(lambda x: x, record_only=True)(1.0)
    with pytest.raises(TraceOutputError, match="must be tensor, get int"):
        trace(lambda x: 3, record_only=True)(ones(1))


def test_record_only_exception_leaves_state_unchanged() -> None:
    weight, fail = tensor([1.0]), True

    @trace(record_only=True)
    def step(x):
        nonlocal weight
        weight += x
        if fail:
            raise KeyError("mine")
        return weight * 1.0

    with pytest.raises(KeyError, match="mine"):
        step(ones(1))
    assert weight.item() == 1 and step.stats()["records"] == 0
    fail = False
    step(ones(1))
    assert weight.item() == 1 and step.stats()["records"] == 1


def test_result_of_record_only_cannot_be_used_elsewhere() -> None:
    result = trace(lambda x: x * 2.0, record_only=True)(ones(2))
    for use in (lambda: result + 1.0, lambda: trace(lambda x: x + 1.0)(result)):
        with pytest.raises(SymbolicReadError):
            use()


# memory


def test_memory_configs_have_documented_fields_and_limits() -> None:
    config = SublinearMemoryConfig(num_worker=3)
    assert (config.thresh_nr_try, config.genetic_nr_iter, config.genetic_pool_size) == (10, 0, 20)
    assert (config.lb_memory_mb, config.num_worker) == (0, 3)
    assert SublinearMemoryConfig().num_worker >= 1
    config = DTRConfig(eviction_threshold=1 << 20)
    assert (config.evictee_minimum_size, config.recomp_memory_factor, config.recomp_time_factor) == (
        1 << 20,
        1,
        1,
    )
    for bad, limits in (
        (lambda: DTRConfig(eviction_threshold=0), "a whole number of at least 1"),
        (lambda: DTRConfig(eviction_threshold="1gb"), "a whole number of at least 1"),
        (lambda: DTRConfig(eviction_threshold=1, evictee_minimum_size=-1), "a whole number of at least 0"),
        (lambda: DTRConfig(eviction_threshold=1, recomp_time_factor=-0.5), "a finite number of at least 0"),
        (lambda: DTRConfig(eviction_threshold=1, recomp_memory_factor=float("inf")), "a finite number"),
        (lambda: DTRConfig(eviction_threshold=1, recomp_memory_factor=10**400), "a finite number"),
        (lambda: SublinearMemoryConfig(num_worker=0), "a whole number of at least 1"),
        (lambda: SublinearMemoryConfig(lb_memory_mb=0.5), "a whole number of at least 0"),
        (lambda: SublinearMemoryConfig(thresh_nr_try=-1), "a whole number of at least 0"),
    ):
        with pytest.raises(ValueError, match=f"it must be {limits}"):
            bad()


def test_trace_passes_on_one_memory_config() -> None:
    def body(x):
        return x * 2.0

    sublinear, dtr = SublinearMemoryConfig(thresh_nr_try=3), DTRConfig(eviction_threshold=1 << 30)
    assert trace(body).options.memory is None
    assert trace(body, sublinear_memory_config=sublinear).options.memory == sublinear
    assert trace(body, dtr_config=dtr).options.memory == dtr
    with pytest.raises(ArgumentError, match="give one of them"):
        trace(body, sublinear_memory_config=sublinear, dtr_config=dtr)
    with pytest.raises(ArgumentError, match=r"dtr_config is a dict; give a mgb\.jit\.DTRConfig"):
        trace(body, dtr_config={"eviction_threshold": 1})
    with pytest.raises(ArgumentError, match=r"give a mgb\.jit\.SublinearMemoryConfig"):
        trace(body, sublinear_memory_config=dtr)
    assert issubclass(ArgumentError, MgbError)


def test_environment_overrides_sublinear_memory_config(monkeypatch: pytest.MonkeyPatch) -> None:
    def config() -> SublinearMemoryConfig:
        given = SublinearMemoryConfig(thresh_nr_try=3, num_worker=2)
        return trace(lambda x: x, sublinear_memory_config=given).options.memory

    fields = {
        "THRESH_NR_TRY": "thresh_nr_try",
        "GENETIC_NR_ITER": "genetic_nr_iter",
        "GENETIC_POOL_SIZE": "genetic_pool_size",
        "LOWER_BOUND_MB": "lb_memory_mb",
        "WORKERS": "num_worker",
    }
    for number, (name, field) in enumerate(fields.items(), 5):
        monkeypatch.setenv(f"MGB_SUBLINEAR_MEMORY_{name}", str(number))
        assert getattr(config(), field) == number
    assert trace(lambda x: x).options.memory is None, "it overrides a config, and makes none"
    for bad in ("many", "0"):
        monkeypatch.setenv("MGB_SUBLINEAR_MEMORY_WORKERS", bad)
        with pytest.raises(ArgumentError, match=f"MGB_SUBLINEAR_MEMORY_WORKERS='{bad}'.*correct or unset it"):
            config()


def test_profiling_option_is_passed_on() -> None:
    assert not trace(lambda x: x).options.profiling
    assert trace(lambda x: x, profiling=True).options.profiling


@pytest.mark.parametrize("decorator", [trace, partial_trace, xla_trace])
@pytest.mark.parametrize(
    "option",
    [
        {"opt_level": 9},
        {"opt_level": -1},
        {"opt_level": "3"},
        {"opt_level": True},
        {"symbolic": "yes"},
        {"without_host": 2},
        {"run_body": 1},
        {"backend": 3},
        {"profiling": 1},
        {"fast_math": None},
        {"graph_opt_config": {}},
    ],
    ids=str,
)
def test_invalid_option_value_raises_naming_the_option(option: dict[str, Any], decorator: Any) -> None:
    with pytest.raises(TraceInputError, match=next(iter(option))):
        decorator(lambda x: x, **option)


@pytest.mark.parametrize("option", [{"opt_level": 9}, {"backend": 3}, {"fast_math": 1}], ids=str)
def test_auto_rejects_invalid_option_values(option: dict[str, Any]) -> None:
    with pytest.raises(TraceInputError, match=next(iter(option))):
        auto(**option)


def test_dtype_and_aliasing_mismatch_errors_suggest_a_fix() -> None:
    def changes(a: Tensor, b: Tensor) -> Tensor:
        a += 1
        return a * b

    double = trace(lambda x: x * 2.0, run_body=True)
    double(tensor([1.0]))
    with pytest.raises(TraceMismatchError, match="astype") as caught:
        double(tensor([1]))
    assert "exclude_from_trace" not in str(caught.value)
    one, two, same = tensor([1.0]), tensor([2.0]), tensor([1.0])
    calls = [(lambda a, b: a * 2.0 + b * 3.0, (one, one), (one, two)), (changes, (one, two), (same, same))]
    for body, recorded, later in calls:
        function = trace(body, run_body=True)
        function(*recorded)
        with pytest.raises(TraceMismatchError, match="same Tensors in the same places"):
            function(*later)
    skips = trace(changes)
    for _ in range(2):
        same = tensor([1.0])
        assert skips(tensor([1.0]), tensor([3.0])).tolist() == [6.0]
        assert skips(same, same).tolist() == [4.0]
