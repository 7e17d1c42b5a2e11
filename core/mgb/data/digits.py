"""The handwritten digits of the UCI repository: small enough to ship, real enough to learn from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_FILE = Path(__file__).with_name("digits.npz")
_TEST_IMAGES = 360
_SPLIT_SEED = 0


def load_digits() -> tuple[Array, Array, Array, Array]:
    """Return 1,797 images of handwritten digits, 8 by 8 pixels, split in a way that never changes.

    Returns
    -------
    train_images : float32 array of shape (1437, 1, 8, 8)
        From 0, paper, to 1, ink.
    train_labels : int32 array of shape (1437,)
    test_images : float32 array of shape (360, 1, 8, 8)
    test_labels : int32 array of shape (360,)

    Notes
    -----
    E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository,
    1998, https://doi.org/10.24432/C50P49, CC BY 4.0; see ``DIGITS_LICENSE.md`` beside this file.

    Examples
    --------
    >>> from mgb.data import load_digits
    >>> images, labels, test_images, test_labels = load_digits()
    >>> images.shape, test_labels.shape
    ((1437, 1, 8, 8), (360,))
    """
    with np.load(_FILE) as stored:
        images = stored["images"].astype(np.float32)[:, None] / np.float32(16)
        labels = stored["labels"].astype(np.int32)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(images))
    test, train = order[:_TEST_IMAGES], order[_TEST_IMAGES:]
    return images[train], labels[train], images[test], labels[test]


def batches(
    images: Array, labels: Array, batch_size: int, seed: int, drop_last: bool = True
) -> Iterator[tuple[Array, Array]]:
    """Return one epoch in shuffled batches; the same seed gives the same order.

    Parameters
    ----------
    images, labels : array
        Of the same length.
    batch_size : int
        At least 1.
    seed : int
        Another one for each epoch, as a rule.
    drop_last : bool
        Leave the images out that do not fill a batch.

    Raises
    ------
    ValueError
        The lengths differ, or `batch_size` is less than 1.

    Examples
    --------
    >>> from mgb.data import batches
    >>> [len(y) for x, y in batches(np.ones((10, 2)), np.arange(10), batch_size=4, seed=0, drop_last=False)]
    [4, 4, 2]
    """
    if len(images) != len(labels):
        raise ValueError(f"there are {len(images)} images and {len(labels)} labels")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    return _batches(images, labels, batch_size, seed, drop_last)


def _batches(
    images: Array, labels: Array, batch_size: int, seed: int, drop_last: bool
) -> Iterator[tuple[Array, Array]]:
    order = np.random.default_rng(seed).permutation(len(images))
    stop = len(order) - len(order) % batch_size if drop_last else len(order)
    for start in range(0, stop, batch_size):
        chosen = order[start : start + batch_size]
        yield images[chosen], labels[chosen]
