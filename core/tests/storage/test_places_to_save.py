"""Where files are written to: through links, to pipes and devices, with the permissions that were there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading

import mgb
import pytest
from mgb.jit import trace

STATE = {"a": mgb.tensor([1.0, 2.0])}


def saved(path):
    mgb.save(STATE, path)


def profiled(path):
    double = trace(lambda x: x * 2, profiling=True)
    for _ in range(3):
        double(mgb.tensor(1.0))
    double.save_profile(str(path))


def exported(path):
    trace(lambda x: x * 2).export(path, mgb.tensor(1.0))


WRITERS = [saved, exported, profiled]


@pytest.mark.parametrize("write", WRITERS)
def test_a_link_is_followed_and_stays(tmp_path, write):
    real, link, chain = tmp_path / "real", tmp_path / "link", tmp_path / "chain"
    real.write_bytes(b"old")
    link.symlink_to("real")
    chain.symlink_to(link)
    write(chain)
    assert chain.is_symlink() and link.is_symlink() and not real.is_symlink()
    assert real.stat().st_size > 3 and sorted(os.listdir(tmp_path)) == ["chain", "link", "real"]


def test_a_link_to_nothing_makes_the_file_that_it_names(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "new")
    saved(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and mgb.load(tmp_path / "new")["a"].tolist() == [1.0, 2.0]


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError):
        saved(tmp_path / "a")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"] and (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
@pytest.mark.parametrize("write", WRITERS)
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path, write, mode):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode and path.stat().st_size > 3


@pytest.mark.parametrize("write", WRITERS)
def test_a_pipe_is_written_to_and_stays_one(tmp_path, write):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe)
    reader.join(30)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and got[0] and os.listdir(tmp_path) == ["pipe"]


def test_a_device_is_written_to_and_stays_one(tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.read_bytes()
    except OSError:
        pytest.skip("no devices can be made here")
    (tmp_path / "link").symlink_to(device)
    for path in (device, tmp_path / "link"):
        saved(path)
    assert stat.S_ISCHR(device.stat().st_mode) and sorted(os.listdir(tmp_path)) == ["link", "null"]


@pytest.mark.skipif(not os.path.exists("/dev/stdout"), reason="a system without /dev/stdout")
@pytest.mark.parametrize("through", ["file", "pipe"])
def test_standard_output_is_written_to(tmp_path, through):
    code = "import mgb; mgb.save({'a': mgb.tensor([1.0, 2.0])}, '/dev/stdout')"
    path = tmp_path / "out"
    if through == "pipe":
        path.write_bytes(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    else:
        with open(path, "wb") as out:
            number = os.fstat(out.fileno()).st_ino
            subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
        assert path.stat().st_ino == number
    assert mgb.load(path)["a"].tolist() == [1.0, 2.0]
