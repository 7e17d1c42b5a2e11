"""Children of a process that is busy: each works, or is told at once that it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from .drive import Driver, is_announced


class TestForks:
    def test_forked_children_of_a_busy_process(self, driver: Driver) -> None:
        self._fork(driver, 5)

    @pytest.mark.slow
    def test_many_forked_children(self, driver: Driver) -> None:
        self._fork(driver, 100)

    def _fork(self, driver: Driver, children: int) -> None:
        if not hasattr(os, "fork"):
            pytest.skip("this system has no fork")
        if "cpu" not in driver.backend.traits.devices:
            pytest.skip("traits.devices has no cpu; a GPU's driver does not survive a fork")
        if not is_announced(driver.backend.name):
            pytest.skip("another process cannot find this backend")
        limit = 2 * driver.timeout
        command = [
            sys.executable,
            "-m",
            f"{__package__}.forks",
            driver.backend.name,
            str(children),
            str(limit),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=(2 + children) * limit)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout.splitlines()[-1])
        assert set(said) <= {"fine", "told"}, said
