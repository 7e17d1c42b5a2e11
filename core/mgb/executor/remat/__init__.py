"""Rematerialization, which trades time for memory: checkpoints, memory plans, dynamic eviction."""
