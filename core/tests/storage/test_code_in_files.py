"""Machine code in a file runs by leave only, whatever the file is called and whichever way it is read."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mgb
import numpy as np
import pytest
from mgb import jit
from mgb.backends import ALL_DTYPES, Backend, Kernel, Scope, Traits
from mgb.errors import CompiledFileError, FileFormatError, MgbError
from mgb.jit import trace
from mgb.tools.cli import main
from mgb.utils.comp_graph_tools import GraphInference

X = np.linspace(-2, 2, 8, dtype=np.float32)


class Witness(Backend):
    """A backend whose compiled code, when it is loaded, says that it was."""

    name = "witness"
    traits = Traits(frozenset({"add"}), dtypes=ALL_DTYPES, scope=Scope.GRAPH, min_ops=1, api_version=1)
    loaded: list[bytes]

    def __init__(self) -> None:
        self.loaded = []

    def compile(self, graph: Any) -> Kernel:
        def run(*arrays: Any, out: tuple[Any, ...]) -> None:
            (out[0][...],) = graph.fold(lambda node, *xs: np.add(*xs), arrays)

        return Kernel(run, source="code of a witness")

    def target(self) -> str:
        return "a machine of its own"

    def save(self, kernel: Kernel) -> bytes:
        return b"code of a witness"

    def load(self, graph: Any, blob: bytes) -> Kernel:
        self.loaded.append(blob)
        return self.compile(graph)


@pytest.fixture
def witness(monkeypatch: pytest.MonkeyPatch, kernel_folder: None) -> Iterator[Witness]:
    backend = Witness()
    monkeypatch.setattr("mgb.plugins.check_names", lambda names: None)
    monkeypatch.setattr("mgb.plugins.import_backend", lambda name: backend)
    monkeypatch.setattr("mgb.plugins.choose_backend", lambda *_: backend)
    monkeypatch.setattr("mgb.executor.kernels.cache.load", lambda *_: None)
    yield backend


@pytest.fixture
def file(witness: Witness, tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    trace(lambda x: x + x, backend="witness").export(path, "f32[8]")
    witness.loaded.clear()
    return path


READERS: dict[str, Callable[[Path], Any]] = {
    "path": jit.load,
    "text": lambda path: jit.load(str(path)),
    "file object": lambda path: jit.load(io.BytesIO(path.read_bytes())),
    "bytes": lambda path: jit.load(path.read_bytes()),
    "outputs": jit.load_outputs,
    "GraphInference": GraphInference,
    "leave by the wrong name": lambda path: jit.load(path, allow_code=True),
    "eager": lambda path: jit.load(path, "eager"),
}


@pytest.mark.parametrize("name", ["model.onnx", "model.mgb", "model", "model.npz"])
@pytest.mark.parametrize("how", READERS)
def test_compiled_file_is_rejected_whatever_its_name(
    how: str, name: str, file: Path, witness: Witness
) -> None:
    renamed = file.rename(file.with_name(name))
    with pytest.raises(CompiledFileError, match=r"mgb\.jit\.load_compiled") as caught:
        READERS[how](renamed)
    assert isinstance(caught.value, FileFormatError) and not witness.loaded


def test_other_readers_reject_compiled_files(file: Path, witness: Witness) -> None:
    with pytest.raises(MgbError):
        mgb.load(file)
    np.savez(file.with_name("x.npz"), X)
    assert main(["run", str(file.with_name("x.npz")), "--input", f"x={file}"]) == 2
    assert not witness.loaded


def test_load_compiled_warns_before_loading_machine_code(
    file: Path, witness: Witness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    load = Witness.load
    monkeypatch.setattr(
        Witness, "load", lambda *args: [said.extend(r.message for r in caplog.records), load(*args)][-1]
    )
    function = jit.load_compiled(file)
    np.testing.assert_array_equal(function(X).numpy(), X + X)
    (line,) = said
    assert str(file) in line and "'witness'" in line and "a machine of its own" in line and "\n" not in line
    assert witness.loaded == [b"code of a witness"] and caplog.records[0].levelno == logging.WARNING


def test_load_warning_describes_the_target_readably(
    file: Path, witness: Witness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target in JSON, with every instruction that the processor has."""
    needs = {"package": "1.2", "machine": "x86_64", "instructions": ["sse", "avx2"] * 50}
    for told, words in ((json.dumps(needs), "package 1.2, machine x86_64"), ("sm_90\n" * 200, "sm_90 sm_90")):
        monkeypatch.setattr(Witness, "target", lambda _self, told=told: told)
        trace(lambda x: x + x, backend="witness").export(file, "f32[8]")
        caplog.clear()
        jit.load_compiled(file)
        (line,) = (record.message for record in caplog.records)
        assert words in line and str(file) in line and "'witness'" in line
        assert not set(line) & set('{}["\n') and len(line) < 250 + len(str(file))


def test_eager_load_of_a_compiled_file_logs_no_warning(
    file: Path, witness: Witness, caplog: pytest.LogCaptureFixture
) -> None:
    jit.load_compiled(file, backend="eager")
    assert not caplog.records and not witness.loaded


def test_run_command_requires_allow_code(
    file: Path, witness: Witness, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(file.with_name("x.npy"), X)
    arguments = ["run", str(file), "--input", f"x={file.with_name('x.npy')}"]
    for more in ([], ["--backend", "eager"], ["--check"]):
        assert main([*(arguments[:2] if more == ["--check"] else arguments), *more]) == 2
        assert "--allow-code" in capsys.readouterr().err and not witness.loaded
    assert main([*arguments, "--allow-code"]) == 0
    assert witness.loaded and "float32[8]" in capsys.readouterr().out


def test_allow_code_does_not_treat_models_as_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mgb_onnx", reason="not installed: pip install ./plugins/onnx")
    function = trace(lambda x: x + x, capture_as_const=True)
    function(mgb.tensor(X))
    function.dump(tmp_path / "model.mgb", arg_names=["x"], output_names=["y"])
    np.save(tmp_path / "x.npy", X)
    arguments = ["run", str(tmp_path / "model.mgb"), "--input", f"x={tmp_path}/x.npy", "--allow-code"]
    assert main(arguments) == 0 and "y: float32[8]" in capsys.readouterr().out
    with pytest.raises(FileFormatError, match=r"mgb\.jit\.load reads models"):
        jit.load_compiled(tmp_path / "model.mgb")
    with pytest.raises(FileFormatError, match="takes the path of a file"):
        jit.load_compiled(io.BytesIO(b""))  # type: ignore[arg-type]


def test_explain_and_profile_accept_only_python_files(tmp_path: Path) -> None:
    for name in ("model.onnx", "model.so", "model.pyc", "model"):
        (tmp_path / name).write_bytes(b"\x7fELF")
        for command in ("explain", "profile"):
            assert main([command, f"{tmp_path / name}:f", "--shapes", "f32[2]"]) == 2


def test_compiled_file_renamed_to_onnx_is_not_executed(tmp_path: Path) -> None:
    """Each byte of its code is a trap, and the checksums are right."""
    pytest.importorskip("mgb_cpu_llvm", reason="a backend that saves machine code")
    program = """if True:
        import json, struct, sys, zlib
        import mgb, mgb.functional as F
        from mgb import jit
        jit.trace(lambda x: F.exp(x) + 1, backend="cpu_llvm").export("f.mgb", "f32[8]")
        data = open("f.mgb", "rb").read()
        magic, version, _, length, size = struct.unpack_from("<8sIIQQ", data)
        header, blobs = json.loads(data[32 : 32 + length]), bytearray(data[32 + length :])
        for _, number in header["content"]["program"]["kernels"]:
            start, count, _ = header["blobs"][number]
            code = bytearray(blobs[start : start + count])
            where = code.index(b"\\x7fELF") if b"\\x7fELF" in code else 0
            code[where + 64 :] = b"\\xcc" * (len(code) - where - 64)
            blobs[start : start + count] = code
            header["blobs"][number][2] = zlib.crc32(code)
        text = json.dumps(header).encode()
        text += b" " * (-(32 + len(text)) % 64)
        head = struct.pack("<8sIIQQ", magic, version, zlib.crc32(text), len(text), size)
        open("model.onnx", "wb").write(head + text + blobs)
        try:
            jit.load("model.onnx")
        except mgb.errors.FileFormatError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ, "MGB_CACHE": "0"},
    )  # fmt: skip
    assert done.returncode == 0 and "load_compiled" in done.stdout, done.stderr
