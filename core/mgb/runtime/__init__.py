"""What knows of no array program: settings, files, processes, devices, memory, whose code is whose."""
