"""Tools around whole models, under MegEngine's names: weights of PyTorch, and models of files as Modules."""

from .loaded_module import LoadedModule, load_module
from .torch_weights import load_torch_state_dict, torch_state_dict

__all__ = ["LoadedModule", "load_module", "load_torch_state_dict", "torch_state_dict"]

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}


def __dir__() -> list[str]:
    return __all__
