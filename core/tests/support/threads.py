"""Functions that run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable


def together(functions: list[Callable[[], None]]) -> None:
    """Call each in a thread of its own, and raise what one of them raises."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
