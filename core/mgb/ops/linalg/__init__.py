"""Ops on matrices: decompositions, and systems of linear equations."""
