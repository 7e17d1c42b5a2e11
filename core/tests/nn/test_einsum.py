"""`einsum` against NumPy's, on equations and lengths drawn at random, axes of length 1 and 0 among them."""

from __future__ import annotations

import random

import mgb
import mgb.functional as F
import numpy as np
import pytest
from mgb.errors import ShapeError
from mgb.jit import trace

ROW, ROWS = np.arange(4, dtype=np.float32)[None], np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("call", [F.einsum, np.einsum, trace(F.einsum)])
def test_einsum_takes_a_first_operand_with_an_axis_of_length_one(call):
    got = call("ij,kj->ik", mgb.tensor(ROW), mgb.tensor(ROWS))
    np.testing.assert_array_equal(np.asarray(got), ROW @ ROWS.T)


def test_einsum_sums_an_axis_of_length_one_over_the_places_of_the_other_operand():
    a, b = ROWS[:, :1], ROWS.T[:1]  # (3, 1) and (1, 3): their products of lengths are alike
    for equation in ("jk,jk->", "jk,jk->j", "jk,jk->jk"):
        got = F.einsum(equation, mgb.tensor(a), mgb.tensor(b)).numpy()
        np.testing.assert_array_equal(got, np.einsum(equation, a, b))


@pytest.mark.parametrize("equation", ["ij,kj->ik", "ij,ij->ij", "ij,ij->"])
def test_einsum_refuses_lengths_that_differ_and_names_the_letters(equation):
    with pytest.raises(ShapeError, match=r"einsum: the lengths of \[.*'j'.*\] differ: \(3, 4\) and \(3, 5\)"):
        F.einsum(equation, F.zeros((3, 4)), F.zeros((3, 5)))


def test_einsum_gives_what_numpy_gives_for_random_equations():
    draw, rng = random.Random(0), np.random.default_rng(0)
    for _ in range(200):
        terms = ["".join(draw.sample("ijkl", draw.randint(0, 3))) for _ in range(draw.randint(1, 3))]
        letters = sorted(set("".join(terms)))
        length = {c: draw.choice([0, 1, 2, 3]) for c in letters}
        arrays = [rng.normal(size=[draw.choice([1, length[c]]) for c in t]).astype("f4") for t in terms]
        equation = f"{','.join(terms)}->{''.join(draw.sample(letters, draw.randint(0, len(letters))))}"
        got = F.einsum(equation, *map(mgb.tensor, arrays)).numpy()
        np.testing.assert_allclose(got, np.einsum(equation, *arrays), atol=1e-4, err_msg=equation)
