"""Random numbers as functions of a key and a counter."""
