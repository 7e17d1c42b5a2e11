"""Traced functions as files: what `dump` and `export` write, and what is made of it again."""
