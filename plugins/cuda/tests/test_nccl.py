"""NCCL's communicator: the conformance suite's exchanges, and training, with a stand-in for CuPy and NCCL."""

from __future__ import annotations

import inspect
import sys
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest
from mgb_conformance.jobs import HEAD, start
from mgb_conformance.ranks import CASES

HERE = str(Path(__file__).parent)
ON_STANDIN = f"""
import sys
sys.path.insert(0, {HERE!r})
import standin_nccl
standin_nccl.install()
"""
#: Arrays of the host go over MPI, whose own tests try that.
CASES_ON_GPU = """
import mgb_cuda.nccl
mgb_cuda.nccl.communicator.devices = frozenset({"gpu"})
from mgb_conformance.ranks import main
main(sys.argv[1])
"""


@pytest.fixture(autouse=True)
def needed() -> None:
    """Skip where no job can be started."""
    if not all(map(find_spec, ("mgb_mpi", "mpi4py", "mpich"))) and find_spec("mpi4py") is None:
        pytest.skip('not installed: pip install ./plugins/mpi "mpich>=5"')
    if "nccl" not in {point.name for point in entry_points(group="mgb.communicators")}:
        pytest.skip("not announced: pip install ./plugins/cuda")


@cache
def written(ranks: int, folder: Path) -> dict[int, str]:
    """Return the log of each process that tries all cases on arrays of a GPU."""
    program = folder / "program.py"
    program.write_text(ON_STANDIN + CASES_ON_GPU)
    _, said = start(folder, ranks, [str(program), str(folder)], 120, "nccl")
    files = {r: folder / f"rank-{r}" for r in range(ranks)}
    return {r: file.read_text() if file.exists() else f"nothing:\n{said}" for r, file in files.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the job of all cases works."""
    return tmp_path_factory.mktemp("nccl")


@pytest.mark.slow  # exchanges by files take their time
@pytest.mark.parametrize("name", CASES)
def test_each_exchange_completes_on_every_rank(folder: Path, name: str) -> None:
    for rank, text in written(2, folder).items():
        told = text.partition(f"begin {name}\n")[2] or f"not tried. It has written {text}"
        assert f"end {name}\n" in text, f"rank {rank}: {told}"


TRAINING = """
from mgb.autodiff import GradManager
import mgb.optimizer as optim
rows = np.random.default_rng(1).normal(size=(4, 3)).astype("f4")
w = mgb.Parameter(np.ones(3, "f4"))  # on the GPU that init_process_group was given
dist.bcast_list_([w])
gm = GradManager().attach(w, callbacks=dist.make_allreduce_cb("mean"))
opt = optim.SGD([w], lr=0.1)
@trace(backend="EAGER")
def step(x):
    with gm:
        gm.backward(((x @ w) ** 2).mean())
        opt.step().clear_grad()
for _ in range(4):
    step(dist.shard(mgb.tensor(rows, device="gpu0")))
wanted = np.ones(3)
for _ in range(4):
    wanted -= 0.1 * 2 * rows.T @ (rows @ wanted) / len(rows)
np.testing.assert_allclose(w.numpy(), wanted, rtol=1e-5)
x = mgb.tensor(np.array([r, -r, np.nan if r else 1], "f4"))
np.testing.assert_array_equal(D.all_reduce_max(x).numpy(), [1, 0, np.nan])
assert D.all_reduce_max(x).device == "gpu0:0"
np.testing.assert_array_equal(D.all_gather(x).numpy(), [0, 0, 1, 1, -1, np.nan])
np.testing.assert_array_equal(D.all_to_all(x[:2]).numpy(), [r and -0.0, -1] if r else [0, 1])
if r == 0:
    D.remote_send(x, 1)
else:
    np.testing.assert_array_equal(D.remote_recv(0, inp=x).numpy(), [0, 0, 1])
dist.group_barrier()
print(f"done {dist.get_backend()}\\n", end="", flush=True)
"""


def test_training_and_ops_on_the_stand_in_gpu(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(ON_STANDIN + HEAD.replace("group()", "group(device=0)") + TRAINING)
    status, said = start(tmp_path, 2, [str(program)])  # NCCL goes before MPI, which it extends
    assert (status, said.count("done nccl")) == (0, 2), said


def test_stand_in_matches_the_cupy_nccl_interface() -> None:
    if find_spec("cupy") is None:
        pytest.skip("CuPy is not installed: pip install cupy-cuda12x nvidia-nccl-cu12")
    from cupy.cuda import nccl

    if not nccl.available:
        pytest.skip("NCCL is not installed: pip install nvidia-nccl-cu12")
    sys.path.insert(0, HERE)
    import standin_nccl

    for name, function in inspect.getmembers(standin_nccl.NcclCommunicator, inspect.isfunction):
        if name.startswith("_"):
            continue
        theirs = getattr(nccl.NcclCommunicator, name).__doc__.partition("\n")[0]
        words = [w.split("=")[0].split()[-1] for w in theirs.partition("(")[2].rstrip(")").split(",")]
        assert words == list(inspect.signature(function).parameters), theirs
    for name, (code, _) in (*standin_nccl.DTYPES.items(), *standin_nccl.OPERATIONS.items()):
        assert getattr(nccl, name) == code, name
    assert isinstance(nccl.get_unique_id(), bytes)
