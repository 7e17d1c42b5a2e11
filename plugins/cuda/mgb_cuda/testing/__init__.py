"""Test benches that need no GPU, and the tests that GPU backends share.

`host` runs kernels of CUDA C++ on the host, `stub` is a driver that only takes notes. A backend describes
itself once, as a `bench.Bench`; a test class derives from a `suite.Suite`, names that bench, and adds what is
true of the backend alone. The suites need pytest and `mgb_conformance`.
"""
