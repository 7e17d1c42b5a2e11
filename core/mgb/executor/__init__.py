"""From a Graph to a Program that runs: kernels, memory, and the generated function."""

from .compile import compile_program
from .memory_config import DTRConfig, SublinearMemoryConfig
from .options import Options
from .plan import MemoryPlan
from .program import Program

__all__ = ["DTRConfig", "MemoryPlan", "Options", "Program", "SublinearMemoryConfig", "compile_program"]
