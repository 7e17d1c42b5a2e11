"""The shared part of the GPU backends of mgb: devices, argument packing, launches.

Nothing here imports a GPU library before `devices.current` is called.
"""

from .device import Device, Function, LaunchError, Properties, ResourceError
from .images import Images
from .packing import Packet, Packing

__all__ = ["Device", "Function", "Images", "LaunchError", "Packet", "Packing", "Properties", "ResourceError"]
