"""A device for tests that need no GPU."""
