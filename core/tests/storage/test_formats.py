"""How the format of a file is found, and what is said when it is not. Formats are made up on the fly."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoints
from pathlib import Path
from string import Template
from typing import Any

import mgb
import numpy as np
import pluggy
import pytest
from mgb import plugins
from mgb.errors import (
    ArgumentError,
    FileFormatError,
    FormatImportError,
    UnsupportedError,
)
from mgb.jit import load, load_outputs, trace
from mgb.runtime.entry_points import scanned
from mgb.storage import formats
from mgb.storage.model_file import DumpRequest, ModelSource
from mgb.tools.cli import main
from mgb.utils.comp_graph_tools import GraphInference

#: A file is the word ``times``, or another, and a number.
PLUGIN = """
from pathlib import Path
from mgb import dtypes
from mgb.errors import UnsupportedError, FileFormatError
from mgb.storage.model_file import DumpInfo, Format, Model, ValueSpec
from mgb.backends.plugins import hookimpl
import $helper

WRITTEN = []

class Times(Model):
    inputs = ValueSpec("x", dtypes.float32, ("n",)),
    outputs = ValueSpec("y", dtypes.float32, ("n",)),
    metadata, structure, device = {"by": "hand"}, "dict", "xpux:0"

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x * $helper.told(self.factor),

class Mine(Format):
    name = "$name"

    def recognizes(self, data):
        return data.startswith(b"$word")

    def read(self, source, outputs=None, device=None, limits=None):
        try:
            return Times(float(source.data.split()[1]))
        except ValueError as error:
            raise FileFormatError(f"the factor: {error}") from error

    def outputs(self, source):
        return Times.outputs

    def write(self, file, request, append=False):
        WRITTEN.append(request)
        if len(request.graph.nodes) > 2:
            raise UnsupportedError("a file holds one product")
        number = next(n.params["value"] for n in request.graph.nodes if n.op.name == "const")
        Path(file).write_text(f"$word {float(number)}")
        return DumpInfo(len(request.graph.nodes), 0, 4, 0, request.inputs, request.outputs, [])

@hookimpl
def mgb_format(name):
    return $gives
"""

X = np.arange(3, dtype=np.float32)


def _forget() -> None:
    for cached in (formats._imported, scanned):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A folder for distributions and files, and the plugin manager as it was, afterwards."""
    manager = pluggy.PluginManager("mgb")
    manager.add_hookspecs(plugins.Hooks)
    monkeypatch.setattr(plugins, "manager", manager)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made_up_helper.py").write_text(
        "calls = []\ndef told(x):\n    calls.append(x)\n    return x\n"
    )
    _forget()
    yield
    _forget()
    for module in [m for m in sys.modules if m.startswith("made_up_")]:
        del sys.modules[module]


@pytest.fixture
def distribution(tmp_path: Path) -> Callable[..., str]:
    """Install a made-up distribution with one format."""

    def install(name: str, source: str = PLUGIN, dist: str = "", **fields: str) -> str:
        dist = dist or f"made-up-{name}"
        module = dist.replace("-", "_")
        given = {"name": name, "word": name, "gives": "Mine()", "helper": "made_up_helper", **fields}
        (tmp_path / f"{module}.py").write_text(Template(source).substitute(given))
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[mgb.formats]\n{name} = {module}\n")
        _forget()
        return module

    return install


def doubled() -> Any:
    """A function that the formats here can write."""
    made = trace(lambda x: x * 2.0, capture_as_const=True)
    made(mgb.tensor(X))
    return made


# reading


def test_extension_selects_the_format_and_imports_only_its_plugin(
    distribution: Callable[..., str],
) -> None:
    first, second = distribution("first"), distribution("second")
    Path("model.SECOND").write_text("first 3")
    np.testing.assert_array_equal(load("model.SECOND")(X)["y"].numpy(), 3 * X)
    assert second in sys.modules and first not in sys.modules


@pytest.mark.parametrize("given", [Path, Path.read_bytes, lambda path: io.BytesIO(path.read_bytes())])
def test_content_selects_the_format_without_a_known_extension(
    given: Callable[[Path], Any], distribution: Callable[..., str]
) -> None:
    distribution("first")
    distribution("second")
    path = Path("model.mge")
    path.write_text("second 5")
    model = load(given(path))
    np.testing.assert_array_equal(model(x=X)["y"].numpy(), 5 * X)
    assert model.metadata == {"by": "hand"} and "x: float32[n]" in repr(model)
    assert [spec.name for spec in load_outputs(given(path))] == ["y"]
    if not isinstance(given(path), bytes):
        np.testing.assert_array_equal(GraphInference(given(path)).run(X)["y"], 5 * X)


def test_damaged_file_is_rejected_with_its_name(distribution: Callable[..., str]) -> None:
    distribution("first")
    Path("torn.first").write_text("first ?")
    with pytest.raises(FileFormatError, match=r"^torn\.first: the factor: "):
        load("torn.first")


@pytest.mark.parametrize("name", ["photo.jpg", "photo"])
def test_unknown_format_is_rejected_with_the_known_ones_listed(
    name: str, distribution: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution("first")
    Path(name).write_bytes(b"\xff\xd8\xff")
    with pytest.raises(FileFormatError, match=rf"^{name}: .*\.first"):
        load(name)
    monkeypatch.setitem(formats.EXTRAS, "far", "faraway")
    with pytest.raises(FileFormatError, match=r'\.far files: pip install "mgb\[faraway\]"'):
        load(name)


def test_empty_bytes_are_rejected() -> None:
    with pytest.raises(FileFormatError, match=r"^the model: neither"):
        load(b"")


def test_package_calls_of_a_model_do_not_rerun_the_body(distribution: Callable[..., str]) -> None:
    """What interprets a file is no code of the user's: nothing of it makes the body run again."""
    distribution("first")
    model = load(b"first 7")
    for _ in range(3):
        np.testing.assert_array_equal(model(X)["y"].numpy(), 7 * X)
    assert sys.modules["made_up_helper"].calls == [7.0]
    noted: list[float] = []
    around = trace(lambda x: (noted.append(1.0), model(x)["y"])[1])
    for _ in range(3):
        np.testing.assert_array_equal(around(mgb.tensor(X)).numpy(), 7 * X)
    assert len(noted) == 3, "after the model the body is watched as before"


# writing


def test_dump_and_load_round_trip(
    distribution: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    module = distribution("first")
    info = doubled().dump(
        "f.first", arg_names="a", output_names="b", user_info={"k": 1}, input_data=[{"a": X}]
    )
    assert (info.inputs, info.outputs) == (["a"], ["b"])
    request: DumpRequest = sys.modules[module].WRITTEN[0]
    assert (request.structure, request.user_info) == ("tensor", {"k": 1})
    assert request.cases is not None
    np.testing.assert_array_equal(request.cases.outputs[0]["b"], 2 * X)
    np.save("x.npy", X)
    assert main(["run", "f.first", "--input", "x=x.npy", "--output", "out"]) == 0
    np.testing.assert_array_equal(np.load("out/y.npy"), 2 * X)
    assert "y: float32[3]" in capsys.readouterr().out
    assert main(["run", "f.first", "--check"]) == 2
    assert "has no test cases" in capsys.readouterr().err


def test_dump_format_follows_option_then_extension_then_default(
    distribution: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution("first")
    distribution("second")
    monkeypatch.setattr(formats, "EXTRAS", {"first": "one"})
    for file, option in (("f.second", None), ("f.first", "SECOND"), ("f", "second"), ("f.mge", None)):
        doubled().dump(file, dump_format=option)
        word = Path(file).read_text().split()[0]
        assert word == ("first" if file == "f.mge" else "second")
    for wrong in ("FBS_V2", "", 3):
        with pytest.raises(ArgumentError, match=r"mgb writes FIRST, .*SECOND"):
            doubled().dump("g", dump_format=wrong)
    assert not Path("g").exists()


def test_unsupported_dump_leaves_the_file_unchanged(distribution: Callable[..., str]) -> None:
    distribution("first")
    doubled().dump("f.first")
    made = trace(lambda x: mgb.functional.exp(x * 2.0), capture_as_const=True)
    made(mgb.tensor(X))
    with pytest.raises(UnsupportedError, match="one product"):
        made.dump("f.first")
    assert Path("f.first").read_text() == "first 2.0"


# plugins


def test_missing_format_is_reported_with_install_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda: EntryPoints())
    _forget()
    for name, extra in formats.EXTRAS.items():
        file = f"model.{name}"
        Path(file).write_bytes(b"?")
        wanted = rf'^{file}: .*\.{name} files is not installed: pip install "mgb\[{extra}\]"$'
        with pytest.raises(FormatImportError, match=wanted):
            load(file)
        with pytest.raises(FormatImportError, match=wanted):
            doubled().dump(file)
        assert main(["run", file]) == 2
        assert f'pip install "mgb[{extra}]"' in capsys.readouterr().err
        assert Path(file).read_bytes() == b"?"
    with pytest.raises(FileFormatError, match=r"pip install .mgb\["):
        load(b"?")
    with pytest.raises(FormatImportError, match=r"^the file: .*pip install .mgb\["):
        doubled().dump(io.BytesIO())


def test_plugin_failing_at_import_is_reported_and_isolated(
    distribution: Callable[..., str],
) -> None:
    distribution("broken", "raise OSError('no libbroken.so')")
    distribution("mine")
    for file in ("a.broken", "a.mine", "a.bin"):
        Path(file).write_text("mine 2")
    message = r"'broken' \(made-up-broken\).*OSError: no libbroken\.so.*pip install --force-reinstall"
    for _ in range(2):
        with pytest.raises(FormatImportError, match=rf"^a\.broken: .*{message}"):
            load("a.broken")
    with pytest.raises(FormatImportError, match=message):
        doubled().dump("b.broken")
    for file in ("a.mine", "a.bin"):
        np.testing.assert_array_equal(load(file)(X)["y"].numpy(), 2 * X)
    Path("a.bin").write_text("who knows")
    with pytest.raises(FileFormatError, match=rf"^a\.bin: .*{message}"):
        load("a.bin")


def test_plugin_failing_at_a_query_is_reported_and_isolated(
    distribution: Callable[..., str],
) -> None:
    distribution("broken", PLUGIN.replace("return data.startswith", "return data.begins"))
    distribution("mine")
    np.testing.assert_array_equal(load(b"mine 2")(X)["y"].numpy(), 2 * X)
    with pytest.raises(FileFormatError, match=r"made-up-broken\) cannot be asked: AttributeError"):
        load(b"who knows")


@pytest.mark.parametrize("gives", ["None", "Mine", "object()", "1 / 0"])
def test_plugin_without_a_valid_format_is_rejected(gives: str, distribution: Callable[..., str]) -> None:
    distribution("mine", gives=gives)
    with pytest.raises(FormatImportError, match=r"f\.mine: .*made-up-mine"):
        formats.load_format("mine", "f.mine")


def test_unknown_hook_is_reported(distribution: Callable[..., str]) -> None:
    distribution("mine", PLUGIN.replace("def mgb_format", "def mgb_formed"))
    with pytest.raises(FormatImportError, match="no hook called mgb_formed"):
        formats.load_format("mine", "f.mine")


def test_two_distributions_of_one_format_conflict(distribution: Callable[..., str]) -> None:
    distribution("mine")
    distribution("mine", dist="made-up-other")
    with pytest.raises(
        FormatImportError, match=r"made-up-mine and by made-up-other.*pip uninstall made-up-other"
    ):
        formats.load_format("mine", "f.mine")


def test_plugin_may_be_registered_manually(distribution: Callable[..., str]) -> None:
    module = __import__(distribution("mine"))
    for found in Path().glob("*.dist-info"):
        (found / "entry_points.txt").unlink()
    _forget()
    plugins.manager.register(module, name="mine")
    assert "mine" in formats.installed()
    assert formats.of_source(ModelSource(b"mine 2")).name == "mine"
