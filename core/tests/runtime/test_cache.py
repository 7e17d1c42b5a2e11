"""The cache gives back what was stored, or nothing; whatever is in the folder, it never fails."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from mgb.errors import CacheWarning
from mgb.runtime import cache

KEY = hashlib.sha256(b"a kernel").hexdigest()
BLOB = bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MGB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MGB_CACHE", "1")
    return tmp_path / "cache"


def entry(folder: Path) -> Path:
    return folder / cache.SCHEMA / "b" / KEY[:2] / KEY


def test_stored_entry_is_loaded(folder: Path) -> None:
    assert cache.load("b", KEY) is None
    cache.store("b", KEY, BLOB)
    assert cache.load("b", KEY) == BLOB
    assert cache.load("other", KEY) is None
    assert [p for p in folder.rglob("*") if p.is_file()] == [entry(folder)]
    cache.store("b", KEY, b"")
    assert cache.load("b", KEY) == b""


def test_info_and_clear(folder: Path) -> None:
    cache.store("b", KEY, BLOB)
    size = entry(folder).stat().st_size
    assert cache.info() == cache.Info(folder, True, 1, size)
    assert cache.clear() == 1
    assert cache.info() == cache.Info(folder, True, 0, 0)
    cache.store("b", KEY, BLOB)
    assert cache.load("b", KEY) == BLOB


def test_disabled_cache_neither_loads_nor_stores(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store("b", KEY, BLOB)
    monkeypatch.setenv("MGB_CACHE", "0")
    assert cache.load("b", KEY) is None
    cache.store("b", KEY, b"new")
    assert not cache.info().enabled
    monkeypatch.setenv("MGB_CACHE", "1")
    assert cache.load("b", KEY) == BLOB


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "header cut": lambda content: content[:20],
    "truncated": lambda content: content[:-1],
    "longer": lambda content: content + b"x",
    "one bit": lambda content: content[:-7] + bytes([content[-7] ^ 1]) + content[-6:],
    "magic": lambda content: b"X" + content[1:],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_entry_is_ignored_and_replaced(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    cache.store("b", KEY, BLOB)
    entry(folder).write_bytes(damage(entry(folder).read_bytes()))
    assert cache.load("b", KEY) is None
    cache.store("b", KEY, BLOB)
    assert cache.load("b", KEY) == BLOB


@pytest.mark.parametrize("place", [("b", hashlib.sha256(b"another").hexdigest()), ("other", KEY)])
def test_entry_in_the_place_of_another_is_ignored(folder: Path, place: tuple[str, str]) -> None:
    """Both are whole and equally long; run as the other, a kernel would give the wrong results."""
    places = (("b", KEY), place)
    for number, at in enumerate(places):
        cache.store(*at, BLOB + bytes([number]))
    first, second = (folder / cache.SCHEMA / name / key[:2] / key for name, key in places)
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    assert [cache.load(*at) for at in places] == [None, None]
    for number, at in enumerate(places):
        cache.store(*at, BLOB + bytes([number]))
    assert [cache.load(*at) for at in places] == [BLOB + b"\0", BLOB + b"\1"]


def test_entries_of_an_older_schema_are_ignored_and_cleared(folder: Path) -> None:
    old = folder / "v1" / "b" / KEY[:2] / KEY
    old.parent.mkdir(parents=True)
    old.write_bytes(b"MGBKERN1" + bytes(40))
    assert cache.load("b", KEY) is None
    cache.clear()
    assert not old.exists()


def test_folder_in_place_of_an_entry_is_ignored(folder: Path) -> None:
    entry(folder).mkdir(parents=True)
    assert cache.load("b", KEY) is None


def test_cache_folder_is_private(folder: Path) -> None:
    cache.store("b", KEY, BLOB)
    assert (folder / cache.SCHEMA).stat().st_mode & 0o777 == 0o700
    assert entry(folder).stat().st_mode & 0o077 == 0


def test_folder_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / cache.SCHEMA).mkdir(parents=True)
    monkeypatch.setattr(os, "getuid", lambda: (folder / cache.SCHEMA).stat().st_uid + 1)
    with pytest.warns(CacheWarning, match="belongs to another user.*MGB_CACHE_DIR"):
        cache.store("b", KEY, BLOB)
    assert not entry(folder).exists()
    assert not cache.info().enabled


def test_entry_of_another_user_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store("b", KEY, BLOB)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    assert cache.load("b", KEY) is None


def test_symlink_in_place_of_the_folder_is_not_used(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder.mkdir()
    (folder / cache.SCHEMA).symlink_to(tmp_path / "elsewhere")
    with pytest.warns(CacheWarning, match="is not a folder"):
        cache.store("b", KEY, BLOB)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_unusable_folder_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder can be made here")
    monkeypatch.setenv("MGB_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(CacheWarning, match="MGB_CACHE=0"):
        cache.store("b", KEY, BLOB)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.store("b", KEY, BLOB)
        assert cache.load("b", KEY) is None
        with cache.lock("b", KEY) as alone:
            assert not alone
        assert not cache.info().enabled


def test_failed_write_warns_and_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store("b", KEY, BLOB)

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.warns(CacheWarning, match="no space left"):
        cache.store("b", KEY, b"new")
    assert [p for p in folder.rglob("*") if p.is_file()] == [entry(folder)]


def test_lock_is_exclusive_per_key(folder: Path) -> None:
    inside = 0
    most = 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with cache.lock("b", KEY) as alone:
            assert alone
            with guard:
                inside += 1
                most = max(most, inside)
            time.sleep(0.02)
            with guard:
                inside -= 1
            cache.store("b", KEY, BLOB)

    with cache.lock("b", KEY) as alone, cache.lock("b", KEY, timeout=0.05) as second:
        assert alone and not second
    with cache.lock("b", KEY), cache.lock("b", KEY[::-1], timeout=0.05) as other:
        assert other
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert [p for p in folder.rglob("*") if p.is_file()] == [entry(folder)]


def test_another_process_loads_the_entry() -> None:
    cache.store("b", KEY, BLOB)
    code = f"import sys; from mgb import cache; sys.stdout.buffer.write(cache.load('b', {KEY!r}))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert found.stdout == BLOB


WRITER = """
import sys
from mgb import cache
number, key = int(sys.argv[1]), sys.argv[2]
for _ in range(150):
    cache.store("b", key, bytes([number]) * (1000 + 5000 * number))
    blob = cache.load("b", key)
    assert blob is not None and len(set(blob)) == 1 and len(blob) == 1000 + 5000 * blob[0], "torn"
"""


def test_eight_concurrent_writers_leave_one_valid_entry(folder: Path) -> None:
    command = [sys.executable, "-c", WRITER]
    writers = [subprocess.Popen([*command, str(n), KEY]) for n in range(8)]
    assert [w.wait(timeout=60) for w in writers] == [0] * 8
    assert [p for p in folder.rglob("*") if p.is_file()] == [entry(folder)]
    blob = cache.load("b", KEY)
    assert blob is not None and len(blob) == 1000 + 5000 * blob[0]
