"""Every case at a small size: what mgb and the peers that are here give, against the truth in float64."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from mgb_bench.case import Case, Tolerance, elements, label
from mgb_bench.formula import numpy_words, record
from mgb_bench.peers import PEERS, Mgb, Peer, choose, default_backends
from mgb_bench.plugin import contestants, way_of

SUITES = ("elementwise", "reductions", "patterns", "updates", "overhead")


def _cases() -> list[Any]:
    found = []
    for suite in SUITES:
        module = importlib.import_module(f"mgb_bench.suites.test_{suite}")
        small = getattr(module, "small", lambda case: 4096)
        found += [pytest.param(case, small(case), id=f"{suite} {case.name}") for case in module.CASES]
    return found


@pytest.mark.parametrize("case,size", _cases())
def test_mgb_matches_float64_reference(case: Case, size: Any) -> None:
    peers: dict[str, Peer] = {name: Mgb(name) for name in default_backends()}
    calls, failed = contestants(case, case.inputs(size), peers)
    assert not failed
    assert list(calls) == list(peers)


@pytest.mark.parametrize("case,size", _cases())
def test_numpy_matches_float64_reference(case: Case, size: Any) -> None:
    calls, failed = contestants(case, case.inputs(size), {"numpy": PEERS["numpy"]})
    assert not failed
    assert list(calls) == ["numpy"]


@pytest.mark.parametrize("name", [name for name in PEERS if name not in ("numpy", "torch_compile")])
def test_other_peers_match_float64_reference(name: str) -> None:
    """One case of each suite; a run checks all of them before it times."""
    reason = PEERS[name].probe()
    if reason:
        pytest.skip(f"{name}: {reason}")
    of_each = ("a*b+c", "softmax", "gemver", "Adam, one tensor")
    chosen = [p.values for p in _cases() if p.values[0].name in of_each]
    for case, size in chosen:
        if way_of(case, PEERS[name]) is not None:
            _, failed = contestants(case, case.inputs(size), {name: PEERS[name]})
            assert not failed


@pytest.mark.parametrize("case,size", _cases())
def test_traffic_reads_at_least_the_largest_input(case: Case, size: Any) -> None:
    if case.traffic is None:
        return
    arrays = case.inputs(size)
    largest = max(array.nbytes for array in arrays)
    traffic = case.traffic(size)
    assert traffic.reads >= largest
    assert len(traffic.streams) == 2
    assert traffic.streams[0] >= 1


def _wrong(value: float, place: int) -> Case:
    def way(x: Any) -> Any:
        out = x * 2
        out[place] = value
        return out

    return Case("twice", "none", (8,), lambda n, g: (g.random(n),), lambda x: x * 2, {"numpy": way}, None)


@pytest.mark.parametrize("value", [7.0, np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 300_000, 699_999])
def test_wrong_value_is_detected(value: float, place: int) -> None:
    case = _wrong(value, place)
    calls, failed = contestants(case, case.inputs(700_000), {"numpy": PEERS["numpy"]})
    assert not calls
    assert f"at {place}" in failed["numpy"]


def test_wrong_shape_and_missing_result_are_detected() -> None:
    case = _wrong(0.0, 0)
    with pytest.raises(AssertionError, match="shape"):
        case.check("x", np.zeros(3), (np.zeros(4),))
    with pytest.raises(AssertionError, match="results"):
        case.check("x", (np.zeros(4), np.zeros(4)), (np.zeros(4),))


def test_missing_peer_is_reported_with_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PEERS["torch"], "requires", ("torch_that_is_not_there",), raising=False)
    here, missing = choose([], ["numpy", "torch"])
    assert "numpy" in here
    assert missing == {"torch": "not installed: pip install torch_that_is_not_there"}
    with pytest.raises(KeyError):
        choose([], ["nobody"])


def test_missing_backend_is_reported() -> None:
    _, missing = choose(["nothing"], ["numpy"])
    assert "no backend" in missing["mgb:nothing"]


def test_formula_records_each_operation_once() -> None:
    arrays = (np.ones(3, np.float32), np.ones(3, np.float32))
    symbols, results = record(lambda w, a, b: (w.exp(a) * b, -b), arrays)
    assert [symbol.op for symbol in symbols] == ["input", "exp", "input", "*", "negative"]
    assert [result.op for result in results] == ["*", "negative"]


def test_reference_casts_round_to_16_bit_floats() -> None:
    words = numpy_words()
    assert words.cast(np.float64(1 + 2**-9), "bfloat16") == 1.0
    assert words.cast(np.float64(1 + 2**-9), "float16") == 1 + 2**-9


def test_sizes_are_formatted_with_binary_prefixes() -> None:
    assert [label(n) for n in (100, 1024, 64 << 10, 16 << 20)] == ["100", "1 Ki", "64 Ki", "16 Mi"]
    assert label((4096, 64)) == "4096x64"
    assert elements((4096, 64)) == 1 << 18


def test_tolerances_are_relative_and_absolute() -> None:
    case = _wrong(0.0, 0)
    case = Case(**{**vars(case), "tolerances": {"float64": Tolerance(0.1, 0.0)}})
    case.check("x", np.array([1.05]), (np.array([1.0]),))
    with pytest.raises(AssertionError):
        case.check("x", np.array([1.2]), (np.array([1.0]),))
