"""What raises each error of mgb, for the reference: the last statement of an example does.

``python docs/raised.py`` runs all, each in an empty folder, and prints what they raise.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import warnings

#: What an example begins with, by a word that is in it.
GIVEN = {
    "trace(": "from mgb.jit import trace",
    "GradManager": "from mgb.autodiff import GradManager",
    "load_compiled": "from mgb.jit import load_compiled",
    "SGD": "from mgb.optimizer import SGD",
    "LoadLimits": "from mgb.jit import LoadLimits",
    "Traits": "from mgb.backends import Traits",
    "DataLoader": "from mgb.data import DataLoader",
    "helper": "from onnx import TensorProto, helper",
    "os.": "import os",
}

#: What comes of a machine, of other packages or of threads, and is told in words.
OF_MACHINES = {
    "AutoInterruptedError": "A computation that was deferred, by `auto` or in a body that runs, was "
    "interrupted, as by Ctrl-C.",
    "BackendContractError": "`probe` of a backend gave a list, where a text or None has to be.",
    "BackendImportError": "The module of an installed backend fails to import, for a package is missing.",
    "BackendNotInstalledError": "`MGB_JIT_BACKEND=triton` without `pip install mgb-triton`.",
    "BackendUnavailableError": "`MGB_JIT_BACKEND=nvrtc` on a machine without a driver.",
    "CompileError": "The compiler of a backend ends with an error; the message has the graph.",
    "DeviceMemoryError": "A Tensor is made on a GPU that is full.",
    "DeviceMismatchError": "`x + y` of Tensors on a CPU and on a GPU.",
    "ForkedProcessError": "A child of `os.fork` compiles, while a thread of its parent was compiling.",
    "FormatImportError": "mgb-onnx is installed, and onnx is not.",
    "LibraryError": "oneDNN has no memory left for a product.",
    "MeshError": "`xla_trace` over several devices gets a batch that they cannot share equally.",
    "NoBackendWarning": "The first trace where no backend that compiles is installed.",
}

#: What only others are derived from: an example raises one of these.
ROOTS = ("BackendError", "MgbError")

#: By the error.
EXAMPLES = {
    "ArgumentError": "SGD([], lr=0.1)",
    "AutoWarning": """
os.environ["MGB_JIT_BACKEND"] = "no_such_backend"
with mgb.jit.auto(after=1):
    for _ in range(4):
        _ = (mgb.tensor([1.0]) * 2 + 1).item()
""",
    "AxisError": "mgb.tensor([1.0, 2.0]).sum(axis=1)",
    "BackendError": 'mgb.plugins.load_backend("cpu_lvm")',
    "CacheWarning": """
open("file", "w").close()
os.environ["MGB_CACHE_DIR"] = os.path.abspath("file")
f = trace(lambda x: F.exp(x) * 3.25 + 1)
for _ in range(2):
    _ = f(mgb.tensor([1.0]))
""",
    "CompiledFileError": """
trace(lambda x: x * 2).export("double.mgb", "f32[3]")
mgb.jit.load("double.mgb")
""",
    "ConversionError": "mgb.tensor([1.5]) & mgb.tensor([2])",
    "DeviceError": 'mgb.tensor([1.0], device="tpu9")',
    "DeviceUnavailableError": 'mgb.tensor([1.0], device="gpu99")',
    "DumpWarning": """
double = trace(lambda x: x * 2, capture_as_const=True)
_ = double(mgb.tensor([1.0, 2.0]))
double.dump("both.onnx", arg_names="x", output_names="y", input_data=[{"x": np.ones(2)}])
double.dump("both.onnx", arg_names="a", output_names="b", append=True)
""",
    "ExportError": 'trace(lambda x: x * 2, capture_as_const=True).dump("double.onnx")',
    "FileFormatError": """
with open("notes.mgb", "w") as file:
    _ = file.write("no state")
mgb.load("notes.mgb")
""",
    "FileVersionError": """
node = helper.make_node("Neg", ["x"], ["y"])
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
model = helper.make_model(helper.make_graph([node], "graph", [x], [y]))
model.opset_import[0].version = 999
mgb.jit.load(model.SerializeToString())
""",
    "GraphError": """
from mgb.codegen import domain
from mgb.ir import Spec
from mgb.tensor.tracing import graph_of
domain(graph_of(lambda x, y: (x + 1, y + 1), *(Spec((n,), np.dtype("float32")) for n in (2, 3))))
""",
    "ImpureBodyError": """
trace(lambda x: print("called") or x * 2, run_body=False)(mgb.tensor([1.0]))
""",
    "IndexOutOfRangeError": "M.Embedding(3, 2)(mgb.tensor([7]))",
    "LinAlgError": "mgb.linalg.inv(mgb.tensor([[1.0, 1.0], [1.0, 1.0]]))",
    "LoadLimitError": """
double = trace(lambda x: x * 2, capture_as_const=True)
_ = double(mgb.tensor([1.0, 2.0]))
_ = double.dump("double.onnx", arg_names=["x"], output_names=["y"])
mgb.jit.load("double.onnx", limits=LoadLimits(elements=1))([1.0, 2.0])
""",
    "LoadedFunctionError": """
node = helper.make_node("Gather", ["x", "i"], ["y"])
kinds = {"x": TensorProto.FLOAT, "i": TensorProto.INT64, "y": TensorProto.FLOAT}
x, i, y = (helper.make_tensor_value_info(name, kind, [2]) for name, kind in kinds.items())
model = helper.make_model(helper.make_graph([node], "graph", [x, i], [y]))
mgb.jit.load(model.SerializeToString())([1.0, 2.0], np.array([0, 7]))
""",
    "LoopError": """
mgb.jit.scan(lambda carry, x: (carry.sum(), x), mgb.tensor([0.0, 0.0]), mgb.tensor([1.0]))
""",
    "MemoryBudgetError": """
config = mgb.jit.DTRConfig(eviction_threshold=1)
f = trace(lambda x: (F.exp(x) + x).sum(), dtr_config=config)
for _ in range(2):
    f(F.zeros((1024,)))
""",
    "MgbError": "mgb.tensor([1.0, 2.0]) + mgb.tensor([1.0, 2.0, 3.0])",
    "NoGradientError": """
mgb.grad(lambda x: mgb.jit.while_loop(lambda x: x < 9, lambda x: x * 2, x))(mgb.tensor(1.0))
""",
    "SampleError": """
class Images:
    def __len__(self):
        return 2
    def __getitem__(self, i):
        raise OSError(f"no image {i}")
list(DataLoader(Images(), 2))
""",
    "ShapeError": "mgb.tensor([1.0, 2.0]) + mgb.tensor([1.0, 2.0, 3.0])",
    "StateDictError": 'M.Linear(2, 1).load_state_dict({"weight": np.ones((1, 2))})',
    "SymbolicReadError": "trace(lambda x: x * x.sum().item(), symbolic=True)(mgb.tensor([1.0]))",
    "TapeError": "GradManager().backward(mgb.tensor([1.0]))",
    "TraceError": "trace(lambda x: x * 2).get_profile()",
    "TraceInputError": "trace(lambda x: x, oops=True)",
    "TraceMismatchError": """
double = trace(lambda x: x * 2, run_body=True)
_ = double(mgb.tensor([1.0]))
double(mgb.tensor([1]))
""",
    "TraceOutputError": """
def endless(x):
    out = [x]
    out.append(out)
    return out
trace(endless)(mgb.tensor([1.0]))
""",
    "TracePicklingError": """
import pickle
pickle.dumps(trace(lambda x: x))
""",
    "TransformError": "mgb.grad(lambda x: x * 2)(mgb.tensor([1.0, 2.0]))",
    "UnknownBackendError": 'mgb.plugins.load_backend("cpu_lvm")',
    "UnknownInputError": """
net = M.Linear(2, 1)
mgb.jit.xla_trace(lambda x: net(x), backend="eager")(F.ones((1, 2)))
""",
    "UnrolledLoopWarning": """
def grow(x):
    for _ in range(5000):
        x = x * 1.001
    return x
_ = trace(grow)(mgb.tensor([1.0]))
""",
    "UnsupportedError": """
waves = trace(np.fft.fft, capture_as_const=True)
_ = waves(mgb.tensor([1.0, 2.0]))
waves.dump("waves.onnx")
""",
    "VariableError": """
os.environ["MGB_NUM_THREADS"] = "many"
mgb.backends.num_threads()
""",
}  # fmt: skip


def source(name: str) -> str:
    """An example with what it imports."""
    code = EXAMPLES[name].strip()
    return "\n".join([*(line for word, line in GIVEN.items() if word in code), code])


def outcome(name: str) -> str:
    """What an example raises, and the first line of what that says."""
    import linecache

    import mgb.tools.cli
    import numpy as np
    from mgb import functional, module

    scope = {"mgb": mgb, "np": np, "F": functional, "M": module, "__name__": "example"}
    file, environment = f"{name}.py", dict(os.environ)
    linecache.cache[file] = (1, None, source(name).splitlines(keepends=True), file)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        os.chdir(folder)
        warnings.simplefilter("error")
        try:
            exec(compile(source(name), file, "exec", dont_inherit=True), scope)
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0]}"
        finally:
            os.chdir("/")
            os.environ.clear()
            os.environ.update(environment)
    return "nothing"


@functools.cache
def outcomes() -> dict[str, str]:
    """What each example raises, in a process that nobody else uses."""
    run = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(run.stdout.splitlines()[-1])
    return found


def section(name: str) -> str:
    """What the reference says of it."""
    if name in OF_MACHINES:
        return f"\n\nExamples\n--------\n{OF_MACHINES[name]}"
    first = ("    ", ")", "}")
    lines = [f"{'...' if line.startswith(first) else '>>>'} {line}" for line in source(name).splitlines()]
    said = textwrap.wrap(f"mgb.errors.{outcomes()[name]}", 80, break_long_words=False, break_on_hyphens=False)
    lines += ["Traceback (most recent call last):", "    ...", *said]
    return "\n\nExamples\n--------\n" + "\n".join(lines)


if __name__ == "__main__":
    print(json.dumps({name: outcome(name) for name in EXAMPLES}))
