"""The folders of installed plugins: whose code counts as the library's and not as a user's."""

from __future__ import annotations

import functools
import re
from importlib.metadata import entry_points, requires
from importlib.util import find_spec


@functools.cache
def plugin_folders() -> tuple[str, ...]:
    """The packages of the distributions that announce plugins, and of those that these require of mgb's.

    Who installs a distribution trusts it; a folder of that name is anybody's.
    """
    groups = [group for group in entry_points().groups if group.startswith("mgb.")]
    announced = [point for group in groups for point in entry_points(group=group)]
    packages = {point.module.partition(".")[0] for point in announced}
    packages.add("mgb_conformance")  # its arrays stand for those of a library in C
    packages |= _required({point.dist.name for point in announced if point.dist is not None})
    specs = filter(None, map(find_spec, sorted(packages)))
    return tuple(f"{folder}/" for spec in specs for folder in spec.submodule_search_locations or ())


def _required(distributions: set[str]) -> set[str]:
    """The packages of mgb's distributions that these need, and so on."""
    packages, waiting, seen = set(), list(distributions), set(distributions)
    while waiting:
        for requirement in requires(waiting.pop()) or ():
            name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
            if name.startswith("mgb-") and name not in seen and "extra ==" not in requirement:
                seen.add(name)
                waiting.append(name)
                packages.add(name.replace("-", "_"))
    return packages


def is_plugins(file: str) -> bool:
    """Is this file in one of those folders?"""
    return file.startswith(plugin_folders())
