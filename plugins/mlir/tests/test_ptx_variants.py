"""Every way in which threads may share the work, forced by sizes and by the device, against NumPy."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

pytest.importorskip("torch_mlir", reason="MLIR is not installed: pip install torch-mlir==20261001")
pytest.importorskip("mgb_mlir", reason="the plugin is not installed: pip install ./plugins/mlir")
pytest.importorskip("llvmlite", reason="what makes PTX is not installed: pip install llvmlite")
pytest.importorskip("mgb_cuda", reason="what launches kernels is not installed: pip install ./plugins/cuda")

from mgb_cuda.testing import variants
from mgb_cuda.testing.geometries import GEOMETRIES
from mgb_cuda.testing.programs import KINDS, total
from ptx_host import BENCH


class TestGeometry(variants.Geometries):
    bench = BENCH
    staying = frozenset()  # one pass finds all folds, and the others are longer than registers
    tables: ClassVar = {
        "geometry": GEOMETRIES,
        "narrow": ["a block", "one odd row", "few long rows", "columns", "both ends"],
        "most": [128, 32],
    }

    def tells(self, name: str, function: Any) -> bool:
        return function is not total or "stay" not in name


class TestLayouts(variants.Layouts):
    bench = BENCH
    unaligned = "lanes", {1, 4}


class TestOnline(variants.Online):
    bench = BENCH
    tables: ClassVar = {"rows": KINDS, "columns": KINDS, "shared": ["plain", "far from 0", "special"]}
