"""JAX's own settings, used before or otherwise, and processes that are forked."""

from __future__ import annotations

from pathlib import Path

from xla_helpers import new_process


def test_earlier_use_of_jax_gives_a_warning_and_correct_results(tmp_path: Path) -> None:
    script = """
        import jax, jax.numpy as jnp
        jnp.ones(3) + 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            x = np.linspace(0, 1, 1 << 20)
            for _ in range(2):
                y, = program(lambda x: x * 2 + 1, x).run(x)
                assert y.dtype == np.float64 and (y == x * 2 + 1).all()
        print(sum("asynchronous dispatch" in str(w.message) for w in caught))
        print(jnp.ones(3).dtype, (jnp.arange(3) + np.float64(1)).dtype, jax.config.jax_enable_x64)
    """
    assert new_process(script, tmp_path).split() == ["1", "float32", "float32", "False"]


def test_jax_keeps_its_own_settings(tmp_path: Path) -> None:
    script = """
        x = np.linspace(0, 1, 100)
        y, = program(lambda x: x * 2 + 1, x).run(x)
        import jax, jax.numpy as jnp
        print((jnp.ones(3) + x[0]).dtype, jax.config.jax_enable_x64, jax.config.jax_compilation_cache_dir)
        with jax.enable_x64(True):
            print(jnp.ones(3).dtype, (program(lambda x: x * 2 + 1, x).run(x)[0] == y).all())
    """
    assert new_process(script, tmp_path).split() == ["float32", "False", "None", "float64", "True"]


def test_jax_is_not_imported_before_a_kernel_is_needed(tmp_path: Path) -> None:
    script = """
        import sys
        from mgb.backends.plugins import load_backend
        load_backend("xla").version()
        print("jax" in sys.modules)
    """
    assert new_process(script, tmp_path).strip() == "False"


def test_jax_settings_of_the_user_change_no_result(tmp_path: Path) -> None:
    """Whenever JAX gets another setting: 64-bit dtypes stay, NaN is a value, whole programs are compiled."""
    script = """
        import jax

        def check(compiled, k):
            x, i = np.linspace(-1, 1, 50), np.arange(50) + 2**40
            y, j = compiled.run(x, i)
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(y, np.sqrt(x) + k)
            assert j.dtype == np.int64 and (j == i * k).all(), j
            p = compiled.run(x, i)
            assert (compiled.run(*p)[1] == j * k).all()  # arguments that JAX has made

        def compile(k):
            return program(lambda x, i: [x ** 0.5 + k, i * k], np.ones(50), np.arange(50))

        changed = {
            "jax_enable_x64": True, "jax_disable_jit": True, "jax_debug_nans": True, "jax_debug_infs": True,
            "jax_transfer_guard": "disallow", "jax_numpy_rank_promotion": "raise",
            "jax_numpy_dtype_promotion": "strict", "jax_enable_checks": True,
        }
        for k, (name, value) in enumerate(changed.items(), 2):
            called, compiled, usual = compile(k), compile(k + 50), getattr(jax.config, name)
            check(called, k)
            jax.config.update(name, value)
            check(called, k)
            check(compiled, k + 50)
            check(compile(k + 100), k + 100)
            assert getattr(jax.config, name) == value
            jax.config.update(name, usual)
            check(called, k)
            print(name)
    """
    assert len(new_process(script, tmp_path).split()) == 8


def test_jax_platforms_without_cpu_is_reported(tmp_path: Path) -> None:
    """The CPU is always there, unless JAX is told to leave it out: then it says which variable did so."""
    script = """
        from mgb.errors import BackendUnavailableError
        try:
            print(program(lambda x: x * 2 + 1, np.ones(3)).run(np.ones(3))[0][0])
        except BackendUnavailableError as error:
            print(error)
    """
    assert new_process(script, tmp_path, JAX_PLATFORMS="cpu").strip() == "3.0"
    said = new_process(script, tmp_path, JAX_PLATFORMS="tpu")
    assert "JAX_PLATFORMS='tpu' leaves out the CPU; set JAX_PLATFORMS='tpu,cpu'" in said


def test_gpu_memory_is_not_preallocated_by_default(tmp_path: Path) -> None:
    script = """
        import os
        x = np.ones(3)
        program(lambda x: x * 2 + 1, x).run(x)
        print(os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"])
    """
    assert new_process(script, tmp_path).strip() == "false"
    told = new_process(script, tmp_path, XLA_PYTHON_CLIENT_PREALLOCATE="true")
    assert told.strip() == "true"  # what the user said stays


def test_untested_jax_version_is_used_and_logged(tmp_path: Path) -> None:
    script = """
        import logging, jax
        from mgb_xla import client
        client.TESTED = ("0.0.1",)
        import sys
        logging.getLogger("mgb.xla").addHandler(logging.StreamHandler(sys.stdout))
        logging.getLogger("mgb.xla").setLevel(logging.INFO)
        x = np.ones(3)
        for k in range(2):
            print(program(lambda x: x * 2 + k, x).run(x)[0][0])
    """
    said = new_process(script, tmp_path).splitlines()
    assert len(said) == 3 and said[1:] == ["2.0", "3.0"]
    assert said[0].endswith("the tests are run with 0.0.1")


def test_kernels_of_other_xla_flags_are_not_loaded_from_disk(tmp_path: Path) -> None:
    script = """
        from mgb.executor import kernels
        x = np.linspace(0, 1, 5000)
        program(lambda x: x * 2 + 1, x).run(x)
        print(kernels.stats().compiles, kernels.stats().disk_hits)
    """
    flag, file = "--xla_cpu_enable_fast_min_max=true", tmp_path / "flags.txt"
    file.write_text("--xla_cpu_enable_fast_min_max=false\n")
    assert new_process(script, tmp_path).split() == ["1", "0"]
    for flags in (flag, str(file)):
        assert new_process(script, tmp_path, XLA_FLAGS=flags).split() == ["1", "0"]
        assert new_process(script, tmp_path, XLA_FLAGS=flags).split() == ["0", "1"]
    assert new_process(script, tmp_path).split() == ["0", "1"]


FORK = """
    import os, signal, sys, time
    from mgb.errors import CompileError
    x = np.ones((600, 600), np.float32)
    compiled = program(lambda x: x * 2 + 1, x)
    compiled.run(x)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # the child ends, whatever it waits for
        for ask in (lambda: compiled.run(x), lambda: program(lambda x: x * 3 + 2, x)):
            try:
                print("no error", ask())
            except RuntimeError as error:
                cause = error.__cause__ if type(error) is CompileError else error
                print(type(cause).__name__, "get_context" in str(error), str(os.getppid()) in str(error))
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(compiled.run(x)[0][5, 5])
"""


def test_forked_process_raises_after_xla_ran(tmp_path: Path) -> None:
    """Threads of XLA do not come along: calls and compilations would wait for ever."""
    said = new_process(FORK, tmp_path).split("\n")
    assert said[:3] == ["ForkedProcessError True True"] * 2 + ["3.0"]


def test_process_forked_before_xla_ran_works(tmp_path: Path) -> None:
    script = """
        import os, signal
        from mgb.backends.plugins import load_backend
        load_backend("xla").version()
        x = np.ones((600, 600), np.float32)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            ok = program(lambda x: x * 2 + 1, x).run(x)[0][0, 0] == 3
            os._exit(0 if ok else 1)
        print(os.waitpid(child, 0)[1], program(lambda x: x * 2 + 1, x).run(x)[0][5, 5])
    """
    assert new_process(script, tmp_path).strip() == "0 3.0"
