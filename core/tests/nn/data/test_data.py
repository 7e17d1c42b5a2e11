"""The digits and their batches."""

from __future__ import annotations

import hashlib
from pathlib import Path

import mgb.data
import numpy as np
import pytest
from mgb.data import batches, load_digits


def test_digits_shapes_and_ranges():
    train_images, train_labels, test_images, test_labels = load_digits()
    assert train_images.shape == (1437, 1, 8, 8)
    assert test_images.shape == (360, 1, 8, 8)
    for images, labels in ((train_images, train_labels), (test_images, test_labels)):
        assert images.dtype == np.float32
        assert labels.dtype == np.int32
        assert labels.shape == (len(images),)
        assert (images.min(), images.max()) == (0.0, 1.0)
        assert set(labels.tolist()) == set(range(10))


def test_class_counts_match_the_published_data_set():
    """The counts of the digits in the data set's own description (optdigits.names, testing)."""
    _, train, _, test = load_digits()
    counts = np.bincount(np.concatenate([train, test]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_split_is_reproducible():
    first, second = load_digits(), load_digits()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    digest = hashlib.sha256(b"".join(a.tobytes() for a in first)).hexdigest()
    assert digest.startswith("ecf1b4ce0035d58b")


def test_nearest_neighbour_recognises_the_digits():
    """Images and labels belong together: the nearest training image has the right label nearly always."""
    train_images, train_labels, test_images, test_labels = load_digits()
    train, test = train_images.reshape(-1, 64), test_images.reshape(-1, 64)
    distance = (train**2).sum(1) - 2 * test @ train.T
    assert (train_labels[distance.argmin(1)] == test_labels).mean() > 0.97


def test_licence_is_shipped():
    text = Path(mgb.data.__file__).with_name("DIGITS_LICENSE.md").read_text()
    assert "CC BY 4.0" in text
    assert "Alpaydin" in text


@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_visit_samples_once(drop_last):
    images, labels = np.arange(10.0)[:, None], np.arange(10)
    found = list(batches(images, labels, 4, seed=1, drop_last=drop_last))
    assert [len(y) for _, y in found] == ([4, 4] if drop_last else [4, 4, 2])
    for x, y in found:
        np.testing.assert_array_equal(x[:, 0], y)
    seen = [n for _, y in found for n in y]
    assert len(set(seen)) == len(seen)


def test_batches_depend_on_the_seed_only():
    labels = np.arange(100)

    def order(seed):
        return np.concatenate([y for _, y in batches(labels, labels, 10, seed)]).tolist()

    assert order(3) == order(3) != order(4)
    assert order(3) != labels.tolist()


def test_batches_rejects_bad_arguments():
    with pytest.raises(ValueError, match="3 images and 2 labels"):
        batches(np.zeros(3), np.zeros(2), 1, 0)
    with pytest.raises(ValueError, match="batch_size"):
        batches(np.zeros(3), np.zeros(3), 0, 0)
