"""Shell commands, and tools for whole models."""
