"""Images of kernels by what they were compiled from: in memory, in a saved kernel, on disk."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Mapping

from mgb.runtime import cache, forking

from .device import Device


class Images:
    """The images that one kernel has been compiled to: it may have several variants, on several devices.

    Parameters
    ----------
    folder : str
        Whose they are in the on-disk cache.
    saved : bytes, optional
        What `dump` gave.
    """

    def __init__(self, folder: str, saved: bytes = b"") -> None:
        self.folder = folder
        self._lock = forking.lock()
        known: Mapping[str, str] = json.loads(saved) if saved else {}
        self._images = {key: b64decode(text, validate=True) for key, text in known.items()}

    def get(self, device: Device, source: str, keep: bool = True) -> bytes:
        """Return the image of `source` for `device`.

        Parameters
        ----------
        device : Device
        source : str
        keep : bool, optional
            Look on disk and keep it there; the first variant is kept with its kernel.
        """
        key = _digest(device.key(), source)
        found = self._images.get(key)
        if found is None:
            with self._lock:
                found = self._images.get(key)
                if found is None:
                    found = self._kept(device, source) if keep else device.compile(source)
                    self._images[key] = found
        return found

    def _kept(self, device: Device, source: str) -> bytes:
        key = _digest(device.key(), device.toolchain(), source)
        found = cache.load(self.folder, key)
        if found is None:
            found = device.compile(source)
            cache.store(self.folder, key, found)
        return found

    def dump(self) -> bytes:
        """Return all of them, for a kernel that is saved."""
        images = dict(self._images)
        return json.dumps({key: b64encode(image).decode() for key, image in images.items()}).encode()


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
