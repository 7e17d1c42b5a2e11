"""mgb: trace, fuse, compile."""
