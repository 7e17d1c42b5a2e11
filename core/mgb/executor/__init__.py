"""From a Graph to a Program that runs: kernels, memory, and the generated function."""

from .compile import compile_program
from .options import Options
from .plan import MemoryPlan
from .program import Program
from .remat.memory_config import DTRConfig, SublinearMemoryConfig

__all__ = ["DTRConfig", "MemoryPlan", "Options", "Program", "SublinearMemoryConfig", "compile_program"]
