"""The tests that every codegen backend of mgb must pass.

Run them with no file of your own::

    pytest --pyargs mgb_conformance --mgb-backend NAME

or from a test module of your repository, which is all it takes::

    from mgb_conformance import *
    MGB_BACKEND = "mine"

or one tier at a time::

    from mgb_conformance import TestReductions as _Reductions
    MGB_BACKEND = "mine"
    class TestReductions(_Reductions): ...

What a backend does not claim in its `Traits` is skipped, with the reason; all else must pass. `TestFloor`
fails where so little is left that the rest proves nothing; at the end the skips are told. A failure that you
know of goes into a file of your own, ``"TestCasts::test_bitcast[float32-int32]" = "why"``, given by
``--mgb-known-failures``; when it is mended the suite says so by failing.
"""

from importlib import import_module

_TIERS = {
    "TestContract": "test_contract",
    "TestElementwise": "test_elementwise",
    "TestSpecialValues": "test_special",
    "TestIntegers": "test_integers",
    "TestCasts": "test_casts",
    "TestLayouts": "test_layouts",
    "TestReductions": "test_reductions",
    "TestGradients": "test_gradients",
    "TestHalves": "test_halves",
    "TestFusion": "test_fusion",
    "TestProducts": "test_products",
    "TestRandomGraphs": "test_random",
    "TestGathers": "test_gathers",
    "TestScatters": "test_scatters",
    "TestDots": "test_dots",
    "TestIndexing": "test_gathers",
    "TestIndexMaps": "test_index_maps",
    "TestScans": "test_scans",
    "TestLoops": "test_loops",
    "TestRecurrences": "test_recurrences",
    "TestTraining": "test_training",
    "TestPromises": "test_promises",
    "TestCache": "test_cache",
    "TestThreads": "test_threads",
    "TestInterrupts": "test_interrupts",
    "TestForks": "test_forks",
    "TestFloor": "test_floor",
}

__all__ = list(_TIERS)


def __getattr__(name: str) -> type:
    """Import a tier when it is asked for: the pytest plugin is loaded in every run and must cost nothing."""
    if name not in _TIERS:
        raise AttributeError(name)
    tier: type = getattr(import_module(f".{_TIERS[name]}", __name__), name)
    return tier
