"""How ONNX files are told from others, and the package as the core finds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mgb
import numpy as np
import onnx
import onnx_models as models
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mgb.errors import FileFormatError
from mgb.jit import load, trace
from mgb.storage import formats
from mgb_onnx import Onnx

MODELS = [models.simple(), models.branches(), models.loop(), models.residual_network()]

FOREIGN = [
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    b"\xff\xd8\xff",
    b"BM" + bytes(range(200)),
    b"\x7fELF\2\1\1" + bytes(9),
    b"\x93NUMPY\1\0v\0{'descr': '<f4'",
    b"a text of some words",
    b'{"json": [1, 2]}',
    b"(a list, that begins as a number of a field would)",
    b"",
]


def test_core_finds_the_onnx_format() -> None:
    assert "onnx" in formats.installed()
    assert isinstance(formats.load_format("onnx", "f.onnx"), Onnx)


@given(st.sampled_from(MODELS), st.floats(0, 1, exclude_min=True))
def test_truncated_model_is_recognized(data: bytes, part: float) -> None:
    assert Onnx().recognizes(data[: max(1, round(part * len(data)))])


def test_model_with_every_field_is_recognized() -> None:
    model = onnx.load_from_string(models.simple())
    model.ir_version, model.model_version = 1 << 40, -1
    model.producer_name, model.producer_version, model.domain, model.doc_string = "p" * 300, "1", "d", "text"
    model.metadata_props.add(key="k", value="v")
    model.functions.add(name="f", domain="d")
    model.training_info.add()
    assert Onnx().recognizes(model.SerializeToString())


@pytest.mark.parametrize("data", FOREIGN, ids=range(len(FOREIGN)))
def test_other_files_are_not_recognized(data: bytes) -> None:
    assert not Onnx().recognizes(data)
    with pytest.raises(FileFormatError):
        load(data)


def test_file_may_have_any_name(tmp_path: Path) -> None:
    """MegEngine's users call them ``NAME.mge``."""
    double = trace(lambda x: x * 2.0, capture_as_const=True)
    double(mgb.tensor([1.0, 2.0]))
    for name in ("double.mge", "double", "double.ONNX"):
        double.dump(tmp_path / name)
        onnx.checker.check_model(onnx.load_from_string((tmp_path / name).read_bytes()))
        np.testing.assert_array_equal(load(tmp_path / name)(np.ones(2, np.float32)).numpy(), [2, 2])


def test_missing_onnx_package_error_names_the_install_command(tmp_path: Path) -> None:
    (tmp_path / "f.onnx").write_bytes(models.simple())
    program = (
        "import sys; sys.modules['onnx'] = None; from mgb.tools import cli; sys.exit(cli.main(sys.argv[1:]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, "run", "f.onnx"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ, "MGB_CACHE": "0"},
    )  # fmt: skip
    assert run.returncode == 2, run.stderr
    assert "f.onnx: the plugin of the format 'onnx' (mgb-onnx)" in run.stderr
    assert 'pip install "mgb[onnx]"' in run.stderr


def test_onnx_is_not_imported_without_onnx_files() -> None:
    program = (
        "import sys, mgb\n"
        "from mgb import jit\n"
        "f = jit.trace(lambda x: x * 2, backend='eager')\n"
        "f(mgb.tensor([1.0]))\n"
        "sys.exit(len({'onnx', 'mgb_onnx'} & sys.modules.keys()))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
