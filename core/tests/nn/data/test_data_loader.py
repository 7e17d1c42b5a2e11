"""DataLoader: every sample once, in the order that PyTorch's gives, whoever makes the batches."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import mgb.module as M
import mgb.optimizer as optim
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mgb.autodiff import GradManager
from mgb.data import DataLoader, load_digits
from mgb.errors import SampleError
from mgb.jit import trace
from sample_sets import Squares


def wait_for_workers(before: int) -> None:
    """Return when a loader's threads have ended; one of the interpreter's pool may stay."""
    while threading.active_count() > before + 1:
        time.sleep(0.01)


@given(
    length=st.integers(0, 30),
    size=st.integers(1, 8),
    shuffle=st.booleans(),
    drop=st.booleans(),
    workers=st.integers(0, 3),
)
def test_every_sample_is_loaded_once(length: int, size: int, shuffle: bool, drop: bool, workers: int) -> None:
    loader = DataLoader(list(range(length)), size, shuffle, 7, drop, num_workers=workers)
    for _ in range(2):
        batches = [batch.tolist() for batch in loader]
        assert len(batches) == len(loader)
        assert [len(b) for b in batches[:-1]] == [size] * (len(batches) - 1)
        seen = [place for batch in batches for place in batch]
        kept = length - length % size if drop else length
        assert len(seen) == kept and len(set(seen)) == kept and set(seen) <= set(range(length))
        assert shuffle or seen == list(range(kept))


def test_shuffle_order_depends_on_seed_and_epoch() -> None:
    def orders(seed: int) -> list[list[int]]:
        loader = DataLoader(range(50), 50, shuffle=True, seed=seed)
        return [next(iter(loader)).tolist() for _ in range(3)]

    first, again, other = orders(1), orders(1), orders(2)
    assert first == again and len({tuple(order) for order in [*first, *other]}) == 6
    loader = DataLoader(range(50), 50, shuffle=True, seed=1)
    loader.epoch = 2
    assert next(iter(loader)).tolist() == first[2]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "processes": True}], ids=str)
def test_batches_match_torch(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    theirs = torch.utils.data.DataLoader(Squares(7), batch_size=3)
    ours = DataLoader(Squares(7), batch_size=3, **options)
    for mine, other in zip(ours, theirs, strict=True):
        assert type(mine["pair"]).__name__ == "Pair" and mine["name"] == other["name"]
        for got, want in ((mine["pair"].x, other["pair"].x), (mine["pair"].y, other["pair"].y)):
            assert isinstance(got, mgb.Tensor) and got.shape == tuple(want.shape)
            np.testing.assert_array_equal(got.numpy(), want.numpy())
        np.testing.assert_array_equal(mine["all"][0].numpy(), other["all"][0].numpy())


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "processes": True}], ids=str)
def test_error_reports_the_sample(options: dict[str, Any]) -> None:
    before = threading.active_count()
    loader, seen = DataLoader(Squares(20, wrong=11), 2, **options), []
    with pytest.raises(SampleError, match=r"sample 11 of the Squares: ValueError: no such image") as caught:
        for batch in loader:
            seen.append(batch["pair"].y.tolist())
    assert seen == [[i, i + 1] for i in range(0, 10, 2)]
    assert caught.value.__cause__ is not None
    wait_for_workers(before)


def test_ragged_samples_and_bad_arguments_are_rejected() -> None:
    ragged = [np.zeros(n) for n in (2, 3)]
    with pytest.raises(
        SampleError, match=r"samples 0, 1 do not make a batch: ValueError: .*; give collate_fn"
    ):
        list(DataLoader(ragged, 2))
    (batch,) = DataLoader(ragged, 2, collate_fn=lambda samples: [len(s) for s in samples])
    assert batch == [2, 3]
    for wrong in ({"batch_size": 0}, {"num_workers": -1}):
        with pytest.raises(ValueError, match=f"DataLoader: {next(iter(wrong))}"):
            DataLoader([1], **wrong)
    with pytest.raises(TypeError, match="a generator has no length or no samples"):
        DataLoader(i for i in range(3))


def test_abandoned_loop_stops_prefetching() -> None:
    asked, before = [], threading.active_count()

    class Noting(Squares):
        def __getitem__(self, place: int) -> Any:
            asked.append(place)
            return place

    for _ in DataLoader(Noting(1000), 1, num_workers=2, prefetch_factor=3):
        break
    wait_for_workers(before)
    assert len(asked) <= 8


def test_loader_prefetches_the_next_batch() -> None:
    arrived = threading.Event()

    class Waiting(Squares):
        def __getitem__(self, place: int) -> Any:
            if place == 1:
                arrived.set()
            return place

    batches = iter(DataLoader(Waiting(4), 1, num_workers=1))
    next(batches)
    assert arrived.wait(60)  # nobody has asked for the second yet


SLOW = """
import signal
import time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell runs in the background
from mgb.data import DataLoader

class Slow:
    def __len__(self):
        return 1000
    def __getitem__(self, place):
        time.sleep(0.05)
        return place

if __name__ == "__main__":
    for batch in DataLoader(Slow(), 1, num_workers=2, processes={processes}):
        print("batch", flush=True)
"""


@pytest.mark.parametrize("processes", [False, True])
def test_interrupt_ends_loop_and_workers(processes: bool, tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW.format(processes=processes))
    child = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "batch\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=120)
    assert child.returncode != 0 and errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1


def test_progress_and_repr(capsys: pytest.CaptureFixture[str]) -> None:
    loader = DataLoader(range(6), 2, shuffle=True, seed=3, progress="digits")
    assert len(list(loader)) == 3
    assert "digits" in capsys.readouterr().out
    assert repr(loader) == "DataLoader(range of 6, batch_size=2, shuffle=True, seed=3, 3 batches)"


def test_traced_step_accepts_loader_batches() -> None:
    images, labels, *_ = load_digits()
    samples = [(image.reshape(-1), int(label)) for image, label in zip(images[:256], labels)]
    mgb.random.seed(0)
    net = M.Linear(64, 10)
    manager, opt = GradManager().attach(net.parameters()), optim.Adam(net.parameters(), lr=1e-2)

    @trace
    def step(x, y):
        with manager:
            loss = F.loss.cross_entropy(net(x), y)
            manager.backward(loss)
            opt.step().clear_grad()
        return loss

    losses = []
    for _ in range(8):
        losses += [step(*batch).item() for batch in DataLoader(samples, 32, shuffle=True, num_workers=2)]
    assert losses[-1] < 0.5 * losses[0] and step.stats()["body_runs"] == 1
