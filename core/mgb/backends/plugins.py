"""The seam between the core and its plugins: four hooks, and how a backend is found by its name.

A plugin is a module (or any object) with functions marked `hookimpl`. A distribution announces one for each
of its backends in the entry-point group ``mgb.backends``, by the name of the backend. Only the plugin that
is named is imported. ``manager.register(plugin, name="mine")`` does without a distribution. Plugins of
formats are found in the same way (`formats`). Plugins of ops stand in the group ``mgb.ops``, under any name:
all of them are imported when an op is first looked for by its name (`known_ops`).
"""

from __future__ import annotations

import difflib
import json
import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache as once
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from types import NoneType
from urllib.parse import unquote, urlsplit

import pluggy

from ..errors import (
    BackendContractError,
    BackendError,
    BackendImportError,
    BackendNotInstalledError,
    BackendUnavailableError,
    NoBackendWarning,
    UnknownBackendError,
)
from ..ir import Graph, Op
from ..ir.graph import digest
from ..loops import LOOPS as LOOPS  # whose ops are known, too
from ..ops import declare_all
from ..ops.declare import OPS
from ..ops.declare import register as register_op
from ..passes.decompose import ALWAYS
from ..runtime import cache, config, forking
from ..runtime.entry_points import EntryPoints, announced
from .answers import answer
from .backend import API_VERSION, OLDEST_API_VERSION, Backend, Kernel, Traits
from .eager_backend import EagerBackend
from .traits import nearest

__all__ = [
    "Hooks", "Status", "choose_backend", "hookimpl", "hookspec", "import_backend", "installed",
    "known_ops", "load_backend", "manager", "status",
]  # fmt: skip

GROUP = "mgb.backends"
OPS_GROUP = "mgb.ops"

#: The backends that this project publishes, and the extra of ``mgb`` that installs each.
EXTRAS = {
    "cpu_llvm": "cpu",
    "cpu_numba": "cpu",
    "nvrtc": "nvrtc",
    "triton": "triton",
    "mlir": "mlir",
    "halide": "halide",
    "xla": "xla",
}

_POINTS = EntryPoints(GROUP, "backend", EXTRAS)
_install = _POINTS.install

hookspec = pluggy.HookspecMarker("mgb")
hookimpl = pluggy.HookimplMarker("mgb")

_log = logging.getLogger("mgb.backend")


class Hooks:
    """The hooks that a plugin may implement; they may take fewer arguments than are given here.

    Examples
    --------
    >>> sorted(hook for hook in vars(mgb.plugins.Hooks) if hook.startswith("mgb_"))
    ['mgb_backend', 'mgb_compiled', 'mgb_format', 'mgb_ops']
    """

    @hookspec(firstresult=True)
    def mgb_backend(self, name: str) -> Backend | None:
        """Return the backend called `name` (lower case), or None when it is not yours."""

    @hookspec(firstresult=True)
    def mgb_format(self, name: str) -> object:
        """Return the `model_file.Format` called `name` (lower case), or None when it is not yours."""

    @hookspec
    def mgb_ops(self) -> Iterable[Op]:  # type: ignore[empty-body]
        """Return the ops that you add, the same objects each time; each has a body or is yours to print."""

    @hookspec
    def mgb_compiled(self, backend: Backend, graph: Graph, kernel: Kernel, seconds: float) -> None:
        """Observe each compilation, for dumps, profilers and benchmarks."""


class _Builtin:
    """The one backend that is always there comes through the hook like every other."""

    @hookimpl
    def mgb_backend(self, name: str) -> Backend | None:
        return EagerBackend() if name == "eager" else None


manager = pluggy.PluginManager("mgb")
manager.add_hookspecs(Hooks)
manager.register(_Builtin(), name="eager")


@dataclass(frozen=True, slots=True)
class Status:
    """One line of `status`: a backend, where it comes from, why it cannot be used, and what makes it slow.

    Examples
    --------
    >>> (eager,) = (line for line in mgb.plugins.status() if line.name == "eager")
    >>> eager.distribution, eager.problem
    ('mgb', '')
    """

    name: str
    distribution: str
    devices: tuple[str, ...] = ()
    priority: int = 0
    version: str = ""
    problem: str = ""
    note: str = ""


def installed() -> Mapping[str, str]:
    """Return the name of each backend that is here and the distribution it comes from; imports none of them.

    Examples
    --------
    >>> installed()["eager"]
    'mgb'
    """
    by_hand = {n: _package(p) for n, p in manager.list_name_plugin() if hasattr(p, "mgb_backend")}
    return by_hand | {name: _POINTS.source(name) for name in _POINTS.announced()}


def load_backend(name: str) -> Backend:
    """Return the backend called `name`, ready to compile.

    Parameters
    ----------
    name : str
        Case does not matter.

    Raises
    ------
    UnknownBackendError, BackendNotInstalledError
        There is no such package.
    BackendImportError
        The package is broken.
    BackendContractError
        A field of the backend's traits is not valid, or its `probe` fails.
    BackendUnavailableError
        It cannot run here, is of another version of the API, or two packages provide it. Every message has
        the command that helps.

    Examples
    --------
    >>> load_backend("eager").name
    'eager'
    """
    backend = import_backend(name)
    problem = _problem(backend)
    if problem:
        raise BackendUnavailableError(f"backend {backend.name!r} cannot run here: {problem}")
    return backend


def _problem(backend: Backend) -> str:
    """Return why `backend` cannot run here; empty when it can."""
    return answer(backend, "probe", (str, NoneType)) or ""


def import_backend(name: str) -> Backend:
    """Import a backend for its traits, without checking whether it can run on this machine.

    Examples
    --------
    >>> import_backend("EAGER").traits.api_version
    1
    """
    with (
        forking.undivided("the import of a backend"),
        _importing,
    ):  # a second thread waits for the first: a plugin is registered once
        return _imported(name.strip().lower())


_importing = forking.lock()


@once
def _imported(name: str) -> Backend:
    plugin = manager.get_plugin(name) or _import_plugin(name, _entry_point(name))
    backend = _ask(name, plugin)
    _check_version(name, backend)
    _check_words(name, backend.traits.vocabulary, known_ops())
    return backend


def known_ops() -> Mapping[str, Op]:
    """Return every op by its name, those of plugins too; a broken package of ops is logged and left out.

    Raises
    ------
    BackendContractError, BackendUnavailableError
        A plugin returns something else than ops, or another op of a name that is taken.

    Examples
    --------
    >>> known_ops()["tanh"].kind
    <Kind.ELEMENTWISE: 'elementwise'>
    """
    with forking.undivided("the import of ops"), _importing:
        declare_all()
        for name, points in announced(OPS_GROUP).items():
            for distribution, point in points.items():
                if manager.get_plugin(point.name) is None:
                    try:
                        load_plugin(point)
                    except Exception as error:
                        _log.warning("the ops of %s (%s) cannot be loaded: %r", name, distribution, error)
        _register_ops()
    return OPS


def _register_ops() -> None:
    for op in (op for ops in manager.hook.mgb_ops() for op in ops):
        if not isinstance(op, Op):
            raise BackendContractError(f"mgb_ops() of a plugin gave {op!r}, where it has to give ops")
        try:
            register_op(op)
        except ValueError as error:
            raise BackendUnavailableError(f"mgb_ops() of a plugin: {error}") from error


def _import_plugin(name: str, point: EntryPoint) -> object:
    try:
        return load_plugin(point)
    except Exception as error:
        raise _failure(name, "imported", error) from error


def load_plugin(point: EntryPoint) -> object:
    """Return the plugin at an entry point, registered; whatever is wrong with it is raised as it is."""
    try:
        plugin: object = point.load()  # pluggy would read what every distribution here announces
        manager.register(plugin, name=point.name)
        unknown = [hook.name for hook in manager.get_hookcallers(plugin) or () if not hook.has_spec()]
        if unknown:
            raise AttributeError(f"there is no hook called {', '.join(unknown)}")
        return plugin
    except Exception:
        if manager.get_plugin(point.name) is not None:
            manager.unregister(name=point.name)
        raise


def ask(plugin: object, hook: str, name: str) -> object:
    """Call a hook of `plugin` alone with `name`; other plugins can neither answer nor interfere."""
    others = [p for _, p in manager.list_name_plugin() if p is not plugin]
    return manager.subset_hook_caller(hook, others)(name=name)


def _ask(name: str, plugin: object) -> Backend:
    """Return the backend that `plugin` has under `name`, if what it says of itself makes sense."""
    try:
        backend = ask(plugin, "mgb_backend", name)
        traits = getattr(backend, "traits", None)  # a property, maybe
    except Exception as error:
        raise _failure(name, "made", error) from error
    if not isinstance(backend, Backend) or getattr(backend, "name", None) != name:
        raise BackendImportError(
            f"the plugin {name!r} ({installed()[name]}) gave {backend!r} where a Backend of that name was "
            f"expected; its mgb_backend(name) must return one when `name` is the name of its entry point, in "
            f"lower case, and the backend's attribute `name` must be the same"
        )
    if type(backend).__hash__ is None:
        raise BackendImportError(
            f"{_of(name)}: its class {type(backend).__name__} has no hash, by which kernels are kept; "
            "a dataclass has one with eq=False"
        )
    if not isinstance(traits, Traits):
        raise BackendContractError(f"{_of(name)}: its attribute `traits` is {traits!r}, not a Traits")
    return backend


def _of(name: str) -> str:
    return f"backend {name!r} ({installed()[name]})"


def _failure(name: str, what: str, error: Exception) -> BackendError:
    """Return the error to raise when a backend cannot be imported or made because of `error`."""
    if isinstance(error, BackendContractError):
        return BackendContractError(f"{_of(name)}: {error}")
    return BackendImportError(_POINTS.failure(name, what, error, installed()[name]))


def _entry_point(name: str) -> EntryPoint:
    points = _POINTS.announced().get(name)
    if points is None:
        raise _not_found(name)
    if conflict := _POINTS.conflict(name):
        raise BackendUnavailableError(conflict)
    return next(iter(points.values()))


def _not_found(name: str) -> BackendError:
    here = ", ".join(sorted(installed()))
    if name in EXTRAS:
        return BackendNotInstalledError(f"backend {name!r} is not installed ({here} are): {_install(name)}")
    near = difflib.get_close_matches(name, sorted({*installed(), *EXTRAS}), n=1)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    wanted = next((n for n in near if n in EXTRAS), next(iter(EXTRAS)))
    return UnknownBackendError(
        f"no backend is called {name!r}{meant} Installed: {here}. To install {wanted}: {_install(wanted)}"
    )


def _check_version(name: str, backend: Backend) -> None:
    wanted = backend.traits.api_version
    written = f"{_of(name)} was written for version {wanted} of the backend API"
    if OLDEST_API_VERSION <= wanted < API_VERSION:
        _log.warning("%s, of which %s is the newest: a later mgb will refuse it", written, API_VERSION)
    elif wanted != API_VERSION:
        older = "mgb" if wanted > API_VERSION else installed()[name]
        here = " to ".join(map(str, sorted({OLDEST_API_VERSION, API_VERSION})))
        raise BackendUnavailableError(
            f"{written}, this mgb has version {here}: pip install --upgrade {older}"
        )


def _check_words(name: str, vocabulary: frozenset[str], ops: Mapping[str, Op]) -> None:
    """Reject unknown ops in a vocabulary: the intended ops would run one by one, unnoticed."""
    for word in sorted(vocabulary - ops.keys() - {op.name for op in ALWAYS}):
        raise BackendContractError(f"{_of(name)}: Traits.vocabulary has {word!r}{nearest(word, ops)}")


def _package(plugin: object) -> str:
    module: str = getattr(plugin, "__name__", type(plugin).__module__)
    return module.partition(".")[0]


# choosing


def check_names(names: str) -> None:
    """Refuse a name in a list, separated by commas, that no backend has, installed or not.

    Raises
    ------
    UnknownBackendError
    """
    for name in (name.strip().lower() for name in names.split(",")):
        if name and name not in EXTRAS and name not in installed():
            raise _not_found(name)


def choose_backend(device_type: str, names: str | Sequence[str] | None = None) -> Backend:
    """Return the backend for a kind of device.

    Parameters
    ----------
    device_type : str
        ``"cpu"`` or ``"gpu"``.
    names : str or sequence of str, optional
        In order of preference; a string is split at commas. None: what ``MGB_JIT_BACKEND`` says now.
        Empty: the best one that works.

    Returns
    -------
    Backend
        The first of `names` whose traits have the device. It is never replaced: if it cannot be imported or
        cannot run, that is an error. The answer is kept for each question.

    Raises
    ------
    BackendError
        As `load_backend`, or none of `names` serves this kind of device.

    Examples
    --------
    >>> choose_backend("cpu", "eager").name
    'eager'
    """
    given = config.BACKEND.get() if names is None else names
    listed = given.split(",") if isinstance(given, str) else given
    try:
        return _chosen(device_type, tuple(n for n in (name.strip().lower() for name in listed) if n))
    except (UnknownBackendError, BackendNotInstalledError) as error:
        if names is not None:
            raise
        raise type(error)(f"{config.BACKEND.name}={given!r}: {error}") from error


@once
def _chosen(device_type: str, names: tuple[str, ...]) -> Backend:
    return _first_serving(device_type, names) if names else _best(device_type)


def _first_serving(device_type: str, names: Sequence[str]) -> Backend:
    for name in names:
        backend = import_backend(name)
        if device_type in backend.traits.devices:
            _log.info("%s serves device %s, as asked", backend.name, device_type)
            return load_backend(name)
    serves = ", ".join(f"{n} ({'/'.join(sorted(import_backend(n).traits.devices))})" for n in names)
    raise BackendUnavailableError(
        f"no named backend serves device {device_type!r}: {serves}; "
        f"add one that does, or eager: {config.BACKEND.name}={','.join(names)},eager"
    )


def own(name: str) -> bool:
    """Return whether `name` is a backend of this project: one of `EXTRAS`, or from the distribution of one.

    Examples
    --------
    >>> own("eager"), own("cpu_llvm"), own("mine")
    (True, True, False)
    """
    here = installed()
    return name in EXTRAS or name == "eager" or here.get(name) in {here[n] for n in EXTRAS if n in here}


def _best(device_type: str) -> Backend:
    """Return the first that runs: by priority, of equal ones this project's first, then by name.

    Those behind it are not asked whether they would.
    """
    serving = [(-first, not own(name), name) for name, (first, on) in _offers().items() if device_type in on]
    for *_, name in sorted(serving):
        try:
            best = load_backend(name)
        except BackendError as error:
            _log.info("%s is skipped: %s", name, error)
            continue
        _log.info("%s serves device %s; %s names another", best.name, device_type, config.BACKEND.name)
        return best
    return load_backend("eager")


def _offers() -> dict[str, tuple[int, list[str]]]:
    """Return priority and devices of each backend that is here: as long as no code changes, from the cache.

    To import all of them takes longer than what a small program waits for otherwise.
    """
    key = _code_key()
    if key is not None and (kept := cache.load(".backends", key)) is not None:
        return dict(json.loads(kept))
    found = {}
    for name in installed():
        try:
            traits = import_backend(name).traits
            found[name] = traits.priority, sorted(traits.devices)
        except BackendError as error:
            _log.info("%s is skipped: %s", name, error)
            key = None  # it may be there next time
    if key is not None:
        cache.store(".backends", key, json.dumps(found).encode())
    return found


def _code_key() -> str | None:
    """Return a digest that is another one when the code of a backend is; None where that cannot be told."""
    files = []
    for name in installed():
        points = _POINTS.announced().get(name, {})
        specs = [find_spec(point.module.partition(".")[0]) for point in points.values()]
        if name != "eager" and (len(specs) != 1 or specs[0] is None or specs[0].origin is None):
            return None
        files += [file for spec in specs if spec for file in Path(str(spec.origin)).parent.glob("*.py")]
    stats = sorted((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    return digest(repr((sorted(installed().items()), stats)).encode())


def install_line() -> str:
    """Return the command that brings the CPU backends: from the checkout that mgb comes from, if it has one.

    Examples
    --------
    >>> install_line().startswith("pip install")
    True
    """
    root = Path(__file__).resolve().parents[3]
    with suppress(PackageNotFoundError, ValueError, KeyError):
        origin = distribution("mgb").read_text("direct_url.json")
        if origin is not None:
            root = Path(unquote(urlsplit(json.loads(origin)["url"]).path))
    wanted = root / "requirements.txt"
    if (root / "plugins" / "cpu_llvm").is_dir() and wanted.is_file():
        return f"pip install -r {wanted}"
    return _install("cpu_llvm")


def warn_of_none(chosen: Backend, names: str | Sequence[str] | None) -> None:
    """Say once in a process that `chosen` compiles nothing, where nobody named it."""
    if isinstance(chosen, EagerBackend) and not (config.BACKEND.get() if names is None else names):
        _warn_of_none()


@once
def _warn_of_none() -> None:
    warnings.warn(
        f"no backend is installed that compiles: traced functions run op by op. {install_line()} brings one; "
        f"{config.BACKEND.name}=eager says that this is meant",
        NoBackendWarning,
        stacklevel=2,
    )


def status() -> tuple[Status, ...]:
    """Return every backend that is installed or known, sorted by name; imports all that are installed.

    Examples
    --------
    >>> "eager" in [line.name for line in status()]
    True
    """
    return tuple(_status(name) for name in sorted({*installed(), *EXTRAS}))


def _status(name: str) -> Status:
    distribution = installed().get(name, "")
    try:
        backend = import_backend(name)
        traits, problem = backend.traits, _problem(backend)
        version = "" if problem else answer(backend, "version", str)
        note = "" if problem else answer(backend, "note", (str, NoneType)) or ""
        devices = tuple(sorted(traits.devices))
        return Status(name, distribution, devices, traits.priority, version, problem, note)
    except BackendError as error:
        return Status(name, distribution, problem=str(error))


def __dir__() -> list[str]:
    return __all__
