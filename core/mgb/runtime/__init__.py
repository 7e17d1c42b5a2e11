"""The runtime below arrays: settings, files, processes, devices, memory, ownership of code."""
