"""A case as a test that others can run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mgb import dtypes
from mgb.executor import Options
from mgb.ir import CONST, Graph

from .case import Array, Case, steps_of
from .changes import plain_arrays
from .judge import Verdict

#: More elements than this stand in a file beside the test.
_SHOWN = 256

#: How `changes.plain_arrays` are written, in its order.
_PLAIN = (
    'np.ones({shape}, "{dtype}")',
    'np.arange({count}).astype("{dtype}").reshape({shape})',
    '(np.arange({count}) % 7).astype("{dtype}").reshape({shape})',
)

_MODULE = '''"""{said}.

Reduced by `mgb reduce` from {origin}.
"""

{imports}


def graph({inputs}):
{lines}


ARRAYS = [
{arrays}
]


def test_{backend}_agrees_with_eager():
    check(graph, ARRAYS, {others})
'''


def written(
    case: Case, verdict: Verdict, options: Options, path: Path, origin: str, script: str | None = None
) -> str:
    """Return the text of a test module at `path`; long arrays go into a file beside it.

    Parameters
    ----------
    case : Case
    verdict : Verdict
        What is wrong with it.
    options : Options
        With the backend's name.
    path : Path
        Where the module is going to stand.
    origin : str
        What was reduced.
    script : str, optional
        The file that registers the backend.
    """
    data = path.with_suffix(".npz")
    long = {f"x{k}": _bytes(a) for k, a in enumerate(case.arrays) if _text(a) is None}
    if long:
        np.savez(data, **long)  # type: ignore[arg-type]
    arrays = "\n".join(f"    {_array(a, f'x{k}', data)}," for k, a in enumerate(case.arrays))
    others = [f"backend={options.backend!r}"] + ([] if script is None else [f"script={script!r}"])
    if options != Options(backend=options.backend):
        others.append(f"options={options!r}")
    text = _MODULE.format(
        said=verdict.text,
        origin=origin,
        imports="{imports}",
        inputs=", ".join(f"x{k}" for k in range(len(case.arrays))),
        lines="\n".join(_lines(case.graph)),
        arrays=arrays,
        backend=options.backend,
        others=", ".join(others),
    )
    return text.replace("{imports}", "\n".join(_imports(text)), 1)


def _imports(text: str) -> Iterator[str]:
    """Yield the imports that the rest of the module uses."""
    if "np.load(" in text:
        yield "from pathlib import Path\n"
    yield "import numpy as np"
    if "Options(" in text:
        yield "from mgb.executor import Options"
    used = [name for name in ("check", "constant", "laid_out", "op") if f"{name}(" in text]
    yield f"from mgb_conformance.reducer import {', '.join(used)}"


def _lines(graph: Graph) -> Iterator[str]:
    """Yield the body of the function that makes `graph`."""
    names = {n: f"x{k}" for k, n in enumerate(graph.inputs)}
    for number, node in enumerate(graph.nodes):
        names[node] = f"v{number}"
        if node.op is CONST:
            value = node.params["value"]
            text = f'constant({_numbers(value)}, "{value.dtype.name}")'
        else:
            params = [f"{k}={_parameter(v)}" for k, v in sorted(node.params.items())]
            text = f"op({', '.join([repr(node.op.name), *(names[i] for i in node.inputs), *params])})"
        yield f"    {names[node]} = {text}"
    yield f"    return [{', '.join(names[o] for o in graph.outputs)}]"


def _numbers(array: Array) -> str:
    wide = array.astype(np.float64) if array.dtype in dtypes.FLOATS else array
    return re.sub(r"\b(inf|nan)\b", r"np.\1", repr(wide.tolist()))


def _parameter(value: Any) -> str:
    return f'np.dtype("{value.name}")' if isinstance(value, np.dtype) else repr(value)


def _array(array: Array, name: str, data: Path) -> str:
    """Return an expression for it."""
    file = f"np.load(Path(__file__).with_name({data.name!r}))"
    shape = tuple(map(int, array.shape))
    text = _text(array) or f'{file}[{name!r}].view("{array.dtype.name}").reshape({shape})'
    steps = steps_of(array)
    return text if steps is None else f"laid_out({text}, {tuple(steps)})"


def _text(array: Array) -> str | None:
    """Return an expression without a file; None where that would be long."""
    shape, count = tuple(map(int, array.shape)), array.size
    for simple, text in zip(plain_arrays(shape, array.dtype), _PLAIN):
        if (simple == array).all():
            return text.format(shape=shape, dtype=array.dtype.name, count=count)
    if count > _SHOWN:
        return None
    return f'np.array({_numbers(array.reshape(-1))}).astype("{array.dtype.name}").reshape({shape})'


def _bytes(array: Array) -> Array:
    """Return bytes of a NumPy file, which has every dtype, bfloat16 too."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
