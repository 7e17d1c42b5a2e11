"""Tools around whole models, under MegEngine's names."""
