"""Tools around whole models, under MegEngine's names."""

#: What a traced function may call of it: see `holding`.
__tracing__ = {"*": "impure"}
