"""Files that `export` wrote, damaged in every way: an error that names the place, or the right results."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mgb
import mgb.functional as F
import numpy as np
import pytest
from ahead_files import rewrite
from mgb import errors, jit
from mgb.jit import trace

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("ahead") / "f.mgb"
    w = mgb.Parameter(np.linspace(0, 1, 20, dtype=np.float32).reshape(4, 5))
    f = trace(
        lambda x: {"soft": F.softmax(F.matmul(x, w) * 1.5, axis=-1), "t": x.transpose(1, 0)}, backend="eager"
    )
    f.export(path, "f32[3,4]")
    return path.read_bytes()


def wanted() -> dict[str, Any]:
    w = np.linspace(0, 1, 20, dtype=np.float64).reshape(4, 5)
    e = np.exp(X.astype(np.float64) @ w * 1.5)
    return {"soft": e / e.sum(-1, keepdims=True), "t": X.T}


def attempt(path: Path, content: bytes) -> str:
    """What is wrong with a file, or nothing when it loads and runs right."""
    path.write_bytes(content)
    try:
        g = jit.load_compiled(path)
    except errors.FileFormatError as error:
        assert str(path) in str(error)
        return str(error)
    for name, array in wanted().items():
        np.testing.assert_allclose(g(X)[name].numpy(), array, rtol=1e-5)
    return ""


def test_intact_file_loads(content: bytes, tmp_path: Path) -> None:
    assert attempt(tmp_path / "f.mgb", content) == ""


def test_every_truncation_is_detected(content: bytes, tmp_path: Path) -> None:
    for size in (*range(8, 64), *range(64, len(content), 37), len(content) - 1):
        assert attempt(tmp_path / "f.mgb", content[:size])
    assert "bytes, and should have" in attempt(tmp_path / "f.mgb", content + b"\0")


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bits_are_detected_or_harmless(content: bytes, seed: int, tmp_path: Path) -> None:
    """Harmless are the bytes between blobs."""
    random_ = random.Random(seed)
    found = 0
    for _ in range(150):
        damaged = bytearray(content)
        damaged[random_.randrange(8, len(content))] ^= 1 << random_.randrange(8)
        found += bool(attempt(tmp_path / "f.mgb", bytes(damaged)))
    assert found > 100


def lie(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """Change the JSON of a file."""

    def text(old: bytes) -> bytes:
        header = json.loads(old)
        change(header)
        return json.dumps(header).encode()

    return text


def nodes(header: Any) -> Any:
    return header["content"]["graph"]["nodes"]


LIES: dict[str, Callable[[Any], Any]] = {
    "the graph, node 1": lambda h: nodes(h)[1].__setitem__(1, [99, 0]),
    "the graph, node 2": lambda h: nodes(h)[2].__setitem__(0, "no_such_op"),
    "the graph, node 0": lambda h: nodes(h)[0][2]["value"]["array"].__setitem__(2, [4, 6]),
    "the graph, inputs": lambda h: h["content"]["graph"]["inputs"][0].__setitem__(1, [-3, 4]),
    "the graph, outputs": lambda h: h["content"]["graph"].__setitem__("outputs", [-1, 2]),
    "this mgb has no op 'input'": lambda h: nodes(h)[1].__setitem__(0, "input"),
    "should make": lambda h: nodes(h)[1][3].__setitem__(0, "float64"),
    "the header": lambda h: h["content"].__setitem__("structure", "set"),
    "do not fit their checksum": lambda h: h["blobs"][0].__setitem__(2, 1),
    "are not there": lambda h: h["blobs"][0].__setitem__(1, 2**60),
    "the program": lambda h: h["content"]["program"].pop("steps"),
    "KeyError: 'graph'": lambda h: h["content"].pop("graph"),
    "KeyError: 'program'": lambda h: h["content"].pop("program"),
    "are not valid options": lambda h: h["content"]["options"].__setitem__("opt_level", "3"),
    "takes 2 values and no parameters": lambda h: next(n for n in nodes(h) if n[0] == "mul")[2].update(k=1),
    "unexpected keyword argument": lambda h: next(n for n in nodes(h) if n[0] == "matmul")[2].update(k=1),
    "the program: ": lambda h: h["content"]["program"].__setitem__("outputs", [0, 0]),
    "step 0": lambda h: h["content"]["program"]["steps"][0].__setitem__(1, [77]),
    "of step 0": lambda h: h["content"]["program"]["graphs"][0].__setitem__(
        "nodes", [["add", [0], {}, 1, ""]]
    ),
}


@pytest.mark.parametrize("place", LIES)
def test_inconsistent_header_is_detected(place: str, content: bytes, tmp_path: Path) -> None:
    assert place in attempt(tmp_path / "f.mgb", rewrite(content, lie(LIES[place])))


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [here, *(p for key, child in children for p in paths(child, (*here, key)))]


@pytest.mark.parametrize("other", [None, -1, "", [], {}, 2**70, [[[]]], {"array": [0, "bool", [1]]}], ids=str)
def test_arbitrary_header_values_raise_only_file_errors(other: Any, content: bytes, tmp_path: Path) -> None:
    """No lie makes another exception than that of damaged files, or of code that cannot run here."""
    size = struct.unpack_from("<8sIIQQ", content)[3]
    every = [p for p in paths(json.loads(content[32 : 32 + size])) if p]
    for path in random.Random(str(other)).sample(every, min(60, len(every))):

        def change(header: Any, path: tuple[Any, ...] = path) -> None:
            for key in path[:-1]:
                header = header[key]
            header[path[-1]] = other

        file = tmp_path / "f.mgb"
        file.write_bytes(rewrite(content, lie(change)))
        try:
            jit.load_compiled(file)
        except (errors.FileFormatError, errors.BackendUnavailableError) as error:
            assert str(file) in str(error)


def test_wrong_op_parameter_is_detected_on_use(tmp_path: Path) -> None:
    """`argsort` does not look at its axis before it sorts."""
    file = tmp_path / "f.mgb"
    trace(lambda x: F.argsort(x)[1], backend="eager").export(file, "f32[3,4]")
    good = file.read_bytes()

    def change(header: Any) -> None:
        program = header["content"]["program"]
        for graph in (header["content"]["graph"], *program["graphs"]):
            for node in graph["nodes"]:
                if "axis" in node[2]:
                    node[2]["axis"] = 7

    file.write_bytes(rewrite(good, lie(change)))
    with pytest.raises((errors.FileFormatError, errors.LoadedFunctionError), match=r"lies about|damaged"):
        jit.load_compiled(file)(X)


def test_out_of_range_index_raises_a_plain_index_error(tmp_path: Path) -> None:
    trace(lambda x, i: x[i], backend="eager").export(tmp_path / "f.mgb", "f32[3]", "i32[2]")
    g = jit.load_compiled(tmp_path / "f.mgb")
    np.testing.assert_array_equal(g(X[0, :3], np.array([2, 0], np.int32)).numpy(), X[0, [2, 0]])
    with pytest.raises(IndexError) as caught:
        g(X[0, :3], np.array([5, 0], np.int32))
    assert not isinstance(caught.value, errors.MgbError)


def test_deep_nesting_and_bad_json_are_detected(content: bytes, tmp_path: Path) -> None:
    for text in (b"[" * 100_000, b"{", b"\xff\xfe", b'{"content": 1}', b"[]", b"9" * 6000):
        assert "the header" in attempt(tmp_path / "f.mgb", rewrite(content, lambda _, text=text: text))


def test_newer_format_version_is_reported(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "f.mgb").write_bytes(rewrite(content, lambda text: text, version=2))
    with pytest.raises(errors.FileVersionError, match="pip install --upgrade mgb"):
        jit.load_compiled(tmp_path / "f.mgb")


def test_missing_file_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        jit.load_compiled(tmp_path / "none.mgb")
