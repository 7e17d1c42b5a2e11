"""What of `mgb.distributed` needs no second process: packing, parts of batches, files, refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mgb
import mgb.distributed as dist
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mgb.distributed import communicator
from mgb.distributed.communicator import Communicator
from mgb.distributed.errors import CommunicatorError, LaunchError
from mgb.distributed.launcher import launcher, run
from mgb.errors import ShapeError
from mgb.runtime import entry_points

SHAPES = st.lists(st.lists(st.integers(0, 3), max_size=3).map(tuple), min_size=1, max_size=6)


@given(SHAPES, st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_param_pack_round_trip(shapes: list[tuple[int, ...]], gaps: list[int]) -> None:
    arrays = [np.random.default_rng(k).integers(0, 99, s).astype("int32") for k, s in enumerate(shapes)]
    offsets, wanted = [], np.zeros(0, "int32")
    for array, gap in zip(arrays, gaps, strict=False):
        wanted = np.concatenate([wanted, np.zeros(gap, "int32"), array.ravel()])
        offsets += [len(wanted) - array.size, len(wanted)]
    packed = dist.param_pack_concat([mgb.tensor(a) for a in arrays], mgb.tensor(offsets), offsets)
    np.testing.assert_array_equal(packed.numpy(), wanted)
    for array, found in zip(arrays, dist.param_pack_split(packed, offsets, shapes), strict=True):
        np.testing.assert_array_equal(found.numpy(), array, strict=True)
    assert dist.get_offsets(shapes)[1::2] == np.cumsum([a.size for a in arrays]).tolist()


def test_param_pack_rejects_mismatched_offsets_and_shapes() -> None:
    x = mgb.tensor(np.ones(4, "float32"))
    with pytest.raises(ShapeError, match="does not fit from 0 to 3"):
        dist.param_pack_concat([x], None, [0, 3])
    with pytest.raises(ShapeError):
        dist.param_pack_split(x, [0, 4], [(3,)])


def test_shard_save_and_load_in_one_process(tmp_path: Path) -> None:
    rows = np.arange(6)
    assert dist.shard(rows) is not rows and dist.shard(rows).tolist() == rows.tolist()
    data, labels = dist.shard(mgb.tensor(rows), rows)
    assert (data.numpy() == labels).all()
    with pytest.raises(ShapeError, match="gives no equal parts"):
        dist.shard(np.float32(1))
    dist.save({"x": data}, tmp_path / "file")
    assert (dist.load(tmp_path / "file")["x"].numpy() == rows).all()
    with pytest.raises(FileNotFoundError):
        dist.load(tmp_path / "none")


def test_launcher_rejects_unsupported_jobs() -> None:
    with pytest.raises(LaunchError, match=r"several machines by `mpiexec -n 8"):
        launcher(print, n_gpus=2, world_size=8)
    with pytest.raises(LaunchError, match="n_gpus must be at least 1"):
        launcher(print, n_gpus=0)
    with pytest.raises(LaunchError, match="its own launcher does"):
        Communicator.command(type("Silent", (), {"name": "silent"})(), 2, ["x.py"])  # type: ignore[arg-type]
    assert launcher(n_gpus=1)(print).__name__ == "print"


class Named(Communicator):
    """One that only says who it is."""

    devices, api_version = frozenset({"cpu"}), 1

    def __init__(self, name: str, extends: str = "", problem: str | None = None) -> None:
        self.name, self.extends, self.problem = name, extends, problem

    def probe(self) -> str | None:
        return self.problem

    def join(self, *_given: Any) -> Any: ...
    def group(self, ranks: Any) -> Any: ...
    def post(self, rank: int, note: bytes) -> None: ...
    def notes(self) -> list[tuple[int, bytes]]:
        return []

    def abort(self, code: int) -> None: ...


@pytest.mark.parametrize(
    ("others", "joins", "wanted"),
    [
        ([], True, "mpi"),
        ([Named("nccl", "mpi")], True, "nccl"),
        ([Named("nccl", "mpi", "there is no GPU")], True, "mpi"),
        ([Named("nccl", "mpi")], False, "mpi"),  # who only starts a job need not ask what it can
        ([Named("nccl", "gone")], True, None),
        ([Named("gloo")], True, None),
    ],
)
def test_extending_communicator_is_preferred_when_it_can_run(
    monkeypatch: pytest.MonkeyPatch, others: list[Named], joins: bool, wanted: str | None
) -> None:
    points = {
        c.name: {"made-up": SimpleNamespace(load=lambda c=c, **_: c, value=c.name)}
        for c in (Named("mpi"), *others)
    }
    monkeypatch.setattr(entry_points, "announced", lambda group: points)
    monkeypatch.delenv("MGB_DISTRIBUTED_BACKEND", raising=False)
    if wanted is None:
        with pytest.raises(CommunicatorError, match="several communicators: set MGB_DISTRIBUTED_BACKEND"):
            communicator.chosen(joins=joins)
    else:
        assert communicator.chosen(joins=joins).name == wanted
    assert communicator.chosen("mpi").name == "mpi"


@pytest.mark.parametrize(("program", "wanted"), [("", 9), ("open(path, 'x').write('75'); ", 75)])
def test_status_of_a_job_is_that_of_the_rank_that_ends_it(
    monkeypatch: pytest.MonkeyPatch, program: str, wanted: int
) -> None:
    """Whatever the launcher of the communicator reports of ranks that were killed then."""

    class Killed(Named):
        def command(self, number: int, program: Any) -> tuple[list[str], dict[str, str]]:
            return [sys.executable, "-c", *program], {}

    monkeypatch.setattr(sys.modules["mgb.distributed.launcher"], "chosen", lambda *_, **__: Killed("mpi"))
    text = f"import os, sys; path = os.environ['MGB_DISTRIBUTED_STATUS']; {program}sys.exit(9)"
    assert run(2, [text]) == wanted
    assert run(2, [text.replace("9", "0")]) == 0
