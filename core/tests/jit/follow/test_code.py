"""Which sources are found, and that code with hooks in it is as the code was."""

from __future__ import annotations

import ast
import collections
import importlib.util
import inspect
import linecache
import os
import subprocess
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from mgb.jit.follow.calls import Calls
from mgb.jit.follow.code import codes_in, instrumented, is_marked, with_hooks
from mgb.jit.follow.transform import MARKS

LIBRARY = Path(os.__file__).parent


def calls_of() -> Calls:
    return Calls(lambda function, frame: None, lambda value: value)


def load(path: Path, **without: None) -> ModuleType:
    """The module in a file, under a name of its own."""
    name = f"followed_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, module)
        for missing in without:
            patch.setitem(sys.modules, missing, None)
        spec.loader.exec_module(module)
    return module


def written(folder: Path, text: str, name: str = "body") -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    return load(path)


def functions_in(space: Any, deep: int = 2) -> Iterator[FunctionType]:
    """Those that a module or class has."""
    for value in list(vars(space).values()):
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(function, FunctionType):
            yield function
        elif isinstance(value, type) and deep:
            yield from functions_in(value, deep - 1)


# where a source is found


def test_function_of_a_changed_file_is_left_alone(tmp_path: Path) -> None:
    module = written(tmp_path, "def f(x):\n    return abs(x)\n")
    (tmp_path / "body.py").write_text("def f(x):\n    return abs(x) + 1\n")
    assert calls_of().copy_of(module.f) is module.f and module.f(-1) == 1


def test_function_of_a_module_that_was_loaded_again_has_its_new_source(tmp_path: Path) -> None:
    first = written(tmp_path, "def f(x):\n    return abs(x)\n")
    assert calls_of().copy_of(first.f)(-1) == 1
    again = written(tmp_path, "def f(x):\n    return abs(x) + len('ab')\n")
    copy = calls_of().copy_of(again.f)
    assert copy is not again.f and copy(-1) == 3


def test_evaluated_functions_are_left_alone() -> None:
    space: dict[str, Any] = {}
    exec("def f(x):\n    return abs(x)", space)
    f, g = space["f"], eval("lambda x: abs(x)")
    made = calls_of()
    assert made.copy_of(f) is f and made.copy_of(g) is g and calling(made, f) == 3


def calling(made: Calls, function: Any) -> Any:
    def body() -> Any:
        return function(-3)

    copy = made.copy_of(body)
    assert copy is not body
    return copy()


def test_source_kept_in_linecache_is_found() -> None:
    text = "def f(x):\n    return abs(x), [len(str(i)) for i in range(2)]\n"
    linecache.cache["<cell 1>"] = len(text), None, text.splitlines(keepends=True), "<cell 1>"
    space: dict[str, Any] = {"__name__": "cells"}
    exec(compile(text, "<cell 1>", "exec"), space)
    copy = calls_of().copy_of(space["f"])
    assert copy is not space["f"] and copy(-1) == (1, [1, 1])


def test_functions_given_on_the_command_line_have_hooks() -> None:
    script = (
        "from mgb.jit.follow.calls import Calls\n"
        "def f(x): return abs(x)\n"
        "made = Calls(lambda *_: None, lambda v: v)\n"
        "print(made.copy_of(f) is not f, made.copy_of(f)(-2))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "2"]


def test_functions_pickled_by_value_have_hooks() -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    k = 3
    carried = cloudpickle.loads(cloudpickle.dumps(lambda x: abs(x) + k))
    copy = calls_of().copy_of(carried)
    assert copy is not carried and copy(-1) == 4


def test_each_of_several_functions_in_a_line_is_found() -> None:
    fs: list[Any] = [lambda x: abs(x), lambda x: -abs(x), lambda x, k=2: (lambda y: max(y, k))(x)]
    made = calls_of()
    copies = list(map(made.copy_of, fs))
    assert all(copy is not f for copy, f in zip(copies, fs, strict=True))
    assert [copy(-5) for copy in copies] == [f(-5) for f in fs]


def test_private_names_and_future_flags_are_kept(tmp_path: Path) -> None:
    text = """\
from __future__ import annotations
import functools

class Outer:
    class __Inner:
        __kept = 5
        def get(self, n: abs(1) = abs(-2)):
            def inner(m: Undefined = n) -> len("ab"):
                local: also_undefined(1) = max(m, self.__kept)
                return local
            return inner(), inner.__annotations__, self.__dict__
    made = staticmethod(lambda: Outer.__Inner())
"""
    module = written(tmp_path, text)
    one = module.Outer.made()
    copy = calls_of().copy_of(one.get)
    assert copy() == one.get() == (5, {"m": "Undefined", "return": "len('ab')"}, {})
    assert copy.__func__ is not one.get.__func__


def test_assertions_rewritten_by_pytest_have_hooks() -> None:
    def body(x: Any) -> Any:
        assert abs(x) == 3, f"not {len([x])}"
        return x

    copy = calls_of().copy_of(body)
    assert copy is not body and copy(-3) == -3
    said = []
    for function in (body, copy):
        with pytest.raises(AssertionError) as caught:
            function(4)
        said.append(str(caught.value))
    assert said[0] == said[1] and "abs(4)" in said[0]


def test_long_and_broken_files_are_left_alone(tmp_path: Path) -> None:
    text = "def f(x):\n    return abs(x)\n"
    module = written(tmp_path, text + "#" * (1 << 18))
    assert calls_of().copy_of(module.f) is module.f
    module = written(tmp_path, text, "other")
    (tmp_path / "other.py").write_text("def f(x:\n")
    linecache.checkcache()
    assert calls_of().copy_of(module.f) is module.f


def test_sources_are_read_in_several_threads(tmp_path: Path) -> None:
    text = "".join(f"def f{n}(x):\n    return [abs(x) + {n} for _ in range(2)]\n" for n in range(200))
    module = written(tmp_path, text)
    wrong: list[Any] = []

    def work(first: int) -> None:
        made = calls_of()
        for n in range(first, 200, 2):
            function = getattr(module, f"f{n}")
            copy = made.copy_of(function)
            if copy is function or copy(-1) != function(-1):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n % 2,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# what the code is


def same_but_hooks(made: CodeType, own: CodeType) -> None:
    for name in (
        "co_name", "co_qualname", "co_filename", "co_firstlineno", "co_varnames", "co_freevars", "co_names",
        "co_cellvars", "co_flags",
    ):  # fmt: skip
        assert getattr(made, name) == getattr(own, name)
    lines = [{line for *_, line in code.co_lines() if line is not None} for code in (made, own)]
    assert lines[0] == lines[1]
    for pair in zip(codes_in(made), codes_in(own), strict=True):
        same_but_hooks(*pair)


#: With what has to be missing for a module to be in Python all through.
MODULES: dict[str, dict[str, None]] = {
    "textwrap.py": {}, "statistics.py": {"_statistics": None}, "fractions.py": {},
    "heapq.py": {"_heapq": None}, "collections/__init__.py": {"_collections": None}, "inspect.py": {},
    "dataclasses.py": {}, "argparse.py": {}, "string.py": {},
    "contextlib.py": {}, "json/decoder.py": {}, "typing.py": {}, "random.py": {}, "ast.py": {},
}  # fmt: skip


@pytest.mark.parametrize("file", MODULES)
def test_code_of_the_library_with_hooks_differs_in_hooks_alone(file: str) -> None:
    module = importlib.import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    every = [function for function in functions_in(module) if calls_something(function)]
    assert len(every) > 3
    for function in every:
        code, pairs = function.__code__, list[tuple[CodeType, CodeType]]()
        made = instrumented(code, function.__globals__)
        assert made is not None and made is instrumented(code, function.__globals__), code
        same_but_hooks(made, code)
        done = with_hooks(made, code, dict.fromkeys(MARKS, abs), lambda *pair: pairs.append(pair))  # noqa: B023
        assert not is_marked(done) and pairs[-1] == (done, code)
        assert all(one.co_name == own.co_name for one, own in pairs)


def calls_something(function: FunctionType) -> bool:
    """Is it of a file of the library, and calls more than `super()`?"""
    if not Path(function.__code__.co_filename).is_relative_to(LIBRARY):
        return False
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    calls = [part for part in ast.walk(ast.Module(node.body, [])) if isinstance(part, ast.Call)]
    return any(ast.unparse(part) != "super()" for part in calls)


WORDS = ["the quick brown fox", "jumps over", "", "the lazy dog's-tail   and  more " * 5]

USES: dict[str, Callable[[Any], list[Any]]] = {
    "textwrap.py": lambda m: [
        (m.wrap, text, 20) for text in WORDS
    ] + [(m.dedent, "  a\n   b\n"), (m.shorten, WORDS[3], 12), (m.fill, WORDS[3], 9)],
    "statistics.py": lambda m: [
        (getattr(m, name), [1, 2, 2, 3.5, Fraction(7, 2)])
        for name in "mean fmean median mode variance pstdev harmonic_mean multimode median_grouped".split()
    ] + [(m.quantiles, [1, 5, 2, 8]), (m.correlation, [1, 2, 3], [2, 4, 7])],
    "fractions.py": lambda m: [
        (m.Fraction, "3/4"), (m.Fraction.from_float, 0.3), (m.Fraction(3, 7).limit_denominator, 3),
        (m.Fraction(3, 4).__add__, 2), (m.Fraction(1, 3).__pow__, 3), (m.Fraction(7, 2).__round__,),
        (m.Fraction(-7, 2).__hash__,), (m.Fraction(1, 3).__eq__, 1 / 3), (m.Fraction(1, 3).__str__,),
    ],
    "heapq.py": lambda m: [
        (m.nlargest, 3, [4, 1, 7, 2, 9]), (m.nsmallest, 2, [4, 1, 7], lambda v: -v),
        (lambda: list(m.merge([1, 4], [2, 3], reverse=False)),), (sorted_by, m, [5, 2, 8, 1, 9, 3]),
    ],
    "collections/__init__.py": lambda m: [
        (lambda: m.Counter("abracadabra").most_common(2),), (m.Counter("aab").__add__, m.Counter("bc")),
        (m.namedtuple("P", "x y")._make, (1, 2)), (lambda: m.OrderedDict(a=1, b=2).popitem(last=False),),
        (m.ChainMap({"a": 1}, {"b": 2}).__getitem__, "b"), (lambda: sorted(m.UserDict(a=1).items()),),
    ],
}  # fmt: skip


def sorted_by(module: Any, values: list[int]) -> list[int]:
    heap = list(values)
    module.heapify(heap)
    module.heappush(heap, 4)
    return [module.heappushpop(heap, 6), module.heapreplace(heap, 7), *(module.heappop(heap) for _ in values)]


@pytest.mark.parametrize("file", USES)
def test_copies_of_the_library_give_what_it_gives(file: str, tmp_path: Path) -> None:
    path = tmp_path / (file.partition("/")[0].removesuffix(".py") + ".py")
    path.write_text((LIBRARY / file).read_text())
    made, module = calls_of(), load(path, **MODULES[file])
    for function, *args in USES[file](module):
        copy = made.copy_of(function)
        assert repr(copy(*args)) == repr(function(*args))
    assert len(made.originals) > 5
    known = collections.Counter(code.co_filename for code in made.originals.values())
    assert known[str(path)] > 4 and isinstance(module, types.ModuleType)
