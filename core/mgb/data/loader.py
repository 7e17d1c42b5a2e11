"""`DataLoader`: batches of a data set, made ahead by workers."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from typing import Any

import numpy as np

from ..errors import SampleError
from ..tensor import Tensor

Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class _Task:
    """The task of a worker: take samples and collate them."""

    dataset: Any
    collate: Collate

    def __call__(self, places: Sequence[int]) -> Any:
        samples = []
        for place in places:
            try:
                samples.append(self.dataset[place])
            except Exception as error:
                name = type(self.dataset).__name__
                raise SampleError(f"sample {place} of the {name}: {type(error).__name__}: {error}") from error
        try:
            return self.collate(samples)
        except Exception as error:
            listed = ", ".join(map(str, places[:8])) + (", ..." if len(places) > 8 else "")
            raise SampleError(
                f"samples {listed} do not make a batch: {type(error).__name__}: {error}; give collate_fn"
            ) from error


#: What a process works at; it is pickled once for each.
_task: _Task | None = None


def _begin(task: _Task) -> None:
    """Begin a task in a worker, which ignores interrupts: they are for the loop, which ends its workers."""
    global _task
    _task = task
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(places: Sequence[int]) -> Any:
    assert _task is not None
    return _task(places)


class DataLoader:
    """Batches of a data set, in an order that is reshuffled for each epoch.

    Parameters
    ----------
    dataset : object with ``len`` and ``[place]``
        A list, an array, or a class with ``__len__`` and ``__getitem__``, such as one of PyTorch's.
    batch_size : int
    shuffle : bool
        Another order in each epoch, by `seed` and `epoch` alone.
    seed : int
    drop_last : bool
        Leave the samples out that do not fill a batch.
    collate_fn : callable, optional
        Makes a batch of a list of samples. By default `collate`, and arrays become Tensors.
    num_workers : int
        How many make batches ahead; 0: the loop itself makes each when it is wanted.
    prefetch_factor : int
        How many batches each worker is ahead.
    processes : bool
        Workers are processes, for samples that Python computes; else threads, which NumPy and files let run.
        The data set is pickled, once for each, and a script needs ``if __name__ == "__main__":``.
    progress : bool or str
        Show a progress bar, under this text.

    Attributes
    ----------
    epoch : int
        The next one; set it to repeat or skip some.

    Raises
    ------
    SampleError
        In the loop: a sample failed; it says which, and the error is its cause.

    Examples
    --------
    >>> from mgb.data import DataLoader
    >>> loader = DataLoader([(i, i * i) for i in range(5)], batch_size=2)
    >>> [squares.tolist() for _, squares in loader]
    [[0, 1], [4, 9], [16]]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        collate_fn: Collate | None = None,
        num_workers: int = 0,
        prefetch_factor: int = 2,
        processes: bool = False,
        progress: bool | str = False,
    ) -> None:
        for name, count, least in (("batch_size", batch_size, 1), ("num_workers", num_workers, 0)):
            if not isinstance(count, int) or count < least:
                raise ValueError(f"DataLoader: {name} = {count!r} is not a whole number >= {least}")
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            kind = type(dataset).__name__
            raise TypeError(f"DataLoader: a {kind} has no length or no samples by place: make a list of it")
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0
        self.num_workers, self.prefetch_factor = num_workers, max(1, prefetch_factor)
        self.processes, self.progress = processes, progress
        self.collate_fn = collate_fn

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + bool(rest and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        order = np.arange(len(self.dataset))
        if self.shuffle:
            order = np.random.default_rng((self.seed, self.epoch)).permutation(order)
        self.epoch += 1
        chosen = [order[i * self.batch_size : (i + 1) * self.batch_size].tolist() for i in range(len(self))]
        made = self._made(chosen)
        batches = made if self.collate_fn else map(as_tensors, made)
        return self._shown(batches) if self.progress else iter(batches)

    def _made(self, chosen: Sequence[Sequence[int]]) -> Iterator[Any]:
        task = _Task(self.dataset, self.collate_fn or collate)
        return self._ahead(task, chosen) if self.num_workers else map(task, chosen)

    def _ahead(self, task: _Task, chosen: Sequence[Sequence[int]]) -> Iterator[Any]:
        """Yield the batches in order, made by workers.

        Whatever ends the loop, nobody goes on working for it.
        """
        workers: Executor
        if self.processes:
            workers, work = (
                ProcessPoolExecutor(self.num_workers, get_context("spawn"), _begin, (task,)),
                _work,
            )
        else:
            workers, work = ThreadPoolExecutor(self.num_workers, "mgb-data"), task
        todo, waiting = iter(chosen), deque[Future[Any]]()
        try:
            for places in islice(todo, self.num_workers * self.prefetch_factor):
                waiting.append(workers.submit(work, places))
            while waiting:
                batch = waiting.popleft().result()
                for places in islice(todo, 1):
                    waiting.append(workers.submit(work, places))
                yield batch
        finally:
            workers.shutdown(wait=False, cancel_futures=True)

    def _shown(self, batches: Iterator[Any]) -> Iterator[Any]:
        from rich.progress import track

        text = self.progress if isinstance(self.progress, str) else f"epoch {self.epoch - 1}"
        return iter(track(batches, text, total=len(self)))

    def __repr__(self) -> str:
        shuffled = f", shuffle=True, seed={self.seed}" if self.shuffle else ""
        return (
            f"DataLoader({type(self.dataset).__name__} of {len(self.dataset)}, "
            f"batch_size={self.batch_size}{shuffled}, {len(self)} batches)"
        )


def collate(samples: list[Any]) -> Any:
    """Stack samples into one batch: arrays, Tensors and numbers are stacked, strings stay a list.

    Parameters
    ----------
    samples : list
        Of the same structure, nests of tuples, lists and dicts.

    Returns
    -------
    nest of ndarray

    Examples
    --------
    >>> from mgb.data import collate
    >>> collate([(1, "one"), (2, "two")])
    (array([1, 2]), ['one', 'two'])
    """
    first = samples[0]
    if isinstance(first, Mapping):
        return {key: collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*map(collate, map(list, zip(*samples, strict=True))))
    if isinstance(first, tuple | list):
        return type(first)(collate(list(parts)) for parts in zip(*samples, strict=True))
    if isinstance(first, str | bytes) or first is None:
        return samples
    return np.stack([np.asarray(sample) for sample in samples])


def as_tensors(batch: Any) -> Any:
    """Return a nest in which arrays are Tensors."""
    if isinstance(batch, np.ndarray):
        return Tensor(batch)
    if isinstance(batch, dict):
        return {key: as_tensors(part) for key, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(as_tensors, batch))
    return type(batch)(map(as_tensors, batch)) if isinstance(batch, tuple | list) else batch
