"""The layers of verification take what is right, and each catches what it is for."""

from __future__ import annotations

import pytest
from mgb_cuda import sass
from mgb_cuda.testing import host, stub
from mgb_nvrtc import compiler
from nvrtc_layers import LAYERS, PROGRAMS
from nvrtc_mutants import MUTANTS, caught, changed, text_of

MISSING = compiler.missing() or host.missing() or stub.missing() or sass.missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

#: Of each layer one that is made here; all are in the long tier.
QUICK = {layer: next(k for k, m in enumerate(MUTANTS) if m.layer == layer) for layer in LAYERS}

RIGHT = [("device", ""), ("image", "fma"), ("joined", ""), ("chained", ""), *(("host", p) for p in PROGRAMS)]


@pytest.mark.parametrize(("layer", "subject"), RIGHT, ids=lambda x: x.replace(" ", "_"))
def test_correct_code_passes_every_layer(layer: str, subject: str) -> None:
    LAYERS[layer](subject)


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(k, id=f"{m.layer}-{k}", marks=[] if k in QUICK.values() else [pytest.mark.slow])
        for k, m in enumerate(MUTANTS)
    ],
)
def test_mutant_is_caught(number: int) -> None:
    assert caught(number), MUTANTS[number]


def test_each_mutant_applies_to_its_module() -> None:
    for mutant in MUTANTS:
        changed(mutant, text_of(mutant.module))


def test_mutants_cover_every_module() -> None:
    assert len(MUTANTS) >= 40
    for module in ("prelude", "mgb_nvrtc.printer", "mgb_cuda.geometry", "mgb_cuda.launch"):
        assert any(m.module == module for m in MUTANTS)
