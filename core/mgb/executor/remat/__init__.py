"""What is computed again rather than kept: checkpoints, plans of memory, dynamic eviction."""
