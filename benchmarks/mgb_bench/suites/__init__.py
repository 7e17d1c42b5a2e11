"""The pytest-benchmark programs, one module for each suite."""
