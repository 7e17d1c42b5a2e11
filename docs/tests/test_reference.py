"""The reference has every public name, and each function and class has an example, which runs."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))
import raised
import reference
import stubs

DOCS = Path(__file__).parent.parent
FUNCTIONS = reference.functions()

#: Their examples run in a job: in a process of their own, for none leaves its job.
OF_JOBS = [name for name in FUNCTIONS if name.startswith("mgb.distributed.")]


def test_every_function_has_an_example() -> None:
    missing = [name for name, value in FUNCTIONS.items() if ">>>" not in (value.__doc__ or "")]
    assert not missing, f"give these an Examples section of two to four lines: {missing}"
    assert len(FUNCTIONS) > 500


class _Numbers(doctest.OutputChecker):
    """Last digits are each machine's own."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Is it the same text, with numbers that are close?"""
        texts, numbers = zip(
            *((_NUMBER.sub("#", t).split(), _NUMBER.findall(t)) for t in (want, got)), strict=True
        )
        same = ["".join(text) for text in texts]
        if same[0] != same[1]:
            return super().check_output(want, got, optionflags)
        return all(
            abs(float(a) - float(b)) <= 1e-5 * (1 + abs(float(a))) for a, b in zip(*numbers, strict=True)
        )


_NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - set(OF_JOBS)))
def test_example_prints_its_documented_output(name: str) -> None:
    assert said_by(name) == ""


def test_distributed_examples_print_their_documented_output() -> None:
    pytest.importorskip("mgb_mpi", reason="not installed: pip install './plugins/mpi' mpich")
    first = ["mgb.distributed.launcher", "mgb.distributed.init_process_group"]
    done = subprocess.run(
        [sys.executable, __file__, *first, *(name for name in OF_JOBS if name not in first)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_each_error_is_raised_by_its_example() -> None:
    pytest.importorskip("mgb_onnx", reason="not installed: pip install ./plugins/onnx")
    from mgb import errors

    known = {name for module in reference.MODULES for name, value in reference.public(module).items()
             if isinstance(value, type) and issubclass(value, Exception)}  # fmt: skip
    assert not raised.EXAMPLES.keys() & raised.OF_MACHINES.keys()
    shown = raised.EXAMPLES.keys() | raised.OF_MACHINES.keys()
    assert known == shown, f"docs/raised.py has to say what raises each error: {known ^ shown}"
    for name, text in raised.outcomes().items():
        kind = getattr(errors, text.partition(":")[0], type(None))
        assert issubclass(kind, getattr(errors, name)), (name, text)
        assert kind.__name__ == name or name in raised.ROOTS, (name, text)


def said_by(name: str) -> str:
    """What doctest says of an example: nothing where all is as it stands there."""
    import mgb
    import numpy as np
    from mgb import functional, module

    scope = {"mgb": mgb, "np": np, "F": functional, "M": module, name.rpartition(".")[2]: FUNCTIONS[name]}
    test = doctest.DocTestParser().get_doctest(FUNCTIONS[name].__doc__, scope, name, None, None)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    said: list[str] = []
    result = doctest.DocTestRunner(_Numbers(), optionflags=flags).run(test, out=said.append)
    return "".join(said) if result.failed else ""


def test_generated_stubs_for_mkdocstrings_are_valid_python(tmp_path: Path) -> None:
    modules = {name: reference.public(name) for name in reference.MODULES}
    stubs.write(tmp_path, modules)
    for name, members in modules.items():
        text = tmp_path.joinpath(*name.split("."), "__init__.py").read_text()
        scope: dict[str, object] = {}
        tree = compile(text, name, "exec", dont_inherit=True)
        assert {c.co_name for c in tree.co_consts if hasattr(c, "co_name")} >= set(members), name
        del scope


def test_each_page_is_in_the_navigation() -> None:
    listed = (DOCS.parent / "mkdocs.yml").read_text()
    pages = [p.relative_to(DOCS).as_posix() for p in (*DOCS.glob("*.md"), *DOCS.glob("benchmarks/*.md"))]
    missing = [page for page in pages if f": {page}\n" not in listed]
    assert not missing, f"give these a line under nav in mkdocs.yml: {missing}"


def test_pictures_match_the_graphs() -> None:
    pictures = pytest.importorskip("pictures")
    if "cpu_llvm" not in __import__("mgb.plugins").plugins.installed():
        pytest.skip("needs mgb-cpu-llvm")
    assert pictures.main([]) == 0


if __name__ == "__main__":
    print(*(said_by(name) for name in sys.argv[1:]), sep="", end="")
