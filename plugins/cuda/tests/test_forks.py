"""Scripts that run in forks of one process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from mgb_cuda.testing import forks
from mgb_cuda.testing.forks import Forks


@pytest.fixture(scope="module")
def process() -> Iterator[Forks]:
    found = Forks("import os, sys; made = [1]; print('not an answer')", COLOUR="blue")
    yield found
    found.close()


def test_script_sees_prepared_state_and_leaves_no_side_effects(process: Forks) -> None:
    change = "made.append(2); sys.path.clear(); os.environ['COLOUR'] = 'red'; print(made, os.getpid())"
    answers = [process.run(change).rsplit(maxsplit=1) for _ in range(2)]
    assert [text for text, _ in answers] == ["[1, 2]", "[1, 2]"]
    assert len({number for _, number in answers} | {str(os.getpid())}) == 3
    assert process.run("print(made, os.environ['COLOUR'], len(sys.path) > 0)") == "[1] blue True\n"


def test_environment_variables_are_per_script(process: Forks) -> None:
    script = "print(os.environ.get('SIZE'), os.environ['COLOUR'])"
    assert process.run(script, SIZE="7") == "7 blue\n" and process.run(script) == "None blue\n"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("print('so far'); raise ValueError('odd')", "ValueError: odd"),
        ("sys.exit('enough')", "enough"),
        ("os.abort()", "ended by signal 6"),
        ("not a script", "SyntaxError"),
    ],
)
def test_failing_script_reports_its_error_and_the_next_runs(process: Forks, script: str, text: str) -> None:
    with pytest.raises(AssertionError, match=text):
        process.run(script)
    assert process.run("print(3)") == "3\n"


def test_source_is_available_for_prepared_and_script_code() -> None:
    process = Forks("import inspect\ndef prepared():\n    return 1\n")
    try:
        script = "def own():\n    return 2\nprint([inspect.getsource(f) for f in (prepared, own)])"
        expected = ["def prepared():\n    return 1\n", "def own():\n    return 2\n"]
        assert process.run(script) == f"{expected}\n"
    finally:
        process.close()


def test_script_that_exceeds_the_time_limit_is_killed() -> None:
    process = Forks(f"import time, {forks.__name__} as forks; forks.LIMIT = 1")
    with pytest.raises(AssertionError, match="ended by signal 14"):
        process.run("time.sleep(60)")
    process.close()


def test_failing_preparation_reports_its_error() -> None:
    with pytest.raises(AssertionError, match="No module named 'nothing'"):
        Forks("import nothing")
