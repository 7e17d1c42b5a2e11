"""Test benches that need no GPU: kernels run by the host, and a driver that only takes notes."""
