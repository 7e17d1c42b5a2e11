"""The public names of mgb, by module, and the pages of the reference: the `hooks` in mkdocs.yml."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

STUBS = Path(__file__).parent.parent / "build" / "stubs"

#: The modules of the reference, and what each is for.
MODULES = {
    "mgb": "Tensors, and what comes with the package",
    "mgb.functional": "functions of Tensors",
    "mgb.functional.loss": "losses",
    "mgb.functional.distributed": "collectives",
    "mgb.numpy": "functions with the signatures of NumPy's",
    "mgb.linalg": "linear algebra",
    "mgb.random": "random numbers",
    "mgb.module": "layers and containers",
    "mgb.module.init": "first values of parameters",
    "mgb.optimizer": "optimizers and schedules of the learning rate",
    "mgb.autodiff": "gradients by a tape",
    "mgb.transforms": "functions of functions: derivatives, batches",
    "mgb.jit": "trace and its relatives",
    "mgb.amp": "mixed precision",
    "mgb.data": "data",
    "mgb.distributed": "several processes",
    "mgb.utils": "profiling",
    "mgb.backends": "what a backend is",
    "mgb.ir": "graphs",
    "mgb.plugins": "how plugins are found",
    "mgb.codegen": "help for backends that print source",
    "mgb_conformance.reducer": "small tests of what a backend gets wrong",
    "mgb.errors": "errors",
}


#: Namespaces that are the sum of what other modules export.
SUMS = ("mgb.functional", "mgb.linalg")


def public(name: str) -> dict[str, Any]:
    """The public names of a module that have a page, and what they are."""
    module = importlib.import_module(name)
    names = getattr(module, "__all__", vars(module))
    found = {n: getattr(module, n) for n in sorted(names) if not n.startswith("_")}
    return {n: value for n, value in found.items() if _is_ours(value, module)}


def _is_ours(value: Any, module: ModuleType) -> bool:
    """Is it no module and no number, and of mgb: of `module`, where that does not say what it exports?"""
    if isinstance(value, ModuleType) or not callable(value):
        return False
    says = hasattr(module, "__all__") or module.__name__ in SUMS
    return str(getattr(value, "__module__", "")).startswith("mgb" if says else module.__name__)


def is_function(value: Any) -> bool:
    """Is an example due: is it a function, or a class that is called like one?"""
    return inspect.isroutine(value) or (inspect.isclass(value) and not issubclass(value, BaseException))


def functions() -> dict[str, Any]:
    """Every public function and class, once, by the first public name that it has."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for module in MODULES:
        for name, value in public(module).items():
            if is_function(value) and id(value) not in seen:
                seen.add(id(value))
                found[f"{module}.{name}"] = value
    return found


def pages() -> Iterator[tuple[str, str]]:
    """Path and text of each page of the reference."""
    rows = [f"| [`{name}`]({name}.md) | {text} | {len(public(name))} |" for name, text in MODULES.items()]
    head = "# Reference\n\nEvery public name, by module. Examples have `np`, `mgb`, `F` and `M` for NumPy, "
    head += "`mgb`, `mgb.functional` and `mgb.module`; `mgb.distributed` is a job of one rank there.\n\n"
    head += "| module | | names |\n| --- | --- | --- |\n"
    yield "reference/index.md", head + "\n".join(rows) + "\n"
    for name, text in MODULES.items():
        yield f"reference/{name}.md", f"# `{name}`: {text}\n\n::: {name}\n"


def on_startup(**_others: Any) -> None:
    """The hook of mkdocs before plugins look where their files are: what mkdocstrings reads."""
    sys.path.insert(0, str(Path(__file__).parent))
    import stubs

    stubs.write(STUBS, {name: public(name) for name in MODULES})


def on_files(files: Any, config: Any) -> Any:
    """The hook of mkdocs: the pages of the reference."""
    from mkdocs.structure.files import File

    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_others: Any) -> str:
    """The hook of mkdocs: what stands outside docs/ is named, since the site does not have it."""
    if "/" in page.file.src_uri:
        return markdown
    return re.sub(r"\[([^]]+)\]\(\.\./([^)#]+)[^)]*\)", r"\1 (`\2` in the repository)", markdown)
