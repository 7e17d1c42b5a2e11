"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any


def replace_file(path: Path, blobs: Iterable[Any]) -> None:
    """Write a file beside `path`, then rename it: a reader sees the old content or the new, never a part.

    What is no file, as a pipe or ``/dev/null``, is written to, and stays what it is.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with open(path, "wb") as device:
            device.writelines(blobs)
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(temporary, "xb") as file:
            for blob in blobs:
                file.write(blob)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if str(error.filename) == str(temporary):  # a name of which the user knows nothing
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
